//! Test support for programs built with Toolgate.
//!
//! * [`call`], [`echo`], [`echo_under`], [`FakeExecutor`]: a call, executors and stacks in one line.
//! * [`TestClock`], [`CountingIds`]: time and ids under the control of a test.
//! * [`LetterEmbedder`]: vectors without a model.
//! * [`run_twice`]: sends a call through a layer again, as happens after every suspension.
//! * [`LifecycleChecker`]: checks any stream of events against the rules.
//! * [`FaultyStore`]: a store that fails, waits or kills the process where a test wants it to.
//! * [`WordEmbedder`]: vectors for tests of search, from the words of a text.
//! * [`crash`]: kills a process at chosen points, restarts it and compares the outcome with a run
//!   that was never killed.
//! * `PostgresServer` (on Linux): a server of its own for a test that stops, kills or pauses it.
//! * `terminal` (feature `terminal`): runs a program in a real pseudo terminal, types, and reads the screen.
//! * [`conformance`]: suites for your own store, executor or screen.
//!
//! ```
//! use toolgate_core::{Outcome, Refusal, Status, from_fn};
//! use toolgate_testkit::{call, echo_under};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let closed = from_fn(async |_call, _next| Outcome::refused(Refusal::Blocked, "closed"));
//! assert_eq!(echo_under(closed).run(call("echo")).await.status(), Some(Status::Blocked));
//! # });
//! ```

mod clock;
pub mod conformance;
pub mod crash;
mod embedder;
mod fakes;
mod faults;
mod lifecycle;
#[cfg(target_os = "linux")]
mod postgres_server;
mod read_count;
#[cfg(all(unix, feature = "terminal"))]
pub mod terminal;
mod twice;

pub use clock::{CountingIds, TestClock};
pub use embedder::{LetterEmbedder, WordEmbedder};
pub use fakes::{
    AskFirst, EchoExecutor, FakeExecutor, ReportProbe, authenticated, call, call_with, echo,
    echo_under, env_at, keyring_with, plain_view, seed, seed_for,
};
pub use faults::{FaultyStore, StoreCall, StoreFault, kill_this_process};
pub use lifecycle::{LifecycleChecker, LifecycleSummary, LifecycleViolation};
#[cfg(target_os = "linux")]
pub use postgres_server::PostgresServer;
pub use read_count::ReadCount;
pub use twice::{TwoPasses, run_twice};
