//! Session files of Codex.

use toolgate_archive::ForeignFormat;

use super::{MEMORY, check_lines};
use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new(
    "import_codex",
    |data| check_lines(ForeignFormat::Codex, data),
    WORDS,
)
.with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"type\":\"session_meta\",\"payload\":{\"id\":\"x\"}}",
    "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":",
    "{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call\",\"call_id\":\"c\",\"arguments\":\"{}\"}}",
    "{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":",
    "{\"type\":\"turn_context\",\"payload\":{\"model\":\"m\"}}",
    "\"a\"",
    "}}",
    "[",
    "]",
    "\n",
];
