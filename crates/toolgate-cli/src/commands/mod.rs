//! The commands, one file or folder each: arguments, help texts and implementation.

pub mod approvals;
pub mod budget;
pub mod chat;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod import;
pub mod init;
pub mod man;
pub mod memory;
pub mod receipts;
pub mod run;
pub mod search;
pub mod sessions;
pub mod stack;
pub mod tools;
