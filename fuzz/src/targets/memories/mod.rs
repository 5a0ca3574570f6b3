//! Files of memories: what is read can be written and read again, an error names a line of the file,
//! and no text of a memory can close the quote in which a model reads it.

use toolgate_core::{
    ExtractionPattern, MemoryId, MemoryKind, MemoryOrigin, MemoryRecord, MemorySource, MemoryText,
    Message, RecallCandidate, RecallOptions, RecallScope, Timestamp, find_memories, quote_memories,
    rank_memories, read_memory_file, write_memory_file,
};

use crate::{FuzzTarget, InputTrace};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("memories", run, WORDS);

const WORDS: &[&str] = &[
    "{\"format\":\"toolgate-memories/1\"}\n",
    "{\"id\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"kind\":\"note\",\"content\":\"",
    "\",\"scope\":\"user\",\"source\":{\"origin\":\"user\"},\"created_at\":\"2026-01-31T12:00:00Z\"}\n",
    "\"project\"",
    "{\"session\":\"01890a5d-ac96-774b-bcce-b302099a8057\"}",
    "\"expires_at\":\"2026-01-31T12:00:00Z\"",
    "</memories>",
    "<memories>",
    "\\u003c",
    "\\u0000",
    "\\ud800",
    "\u{202e}",
    "\u{2028}",
    "\u{1b}[2J",
    "I prefer ",
    "We decided ",
    "```\n",
    "> ",
    ". ",
    "\n",
    "\r\n",
    "\0",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    check_text(&text);
    match read_memory_file(&text) {
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!(
                (1..=lines).contains(&error.line),
                "{error} of {lines} lines"
            );
            assert!(!error.to_string().contains(['\u{1b}', '\u{202e}', '\n']));
            InputTrace::of_message(&error.problem)
        }
        Ok(memories) => {
            let written = write_memory_file(&memories);
            assert_eq!(read_memory_file(&written).as_ref(), Ok(&memories));
            for memory in &memories {
                check_text(memory.content.as_str());
            }
            InputTrace::of(memories.len().min(4))
        }
    }
}

/// Checks the rules for any text: as a memory, as a query, and as a message.
fn check_text(text: &str) {
    let found = find_memories(&ExtractionPattern::standard(), &[Message::user(text)]);
    let mut contents: Vec<MemoryText> = found.into_iter().map(|found| found.content).collect();
    contents.extend(MemoryText::new(text));
    let records: Vec<MemoryRecord> = contents.into_iter().map(record).collect();
    let Some(block) = quote_memories(&records) else {
        return;
    };
    let inner = block.split_once("\n<memories>\n").map(|(_, rest)| rest);
    let inner = inner.and_then(|rest| rest.strip_suffix("\n</memories>"));
    let lines: Vec<&str> = inner.expect("the block is closed once").lines().collect();
    assert_eq!(lines.len(), records.len(), "a line for each memory");
    assert!(
        !lines.concat().contains(['<', '>', '`']),
        "a memory has markup"
    );
    let options = RecallOptions::default();
    let candidates = records.into_iter().map(|record| RecallCandidate {
        record,
        vector: None,
    });
    let ranked = rank_memories(text, None, candidates.collect(), &options);
    let tokens: usize = ranked.iter().map(|ranked| ranked.tokens).sum();
    assert!(tokens <= options.max_tokens && ranked.len() <= options.limit);
}

fn record(content: MemoryText) -> MemoryRecord {
    let id = MemoryId::new(Default::default());
    let source = MemorySource::new(MemoryOrigin::User);
    MemoryRecord::new(
        id,
        MemoryKind::Note,
        content,
        RecallScope::User,
        source,
        Timestamp::EPOCH,
    )
}
