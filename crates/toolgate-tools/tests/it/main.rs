//! Tests of the built-in tools: files, shell, fetch. One program, so that it is linked once.

mod fetch;
mod files;
mod shell;
