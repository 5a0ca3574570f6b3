//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod limits;
mod lists;
mod options;
mod parts;
mod scope;
mod validate;

pub use catalog::{BadOption, Configurable};
pub use limits::{Capability, ScopePolicy, Violation};
pub use lists::OneOrMany;
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use scope::{OnViolation, Scope, ScopeOptions};
pub use validate::{ParameterRule, Validate, ValidateOptions};
