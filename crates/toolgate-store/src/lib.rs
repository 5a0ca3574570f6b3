//! Where sessions, approvals and receipts are kept.

pub use toolgate_core::MemoryStore;
