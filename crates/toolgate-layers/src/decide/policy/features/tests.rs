use std::path::Path;

use serde_json::{Value, json};
use toolgate_testkit::call_with;

use super::*;

fn with_features<T>(arguments: Value, look: impl FnOnce(&CallFeatures<'_>) -> T) -> T {
    let call = call_with("x", arguments);
    let root = PathRoot::new(Path::new("/nowhere"));
    look(&CallFeatures::extract_from(
        &call,
        &root,
        FeatureNeeds {
            paths: true,
            commands: true,
            urls: true,
        },
        0,
    ))
}

#[test]
fn paths_are_found_by_name_at_any_depth() {
    for (arguments, count) in [
        (json!({ "path": "a" }), 1),
        (
            json!({ "filePath": "a", "old_path": "b", "path2": "c", "to": "d" }),
            4,
        ),
        (
            json!({ "path": "a", "cwd": "b", "patch": "*** Update File: c\n" }),
            5,
        ),
        (
            json!({ "edits": [{ "path": "a" }, { "path": "b" }], "files": ["c", ["d"]] }),
            4,
        ),
        (json!({ "file": { "path": "a" } }), 1),
        (json!({ "text": "a", "profile": "b", "path": null }), 0),
    ] {
        assert_eq!(
            with_features(arguments.clone(), |facts| facts.places.len()),
            count,
            "{arguments}"
        );
    }
    assert!(!with_features(json!({ "path": 7 }), |facts| facts.paths_certain));
    assert!(with_features(json!({ "path": "a\0b" }), |facts| facts.lost));
    let code = json!({ "source": "x".repeat(9000) });
    assert_eq!(
        with_features(code, |facts| (facts.lost, facts.paths_certain)),
        (false, false)
    );
}

#[test]
fn a_command_is_read_from_text_from_words_or_with_separate_arguments() {
    let runs = |arguments: Value| {
        with_features(arguments, |facts| {
            facts
                .certain_runs()
                .map(|runs| runs.iter().map(|words| words.join(" ")).collect::<Vec<_>>())
        })
    };
    assert_eq!(
        runs(json!({ "command": "ls; pwd" })),
        Some(vec!["ls".to_owned(), "pwd".to_owned()])
    );
    assert_eq!(
        runs(json!({ "argv": ["git", "status"] })),
        Some(vec!["git status".to_owned()])
    );
    assert_eq!(
        runs(json!({ "command": "git", "args": ["push"] })),
        Some(vec!["git push".to_owned()])
    );
    assert_eq!(
        runs(json!({ "commands": ["ls", "pwd x"] })),
        Some(vec!["ls".to_owned(), "pwd x".to_owned()])
    );
    for uncertain in [
        json!({ "command": ["sh", "-c", "ls"] }),
        json!({ "command": "ls; git", "args": ["push"] }),
        json!({ "command": "git", "args": "push" }),
        json!({ "command": "git", "args": ["; rm"] }),
        json!({ "command": { "run": "ls" } }),
        json!({ "cmd": "ls", "script": "$(x)" }),
        json!({ "command": "ls", "env": { "PATH": "." } }),
        json!({ "command": "ls", "ENV": { "PATH": "." } }),
        json!({ "command": "ls", "env_vars": ["PATH=."] }),
        json!({ "command": "ls", "opts": { "env": { "PATH": "." } } }),
        json!({ "command": "git", "args": ["status"], "arguments": ["push"] }),
        json!({ "command": "git", "Args": "push" }),
        json!({ "command": "git", "args": ["push", 0] }),
        json!({ "command": "ls", "stdin": "x" }),
        json!({ "command": "python", "input": "x" }),
        json!({ "command": "ls", "cwd": "/elsewhere" }),
        json!({ "command": format!("ls {}", "x".repeat(20_000)) }),
    ] {
        assert_eq!(runs(uncertain.clone()), None, "{uncertain}");
    }
}

#[test]
fn hosts_are_found_by_name_in_commands_and_where_a_text_is_a_url() {
    let hosts = |arguments: Value| {
        with_features(arguments, |facts| {
            facts
                .urls
                .iter()
                .map(|url| url.plain.as_ref().map(|plain| plain.host.clone()))
                .collect::<Vec<_>>()
        })
    };
    for arguments in [
        json!({ "url": "https://a.com/x" }),
        json!({ "hostname": "A.com:80" }),
        json!({ "command": "curl https://a.com" }),
        json!({ "what": "https://a.com" }),
    ] {
        assert_eq!(
            hosts(arguments.clone()),
            [Some("a.com".to_owned())],
            "{arguments}"
        );
    }
    assert_eq!(hosts(json!({ "url": "a.com" })), [None]);
    assert_eq!(
        hosts(json!({ "content": "see https://a.com for more" })),
        []
    );
    assert_eq!(hosts(json!({ "path": " https://a.com" })), [None]);
    assert_eq!(hosts(json!({ "page": "//a.com/x" })), [None]);
}
