//! Tests of the bundled layers and their configuration. One program, so that it is linked only
//! once.

mod acting_commands;
mod acting_files;
mod budgets;
mod closing;
mod config;
mod config_changes;
mod explain;
mod ledger_tampering;
mod lint;
mod network_commands;
mod patches;
mod policy;
mod policy_commands;
mod receipt_canaries;
mod repeat_and_bound;
mod requirements;
mod scope;
mod secrets;
mod telemetry_otlp;
mod timeout;
mod waiting;
