//! The front door: the shortest program is the safe one, and what a gate owns is wired once.

mod edited_arguments;
mod ownership;
mod program;
mod project_instructions;
mod questions;
#[cfg(feature = "tools")]
mod reach;
mod run_limits;
mod second_attempts;
mod settings;
mod stack_is_passed;
