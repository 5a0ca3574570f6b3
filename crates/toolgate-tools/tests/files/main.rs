//! The file tools, through a registry and a stack, on real files.

mod common;
mod editing;
mod looking;
