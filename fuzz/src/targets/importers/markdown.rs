//! Our own Markdown: what is read is bounded, and always the same.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, read, trace};
use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget =
    FuzzTarget::new("import_markdown", run, WORDS).with_memory(MEMORY);

const WORDS: &[&str] = &[
    "<!-- toolgate:0123456789ab {\"part\":\"session\",\"version\":1,\"session\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"redacted\":true} -->\n",
    "<!-- toolgate:0123456789ab {\"part\":\"user\",\"at\":\"2026-01-01T00:00:00Z\"} -->\n",
    "<!-- toolgate:0123456789ab {\"part\":\"assistant\",\"at\":\"2026-01-01T00:00:00Z\"} -->\n",
    "<!-- toolgate:0123456789ab {\"part\":\"call\",\"label\":\"c\",\"tool\":\"t\"} -->\n",
    "<!-- toolgate:0123456789ab {\"part\":\"result\",\"label\":\"c\",\"tool\":\"t\",\"is_error\":false} -->\n",
    "<!-- toolgate:0123456789ab {\"part\":\"end\"} -->\n",
    "## User\n\n",
    "```json\n{}\n```\n\n",
    "\n\n",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let first = read(ForeignFormat::Markdown, &text);
    assert_eq!(first, read(ForeignFormat::Markdown, &text));
    trace(&first)
}
