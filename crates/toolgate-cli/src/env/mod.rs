//! The surroundings of a command: directories, configuration files, output and time.

pub(crate) mod confirm;
pub(crate) mod context;
pub(crate) mod holders;
pub mod ids;
pub(crate) mod output;
pub mod paths;
pub(crate) mod runtime;
pub mod signals;
pub(crate) mod style;
pub(crate) mod times;
