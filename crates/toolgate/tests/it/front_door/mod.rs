//! The front door: the shortest program is the safe one, and what a gate owns is wired once.

mod ownership;
mod program;
mod questions;
mod reach;
mod settings;
mod stack_is_passed;
