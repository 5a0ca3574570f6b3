//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.
//!
//! Everything here is a [`Model`](toolgate_core::Model): it is asked with a request and streams pieces of a reply, and at
//! last the whole. `open` finds one by its name and takes keys from the environment; the builders
//! (`OpenAiResponses::builder`, `OpenAiChat::compatible`…) take them from code. [`Scripted`] needs no network, and
//! [`Record`] and [`Replay`] keep what a real model said for the next time.
//!
//! ```
//! use futures::StreamExt;
//! use toolgate_core::{Delta, Message, Model, ModelRequest};
//! use toolgate_models::{Line, Scripted};
//!
//! # futures::executor::block_on(async {
//! let model = Scripted::new([Line::new().say("Four files.")]);
//! let request = ModelRequest { messages: vec![Message::user("What is here?").into()], ..ModelRequest::default() };
//! let mut reply = model.reply(&request);
//! while let Some(Ok(delta)) = reply.next().await {
//!     if let Delta::Done(whole) = delta {
//!         assert_eq!(whole.message.text(), "Four files.");
//!     }
//! }
//! # });
//! ```
//!
//! Choosing among models, trying again after an error, counting what replies cost and running what they ask for is left to
//! the runtime. No key ever becomes part of an error, a `{:?}` or a recording.

#[cfg(feature = "http")]
mod anthropic;
#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod builder;
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
#[cfg(feature = "http")]
pub use builder::ModelBuilder;
pub use cassette::CassetteError;
#[cfg(feature = "http")]
pub use gemini::Gemini;
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
