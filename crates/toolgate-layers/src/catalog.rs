//! Layer names for configuration files.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toolgate_core::Layer;

use crate::Parts;

/// A layer that a configuration file can name.
pub trait Configurable: Layer + Sized {
    /// What a configuration file calls it.
    const NAME: &'static str;

    /// What it does, in one line.
    const SUMMARY: &'static str;

    /// What can be set. An unknown key is refused, so derive it with `deny_unknown_fields` and `default`.
    type Options: DeserializeOwned + JsonSchema + Default;

    /// Makes the layer from its options and the parts that no file can hold.
    fn configure(options: Self::Options, parts: &Parts) -> Result<Self, BadOption>;
}

/// An option has a value that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// Which option.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl BadOption {
    /// Says what is wrong with an option.
    pub fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self { key, problem: problem.into() }
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl std::error::Error for BadOption {}
