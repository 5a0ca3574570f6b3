//! "Always allow" makes the same rule for a call in `run`, in `chat` and with `approvals rules`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolgate_testkit::terminal::{Key, Terminal, TerminalScreen};

use crate::run::world::RunWorld;

const PATCH: &str = "--- a/c.txt\n+++ b/c.txt\n@@ -1 +1 @@\n-one\n+two\n";

/// A call, and the arguments that can be added to it.
struct SampleCall {
    tool: &'static str,
    arguments: Value,
    more: Value,
}

/// Returns a call of each built-in tool.
fn sample_calls() -> Vec<SampleCall> {
    let edits = json!([{ "old": "one", "new": "two" }]);
    let digest = format!("sha256:{}", "0".repeat(64));
    let call = |tool, arguments, more| SampleCall {
        tool,
        arguments,
        more,
    };
    vec![
        call(
            "read_file",
            json!({ "path": "a.txt" }),
            json!({ "limit": 3 }),
        ),
        call(
            "write_file",
            json!({ "path": "b.txt", "content": "two\n" }),
            json!({ "must_not_exist": true }),
        ),
        call(
            "edit_file",
            json!({ "path": "a.txt", "edits": edits }),
            json!({ "expected_digest": digest }),
        ),
        call("apply_patch", json!({ "patch": PATCH }), json!({})),
        call(
            "list_dir",
            json!({ "path": "." }),
            json!({ "hidden": true, "depth": 1 }),
        ),
        call(
            "find_files",
            json!({ "glob": "*.txt" }),
            json!({ "path": "." }),
        ),
        call(
            "search_text",
            json!({ "pattern": "one", "context": 1 }),
            json!({ "literal": true, "max": 5 }),
        ),
        call(
            "run_shell",
            json!({ "command": "true && echo 'a~b/c' | cat" }),
            json!({ "timeout_ms": 5_000, "cwd": ".", "stdin": "x" }),
        ),
        call(
            "fetch_url",
            json!({ "url": "http://127.0.0.1:1/" }),
            json!({ "max_bytes": 10 }),
        ),
        call(
            "read_output",
            json!({ "output": digest }),
            json!({ "offset": 1 }),
        ),
        call(
            "undo_changes",
            json!({ "call": "call_1" }),
            json!({ "force": true }),
        ),
    ]
}

/// Returns the members of an object.
fn members(value: &Value) -> &serde_json::Map<String, Value> {
    value.as_object().expect("an object")
}

/// Returns a valid value that differs in one place.
fn change_value(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("---") => json!(text.replace("+two", "+three")),
        Value::String(text) if text.starts_with("sha256:") => json!(text.replace(":0", ":1")),
        Value::String(text) => json!(format!("{text}2")),
        Value::Number(number) => json!(number.as_u64().expect("a small number") + 1),
        Value::Bool(yes) => json!(!yes),
        Value::Array(items) => items.iter().map(change_value).collect(),
        Value::Object(map) => {
            let mut other = map.clone();
            let (_, first) = other.iter_mut().next().expect("not empty");
            *first = change_value(first);
            Value::Object(other)
        }
        Value::Null => Value::Null,
    }
}

/// Returns the sample calls with one argument changed or added.
fn changed_calls() -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    for sample in sample_calls() {
        let changed = members(&sample.arguments)
            .iter()
            .map(|(name, value)| (name, change_value(value)));
        let added = members(&sample.more).iter();
        for (name, value) in changed.chain(added.map(|(name, value)| (name, value.clone()))) {
            let mut other = sample.arguments.clone();
            other[name] = value;
            calls.push((sample.tool, other));
        }
    }
    calls
}

/// Returns a script in which the model makes all calls at once.
fn script_of(calls: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let calls: Vec<Value> = calls
        .into_iter()
        .map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments }))
        .collect();
    let replies = json!({ "reply": [{ "calls": calls }, { "text": "That was all." }] });
    toml::to_string(&replies).expect("TOML")
}

fn sample_script() -> String {
    script_of(
        sample_calls()
            .into_iter()
            .map(|sample| (sample.tool, sample.arguments)),
    )
}

fn new_world() -> RunWorld {
    let mut world = RunWorld::new(&sample_script());
    world.set_variable("TOOLGATE_TOOLS__UNDO", "true");
    // A file of its own: a change by another call would make the approval of the patch stale.
    world.write("c.txt", "one\n");
    world
}

const ASK: [&str; 2] = ["--approve", "ask"];

/// Returns the tool of the marked row in a list of requests.
fn listed_tool(row: &str) -> Option<String> {
    let (_, listed) = row.split_once('▸')?;
    let mut words = listed.split_whitespace();
    words
        .next()
        .filter(|number| number.parse::<u32>().is_ok())?;
    words.next().map(str::to_owned)
}

/// Decides on every pending approval with the keys of "always allow", in the scope of the project.
fn press_always(terminal: &mut Terminal, current: fn(&TerminalScreen) -> Option<String>) {
    let mut done = BTreeSet::new();
    for _ in sample_calls() {
        let is_next = |screen: &TerminalScreen| current(screen).filter(|tool| !done.contains(tool));
        let screen = terminal.wait_until("the next request", |screen| is_next(screen).is_some());
        let tool = is_next(&screen).expect("a request");
        terminal.press_key(Key::Char('a'));
        terminal.wait_for(&format!(
            "Always allow {tool} with these arguments, in this session?"
        ));
        terminal.press_key(Key::Char('p'));
        terminal.wait_until("a preview for the project", |screen| {
            screen.contains("in this project?") && screen.contains("so far")
        });
        terminal.press_key(Key::Char('y'));
        done.insert(tool);
    }
}

/// Returns the stored rules by tool, without what differs from call to call.
fn stored_rules(world: &RunWorld) -> BTreeMap<String, Value> {
    let rules = world.run_json(&["approvals", "rules", "list"]);
    let of_tool = |mut rule: Value| {
        assert_eq!(rule["signature"], "own");
        for part in ["id", "created_at", "signature", "effective"] {
            rule.as_object_mut().expect("an object").remove(part);
        }
        (rule["tool"].as_str().expect("a name").to_owned(), rule)
    };
    rules.into_iter().map(of_tool).collect()
}

/// Checks that the rules are the drafted ones, allow the same calls and no call that differs.
fn check_rules(mut world: RunWorld) {
    let rules = stored_rules(&world);
    let project = world.work().canonicalize().expect("there");
    for SampleCall {
        tool, arguments, ..
    } in sample_calls()
    {
        let named =
            |(name, value): (&String, &Value)| (format!("/{name}"), json!({ "equals": value }));
        let named: serde_json::Map<String, Value> = members(&arguments).iter().map(named).collect();
        let expected = json!({
            "effect": "allow", "tool": tool, "arguments": named, "owner": crate::account_name(),
            "scope": { "scope": "project", "project": project },
            "reason": "always, chosen for an approval request",
        });
        assert_eq!(rules.get(tool), Some(&expected), "{tool}");
    }
    let pending = |world: &RunWorld| world.run_json(&["approvals", "list"]).len();
    let before = pending(&world);
    world.set_script(&sample_script());
    let again = world.run_plain(&[&ASK[..], &["again"]].concat());
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(pending(&world), before, "no approval was requested");
    let changed = changed_calls();
    world.set_script(&script_of(changed.clone()));
    let other = world.run_plain(&[&ASK[..], &["other"]].concat());
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    assert_eq!(pending(&world), before + changed.len(), "{other:?}");
}

#[test]
fn always_in_run_allows_exactly_this_call_of_any_tool() {
    let world = new_world();
    let mut terminal = world
        .terminal(&[&ASK[..], &["go"]].concat())
        .size(120, 60)
        .spawn();
    press_always(&mut terminal, |screen| {
        let rows = screen.rows();
        let asked = |row: &String| Some(row.strip_prefix("Run ")?.strip_suffix('?')?.to_owned());
        let tool = |row: &String| asked(row).or_else(|| listed_tool(row));
        rows.iter().rev().find_map(tool)
    });
    assert_eq!(terminal.wait_exit(), 0);
    check_rules(world);
}

#[test]
fn always_in_chat_allows_exactly_this_call_of_any_tool() {
    let world = new_world();
    let mut terminal = world
        .chat(&[&ASK[..], &["go"]].concat())
        .size(120, 60)
        .spawn();
    // A request that arrives while a key is pressed may become the selected one; it was not seen yet.
    terminal.wait_for(&format!("{} approvals pending", sample_calls().len()));
    terminal.press_key(Key::Tab);
    press_always(&mut terminal, |screen| {
        let rows = screen.rows();
        rows.iter().find_map(|row| listed_tool(row))
    });
    terminal.wait_for("That was all.");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
    check_rules(world);
}

#[test]
fn a_rule_from_an_approval_allows_exactly_this_call_of_any_tool() {
    let world = new_world();
    let asked = world.run_plain(&[&ASK[..], &["go"]].concat());
    assert_eq!(asked.status.code(), Some(3), "{asked:?}");
    let waiting = world.run_json(&["approvals", "list"]);
    assert_eq!(waiting.len(), sample_calls().len(), "{asked:?}");
    for approval in waiting {
        let id = approval["approval_id"].as_str().expect("an id");
        let add = ["approvals", "rules", "add", "--from", id];
        world.run_json(&[&add[..], &["--scope", "project", "--yes"]].concat());
    }
    check_rules(world);
}
