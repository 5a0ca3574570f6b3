//! Help, user errors, and the commands that show and check the set-up.

mod calls;
mod config;
mod doctor;
mod help;
mod hooks;
mod init;
mod memory;
mod mistakes;
mod place;
mod terminal;
mod tool_names;

use place::AdminPlace;
