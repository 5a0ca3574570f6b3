//! Toolgate runs tools for a model: it decides, executes, records, and can stop half-way and resume.
//!
//! This is the one crate to add. Everything here comes from the other crates.

pub use toolgate_core::*;
pub use toolgate_macros::tool;

/// What the code written by `#[tool]` names. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use toolgate_core;
}
