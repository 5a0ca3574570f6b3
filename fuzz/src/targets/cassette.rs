//! Cassettes: a file is loaded line by line, and one that was cut is never loaded as if it was whole.

use toolgate_models::__fuzz::count_exchanges;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("cassette", run, WORDS).with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 4096,
    });

const WORDS: &[&str] = &[
    "{\"toolgate_cassette\":1,\"model\":\"scripted:demo\"}\n",
    "\"request\":",
    "\"deltas\":[]",
    "\"deltas\":",
    "\"reply\":",
    "\"error\":",
    "\"same\":",
    "\"messages\":",
    "\"digest\":",
    "\"role\":\"user\"",
    "\"text\":",
    "\"message\":",
    "\"usage\":null",
    "\"finish\":",
    "\"kind\":",
    "\"call\":",
    "\"arguments\":",
    "\"index\":",
    "\"routed\":",
    "\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    "null",
    "0",
    "1",
    "99999999999",
    "18446744073709551615",
];

fn run(data: &[u8]) -> InputTrace {
    let count = match count_exchanges(data) {
        Ok(count) => count,
        Err(problem) => return InputTrace::of_message(&problem),
    };
    let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(
        count + 1,
        lines.len(),
        "a line that is neither header nor exchange"
    );
    for length in 1..lines.len() {
        let part = lines[..length].concat();
        assert_eq!(
            count_exchanges(&part),
            Ok(length - 1),
            "its beginning is not loaded"
        );
    }
    if count > 0 {
        let cut = &data[..data.len() - 1];
        assert!(
            count_exchanges(cut).is_err(),
            "a truncated cassette is loaded"
        );
    }
    InputTrace::of(count.min(4))
}
