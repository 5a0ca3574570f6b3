//! Google's Gemini.

mod decode;
pub(super) mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use crate::{
    ModelBuilder,
    wire::{
        body::ViewCache,
        exchange::stream_reply,
        http::{AuthScheme, ModelEndpoint, WireSetup},
    },
};
use decode::GeminiDecoder;

/// The name of the wire format, as native items are tagged with it.
pub(crate) const WIRE: &str = "gemini";

/// A model of Google, requested through `streamGenerateContent`.
///
/// Every part of a reply is stored as it came and sent back verbatim, signatures of thoughts
/// included. The key comes from `GEMINI_API_KEY` unless one is given, and is sent in a header.
///
/// Calls without an id get one that is unique in the conversation, and are answered by name and
/// order. Models before Gemini 3 accept neither images within a result nor a schema of the final
/// answer beside tools: there, images follow the results, and the schema is put into the
/// instructions. The API has no setting for parallel calls, so
/// [`parallel_calls`](ModelRequest::parallel_calls) has no effect; neither has
/// [`cache`](ModelRequest::cache), as Google caches by itself.
///
/// ```
/// use toolgate_models::{ApiKey, Gemini};
/// let model = Gemini::builder("gemini-3-pro-preview").key(ApiKey::new("AIza-hunter2")?).build()?;
/// assert!(!format!("{model:?}").contains("hunter2"));
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Gemini {
    endpoint: ModelEndpoint,
    age: GeminiFamily,
    tools: ViewCache,
}

/// The capabilities of a model, as far as its name implies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GeminiFamily {
    /// Before 2.5: the model does not think.
    Plain,
    /// 2.5: the model thinks by a token budget, which only the `flash` models can set to zero.
    ThinkingBudget { quick: bool },
    /// 3 and later: the model thinks by level.
    ThinkingLevel,
}

impl Gemini {
    /// Configures a model by the name that Google gives it.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            WireSetup {
                provider: "google",
                base_url: Some("https://generativelanguage.googleapis.com"),
                key_variable: "GEMINI_API_KEY",
                auth: AuthScheme::Header("x-goog-api-key"),
                make: Self::new,
            },
        )
    }

    fn new(endpoint: ModelEndpoint) -> Self {
        let model = endpoint.name().model.clone();
        // A tuned model is named with its folder, as in `tunedModels/mine`.
        let (folder, name) = model.rsplit_once('/').unwrap_or(("models", &model));
        let method = format!("{name}:streamGenerateContent");
        let path = ["v1beta"]
            .into_iter()
            .chain(folder.split('/'))
            .chain([method.as_str()]);
        let endpoint = endpoint.with_path(path).with_query("alt", "sse");
        Self {
            endpoint,
            age: GeminiFamily::for_model(&model),
            tools: ViewCache::default(),
        }
    }
}

impl GeminiFamily {
    fn for_model(model: &str) -> Self {
        let is = |versions: &[&str]| versions.iter().any(|version| model.contains(version));
        match model {
            _ if is(&["gemini-2.5"]) => Self::ThinkingBudget {
                quick: model.contains("flash"),
            },
            _ if is(&["gemini-1", "gemini-2", "gemma"]) => Self::Plain,
            _ => Self::ThinkingLevel,
        }
    }
}

impl Model for Gemini {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        stream_reply(
            &self.endpoint,
            self.encode_request(request),
            GeminiDecoder::new(request),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_name_determines_the_capabilities() {
        for (model, age) in [
            ("gemini-1.5-pro", GeminiFamily::Plain),
            ("gemini-2.0-flash", GeminiFamily::Plain),
            (
                "gemini-2.5-flash-lite",
                GeminiFamily::ThinkingBudget { quick: true },
            ),
            (
                "gemini-2.5-pro",
                GeminiFamily::ThinkingBudget { quick: false },
            ),
            ("gemini-3-pro-preview", GeminiFamily::ThinkingLevel),
            ("gemini-next", GeminiFamily::ThinkingLevel),
        ] {
            assert_eq!(GeminiFamily::for_model(model), age, "{model}");
        }
    }
}
