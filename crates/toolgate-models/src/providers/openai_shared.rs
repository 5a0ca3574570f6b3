//! Shared by both wire formats of OpenAI.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{Effort, Media, MediaSource, OutputFormat, RawArguments, Schema, Usage};

use crate::providers::{strict_schema::is_strict, tool_names::NameRule};

/// The base URL of OpenAI.
pub(crate) const BASE_URL: &str = "https://api.openai.com/v1";
/// The variable that holds the API key.
pub(crate) const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// The rule for names of tools and formats.
pub(crate) const NAMES: NameRule = NameRule { longest: 64 };

/// Returns the wire word for a reasoning effort.
pub(crate) const fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

/// Builds the fields that describe the final answer, the same in both formats.
pub(crate) fn output_format(output: &OutputFormat) -> Value {
    let schema = output.schema.as_json().as_value();
    json!({ "name": NAMES.to_wire(&output.name), "schema": schema, "strict": is_strict(schema) })
}

/// Returns the schema of a tool's arguments. OpenAI requires an object that lists its properties,
/// even if there are none.
pub(crate) fn parameters_schema(schema: &Schema) -> Value {
    let mut fields = schema.as_json().as_object().cloned().unwrap_or_default();
    fields.entry("type").or_insert_with(|| "object".into());
    fields.entry("properties").or_insert_with(|| json!({}));
    Value::Object(fields)
}

/// Returns the arguments of a call as the text that the model wrote.
pub(crate) fn arguments_text(arguments: &RawArguments) -> String {
    match arguments {
        RawArguments::Text(text) => text.clone(),
        RawArguments::Json(json) => json.to_string(),
    }
}

/// Returns the URL of an image or file; inline data becomes a data URL.
pub(crate) fn media_url(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Data(base64) => format!("data:{};base64,{base64}", media.media_type),
    }
}

/// Returns the name of a file. One without a name gets one made from its type, since OpenAI
/// requires an extension.
pub(crate) fn file_name(media: &Media) -> String {
    let extension = media
        .media_type
        .rsplit(['/', '+', '.'])
        .next()
        .unwrap_or("bin");
    media
        .name
        .clone()
        .unwrap_or_else(|| format!("file.{extension}"))
}

/// Returns a text that stands for an image or file that the wire format cannot carry.
pub(crate) fn describe_media(media: &Media) -> String {
    let mut text = format!("[{}", media.media_type);
    if let Some(name) = &media.name {
        // Writing to memory cannot fail.
        let _ = write!(text, " {name}");
    }
    match &media.source {
        MediaSource::Url(url) => text + " at " + url + "]",
        MediaSource::Data(_) => text + " that cannot be shown here]",
    }
}

/// The token usage of a reply, by the names of either format.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OpenAiUsage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<InputTokenDetails>,
    #[serde(alias = "output_tokens_details")]
    completion_tokens_details: Option<OutputTokenDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct InputTokenDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OutputTokenDetails {
    reasoning_tokens: Option<u64>,
}

impl From<OpenAiUsage> for Usage {
    /// Converts the counts. OpenAI includes cached tokens in the input tokens; here they are
    /// counted separately.
    fn from(raw: OpenAiUsage) -> Self {
        let read = raw.prompt_tokens_details.unwrap_or_default();
        let written = raw.completion_tokens_details.unwrap_or_default();
        let cache_read = read.cached_tokens.unwrap_or(0);
        let cache_write = read.cache_write_tokens.unwrap_or(0);
        Self {
            input: raw
                .prompt_tokens
                .unwrap_or(0)
                .saturating_sub(cache_read)
                .saturating_sub(cache_write),
            cache_read,
            cache_write,
            output: raw.completion_tokens.unwrap_or(0),
            reasoning: written.reasoning_tokens.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_counted_once() {
        let chat = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": { "cached_tokens": 60, "cache_write_tokens": 10, "audio_tokens": null },
            "completion_tokens_details": { "reasoning_tokens": 5 },
        });
        let responses = json!({
            "input_tokens": 100, "output_tokens": 20,
            "input_tokens_details": { "cached_tokens": 60, "cache_write_tokens": 10 },
            "output_tokens_details": { "reasoning_tokens": 5 },
        });
        let expected = Usage {
            input: 30,
            cache_read: 60,
            cache_write: 10,
            output: 20,
            reasoning: 5,
        };
        for raw in [chat, responses] {
            let usage = Usage::from(serde_json::from_value::<OpenAiUsage>(raw).expect("reads"));
            assert_eq!((usage, usage.total_tokens()), (expected, 120));
        }
    }

    #[test]
    fn the_arguments_of_a_tool_are_always_an_object_with_properties() {
        let none = json!({ "type": "object", "properties": {} });
        assert_eq!(
            parameters_schema(&Schema::new(json!({ "type": "object" })).expect("valid")),
            none
        );
        assert_eq!(
            parameters_schema(&Schema::new(json!(true)).expect("valid")),
            none
        );
        let some = json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] });
        assert_eq!(
            parameters_schema(&Schema::new(some.clone()).expect("valid")),
            some
        );
    }

    #[test]
    fn a_file_without_a_name_gets_one_with_its_type() {
        assert_eq!(
            file_name(&Media::from_base64("application/pdf", "")),
            "file.pdf"
        );
        assert_eq!(
            file_name(&Media {
                name: Some("a.txt".into()),
                ..Media::from_base64("text/plain", "")
            }),
            "a.txt"
        );
    }
}
