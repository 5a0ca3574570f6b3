//! The commands, one file each: what can be said to it, and what it does.

pub mod completions;
pub mod run;
