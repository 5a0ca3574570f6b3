//! One session, two modes: the events of a run in managed mode, and the same events in host-driven
//! mode.
//!
//! Every scenario uses real layers and a scripted model. Its events, receipts and reports are a
//! snapshot; the same steps driven by a host have to produce the same, apart from
//! [`parity::DIFFERS`].
#![allow(unreachable_pub, reason = "a test has no public items")]

mod asked;
mod parity;
mod play;
mod play_host;
mod play_managed;
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
mod lost_host;
mod options;
mod run_messages;
mod runs;
mod strategies;
