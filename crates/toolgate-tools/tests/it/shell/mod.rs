//! Tests of the shell tool, with commands that try to escape the sandbox or do not terminate.
#![cfg(target_os = "linux")]

mod acting_files;
mod attacks;
mod basics;
mod endings;
mod escapes;
mod host;
mod limits;
mod refusals;
mod secrets;
mod support;
