//! The file tools, through a registry and a stack, on real files.

mod attacks;
mod common;
mod crashes;
mod editing;
mod looking;
mod patching;
#[cfg(unix)]
mod races;
mod rehearsing;
mod undoing;
