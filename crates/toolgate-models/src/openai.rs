//! What both wire formats of OpenAI share.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{Effort, Media, MediaSource, OutputFormat, RawArguments, Schema, Usage};

use crate::{names::NameRule, strict::is_strict};

/// Where OpenAI is.
pub(crate) const BASE_URL: &str = "https://api.openai.com/v1";
/// The variable that holds its key.
pub(crate) const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// What it takes as names of tools and formats.
pub(crate) const NAMES: NameRule = NameRule { longest: 64 };

/// The word for how much to think.
pub(crate) const fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

/// The fields that describe the final answer, in both formats the same.
pub(crate) fn output_format(output: &OutputFormat) -> Value {
    let schema = output.schema.as_json().as_value();
    json!({ "name": NAMES.to_wire(&output.name), "schema": schema, "strict": is_strict(schema) })
}

/// The schema of a tool's arguments. OpenAI wants every one to be an object that lists its properties, even if it has none.
pub(crate) fn parameters(schema: &Schema) -> Value {
    let mut fields = schema.as_json().as_object().cloned().unwrap_or_default();
    fields.entry("type").or_insert_with(|| "object".into());
    fields.entry("properties").or_insert_with(|| json!({}));
    Value::Object(fields)
}

/// The arguments of a call as the text that the model wrote.
pub(crate) fn arguments_text(arguments: &RawArguments) -> String {
    match arguments {
        RawArguments::Text(text) => text.clone(),
        RawArguments::Json(json) => json.to_string(),
    }
}

/// The address of a picture or file, or the whole of it as one.
pub(crate) fn address(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Data(base64) => format!("data:{};base64,{base64}", media.media_type),
    }
}

/// The name of a file. One is made of its type where it has none, since OpenAI wants to see an extension.
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

/// The words that stand for a picture or file which the wire format has no place for.
pub(crate) fn mention(media: &Media) -> String {
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

/// What a reply used, by the names of either format.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RawUsage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<ReadDetails>,
    #[serde(alias = "output_tokens_details")]
    completion_tokens_details: Option<WrittenDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct ReadDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct WrittenDetails {
    reasoning_tokens: Option<u64>,
}

impl From<RawUsage> for Usage {
    /// OpenAI counts what was remembered as read once more; here it is counted apart.
    fn from(raw: RawUsage) -> Self {
        let read = raw.prompt_tokens_details.unwrap_or_default();
        let written = raw.completion_tokens_details.unwrap_or_default();
        let (cache_read, cache_write) = (
            read.cached_tokens.unwrap_or(0),
            read.cache_write_tokens.unwrap_or(0),
        );
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
    fn remembered_tokens_are_counted_once() {
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
            let usage = Usage::from(serde_json::from_value::<RawUsage>(raw).expect("reads"));
            assert_eq!((usage, usage.total()), (expected, 120));
        }
    }

    #[test]
    fn the_arguments_of_a_tool_are_always_an_object_with_properties() {
        let none = json!({ "type": "object", "properties": {} });
        assert_eq!(
            parameters(&Schema::new(json!({ "type": "object" })).expect("valid")),
            none
        );
        assert_eq!(parameters(&Schema::new(json!(true)).expect("valid")), none);
        let some = json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] });
        assert_eq!(parameters(&Schema::new(some.clone()).expect("valid")), some);
    }

    #[test]
    fn a_file_without_a_name_gets_one_that_tells_its_type() {
        assert_eq!(file_name(&Media::data("application/pdf", "")), "file.pdf");
        assert_eq!(
            file_name(&Media {
                name: Some("a.txt".into()),
                ..Media::data("text/plain", "")
            }),
            "a.txt"
        );
    }
}
