//! The wire formats against the official clients of the providers, over HTTP on loopback.
//!
//! A stub server in Python (`tests/peers`) checks every request with the types of the clients and
//! builds every answer from them. `TOOLGATE_TEST_PYTHON` names the Python that has the clients;
//! `cargo xtask test` sets it up.

#![cfg(feature = "http")]

mod anthropic;
mod failures;
mod gemini;
mod openai_chat;
mod openai_responses;
mod peer;
mod recorded;
mod requests;
mod streams;
