//! The terminal UI of `toolgate chat`.
//!
//! [`ChatApp`] is the state, [`update`] changes it and returns effects, [`draw`] shows it. All three
//! are free of input and output; the driver feeds keys and events in and carries out the
//! [`UiEffect`]s. What is shown of a session comes from its lifecycle events alone
//! ([`SessionScreen`](crate::show::screen::SessionScreen)).

mod app;
mod approvals;
mod completion;
mod driver;
mod effects;
mod files;
mod input;
mod message;
mod offers;
mod opener;
mod palette;
mod search;
mod session_hits;
mod slash;
#[cfg(test)]
mod stage;
mod terminal;
mod text;
mod transcript;
mod update;
mod view;

pub use app::{ChatApp, ChatSetup};
pub(crate) use driver::{ChatOpening, run_chat};
pub(crate) use effects::current_time;
pub use message::{SessionChange, SessionChoice, UiEffect, UiMessage};
pub(crate) use opener::SessionOpener;
pub use session_hits::{SessionHit, SessionHits, ShownHit};
pub use update::update;
pub use view::draw;
