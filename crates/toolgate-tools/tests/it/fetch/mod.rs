//! Tests of fetching, with hostile servers and with names of private addresses.
#![cfg(feature = "http")]

mod pages;
mod refusals;
mod server;
