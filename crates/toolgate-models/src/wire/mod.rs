//! Shared by all providers on the wire: HTTP, server-sent events, bodies and errors.

#[cfg(feature = "http")]
pub(crate) mod body;
#[cfg(feature = "http")]
pub(crate) mod errors;
#[cfg(feature = "http")]
pub(crate) mod exchange;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod secret;
#[cfg(feature = "http")]
pub(crate) mod sse;
