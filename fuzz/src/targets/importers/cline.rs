//! Session files of Cline: one value, so only that reading is bounded and always the same.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, read, trace};
use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget =
    FuzzTarget::new("import_cline", run, WORDS).with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"messages\":[",
    "{\"role\":\"user\",\"ts\":1772600000000,\"content\":",
    "{\"role\":\"assistant\",\"content\":[",
    "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"n\",\"input\":{}}",
    "{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"x\"}",
    "\"a\"",
    "]}",
    "}",
    ",",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let first = read(ForeignFormat::Cline, &text);
    assert_eq!(first, read(ForeignFormat::Cline, &text));
    trace(&first)
}
