//! Bodies of rows: written without what they repeat, and completed when they are read.

mod events;
mod shortened;

pub(in crate::sqlite) use self::{
    events::EventBodies,
    shortened::{EncodedEntry, RecordBodies, ShortBodies},
};
