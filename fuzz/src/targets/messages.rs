//! Messages: an approval request is open until its response, and no response is invented or lost.

use serde_json::Value;
use toolgate_runtime::{append_approval_response, approval_requests, approval_responses};

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("messages", run, WORDS).with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 2048,
    });

const WORDS: &[&str] = &[
    "{\"role\":\"assistant\",\"content\":[",
    "{\"role\":\"tool\",\"content\":[",
    "]}",
    "[",
    "]",
    ",",
    "{",
    "}",
    "\"type\":\"tool-approval-request\"",
    "\"type\":\"tool-approval-response\"",
    "\"type\":\"tool-result\"",
    "\"approvalId\":",
    "\"approvalToken\":",
    "\"toolCallId\":",
    "\"toolName\":",
    "\"input\":{}",
    "\"approved\":true",
    "\"approved\":false",
    "\"approved\":1",
    "\"reason\":",
    "\"editedArguments\":{}",
    "\"editedArguments\":[]",
    "\"call_1\"",
    "\"pay\"",
    "\"t\"",
    "null",
    "1",
    "\"approval_00000000-0000-0000-0000-000000000003\"",
    "\"expiresAt\":",
    "\"changed\":[]",
    "\"shown\":",
];

fn run(data: &[u8]) -> InputTrace {
    let Ok(mut messages) = serde_json::from_slice::<Vec<Value>>(data) else {
        return InputTrace::NOTHING;
    };
    let requests = approval_requests(&messages);
    let responses = approval_responses(&messages);
    let valid = responses.iter().flatten().count();
    let parts = messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array())
        .map(Vec::len)
        .sum::<usize>();
    assert!(
        requests.len() + responses.len() <= parts,
        "more than the messages contain"
    );
    for response in responses.iter().flatten() {
        let open = requests
            .iter()
            .any(|request| request.approval_token == response.approval_token);
        assert!(!open, "a request with a response is open");
    }
    let before = requests.len();
    for request in requests {
        append_approval_response(&mut messages, request.deny(Some("no")));
    }
    assert!(
        approval_requests(&messages).is_empty(),
        "a request that was answered is open"
    );
    InputTrace::of((before.min(3), responses.len().min(3), valid.min(3)))
}
