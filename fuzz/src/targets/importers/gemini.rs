//! Session files of Gemini CLI.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, check_lines};
use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new(
    "import_gemini",
    |data| check_lines(ForeignFormat::Gemini, data),
    WORDS,
)
.with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"sessionId\":\"s\"}",
    "{\"type\":\"user\",\"content\":",
    "{\"type\":\"gemini\",\"content\":\"a\",\"toolCalls\":[",
    "{\"id\":\"c\",\"name\":\"t\",\"args\":{},\"result\":",
    "{\"functionResponse\":{\"response\":{\"output\":\"x\"}}}",
    "\"thoughts\":[{\"description\":\"d\"}],",
    "{\"messages\":[",
    "]}",
    "}",
    "\n",
];
