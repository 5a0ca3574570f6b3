//! Google's Gemini.

mod decode;
mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use crate::{
    ModelBuilder,
    body::ViewCache,
    exchange::exchange,
    http::{Auth, Endpoint, WireSetup},
};
use decode::ContentDecoder;

/// The wire format, as native items are marked with.
pub(crate) const WIRE: &str = "gemini";

/// A model of Google, asked through `streamGenerateContent`.
///
/// Every part of a reply is kept as it came and given back verbatim, signatures of thoughts included. The key comes from
/// `GEMINI_API_KEY` unless one is given, and is sent in a header.
///
/// Calls that come without an id get one that no other call of the conversation has, and are answered by name and order.
/// Models before Gemini 3 take no pictures within a result and no schema of the final answer beside tools: there,
/// pictures follow the results, and the schema is put into the instructions. Whether calls may come in parallel cannot
/// be said to the API, so [`parallel_calls`](ModelRequest::parallel_calls) has no effect; neither has
/// [`cache`](ModelRequest::cache), as Google keeps what was sent by itself.
///
/// ```
/// use toolgate_models::{ApiKey, Gemini};
/// let model = Gemini::builder("gemini-3-pro-preview").key(ApiKey::new("AIza-hunter2")?).build()?;
/// assert!(!format!("{model:?}").contains("hunter2"));
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Gemini {
    endpoint: Endpoint,
    age: Age,
    tools: ViewCache,
}

/// What a model can do, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Before 2.5: it does not think.
    Plain,
    /// 2.5: it thinks by a number of tokens, which only the quick ones can be told to be none.
    Budget { quick: bool },
    /// 3 and later: it thinks by level.
    Level,
}

impl Gemini {
    /// Sets up a model by the name that Google gives it.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            WireSetup {
                provider: "google",
                base_url: Some("https://generativelanguage.googleapis.com"),
                key_variable: "GEMINI_API_KEY",
                auth: Auth::Header("x-goog-api-key"),
                make: Self::new,
            },
        )
    }

    fn new(endpoint: Endpoint) -> Self {
        let model = endpoint.name().model.clone();
        // A model of one's own is named with its folder, as in `tunedModels/mine`.
        let (folder, name) = model.rsplit_once('/').unwrap_or(("models", &model));
        let method = format!("{name}:streamGenerateContent");
        let path = ["v1beta"]
            .into_iter()
            .chain(folder.split('/'))
            .chain([method.as_str()]);
        let endpoint = endpoint.at(path).with_query("alt", "sse");
        Self {
            endpoint,
            age: Age::of(&model),
            tools: ViewCache::default(),
        }
    }
}

impl Age {
    fn of(model: &str) -> Self {
        let is = |versions: &[&str]| versions.iter().any(|version| model.contains(version));
        match model {
            _ if is(&["gemini-2.5"]) => Self::Budget {
                quick: model.contains("flash"),
            },
            _ if is(&["gemini-1", "gemini-2", "gemma"]) => Self::Plain,
            _ => Self::Level,
        }
    }
}

impl Model for Gemini {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        exchange(
            &self.endpoint,
            self.body(request),
            ContentDecoder::new(request),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_tells_what_it_can_do() {
        for (model, age) in [
            ("gemini-1.5-pro", Age::Plain),
            ("gemini-2.0-flash", Age::Plain),
            ("gemini-2.5-flash-lite", Age::Budget { quick: true }),
            ("gemini-2.5-pro", Age::Budget { quick: false }),
            ("gemini-3-pro-preview", Age::Level),
            ("gemini-next", Age::Level),
        ] {
            assert_eq!(Age::of(model), age, "{model}");
        }
    }
}
