//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod options;
mod parts;

mod approval;
mod approvers;
mod budget;
mod catch_panic;
mod circuit_breaker;
mod dry_run;
mod idempotency;
mod ledger;
mod loop_guard;
mod loop_history;
mod owner;
mod rate_limit;
mod rate_window;
mod retry;
mod single_flight;
mod tool_globs;
#[cfg(test)]
mod try_out;

pub use catalog::{BadOption, Configurable};
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};

pub use approval::{Approval, ApprovalOptions, AskWhen};
pub use approvers::{FirstOf, Fixed, NoName, Prompt, Suspend};
pub use budget::{Budget, BudgetOptions, OnUnknownCost};
pub use catch_panic::{CatchPanic, CatchPanicOptions};
pub use circuit_breaker::{CircuitBreaker, CircuitBreakerOptions};
pub use dry_run::{DryRun, DryRunOptions};
pub use idempotency::{Idempotency, IdempotencyKeyBy, IdempotencyOptions};
pub use ledger::{BudgetAccount, BudgetRefusal, Ledger, LedgerDown, MemoryLedger, Reservation, SharedLedger};
pub use loop_guard::{LoopGuard, LoopGuardOptions};
pub use rate_limit::{CallsPer, RateLimit, RateLimitOptions, RateScope};
pub use retry::{Retry, RetryOptions};
