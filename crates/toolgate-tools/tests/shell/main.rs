//! The shell tool, tried with commands that want out of their sandbox, and with ones that do not want to end.
#![cfg(target_os = "linux")]

mod attacks;
mod basics;
mod endings;
mod escapes;
mod host;
mod limits;
mod refusals;
mod support;
