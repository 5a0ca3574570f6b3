//! Layers that rewrite calls and results. They are outside the layers that decide.

pub(crate) mod handoff;
pub(crate) mod hooks;
pub(crate) mod output_cap;
pub(crate) mod redact;
pub(crate) mod require_reason;
