//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod errors;
#[cfg(feature = "http")]
mod exchange;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod secret;
#[cfg(feature = "http")]
mod setup;
#[cfg(feature = "http")]
mod sse;

#[cfg(feature = "http")]
pub use http::ModelBuilder;
#[cfg(feature = "http")]
pub use secret::ApiKey;
#[cfg(feature = "http")]
pub use setup::SetupError;
mod scenario;
mod script;
mod scripted;

pub use scenario::ScenarioError;
pub use script::{Line, When};
pub use scripted::Scripted;
