//! The tool with which a model reads the rest of a truncated result.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, Context, Digest, ErrorCategory, RecordKey, Schema, SessionId,
    StoreHandle, Tool, ToolError, ToolOutput, ToolSpec, parse_arguments,
};

use crate::OutputCapOptions;

/// A tool that reads a part of a truncated result.
///
/// The `output_cap` layer stores such results and names them in what the model reads. Only results
/// that were stored in the same session can be read. A part begins and ends between characters, and
/// is small enough not to be truncated in turn.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_layers::ReadOutput;
///
/// let registry = Registry::new();
/// registry.register(ReadOutput::default())?;
/// # Ok::<(), toolgate_core::RegisterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReadOutput {
    most: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadOutputInput {
    /// The name of the output, as given where the result was truncated: sha256:…
    output: String,
    /// The byte to begin at; 0 is the beginning.
    #[serde(default)]
    offset: u64,
    /// Maximum number of bytes to read.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

impl ReadOutput {
    /// The tool's name.
    pub const NAME: &'static str = "read_output";

    /// Creates a tool whose parts stay below the cap of `options`.
    pub fn below(options: &OutputCapOptions) -> Self {
        Self {
            most: (options.max_bytes as u64 / 2).max(1),
        }
    }
}

impl Default for ReadOutput {
    fn default() -> Self {
        Self::below(&OutputCapOptions::default())
    }
}

impl Tool for ReadOutput {
    fn spec(&self) -> ToolSpec {
        let description = "Reads a part of an earlier result that was truncated. \
             Continue with next_offset until it is null.";
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<ReadOutputInput>(),
        )
        .with_annotations(Annotations::read_only())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let ReadOutputInput {
            output,
            offset,
            limit,
        } = parse_arguments(&arguments)?;
        let digest: Digest = output.parse().map_err(|_| unknown_output())?;
        let store = cx.env().store();
        let total = stored_size(store, cx.turn().session, digest)
            .await?
            .ok_or_else(unknown_output)?;
        let limit = limit.unwrap_or(self.most).clamp(1, self.most);
        // Room for a partial character at the beginning and for one whole character.
        let range = offset..offset.saturating_add(limit).saturating_add(8);
        let bytes = store
            .blob(digest, range)
            .await?
            .ok_or_else(unknown_output)?;
        let skipped = bytes
            .iter()
            .take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000)
            .count();
        let text = longest_part(&bytes[skipped..], limit);
        let begin = offset.min(total) + skipped as u64;
        let end = begin + text.len() as u64;
        if text.is_empty() && end < total {
            return Err(ToolError::new(
                "the stored output cannot be read at this offset",
            ));
        }
        let next = (end < total).then_some(end);
        let go_on = next.map_or_else(
            || "the end".to_owned(),
            |next| format!("continue with offset {next}"),
        );
        let shown = format!("[bytes {begin} to {end} of {total}; {go_on}]\n{text}");
        let value = json!({ "text": text, "offset": begin, "bytes": text.len(), "total": total, "next_offset": next });
        Ok(ToolOutput::from(value).with_text(shown))
    }
}

/// Stores `bytes` for later reads in the same session.
pub(crate) async fn store_output(
    store: &StoreHandle,
    session: SessionId,
    bytes: bytes::Bytes,
) -> Result<Digest, toolgate_core::StoreError> {
    let size = bytes.len();
    let digest = store.put_blob(bytes).await?;
    let size = toolgate_core::Json::new(json!(size)).expect("a number is not nested");
    // Blobs are shared by content; this record is what lets only this session read the output.
    store
        .put_json_once(output_record_key(session, digest), size)
        .await?;
    Ok(digest)
}

/// Returns the size of an output, if this session stored it.
async fn stored_size(
    store: &StoreHandle,
    session: SessionId,
    digest: Digest,
) -> Result<Option<u64>, ToolError> {
    let size = store.load_json(&output_record_key(session, digest)).await?;
    Ok(size.and_then(|size| size.as_u64()))
}

fn output_record_key(session: SessionId, digest: Digest) -> RecordKey {
    RecordKey::Other(Arc::from(format!("output/{session}/{digest}")))
}

fn unknown_output() -> ToolError {
    let text = "There is no such output in this session. Copy the output name exactly from where the result was truncated.";
    ToolError::new(text).with_category(ErrorCategory::NotFound)
}

/// Returns the longest text at the beginning of `bytes` that needs at most `limit` bytes as JSON;
/// at least one character.
fn longest_part(bytes: &[u8], limit: u64) -> &str {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut left = limit;
    for (at, c) in whole.char_indices() {
        let cost = match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if c < ' ' => 6,
            c => c.len_utf8() as u64,
        };
        if cost > left && at > 0 {
            return &whole[..at];
        }
        left = left.saturating_sub(cost);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configurable, OutputCap, Resources};
    use serde_json::Value;
    use toolgate_core::{Call, CallSeed, Registry, Stack, Status, TurnInfo, View, tool_fn};
    use toolgate_testkit::seed_for;

    struct ReadHarness {
        stack: Stack,
        view: View,
        seed: CallSeed,
    }

    /// Creates a stack with the tool, and a text that its session has stored.
    async fn read_harness(text: &str) -> (ReadHarness, Digest) {
        let registry = Registry::new();
        registry
            .register(ReadOutput::default())
            .expect("a new name");
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(registry).build().expect("no layers");
        let seed = seed_for(&view, "read_output", json!({}));
        let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
        let digest = store_output(seed.env.store(), seed.turn.session, bytes)
            .await
            .expect("stored");
        (ReadHarness { stack, view, seed }, digest)
    }

    impl ReadHarness {
        async fn read(&self, arguments: Value) -> toolgate_core::SettledOutcome {
            let admission = seed_for(&self.view, "read_output", arguments).admission;
            let outcome = self
                .stack
                .run(Call::new(CallSeed {
                    admission,
                    ..self.seed.clone()
                }))
                .await;
            outcome.settled().expect("settled").clone()
        }
    }

    #[tokio::test]
    async fn a_long_text_can_be_read_back_completely() {
        let text: String = (0..480_000)
            .map(|n| ["a", "é", "漢", "🦀", "\u{1b}[1m", "\n"][n % 6])
            .collect();
        assert!(text.len() > 1_000_000);
        let (reading, digest) = read_harness(&text).await;
        let mut back = String::new();
        let mut offset = json!(0);
        let mut iterations = 0;
        while !offset.is_null() {
            let settled = reading
                .read(json!({ "output": digest, "offset": offset }))
                .await;
            assert!(
                settled.value_size() < OutputCapOptions::default().max_bytes,
                "never truncated in turn"
            );
            assert!(
                settled.model_size() < OutputCapOptions::default().max_bytes,
                "never truncated in turn"
            );
            back.push_str(settled.value["text"].as_str().expect("text"));
            assert_eq!(settled.value["total"], text.len());
            offset = settled.value["next_offset"].clone();
            iterations += 1;
        }
        assert!(iterations > 40);
        assert!(back == text, "every byte once and in order");
    }

    #[tokio::test]
    async fn a_model_can_follow_the_marker_of_a_truncated_result_to_the_end() {
        let whole: String = (0..3000)
            .map(|n| format!("line {n} \u{1b}[32mé\n"))
            .collect();
        let cap = OutputCapOptions {
            max_bytes: 2000,
            ..OutputCapOptions::default()
        };
        let registry = Registry::new();
        let dump = whole.clone();
        registry
            .register(ReadOutput::below(&cap))
            .expect("a new name");
        let tool = tool_fn(
            "dump",
            "Dumps.",
            move |_: serde_json::Map<String, Value>, _| {
                std::future::ready(Ok::<_, ToolError>(dump.clone()))
            },
        );
        registry.register(tool).expect("a new name");
        let layer = OutputCap::configure(cap.clone(), &Resources::new()).expect("valid options");
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(registry)
            .layer(layer)
            .build()
            .expect("valid order");
        let env = seed_for(&view, "dump", json!({})).env;
        let run = async |tool: &str, arguments: Value| {
            let seed = CallSeed {
                env: env.clone(),
                ..seed_for(&view, tool, arguments)
            };
            stack
                .run(Call::new(seed))
                .await
                .settled()
                .expect("settled")
                .clone()
        };
        let cut = run("dump", json!({})).await.model_text().into_owned();
        let (mut back, rest) = cut
            .split_once("\n…[")
            .map(|(head, rest)| (head.to_owned(), rest))
            .expect("truncated");
        let arguments = rest
            .split_once("read_output ")
            .and_then(|(_, rest)| rest.split_once("]…"))
            .expect("a marker")
            .0;
        let mut arguments: Value = serde_json::from_str(arguments).expect("valid arguments");
        while !arguments["offset"].is_null() {
            let settled = run("read_output", arguments.clone()).await;
            back.push_str(
                settled.value["text"]
                    .as_str()
                    .expect("not truncated in turn"),
            );
            arguments["offset"] = settled.value["next_offset"].clone();
        }
        assert!(back == whole, "every byte once and in order");
    }

    #[tokio::test]
    async fn a_part_stays_below_the_cap_after_json_escaping() {
        for text in ["\u{1}", "\\", "\"", "\n"] {
            let (reading, digest) = read_harness(&text.repeat(100_000)).await;
            let settled = reading.read(json!({ "output": digest })).await;
            assert!(
                settled.value_size() < OutputCapOptions::default().max_bytes,
                "{text:?}"
            );
            assert!(
                settled.value_size() > OutputCapOptions::default().max_bytes / 3,
                "{text:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_part_begins_and_ends_between_characters_and_says_where() {
        let (reading, digest) = read_harness("aé漢🦀z").await;
        for (offset, limit, text, begin, next) in [
            (0, 1, "a", 0, json!(1)),
            (1, 1, "é", 1, json!(3)),
            (2, 3, "漢", 3, json!(6)),
            (4, 100, "🦀z", 6, Value::Null),
            (7, 100, "z", 10, Value::Null),
            (11, 5, "", 11, Value::Null),
            (u64::MAX, 5, "", 11, Value::Null),
        ] {
            let value = reading
                .read(json!({ "output": digest, "offset": offset, "limit": limit }))
                .await
                .value;
            let expected = json!({ "text": text, "offset": begin, "bytes": text.len(), "total": 11, "next_offset": next });
            assert_eq!(*value.as_value(), expected, "{offset}");
        }
        let first = reading.read(json!({ "output": digest, "limit": 3 })).await;
        assert_eq!(
            first.model_text(),
            "[bytes 0 to 3 of 11; continue with offset 3]\naé"
        );
    }

    #[tokio::test]
    async fn an_output_is_erased_with_its_session() {
        let (reading, digest) = read_harness("secret").await;
        let store = reading.seed.env.store().clone();
        let session = reading.seed.turn.session;
        assert!(
            stored_size(&store, session, digest)
                .await
                .expect("the store answers")
                .is_some()
        );
        store
            .erase_session(session, toolgate_core::Timestamp::EPOCH)
            .await
            .expect("erased");
        assert_eq!(
            stored_size(&store, session, digest)
                .await
                .expect("the store answers"),
            None
        );
    }

    #[tokio::test]
    async fn an_output_that_this_session_has_not_stored_is_not_found() {
        let (mut reading, digest) = read_harness("secret").await;
        let other = Digest::of_bytes(b"other");
        // The store has the blob, but no session has stored it as an output.
        let bare = reading
            .seed
            .env
            .store()
            .put_blob("bare".into())
            .await
            .expect("stored");
        for output in [
            other.to_string(),
            bare.to_string(),
            "sha256:12".to_owned(),
            String::new(),
        ] {
            let settled = reading.read(json!({ "output": output })).await;
            let error = settled.error.expect("rejected");
            assert_eq!(
                (settled.status, error.category),
                (Status::ExecutorError, ErrorCategory::NotFound)
            );
            assert!(error.model.contains("no such output"));
        }
        let turn = &reading.seed.turn;
        reading.seed.turn = Arc::new(TurnInfo::new(SessionId::new(turn.turn.uuid()), turn.turn));
        let settled = reading.read(json!({ "output": digest })).await;
        assert_eq!(
            settled.error.expect("rejected").category,
            ErrorCategory::NotFound,
            "another session's output"
        );
    }
}
