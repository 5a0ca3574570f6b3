//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.

#[cfg(feature = "http")]
mod anthropic;
#[cfg(feature = "http")]
mod body;
mod cassette;
#[cfg(feature = "http")]
mod errors;
#[cfg(feature = "http")]
mod exchange;
#[cfg(feature = "http")]
mod foreign;
#[cfg(feature = "http")]
mod gemini;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod names;
#[cfg(feature = "http")]
mod openai;
#[cfg(feature = "http")]
mod openai_chat;
#[cfg(feature = "http")]
mod openai_responses;
mod outline;
mod prices;
#[cfg(feature = "http")]
mod providers;
mod record;
mod replay;
mod scenario;
mod script;
mod scripted;
mod scrub;
#[cfg(feature = "http")]
mod secret;
#[cfg(feature = "http")]
mod setup;
#[cfg(feature = "http")]
mod sse;
#[cfg(feature = "http")]
mod strict;

#[cfg(feature = "http")]
pub use anthropic::{Anthropic, Thinking};
pub use cassette::CassetteError;
#[cfg(feature = "http")]
pub use gemini::Gemini;
#[cfg(feature = "http")]
pub use http::ModelBuilder;
#[cfg(feature = "http")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use openai_responses::OpenAiResponses;
pub use prices::{PriceFileError, bundled_prices, prices_with};
#[cfg(feature = "http")]
pub use providers::{PROVIDERS, open};
pub use record::Record;
pub use replay::Replay;
pub use scenario::ScenarioError;
pub use script::{Line, When};
pub use scripted::Scripted;
#[cfg(feature = "http")]
pub use secret::ApiKey;
#[cfg(feature = "http")]
pub use setup::SetupError;
