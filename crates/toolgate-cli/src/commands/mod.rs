//! The commands, one file each: what can be said to it, and what it does.

pub mod chat;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod man;
pub mod stack;
pub mod tools;
