//! Events of the journal: what is decoded is encoded as it was, and nothing is lost on the way.

use serde_json::Value;
use toolgate_core::Event;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("events", run, WORDS).with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 2048,
    });

const WORDS: &[&str] = &[
    "\"type\":",
    "\"tool_requested\"",
    "\"tool_approved\"",
    "\"tool_denied\"",
    "\"tool_approval_requested\"",
    "\"turn_opened\"",
    "\"turn_settled\"",
    "\"turn_interrupted\"",
    "\"input_rejected\"",
    "\"post_refused\"",
    "\"tool_execution_started\"",
    "\"tool_execution_succeeded\"",
    "\"tool_execution_failed\"",
    "\"tool_progress\"",
    "\"run_ended\"",
    "\"user_message\"",
    "\"model_routed\"",
    "\"inference_started\"",
    "\"inference_finished\"",
    "\"status\":",
    "\"ok\"",
    "\"sequence\":",
    "\"at\":",
    "\"session_id\":",
    "\"turn_id\":",
    "\"invocation_id\":",
    "\"call_id\":",
    "\"tool_name\":",
    "\"emit_order\":",
    "\"iteration\":",
    "\"attempt\":",
    "\"arguments\":",
    "\"arguments_digest\":",
    "\"size\":",
    "\"after\":",
    "\"message\":",
    "\"text\":",
    "\"labels\":{\"a\":\"b\"}",
    "\"principal\":",
    "\"run\":",
    "null",
    "true",
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "{}",
    "[]",
    "\"\"",
    "{",
    "}",
    ",",
    "\"2026-01-01T00:00:00.000000Z\"",
    "\"00000000-0000-0000-0000-000000000001\"",
    "\"00000000-0000-0000-0000-000000000000\"",
];

fn run(data: &[u8]) -> InputTrace {
    let event = match serde_json::from_slice::<Event>(data) {
        Ok(event) => event,
        Err(error) => return InputTrace::of_message(&error.to_string()),
    };
    let written = serde_json::to_value(&event).expect("an event can be written");
    let again: Event = serde_json::from_value(written.clone()).expect("it can be decoded again");
    assert_eq!(again, event, "another event was decoded");
    let twice = serde_json::to_value(&again).expect("an event can be written");
    assert_eq!(twice, written, "it is written in another way");
    let members = written.as_object().map_or(0, serde_json::Map::len);
    InputTrace::of((written.get("type").and_then(Value::as_str), members))
}
