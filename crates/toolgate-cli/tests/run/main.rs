//! `toolgate run` as a person, a script and a pipe meet it: the real program, real tools, a real terminal.

mod approvals;
mod display;
mod interrupts;
mod pipes;
mod server;
mod world;
