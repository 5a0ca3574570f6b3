//! Fetching, tried on a server that does what servers should not, and on names that lead where nobody should go.
#![cfg(feature = "http")]

mod pages;
mod refusals;
mod server;
