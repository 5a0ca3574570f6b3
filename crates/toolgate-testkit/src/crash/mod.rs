//! Kills a process at chosen places, restarts it, and compares what came of it with a run that was never killed.
//!
//! A *scenario* is a program of yours that drives one session: it opens the store, takes the session up where it
//! stands, and goes on until there is nothing left to do. It runs in a child process, started by a *parent* that kills
//! it (`SIGKILL`), starts it again and looks at the store in between. What tools do to the world they write to an
//! [`EffectLog`], which no crash can take back.
//!
//! In the child, [`CrashChild`] says what to do and puts the planned kills and store errors in front of the store:
//!
//! ```no_run
//! # use toolgate_core::{MemoryStore, StoreHandle};
//! use toolgate_testkit::crash::{CrashChild, Ended};
//! # async fn drive(_: &CrashChild, _: StoreHandle) -> Ended { Ended::Done }
//! # async fn main_of_the_child() {
//! if let Some(child) = CrashChild::from_env() {
//!     let store = StoreHandle::new(child.store(MemoryStore::new())); // in earnest: the database at `child.place()`
//!     let ended = drive(&child, store).await;
//!     child.end(ended);
//! }
//! # }
//! ```
//!
//! In the parent, [`World`] runs cases: first without any mishap, to learn what the scenario does, then under
//! [`Mishaps`] made from seeds. Each case ends with a [`CaseReport`], and [`Table`] adds them up. The rules that are
//! checked are those of [`compare`] and [`kept`].

mod accounts;
mod child;
mod compare;
mod effects;
mod mishaps;
mod seen;
mod table;
mod talk;
mod world;

pub use child::{CrashChild, Ended};
pub use compare::{Facts, Repeats, compare, kept};
pub use effects::{Effect, EffectLog};
pub use mishaps::{Extent, Kill, Mishap, Mishaps, Trouble};
pub use seen::{Chains, Seen, SeenCall, SeenTurn};
pub use table::Table;
pub use talk::Talk;
pub use world::{CaseReport, World};
