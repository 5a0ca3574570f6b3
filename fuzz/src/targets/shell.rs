//! Commands: what a shell would run under a denial is never allowed, and what is allowed runs only
//! what a rule names.

use std::sync::LazyLock;

use serde_json::json;
use toolgate_layers::{Policy, PolicyEffect, PolicyOptions};
use toolgate_testkit::call_with;

use crate::{FuzzTarget, InputTrace, MemoryBound, targets::shell_words::read_shell};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("shell", run, WORDS)
    .with_max_bytes(16 << 10)
    .with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 4096,
    });

const WORDS: &[&str] = &[
    "rm",
    "rm -rf /",
    "r\\m",
    "'rm'",
    "git status",
    "git",
    "status",
    "ls",
    "cargo test",
    " ",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "\n",
    "\\\n",
    "$(",
    ")",
    "`",
    "${x:-rm}",
    "$x",
    "$'rm'",
    "\"",
    "'",
    "\\",
    "#",
    ">",
    "<",
    ">>",
    "2>&1",
    ">/dev/null",
    "<<E",
    "(",
    "{",
    "}",
    "{r,}m",
    "X=1",
    "env ",
    "env -S",
    "sudo ",
    "xargs ",
    "sh -c ",
    "bash -c ",
    "eval ",
    "exec ",
    "command ",
    "if ",
    "then ",
    "fi",
    "do ",
    "! ",
    "time ",
    "/bin/rm",
    "../rm",
    "./rm",
    "r*",
    "r?",
    "[r]m",
    "~",
    "--exec=rm",
    "-c",
    "alias",
    "cd ",
    "find . -exec ",
    "-delete",
    "\u{a0}",
    "\u{200b}",
    "\u{b}",
    "\r",
    "RM",
    "busybox rm",
    "function rm",
];

/// Allows three commands, and everything else needs approval.
static ALLOWING: LazyLock<Policy> = LazyLock::new(|| {
    parse_policy(
        "default = 'ask'\n[[rules]]\neffect = 'allow'\ncommand = ['git status', 'ls', 'cargo test']",
    )
});

/// Denies one command, and everything else is allowed.
static DENYING: LazyLock<Policy> = LazyLock::new(|| {
    parse_policy(
        "default = 'allow'\nsecrets_files = false\n[[rules]]\neffect = 'deny'\ncommand = 'rm'",
    )
});

static BOTH: LazyLock<Policy> = LazyLock::new(|| ALLOWING.combine(&DENYING));

const ALLOWED: [&[&str]; 3] = [&["git", "status"], &["ls"], &["cargo", "test"]];

pub(super) fn parse_policy(text: &str) -> Policy {
    let options: PolicyOptions = toml::from_str(text).expect("valid rules");
    Policy::new(options).expect("valid rules")
}

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    // No program can be started with a NUL byte among its arguments.
    if text.contains('\0') {
        return InputTrace::NOTHING;
    }
    let call = call_with("run_shell", json!({ "command": text }));
    let [allowing, denying, both] =
        [&ALLOWING, &DENYING, &BOTH].map(|policy| policy.judge(&call).effect);
    let reading = read_shell(&text);
    let names = || {
        reading
            .commands
            .iter()
            .filter_map(|words| words.first()?.as_deref())
    };
    let removes = names().any(|name| name.rsplit('/').next() == Some("rm"));
    assert!(
        !(removes && denying == PolicyEffect::Allow),
        "rm is denied, and the text that runs it is allowed"
    );
    if allowing == PolicyEffect::Allow {
        let covered = |words: &Vec<Option<String>>| {
            ALLOWED.iter().any(|prefix| {
                words.len() >= prefix.len()
                    && prefix
                        .iter()
                        .zip(words)
                        .all(|(a, b)| Some(*a) == b.as_deref())
            })
        };
        assert!(!reading.is_complex, "more than plain commands is allowed");
        assert!(
            reading.commands.iter().all(covered),
            "a command that no rule names is allowed"
        );
    }
    assert!(
        both >= allowing.max(denying),
        "two policies are looser than one of them"
    );
    InputTrace::of((
        allowing,
        denying,
        reading.is_complex,
        reading.commands.len().min(4),
        removes,
    ))
}
