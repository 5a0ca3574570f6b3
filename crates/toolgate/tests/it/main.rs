//! Tests of the facade: approvals, receipts, crashes, and both modes of a session. One program, so
//! that it is linked once.

mod access;
mod approval_boundary;
mod approval_flow;
mod approval_service;
mod approval_world;
mod approver_identity;
mod billing;
mod budget_alerts;
mod cached_effects;
mod canaries;
mod clock_jumps;
mod crash;
mod errors;
mod evidence;
mod exports;
mod front_door;
mod handoffs;
mod memory;
mod modes;
mod one_process;
mod one_receipt;
mod patches;
mod prelude;
mod search;
mod sessions;
mod shared_quotas;
mod shell_turns;
