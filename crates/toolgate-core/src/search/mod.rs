//! Search over sessions: the pure parts, and the service that uses a store.

pub(crate) mod answer;
pub(crate) mod document;
pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod indexing;
pub(crate) mod query;
pub(crate) mod rank;
pub(crate) mod service;
pub(crate) mod snippet;
pub(crate) mod terms;
pub(crate) mod vectors;
pub(crate) mod words;
