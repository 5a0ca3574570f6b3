//! The async driver around `toolgate-core`.
//!
//! A [`Dispatcher`] takes in what a model asked for, sends the calls through a stack with a cap on how many run
//! at once, writes every event to the store before it is published on the [`Bus`], and reports what came of
//! them in the order the model asked. A turn can be interrupted, wait for decisions and results from outside,
//! and be taken up again by another process.
//!
//! The three types to know are [`Dispatcher`], [`TurnHandle`] and [`Bus`]. What a layer, a call or a turn is, and
//! which events may follow each other, is said in `toolgate-core`.

mod active;
mod bus;
mod clock;
mod dispatch;
mod drive;
mod handle;
mod holder;
mod inbox;
mod journal;
mod keeper;
mod lanes;
mod late;
mod lease;
mod posts;
mod recovery;
mod rehearse;
mod resume;

pub use bus::{Attached, Bus, Delivery, Follow, Subscription};
pub use clock::{SystemClock, TimeOrderedIds};
pub use dispatch::{
    CallResult, DispatchError, Dispatcher, DispatcherBuilder, OnFailure, TurnEnd, TurnReport, TurnRequest,
};
pub use drive::TurnRun;
pub use handle::{PostError, TurnHandle};
pub use inbox::{Inbox, Urgency};
pub use journal::{Journal, JournalError};
pub use recovery::{CallFound, FoundCall, Recovery, TurnFound};
