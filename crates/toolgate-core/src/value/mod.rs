//! Values without behaviour of their own: JSON, schemas, digests, ids, labels, times and
//! the names of files that act later.

pub(crate) mod acting_files;
pub(crate) mod canonical;
pub(crate) mod clock;
pub(crate) mod diff;
pub(crate) mod digest;
pub(crate) mod duration;
pub(crate) mod ids;
pub(crate) mod json;
pub(crate) mod labels;
pub(crate) mod pointer;
pub(crate) mod schema;
mod schema_dialect;
pub(crate) mod text;
