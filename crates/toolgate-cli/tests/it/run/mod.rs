//! `toolgate run` for a user, a script and a pipe: the real program, real tools, a real terminal.

mod approvals;
mod display;
mod echoes;
mod interrupts;
mod outputs;
mod pipes;
mod rules;
mod server;
pub(crate) mod world;
