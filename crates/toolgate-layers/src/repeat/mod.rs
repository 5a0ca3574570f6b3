//! Layers that retry a call, or answer it without running it. They never request a second approval.

pub(crate) mod circuit_breaker;
pub(crate) mod idempotency;
pub(crate) mod retry;
