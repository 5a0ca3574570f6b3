//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod bundled;
mod catalog;
mod config;
mod config_error;
mod detectors;
mod explain;
mod lint;
mod options;
mod parts;
mod redact;
mod secrets;
mod timeout;

pub use catalog::{BadOption, Catalog, CatalogEntry, Configurable};
pub use config::{Config, StackSection, default_stack};
pub use config_error::ConfigError;
pub use explain::{Explained, ExplainedLayer, Explanation, explain};
pub use lint::{Finding, lint};
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use redact::{Phase, Redact, RedactOptions};
pub use secrets::{Secrets, SecretsOptions};
pub use timeout::{Timeout, TimeoutOptions};
