//! Session files of Qwen Code.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, check_lines};
use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new(
    "import_qwen",
    |data| check_lines(ForeignFormat::Qwen, data),
    WORDS,
)
.with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"type\":\"user\",\"message\":{\"parts\":[",
    "{\"type\":\"assistant\",\"message\":{\"parts\":[",
    "{\"type\":\"tool_result\",\"message\":{\"parts\":[",
    "{\"text\":\"a\"}",
    "{\"functionCall\":{\"id\":\"c\",\"name\":\"t\",\"args\":{}}}",
    "{\"functionResponse\":{\"id\":\"c\",\"response\":{\"error\":\"e\"}}}",
    "]}}",
    ",",
    "\n",
];
