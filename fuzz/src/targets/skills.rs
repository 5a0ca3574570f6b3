//! Skills: foreign YAML is bounded, an error names a line of the file, and a skill has its own name.

use toolgate_runtime::SkillFile;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("skills", run, WORDS).with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 2048,
    });

const WORDS: &[&str] = &[
    "---\n",
    "---",
    "...\n",
    "name: pdf\n",
    "name: ",
    "description: Reads PDF files.\n",
    "description: ",
    "allowed-tools: a b\n",
    "allowed-tools: [a, b]\n",
    "license: MIT\n",
    "compatibility: x\n",
    "metadata:\n  a: 1\n",
    "metadata: {a: b}\n",
    "other: x\n",
    "- ",
    "  ",
    ": ",
    "? ",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "!x ",
    "| ",
    "|-\n",
    ">\n",
    ">+\n",
    "\"",
    "'",
    "#",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    "\r\n",
    "\t",
    "%YAML 1.2\n",
    "~",
    "null",
    "true",
    "0x1",
    "1e3",
    ".inf",
    "\u{feff}",
    "\u{2028}",
    "\u{85}",
    "pdf",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    match SkillFile::parse(&text, "pdf") {
        Ok(skill) => {
            assert_eq!(skill.name, "pdf", "a skill with the name of another folder");
            assert!(
                !skill.description.trim().is_empty(),
                "a skill without a description"
            );
            assert!(
                text.contains(&skill.instructions),
                "instructions that are not in the file"
            );
            InputTrace::of((
                skill.allowed_tools.len().min(3),
                skill.metadata.len().min(3),
                skill.other.len().min(3),
                skill.license.is_some(),
                skill.compatibility.is_some(),
            ))
        }
        Err(fault) => {
            let lines = text.split('\n').count()
                + text
                    .matches(['\r', '\u{85}', '\u{2028}', '\u{2029}'])
                    .count();
            assert!(
                (1..=lines + 1).contains(&fault.line),
                "line {} of {lines}",
                fault.line
            );
            InputTrace::of_message(&fault.problem)
        }
    }
}
