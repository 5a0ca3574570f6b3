//! Inspects a stack without running it: hazards, order, and the verdict on one call.

pub(crate) mod describe;
pub(crate) mod explain;
pub(crate) mod lint;
pub(crate) mod tool_names;
