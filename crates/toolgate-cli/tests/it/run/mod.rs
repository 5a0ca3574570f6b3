//! `toolgate run` for a user, a script and a pipe: the real program, real tools, a real terminal.

mod addresses;
mod approvals;
mod display;
mod echoes;
mod instructions;
mod interrupts;
mod outputs;
mod pipes;
mod resume;
mod rules;
mod server;
mod tmux;
mod words;
pub(crate) mod world;
