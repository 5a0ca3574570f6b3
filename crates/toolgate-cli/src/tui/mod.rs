//! The terminal UI of `toolgate chat`.
//!
//! [`App`] is what it knows, [`update`] changes that and says what is to be done, [`draw`] shows it. All three are free
//! of input and output; the driver feeds keys and events in and carries out the [`Effect`]s. What is shown of a session
//! comes from its lifecycle events alone ([`Screen`](crate::screen::Screen)).

mod app;
mod approvals;
mod carry;
mod drive;
mod export;
mod input;
pub mod keys;
mod msg;
mod palette;
mod search;
#[cfg(test)]
mod stage;
mod terminal;
mod text;
mod transcript;
mod update;
#[cfg(test)]
mod update_tests;
mod view;
#[cfg(test)]
mod view_tests;

pub use app::{App, Setup};
pub(crate) use drive::{Opening, run};
pub use msg::{Effect, Msg};
pub use update::update;
pub use view::draw;
