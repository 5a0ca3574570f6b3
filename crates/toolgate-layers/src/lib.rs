//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod detectors;
mod options;
mod parts;
mod redact;
mod secrets;
mod timeout;

pub use catalog::{BadOption, Configurable};
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use redact::{Phase, Redact, RedactOptions};
pub use secrets::{Secrets, SecretsOptions};
pub use timeout::{Timeout, TimeoutOptions};
