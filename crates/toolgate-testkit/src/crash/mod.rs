//! Kills a process at chosen points, restarts it, and compares the outcome with a run that was
//! never killed.
//!
//! A *scenario* is a program of yours that drives one session: it opens the store, resumes the
//! session, and continues until there is nothing left to do. It runs in a child process, started by
//! a *parent* that kills it (`SIGKILL`), starts it again and inspects the store in between. Tools
//! write their effects to an [`EffectLog`], which survives every crash.
//!
//! In the child, [`CrashChild`] holds the order and puts the planned kills and store errors in
//! front of the store:
//!
//! ```no_run
//! # use toolgate_core::{MemoryStore, StoreHandle};
//! use toolgate_testkit::crash::{CrashChild, ChildEnd};
//! # async fn drive(_: &CrashChild, _: StoreHandle) -> ChildEnd { ChildEnd::Done }
//! # async fn main_of_the_child() {
//! if let Some(child) = CrashChild::from_env() {
//!     let store = StoreHandle::new(child.wrap_store(MemoryStore::new())); // in a real test: the database at `child.place()`
//!     let ended = drive(&child, store).await;
//!     child.exit_with(ended);
//! }
//! # }
//! ```
//!
//! In the parent, [`CrashWorld`] runs cases: first without any mishap, to learn what the scenario does,
//! then under [`MishapPlan`] made from seeds. Each case ends with a [`CaseReport`], and [`CrashTable`] adds
//! them up. The rules that are checked are those of [`compare_runs`] and [`find_losses`].

mod accounts;
mod child;
mod compare;
mod conversation;
mod effects;
mod mishaps;
mod snapshot;
mod table;
mod world;

pub use child::{ChildEnd, CrashChild};
pub use compare::{RepeatRule, ScenarioFacts, compare_runs, find_losses};
pub use conversation::ConversationSnapshot;
pub use effects::{EffectLog, LoggedEffect};
pub use mishaps::{ChildMishap, KillPoint, MishapPlan, ProcessExtent, StoreTrouble};
pub use snapshot::{CallSnapshot, LedgerChains, SessionSnapshot, TurnSnapshot};
pub use table::CrashTable;
pub use world::{CaseReport, CrashWorld};
