//! The shell tool, tried with commands that want out of their sandbox, and with ones that do not want to end.
#![cfg(target_os = "linux")]

mod support;

mod basics;
