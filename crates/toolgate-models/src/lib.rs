//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.

mod scenario;
mod script;
mod scripted;

pub use scenario::ScenarioError;
pub use script::{Line, When};
pub use scripted::Scripted;
