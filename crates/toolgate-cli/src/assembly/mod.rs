//! Builds a session from the options of a command: gate, model, rules and input.

pub(crate) mod arguments;
pub(crate) mod gate_args;
pub(crate) mod input;
mod rules;
pub(crate) mod session_args;
pub(crate) mod stored_options;
mod take_over;
