//! The outermost band: layers that record each call, including calls that other layers block.

pub(crate) mod ledger;
mod passage;
pub(crate) mod receipts;
pub(crate) mod summary;
pub(crate) mod telemetry;
pub(crate) mod ui;
