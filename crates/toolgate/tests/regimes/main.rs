//! One session, two regimes: what happens when Toolgate drives a run, and that the same happens when a host does.
//!
//! Every scenario is played with real layers and a scripted model. Its events, receipts and reports are a snapshot; the
//! same steps driven by a host have to lead to the same, apart from [`parity::DIFFERS`].
#![allow(unreachable_pub, reason = "a test has no public items")]

mod asked;
mod parity;
mod play;
mod play_core;
mod play_host;
mod scenario;
mod stage;
mod tools;
mod transcript;
mod world;

mod agents;
mod armed;
mod calls;
mod decisions;
mod failures;
mod interruptions;
mod limits;
mod options;
mod runs;
mod strategies;
