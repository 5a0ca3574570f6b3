//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod commands;
mod facts;
mod hosts;
mod judge;
mod limits;
mod lists;
mod options;
mod parts;
mod path_patterns;
mod paths;
mod policy;
mod rules;
mod scope;
mod secret_files;
mod shell;
mod validate;

pub use catalog::{BadOption, Configurable};
pub use judge::Judgement;
pub use limits::{Capability, ScopePolicy, Violation};
pub use lists::OneOrMany;
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use policy::Policy;
pub use rules::{Effect, Fallback, PolicyOptions, Rule};
pub use scope::{OnViolation, Scope, ScopeOptions};
pub use validate::{ParameterRule, Validate, ValidateOptions};
