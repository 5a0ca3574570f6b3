//! Matchers for the conditions of a rule: paths, commands, hosts, patches and secret files.

pub(crate) mod acting_files;
pub(crate) mod commands;
pub(crate) mod git_config;
pub(crate) mod host_words;
pub(crate) mod hosts;
pub(crate) mod installing_commands;
pub(crate) mod network_commands;
pub(crate) mod patch_names;
pub(crate) mod path_patterns;
pub(crate) mod paths;
mod program_options;
mod program_runners;
mod programs;
pub(crate) mod reading_commands;
pub(crate) mod secret_files;
pub(crate) mod shell;
pub(crate) mod write_targets;
