//! Shows sessions: the live display, the terminal UI and the folds over the event log below them.

pub(crate) mod agent_sessions;
pub(crate) mod entitlement;
pub mod feed;
pub(crate) mod hit_origins;
pub mod keys;
pub(crate) mod live;
pub(crate) mod project_notice;
pub mod render;
pub(crate) mod rule_proposal;
pub mod screen;
pub(crate) mod stored_requests;
pub mod tui;
pub(crate) mod whole_texts;
