//! Rows of opencode's database: each line of the input is the JSON of a message or a part.

use toolgate_archive::{ForeignFormat, OpencodeRow};

use super::{MEMORY, trace};
use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget =
    FuzzTarget::new("import_opencode", run, WORDS).with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"role\":\"user\"}",
    "{\"role\":\"assistant\",\"tokens\":{\"input\":1,\"output\":2}}",
    "{\"type\":\"text\",\"text\":\"a\"}",
    "{\"type\":\"tool\",\"callID\":\"c\",\"tool\":\"t\",\"state\":{\"input\":{},\"output\":\"x\"}}",
    "{\"type\":\"reasoning\",\"text\":\"r\"}",
    "\n",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let mut message = 0;
    let first = OpencodeRow::Session {
        id: "s".into(),
        title: None,
        directory: None,
    };
    let rows = text.lines().map(|line| {
        if line.contains("\"role\"") {
            message += 1;
            return OpencodeRow::Message {
                id: message.to_string(),
                session: "s".into(),
                created: i64::MAX,
                data: line.to_owned(),
            };
        }
        OpencodeRow::Part {
            message: message.to_string(),
            data: line.to_owned(),
        }
    });
    let rows: Vec<_> = std::iter::once(first).chain(rows).collect();
    trace(&ForeignFormat::read_rows(rows))
}
