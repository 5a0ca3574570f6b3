//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.

mod cassette;
mod outline;
mod record;
mod replay;
mod scenario;
mod script;
mod scripted;
mod scrub;

pub use cassette::CassetteError;
pub use record::Record;
pub use replay::Replay;
pub use scenario::ScenarioError;
pub use script::{Line, When};
pub use scripted::Scripted;
