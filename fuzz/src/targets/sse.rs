//! Server-sent events: the same events wherever the bytes are cut, and those of a second parser.

use toolgate_models::__fuzz::parse_sse;

use crate::{FuzzTarget, InputTrace};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("sse", run, WORDS);

const WORDS: &[&str] = &[
    "data: ",
    "data:",
    "data",
    "event: ",
    "event:",
    "id: 1",
    "retry: 3",
    ":",
    ": comment",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\r\n\r\n",
    "\u{feff}",
    "{}",
    "[DONE]",
    " ",
    "é",
    "message_start",
    "x",
    "dataset: 1",
];

/// A small limit, so that inputs reach it.
const LIMIT: usize = 256;

fn run(data: &[u8]) -> InputTrace {
    let Some((size, stream)) = data.split_first() else {
        return InputTrace::NOTHING;
    };
    let whole = parse_sse(LIMIT, [stream]);
    let size = usize::from(*size).clamp(1, 64);
    let pieces = parse_sse(LIMIT, stream.chunks(size));
    assert_eq!(
        whole, pieces,
        "other events if the bytes come in pieces of {size}"
    );
    let singles = parse_sse(LIMIT, stream.chunks(1));
    assert_eq!(whole, singles, "other events if the bytes come one by one");
    if let Ok(events) = &whole {
        assert_eq!(
            *events,
            read_events(stream),
            "other events than those of the standard"
        );
    }
    let kind = whole
        .as_ref()
        .map(|events| events.len().min(4))
        .map_err(Clone::clone);
    InputTrace::of((kind, stream.len().checked_ilog2()))
}

/// Reads events as the HTML standard describes them, from the whole stream.
fn read_events(stream: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut name = String::new();
    let mut data: Option<String> = None;
    // What no line break ends is not a line yet.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in complete.split('\n') {
        if line.is_empty() {
            let name = std::mem::take(&mut name);
            events.extend(data.take().map(|data| (name, data)));
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => {
                data = Some(match data {
                    Some(before) => format!("{before}\n{value}"),
                    None => value.to_owned(),
                })
            }
            _ => {}
        }
    }
    events
}
