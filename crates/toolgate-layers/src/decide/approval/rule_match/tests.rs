//! Tests of matching calls against standing rules.

use std::path::Path;

use serde_json::json;
use toolgate_testkit::call_with;

use super::*;

fn rule_with(value: Value) -> StandingRule {
    let mut whole = json!({
        "id": "r1", "effect": "allow", "tool": "run", "scope": { "scope": "global" }, "owner": "ann",
        "created_at": Timestamp::EPOCH,
    });
    let map = whole.as_object_mut().expect("an object");
    map.extend(value.as_object().expect("an object").clone());
    serde_json::from_value(whole).expect("a rule")
}

fn rule_matches(rule: StandingRule, tool: &str, arguments: Value) -> bool {
    match_in(Path::new("/nowhere"), rule, tool, arguments) == RuleMatch::Yes
}

fn match_in(root: &Path, rule: StandingRule, tool: &str, arguments: Value) -> RuleMatch {
    let root = PathRoot::new(root);
    let call = call_with(tool, arguments);
    let subject = RuleSubject::new(&call, session_id(1), Some("p"), &root);
    CompiledRule::new(rule, &root)
        .expect("a good rule")
        .match_call(&subject, Timestamp::EPOCH)
}

fn compile_rule(rule: StandingRule) -> Result<CompiledRule, InvalidRule> {
    CompiledRule::new(rule, &PathRoot::new(Path::new("/nowhere")))
}

fn session_id(n: u128) -> SessionId {
    format!("{n:032x}").parse().expect("an id")
}

fn command_rule(effect: &str, glob: &str) -> StandingRule {
    rule_with(json!({ "effect": effect, "arguments": { "/command": { "glob": glob } } }))
}

#[test]
fn a_bare_tool_name_is_too_wide_to_allow() {
    assert_eq!(
        compile_rule(rule_with(json!({}))).err(),
        Some(InvalidRule::TooWide)
    );
    let everything = json!({ "tool": "*", "arguments": { "/n": { "equals": 1 } } });
    assert_eq!(
        compile_rule(rule_with(everything)).err(),
        Some(InvalidRule::TooWide)
    );
    assert!(
        compile_rule(rule_with(
            json!({ "scope": { "scope": "project", "project": "p" } })
        ))
        .is_ok()
    );
    assert!(
        compile_rule(rule_with(json!({ "effect": "deny" }))).is_ok(),
        "a rule that denies may be wide"
    );
}

#[test]
fn a_rule_without_an_owner_or_with_invalid_parts_is_rejected() {
    let some = json!({ "/n": { "equals": 1 } });
    for bad in [
        json!({ "owner": " ", "arguments": some }),
        json!({ "id": "", "arguments": some }),
        json!({ "id": "a/b", "arguments": some }),
        json!({ "tool": "", "arguments": some }),
        json!({ "scope": { "scope": "project", "project": " " }, "arguments": some }),
        json!({ "tool": "[", "arguments": some }),
        json!({ "arguments": { "n": { "equals": 1 } } }),
        json!({ "arguments": { "/n": { "glob": "[" } } }),
    ] {
        assert!(
            matches!(
                compile_rule(rule_with(bad.clone())),
                Err(InvalidRule::Part { .. })
            ),
            "{bad}"
        );
    }
}

#[test]
fn every_named_argument_has_to_match() {
    let both =
        || rule_with(json!({ "arguments": { "/a": { "equals": 1 }, "/b/0": { "glob": "x*" } } }));
    assert!(rule_matches(both(), "run", json!({ "a": 1, "b": ["xy"] })));
    for other in [
        json!({ "a": 2, "b": ["xy"] }),
        json!({ "a": 1, "b": ["y"] }),
        json!({ "a": 1 }),
        json!({ "a": 1, "b": [1] }),
    ] {
        assert!(!rule_matches(both(), "run", other.clone()), "{other}");
    }
    assert!(!rule_matches(
        both(),
        "other",
        json!({ "a": 1, "b": ["xy"] })
    ));
}

#[test]
fn a_rule_that_allows_covers_no_argument_that_it_does_not_name() {
    let arguments = json!({ "/a": { "equals": 1 }, "/b/x": { "glob": "y*" }, "/c": "any" });
    let rule = |effect: &str| rule_with(json!({ "effect": effect, "arguments": arguments }));
    let named = json!({ "a": 1, "b": { "x": "yes" }, "c": [{ "deep": true }] });
    assert!(rule_matches(rule("allow"), "run", named.clone()));
    for (pointer, more) in [
        ("", "d"),
        ("", "a/b"),
        ("", ""),
        ("/b", "x/y"),
        ("/b", "~0"),
    ] {
        for value in [json!(null), json!({}), json!([]), json!("y")] {
            let mut other = named.clone();
            let into = other.pointer_mut(pointer).expect("there");
            into[more] = value;
            assert!(
                !rule_matches(rule("allow"), "run", other.clone()),
                "{other}"
            );
            assert!(rule_matches(rule("deny"), "run", other.clone()), "{other}");
        }
    }
    let none = rule_with(json!({ "scope": { "scope": "project", "project": "p" } }));
    assert!(rule_matches(none.clone(), "run", json!({})));
    assert!(!rule_matches(none, "run", json!({ "a": 1 })));
}

#[test]
fn an_argument_with_any_value_has_to_be_there_and_narrows_nothing() {
    let rule = |more: Value| {
        rule_with(json!({ "arguments": more, "scope": { "scope": "project", "project": "p" } }))
    };
    assert!(!rule_matches(
        rule(json!({ "/a": "any" })),
        "run",
        json!({})
    ));
    let mut wide = rule(json!({ "/a": "any" }));
    wide.scope = RuleScope::Global;
    assert_eq!(compile_rule(wide).err(), Some(InvalidRule::TooWide));
}

#[test]
fn the_text_of_a_rule_shows_every_argument_and_cannot_be_read_as_another_rule() {
    let arguments = json!({
        "/a": { "equals": "x\ny" }, "/b": { "glob": "docs/*" }, "/c": "any",
        "/d is 1\n": { "equals": 2 },
    });
    assert_eq!(
        rule_with(json!({ "arguments": arguments })).to_string(),
        r#"allow run where a is "x\ny" and b matches docs/* and c is any value and "/d is 1\n" is 2"#
    );
    assert_eq!(
        rule_with(json!({})).to_string(),
        "allow run without arguments"
    );
    let long = json!({ "arguments": { "/a": { "equals": "日".repeat(500) } } });
    let text = rule_with(long).to_string();
    assert!(text.ends_with("日… (1502 bytes)"), "{text}");
}

#[test]
fn a_star_that_allows_matches_no_second_command_and_no_other_directory() {
    for good in ["git log", "git log --oneline"] {
        assert!(
            rule_matches(
                command_rule("allow", "git log*"),
                "run",
                json!({ "command": good })
            ),
            "{good}"
        );
    }
    for bad in [
        "git log; rm -rf x",
        "git log && x",
        "git log | sh",
        "git log $(x)",
        "git log `x`",
        "git log\nx",
        "GIT LOG",
    ] {
        assert!(
            !rule_matches(
                command_rule("allow", "git log*"),
                "run",
                json!({ "command": bad })
            ),
            "{bad}"
        );
    }
    assert!(rule_matches(
        command_rule("allow", "src/**"),
        "run",
        json!({ "command": "src/a/b" })
    ));
    assert!(!rule_matches(
        command_rule("allow", "src/*"),
        "run",
        json!({ "command": "src/a/b" })
    ));
    assert!(!rule_matches(
        command_rule("allow", "src/**"),
        "run",
        json!({ "command": "src/../b" })
    ));
}

#[test]
fn a_control_character_is_allowed_only_where_the_pattern_has_it() {
    let allows = |glob: &str, command: &str| {
        rule_matches(
            command_rule("allow", glob),
            "run",
            json!({ "command": command }),
        )
    };
    assert!(allows("git log | head*", "git log | head -3"));
    assert!(!allows("git log | head*", "git log | head -3 | sh"));
    let shares = |text: &str| {
        let shared = json!({ "arguments": { "/note": { "glob": "../shared/**" } } });
        rule_matches(rule_with(shared), "run", json!({ "note": text }))
    };
    assert!(shares("../shared/a/b") && !shares("../shared/../../secret"));
    assert!(allows("{ls,git log}*", "git log -3"));
    assert!(
        !allows("{ls;pwd,ls}*", "ls;rm"),
        "one alternative does not allow the characters of another"
    );
    assert!(!allows("ls[!;]*", "ls -l;rm"));
}

#[test]
fn a_pattern_that_matches_everything_narrows_nothing() {
    for glob in ["*", "**", "**/*", "?*"] {
        let wide = rule_with(json!({ "arguments": { "/command": { "glob": glob } } }));
        assert_eq!(
            compile_rule(wide).err(),
            Some(InvalidRule::TooWide),
            "{glob}"
        );
    }
    let here = json!({ "scope": { "scope": "project", "project": "p" }, "arguments": { "/a": { "glob": "*" } } });
    assert!(
        compile_rule(rule_with(here)).is_ok(),
        "the project narrows it"
    );
}

#[test]
fn a_number_is_the_same_in_every_spelling() {
    for effect in ["allow", "deny"] {
        let one = || rule_with(json!({ "effect": effect, "arguments": { "/n": { "equals": 1 } } }));
        assert!(rule_matches(one(), "run", json!({ "n": 1.0 })), "{effect}");
        assert!(!rule_matches(one(), "run", json!({ "n": "1" })), "{effect}");
    }
}

#[test]
fn rules_that_deny_match_loosely() {
    for bad in ["rm -rf x", "RM -rf a/b; x"] {
        assert!(
            rule_matches(
                command_rule("deny", "rm *"),
                "run",
                json!({ "command": bad })
            ),
            "{bad}"
        );
    }
}

#[test]
fn a_rule_applies_in_its_scope_until_it_expires() {
    let scoped =
        |scope: Value| rule_with(json!({ "scope": scope, "arguments": { "/n": { "equals": 1 } } }));
    let n = || json!({ "n": 1 });
    assert!(rule_matches(
        scoped(json!({ "scope": "session", "session": session_id(1) })),
        "run",
        n()
    ));
    assert!(!rule_matches(
        scoped(json!({ "scope": "session", "session": session_id(2) })),
        "run",
        n()
    ));
    assert!(rule_matches(
        scoped(json!({ "scope": "project", "project": "p" })),
        "run",
        n()
    ));
    assert!(!rule_matches(
        scoped(json!({ "scope": "project", "project": "q" })),
        "run",
        n()
    ));
    let over = json!({ "expires_at": Timestamp::EPOCH, "arguments": { "/n": { "equals": 1 } } });
    assert!(!rule_matches(rule_with(over), "run", n()));
}

#[test]
fn an_argument_that_changes_a_command_is_not_covered_by_a_rule_about_the_command() {
    let rules = [
        command_rule("allow", "cargo test*"),
        rule_with(json!({ "arguments": { "/command": { "equals": "cargo test" } } })),
        rule_with(
            json!({ "arguments": { "/command": { "equals": "cargo test" }, "/cwd": { "equals": "." } } }),
        ),
    ];
    assert!(rule_matches(
        rules[0].clone(),
        "run",
        json!({ "command": "cargo test" })
    ));
    assert!(rule_matches(
        rules[1].clone(),
        "run",
        json!({ "command": "cargo test" })
    ));
    for rule in rules {
        for (name, value) in [
            ("stdin", json!("rm -rf /")),
            ("timeout", json!(1)),
            ("timeout_ms", json!(null)),
            ("env", json!({ "PATH": "." })),
            ("args", json!(["--config", "x"])),
            ("shell", json!("/tmp/sh")),
            ("network", json!(true)),
            ("cwd", json!("/tmp/elsewhere")),
            ("Command", json!("rm")),
        ] {
            let mut call = json!({ "command": "cargo test" });
            call[name] = value;
            assert!(
                !rule_matches(rule.clone(), "run", call.clone()),
                "{rule} {call}"
            );
        }
    }
}

#[test]
fn a_rule_that_allows_a_command_covers_what_the_policy_would_cover() {
    let allows = |glob: &str, command: &str| {
        rule_matches(
            command_rule("allow", glob),
            "run",
            json!({ "command": command }),
        )
    };
    for (glob, command) in [
        ("git log*", "git log --oneline"),
        ("cargo test *", "cargo test parser"),
        ("ls *", "ls -l src"),
        ("git *", "git status"),
        ("cargo *", "cargo check"),
    ] {
        assert!(allows(glob, command), "{glob}: {command}");
    }
    for (glob, command) in [
        ("git *", "git -c core.pager=x log"),
        ("git log*", "git log --output=/tmp/x"),
        ("cargo *", "cargo test --config x"),
        ("rg *", "rg --pre ./evil x"),
        ("find *", "find . -exec rm x"),
        ("sort *", "sort -o /etc/passwd x"),
        ("env *", "env rm x"),
    ] {
        assert!(!allows(glob, command), "{glob}: {command}");
    }
}

#[test]
fn a_rule_that_denies_a_command_finds_it_like_the_policy() {
    let equals = |text: &str| {
        rule_with(json!({ "effect": "deny", "arguments": { "/command": { "equals": text } } }))
    };
    for rule in [
        command_rule("deny", "rm *"),
        command_rule("deny", "rm*"),
        equals("rm"),
    ] {
        for command in [
            json!("rm -rf x"),
            json!("ls; rm x"),
            json!("sudo rm x"),
            json!("/bin/rm x"),
            json!("sh -c 'rm x'"),
            json!("true && \\rm x"),
            json!("xargs rm < list"),
            json!("r''m x"),
            json!(["rm", "-rf", "x"]),
        ] {
            let found = match_in(
                Path::new("/nowhere"),
                rule.clone(),
                "run",
                json!({ "command": command }),
            );
            assert_ne!(found, RuleMatch::No, "{rule}: {command}");
        }
        for command in ["ls", "cargo test", "echo form"] {
            assert!(
                !rule_matches(rule.clone(), "run", json!({ "command": command })),
                "{rule}: {command}"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn a_path_of_a_rule_that_allows_has_to_lead_where_it_is_spelled() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("it exists");
    std::fs::create_dir_all(root.join("docs/deep")).expect("created");
    std::fs::create_dir_all(root.join(".git")).expect("created");
    std::fs::write(root.join("docs/plain.md"), "").expect("written");
    symlink("../.git/config", root.join("docs/notes.md")).expect("linked");
    symlink("../.git", root.join("docs/dir")).expect("linked");
    symlink(root.join(".git/config"), root.join("docs/absolute.md")).expect("linked");
    symlink("notes.md", root.join("docs/chain.md")).expect("linked");
    symlink("plain.md", root.join("docs/inside.md")).expect("linked");
    let glob = |glob: &str| rule_with(json!({ "arguments": { "/path": { "glob": glob } } }));
    let exact = |path: &str| rule_with(json!({ "arguments": { "/path": { "equals": path } } }));
    let allows = |rule: StandingRule, path: &str| {
        match_in(&root, rule, "run", json!({ "path": path })) == RuleMatch::Yes
    };
    let absolute = |path: &str| root.join(path).display().to_string();
    for path in ["docs/plain.md", "docs/new.md", "docs/inside.md"] {
        assert!(allows(glob("docs/*"), path), "{path}");
    }
    assert!(allows(exact("docs/plain.md"), "docs/plain.md"));
    assert!(allows(
        exact(&absolute("docs/plain.md")),
        &absolute("docs/plain.md")
    ));
    for path in ["docs/notes.md", "docs/absolute.md", "docs/chain.md"] {
        assert!(!allows(glob("docs/*"), path), "{path}");
        assert!(!allows(exact(path), path), "{path}");
        assert!(!allows(exact(&absolute(path)), &absolute(path)), "{path}");
        assert!(
            !allows(glob(&absolute("docs/*")), &absolute(path)),
            "{path}"
        );
    }
    for path in [
        "docs/dir/config",
        "docs/dir/hooks/x",
        "docs/deep/../dir/config",
    ] {
        assert!(!allows(glob("docs/**"), path), "{path}");
        assert!(!allows(exact(path), path), "{path}");
        assert!(
            !allows(glob(&absolute("docs/**")), &absolute(path)),
            "{path}"
        );
    }
    let patch = "--- a/docs/notes.md\n+++ b/docs/notes.md\n@@ -1 +1 @@\n-a\n+b\n";
    let rule = rule_with(json!({ "arguments": { "/patch": { "equals": patch } } }));
    assert_eq!(
        match_in(&root, rule, "run", json!({ "patch": patch })),
        RuleMatch::No
    );
}

#[cfg(unix)]
#[test]
fn a_rule_that_denies_a_path_finds_it_in_any_spelling_and_through_links() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("it exists");
    std::fs::create_dir_all(root.join("private")).expect("created");
    std::os::unix::fs::symlink("private", root.join("open")).expect("linked");
    std::os::unix::fs::symlink("private/a.txt", root.join("a")).expect("linked");
    let absolute = root.join("private/a.txt").display().to_string();
    let deny =
        |pattern: Value| rule_with(json!({ "effect": "deny", "arguments": { "/path": pattern } }));
    for rule in [
        deny(json!({ "glob": "private/*" })),
        deny(json!({ "glob": "private/**" })),
        deny(json!({ "equals": "private/a.txt" })),
    ] {
        for path in [
            "private/a.txt",
            "./private/a.txt",
            "open/a.txt",
            "a",
            "PRIVATE/a.txt",
            "x/../private/a.txt",
            &absolute,
        ] {
            let found = match_in(&root, rule.clone(), "run", json!({ "path": path }));
            assert_eq!(found, RuleMatch::Yes, "{rule}: {path}");
        }
        let other = match_in(&root, rule.clone(), "run", json!({ "path": "docs/b.txt" }));
        assert_eq!(other, RuleMatch::No, "{rule}");
    }
    let other = match_in(
        &root,
        deny(json!({ "equals": "a.txt" })),
        "run",
        json!({ "path": "docs/a.txt" }),
    );
    assert_eq!(
        other,
        RuleMatch::No,
        "an exact path is not one of the same name elsewhere"
    );
}
