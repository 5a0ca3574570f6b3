//! Search: queries, and the static model that turns texts into vectors.

pub(super) mod embeddings;
pub(super) mod query;
