//! One run of a session: the loop from an input to a typed end, in managed and host-driven mode.

pub(crate) mod armed;
mod drive;
mod exchange;
pub(crate) mod host_model;
pub(crate) mod hosted;
mod live_pieces;
mod request;
pub(crate) mod steps;
mod strategies;
mod time_limit;
