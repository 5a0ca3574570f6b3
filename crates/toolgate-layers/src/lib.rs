//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod options;
mod parts;

pub use catalog::{BadOption, Configurable};
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
