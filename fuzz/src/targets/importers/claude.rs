//! Session files of Claude Code.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, check_lines};
use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new(
    "import_claude",
    |data| check_lines(ForeignFormat::Claude, data),
    WORDS,
)
.with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"type\":\"user\",\"sessionId\":\"s\",\"message\":{\"content\":",
    "{\"type\":\"assistant\",\"message\":{\"content\":[",
    "{\"type\":\"text\",\"text\":\"a\"}",
    "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"t\",\"input\":{}}",
    "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":",
    "\"isMeta\":true,",
    "]}}",
    "}}",
    ",",
    "\n",
];
