//! Builds a session from the options of a command: model, tools, rules, agents and input.

mod agents;
pub(crate) mod arguments;
pub(crate) mod gate;
pub(crate) mod input;
mod isolation;
pub(crate) mod model;
pub(crate) mod preview;
mod rules;
pub(crate) mod session_args;
mod tools;
