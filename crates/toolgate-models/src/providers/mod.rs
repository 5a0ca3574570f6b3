//! Models by name: each provider, its environment variables, and the model they configure.

#[cfg(feature = "http")]
pub(crate) mod anthropic;
#[cfg(feature = "http")]
pub(crate) mod builder;
#[cfg(feature = "http")]
mod foreign_call;
#[cfg(feature = "http")]
pub(crate) mod gemini;
#[cfg(feature = "http")]
pub(crate) mod local_servers;
#[cfg(feature = "http")]
pub(crate) mod openai_chat;
#[cfg(feature = "http")]
pub(crate) mod openai_responses;
#[cfg(feature = "http")]
mod openai_shared;
#[cfg(feature = "http")]
pub(crate) mod setup;
#[cfg(feature = "http")]
mod strict_schema;
#[cfg(feature = "http")]
pub(crate) mod tool_dialect;
#[cfg(feature = "http")]
mod tool_names;

use std::{sync::Arc, time::Duration};

use toolgate_core::{Model, ModelName};

use crate::{Anthropic, ApiKey, Gemini, ModelBuilder, OpenAiChat, OpenAiResponses, SetupError};

/// The provider names that [`open_model`] knows.
pub const PROVIDERS: [&str; 8] = [
    "openai",
    "openai-chat",
    "anthropic",
    "google",
    "ollama",
    "vllm",
    "llama-cpp",
    "compatible",
];

/// The environment variables that hold keys of providers.
pub const KEY_VARIABLES: [&str; 7] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "COMPATIBLE_API_KEY",
    "VLLM_API_KEY",
    "LLAMA_CPP_API_KEY",
];

/// Opens a model by its name, with keys and addresses from the environment.
///
/// | Provider | Speaks | Variables |
/// |---|---|---|
/// | `openai` | responses | `OPENAI_API_KEY`, `OPENAI_BASE_URL` |
/// | `openai-chat` | chat completions | `OPENAI_API_KEY`, `OPENAI_BASE_URL` |
/// | `anthropic` | messages | `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL` |
/// | `google` | Gemini | `GEMINI_API_KEY` or `GOOGLE_API_KEY`; `GEMINI_BASE_URL` |
/// | `ollama` | chat completions | `OLLAMA_HOST`, or `127.0.0.1:11434` |
/// | `vllm` | chat completions | `VLLM_BASE_URL`, or `http://127.0.0.1:8000/v1`; `VLLM_API_KEY` if it wants one |
/// | `llama-cpp` | chat completions | `LLAMA_CPP_BASE_URL`, or `http://127.0.0.1:8080/v1`; `LLAMA_CPP_API_KEY` if it wants one |
/// | `compatible` | chat completions | `COMPATIBLE_BASE_URL`; `COMPATIBLE_API_KEY` if it wants one |
///
/// `TOOLGATE_MODEL_START_TIMEOUT` and `TOOLGATE_MODEL_IDLE_TIMEOUT` set for every provider how many seconds
/// a server may take to begin its response (300 by default) and may be silent in the middle of it (120).
///
/// A name never contains an address: names come from configurations and requests, and none of them
/// may decide where a key is sent. For another address use [`open_model_at`], and for a second server of
/// the same kind the builders.
///
/// ```
/// let error = toolgate_models::open_model(&"opnai:gpt-5".parse()?).err().expect("misspelt");
/// assert!(error.to_string().contains("did you mean openai?"));
/// # Ok::<(), toolgate_core::InvalidModelName>(())
/// ```
pub fn open_model(name: &ModelName) -> Result<Arc<dyn Model>, SetupError> {
    open_model_at(name, &ModelAddress::default())
}

/// An address of a provider beside the one in its environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelAddress {
    /// Used in place of the variable.
    pub chosen: Option<String>,
    /// Used if there is neither a chosen address nor a variable.
    pub configured: Option<String>,
}

impl ModelAddress {
    fn resolve(&self, variable: Option<String>) -> Option<String> {
        let chosen = self.chosen.clone().or(variable);
        chosen.or_else(|| self.configured.clone())
    }
}

/// Opens a model like [`open_model`], at an address that the caller gives.
///
/// The key of the provider is sent to that address. So it has to come from the user, or from a file
/// that the user trusts, and it must be meant for this provider.
///
/// # Errors
///
/// Fails like [`open_model`], and if the address is not a URL or contains a password.
pub fn open_model_at(
    name: &ModelName,
    address: &ModelAddress,
) -> Result<Arc<dyn Model>, SetupError> {
    open_model_in(name, &|variable| {
        let value = read_variable(variable);
        if variable == "OLLAMA_HOST" || variable.ends_with("_BASE_URL") {
            return address.resolve(value);
        }
        value
    })
}

fn read_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.trim().is_empty())
}

/// A function that looks up an environment variable.
type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn open_model_in(
    name: &ModelName,
    environment: EnvLookup<'_>,
) -> Result<Arc<dyn Model>, SetupError> {
    let model = &*name.model;
    match &*name.provider {
        "openai" => build_model(apply_variables(
            OpenAiResponses::builder(model),
            "OPENAI",
            environment,
        )?),
        "openai-chat" => build_model(apply_variables(
            OpenAiChat::builder(model),
            "OPENAI",
            environment,
        )?),
        "anthropic" => build_model(apply_variables(
            Anthropic::builder(model),
            "ANTHROPIC",
            environment,
        )?),
        "google" => {
            let look_up = |variable: &str| match variable {
                "GEMINI_API_KEY" => environment(variable).or_else(|| environment("GOOGLE_API_KEY")),
                other => environment(other),
            };
            build_model(apply_variables(Gemini::builder(model), "GEMINI", &look_up)?)
        }
        "ollama" => {
            let builder =
                OpenAiChat::compatible(model, find_ollama_url(environment)).provider("ollama");
            build_model(apply_timeouts(builder, environment)?)
        }
        "vllm" => {
            let builder = OpenAiChat::compatible(model, VLLM_BASE_URL).provider("vllm");
            build_model(apply_variables(builder, "VLLM", environment)?)
        }
        "llama-cpp" => {
            let builder = OpenAiChat::compatible(model, LLAMA_CPP_BASE_URL).provider("llama-cpp");
            build_model(apply_variables(builder, "LLAMA_CPP", environment)?)
        }
        "compatible" => {
            let url =
                environment("COMPATIBLE_BASE_URL").ok_or_else(|| SetupError::MissingBaseUrl {
                    provider: "compatible".to_owned(),
                    hint: "set COMPATIBLE_BASE_URL, --base-url or `base_url` under [run], as in http://127.0.0.1:8000/v1".to_owned(),
                })?;
            build_model(apply_variables(
                OpenAiChat::compatible(model, url),
                "COMPATIBLE",
                environment,
            )?)
        }
        unknown => Err(unknown_provider_error(unknown)),
    }
}

fn build_model<M: Model>(builder: ModelBuilder<M>) -> Result<Arc<dyn Model>, SetupError> {
    Ok(Arc::new(builder.build()?))
}

/// Sets the key and the address from the provider's variables, if they are set.
fn apply_variables<M>(
    mut builder: ModelBuilder<M>,
    prefix: &str,
    environment: EnvLookup<'_>,
) -> Result<ModelBuilder<M>, SetupError> {
    // A key and a base URL of one provider in the same environment belong together, so this key may
    // be sent to an address other than the provider's own.
    let variable = format!("{prefix}_API_KEY");
    if let Some(key) = environment(&variable) {
        builder = builder.key(ApiKey::new(key).map_err(|_| SetupError::InvalidKeyIn { variable })?);
    }
    if let Some(url) = environment(&format!("{prefix}_BASE_URL")) {
        builder = builder.base_url(url);
    }
    apply_timeouts(builder, environment)
}

/// Sets how long a server may be silent, from the variables that hold for all providers.
fn apply_timeouts<M>(
    mut builder: ModelBuilder<M>,
    environment: EnvLookup<'_>,
) -> Result<ModelBuilder<M>, SetupError> {
    if let Some(limit) = seconds_in("TOOLGATE_MODEL_START_TIMEOUT", environment)? {
        builder = builder.start_timeout(limit);
    }
    if let Some(limit) = seconds_in("TOOLGATE_MODEL_IDLE_TIMEOUT", environment)? {
        builder = builder.idle_timeout(limit);
    }
    Ok(builder)
}

fn seconds_in(
    variable: &'static str,
    environment: EnvLookup<'_>,
) -> Result<Option<Duration>, SetupError> {
    let Some(text) = environment(variable) else {
        return Ok(None);
    };
    let seconds = text.trim().parse::<f64>().ok();
    let limit = seconds.filter(|seconds| *seconds > 0.0);
    let limit = limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit
        .map(Some)
        .ok_or(SetupError::InvalidTimeout { variable })
}

const OLLAMA_BASE_URL: &str = "http://127.0.0.1:11434/v1";
const VLLM_BASE_URL: &str = "http://127.0.0.1:8000/v1";
const LLAMA_CPP_BASE_URL: &str = "http://127.0.0.1:8080/v1";

fn find_ollama_url(environment: EnvLookup<'_>) -> String {
    let host = environment("OLLAMA_HOST");
    host.map_or_else(|| OLLAMA_BASE_URL.to_owned(), |host| ollama_url(&host))
}

/// Builds a URL from `OLLAMA_HOST` as Ollama reads it: a host, perhaps with a scheme or a port. The
/// wildcard address becomes loopback.
fn ollama_url(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    // A base URL of other clients names the version.
    let host = host.strip_suffix("/v1").unwrap_or(host);
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest
        .strip_prefix("0.0.0.0")
        .map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1{port}"));
    let has_port = rest
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = if has_port || scheme == "https" {
        ""
    } else {
        ":11434"
    };
    format!("{scheme}://{rest}{port}/v1")
}

fn unknown_provider_error(provider: &str) -> SetupError {
    let likeness = |known: &str| strsim::jaro_winkler(&provider.to_lowercase(), known);
    let near = PROVIDERS.into_iter().filter(|known| likeness(known) > 0.8);
    let near = near
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .map(str::to_owned);
    SetupError::UnknownProvider {
        provider: provider.to_owned(),
        near,
        known: PROVIDERS.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_with(name: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let name: ModelName = name.parse().expect("a name");
        let look_up = |variable: &str| {
            let found = variables.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| (*value).to_owned())
        };
        let opened = open_model_in(&name, &look_up);
        opened
            .map(|model| model.name().to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_timeout_is_a_number_of_seconds_above_zero() {
        let open = |seconds| open_with("ollama:m", &[("TOOLGATE_MODEL_IDLE_TIMEOUT", seconds)]);
        assert_eq!(open("0.5"), Ok("ollama:m".to_owned()));
        for wrong in ["0", "-1", "soon", "NaN", "1e400"] {
            let error = open(wrong).expect_err("is rejected");
            assert!(error.contains("TOOLGATE_MODEL_IDLE_TIMEOUT"), "{error}");
        }
    }

    #[test]
    fn every_known_provider_can_be_opened() {
        let variables = [
            ("OPENAI_API_KEY", "sk-1"),
            ("ANTHROPIC_API_KEY", "sk-2"),
            ("GOOGLE_API_KEY", "AIza-3"),
            ("COMPATIBLE_BASE_URL", "http://127.0.0.1:9/v1"),
        ];
        for provider in PROVIDERS {
            let name = format!("{provider}:some/model:7b");
            assert_eq!(open_with(&name, &variables), Ok(name.clone()));
        }
    }

    #[test]
    fn the_missing_variable_is_named() {
        let error = open_with("compatible:m", &[]).expect_err("no address");
        assert!(error.contains("COMPATIBLE_BASE_URL"), "{error}");
        let error = open_with("openai:m", &[("OPENAI_API_KEY", "two words")]).expect_err("no key");
        assert!(
            error.contains("OPENAI_API_KEY") && !error.contains("two words"),
            "{error}"
        );
        let error = open_with("ollama:m", &[("OLLAMA_HOST", "http://me:secret@h")])
            .expect_err("a password");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_chosen_address_goes_before_the_variable_and_that_before_a_configured_one() {
        let address = |chosen: Option<&str>, configured: Option<&str>| ModelAddress {
            chosen: chosen.map(str::to_owned),
            configured: configured.map(str::to_owned),
        };
        let variable = || Some("http://b".to_owned());
        for (address, variable, expected) in [
            (
                address(Some("http://a"), Some("http://c")),
                variable(),
                Some("http://a"),
            ),
            (
                address(None, Some("http://c")),
                variable(),
                Some("http://b"),
            ),
            (address(None, Some("http://c")), None, Some("http://c")),
            (address(None, None), None, None),
        ] {
            assert_eq!(address.resolve(variable).as_deref(), expected);
        }
    }

    #[test]
    fn an_unknown_provider_names_the_known_ones_and_the_nearest() {
        let error = open_with("opnai:gpt", &[]).expect_err("misspelt");
        assert!(
            error.contains("did you mean openai?") && error.contains("ollama, vllm"),
            "{error}"
        );
        let error = open_with("zzz:gpt", &[]).expect_err("made up");
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn the_ollama_host_is_read_as_ollama_reads_it() {
        for (host, url) in [
            ("127.0.0.1", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:1234", "http://127.0.0.1:1234/v1"),
            ("http://gpu:80/", "http://gpu:80/v1"),
            ("http://gpu:11434/v1/", "http://gpu:11434/v1"),
            (
                "https://ollama.example.com",
                "https://ollama.example.com/v1",
            ),
        ] {
            assert_eq!(ollama_url(host), url);
        }
    }
}
