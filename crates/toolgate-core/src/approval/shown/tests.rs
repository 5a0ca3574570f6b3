use super::*;
use crate::{
    ApprovalChange, Arguments, Call, FileState, Json, PathLink, RedactionError, SecretSource,
    VisiblePart,
};
use proptest::prelude::*;
use serde_json::json;

/// A redactor that takes every occurrence of one value for a known secret.
struct KnowsValue(&'static str);

impl Redactor for KnowsValue {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        Ok(value.clone())
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.to_owned())
    }
    fn find_secrets(&self, _: Option<&str>, text: &str) -> Vec<SecretSpan> {
        let span = |(at, found): (usize, &str)| SecretSpan {
            range: at..at + found.len(),
            source: SecretSource::Known,
        };
        text.match_indices(self.0).map(span).collect()
    }
}

const SECRET: &str = "hV9xQ2mLr7TzPw4K";

fn request(arguments: Value) -> ApprovalRequest {
    let json = Json::new(arguments).expect("shallow");
    let arguments = Arguments::try_from(json).expect("an object");
    ApprovalRequest::for_call(&Call::detached("shell", arguments))
}

/// Reads a field back; `masked` stands for what a mask covers.
fn read_back(field: &ShownField, masked: &str) -> String {
    let part = |part: VisiblePart| match part {
        VisiblePart::Text(text) => text,
        VisiblePart::Masked(length) => {
            assert_eq!(length, masked.chars().count());
            masked.to_owned()
        }
    };
    let line = |line: &VisibleText| -> String {
        let parts = line.parts().expect("visible text");
        parts.into_iter().map(part).collect()
    };
    let mut text = field.lines.iter().map(line).collect::<Vec<_>>().join("\n");
    let last = field.lines.last().map_or("", |line| line.as_str());
    if field.is_block && !last.ends_with("⟨no line end⟩") {
        text.push('\n');
    }
    text
}

fn field<'a>(shown: &'a ShownRequest, name: &str) -> &'a ShownField {
    let found = shown
        .fields
        .iter()
        .find(|field| field.name.as_str() == name);
    found.unwrap_or_else(|| panic!("no field {name} in {shown}"))
}

#[test]
fn an_approver_sees_the_whole_call_and_why_it_is_asked_about() {
    let mut request =
        request(json!({ "command": "ls", "count": 3, "text": "3" })).with_reason("it runs");
    request.stated_reason = Some("to look\u{202e} around".into());
    request.workspace = Some("/srv/a\u{200b}b".into());
    request.changed.push(ApprovalChange::File {
        path: "a\u{200b}b".into(),
    });
    request.files.push(FileState {
        path: "x\ry".into(),
        digest: None,
    });
    request.links.push(PathLink {
        path: "docs/a→b".into(),
        target: ".git/config".into(),
    });
    assert_eq!(
        request.show(None).to_string(),
        "tool: shell\nwhy: it runs\nreason of the model: to look⟨U+202E⟩ around\nrisk: reaches other machines\nworkspace: /srv/a⟨U+200B⟩b\n\
         requested again: a⟨U+200B⟩b has changed since it was approved\nfile: x⟨U+000D⟩y\n\
         link: docs/a⟨U+2192⟩b → .git/config\ncommand: ls\ncount: 3 ⟨number⟩\ntext: 3\n"
    );
}

#[test]
fn nothing_is_left_out_however_long_it_is() {
    let lines = |count: usize| {
        (0..count)
            .map(|n| format!("echo {n}\n"))
            .collect::<String>()
    };
    for command in [
        lines(41),
        lines(5_000),
        "x".repeat(1 << 20),
        "é ".repeat(40_000),
        "\n".repeat(300),
    ] {
        let shown = request(json!({ "command": command })).show(None);
        assert!(
            read_back(field(&shown, "command"), "") == command,
            "{} bytes",
            command.len()
        );
    }
}

#[test]
fn a_diff_is_shown_beside_the_arguments_and_a_patch_once() {
    let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
    let write = request(json!({ "path": "x", "content": "b\n" })).with_preview(diff.into());
    let shown = write.show(None);
    assert_eq!(field(&shown, "content").head(), "content: ⟨1 line⟩");
    assert_eq!(field(&shown, "change").kind, ShownKind::Diff);
    let patch = request(json!({ "patch": diff }))
        .with_preview(diff.into())
        .show(None);
    assert_eq!(
        patch.fields.iter().filter(|field| field.is_block).count(),
        1
    );
    assert_eq!(read_back(field(&patch, "patch"), ""), diff);
    let twice = request(json!({ "patch": diff, "script": diff })).with_preview(diff.into());
    let twice = twice.show(None);
    for name in ["patch", "script"] {
        assert_eq!(read_back(field(&twice, name), ""), diff, "{name}");
    }
}

#[test]
fn an_argument_cannot_pass_for_a_fact_or_for_another_argument() {
    let shown = request(json!({
        "risk": "only reads", "why": "approved", "a/b": "1", "a": { "b": "2", "b/c": "3" },
        "command": "ls\nrisk: only reads\n  │ x"
    }))
    .show(None);
    let names: Vec<&str> = shown
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "risk",
            "a/b",
            "a/b~1c",
            "a~1b",
            "command",
            "argument risk",
            "argument why"
        ]
    );
    let text = shown.to_string();
    let lines = |arguments: Value| request(arguments).show(None).to_string();
    assert_ne!(lines(json!({ "a": "b: c" })), lines(json!({ "a: b": "c" })));
    assert!(lines(json!({ "  │ x": "y" })).contains("\n⟨U+0020⟩ ⟨U+2502⟩ x: y\n"));
    assert!(lines(json!({ "": "y" })).contains("\n⟨empty⟩: y\n"));
    assert!(
        text.contains("\n  │ risk: only reads\n  │   │ x⟨no line end⟩\n"),
        "{text}"
    );
}

#[test]
fn a_secret_is_masked_where_it_is_a_value_and_code_never_is() {
    let known = KnowsValue(SECRET);
    for (command, expected) in [
        (
            format!("TOKEN={SECRET} ./deploy"),
            "TOKEN=⟨masked: 16 characters⟩ ./deploy",
        ),
        (
            format!("cd x; {SECRET}"),
            "cd x; hV9xQ2mLr7TzPw4K⟨looks like a secret⟩",
        ),
        (
            format!("cat > {SECRET}"),
            "cat > hV9xQ2mLr7TzPw4K⟨looks like a secret⟩",
        ),
    ] {
        let shown = request(json!({ "command": command })).show(Some(&known));
        assert_eq!(field(&shown, "command").lines[0].as_str(), expected);
    }
}

#[test]
fn a_redactor_that_panics_hides_nothing() {
    struct Panics;
    impl Redactor for Panics {
        fn redact(&self, _: &Json) -> Result<Json, RedactionError> {
            panic!("broken")
        }
        fn redact_text(&self, _: &str) -> Result<String, RedactionError> {
            panic!("broken")
        }
        fn find_secrets(&self, _: Option<&str>, _: &str) -> Vec<SecretSpan> {
            panic!("broken")
        }
    }
    let request = request(json!({ "command": "ls" }));
    assert_eq!(request.show(Some(&Panics)), request.show(None));
}

/// Returns the texts of a value in the order in which they are shown.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(members) => members.values().for_each(|member| texts(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "(?s).{0,6}",
        prop::sample::select(vec![
            "\n", "\r", " ", "\t", "⟨", "TOKEN=", SECRET, ": ", ";", "\u{200b}", "\u{202e}"
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_byte_of_the_call_that_no_mask_covers_is_visible(
        first in any_text(), second in any_text(), third in any_text(), flag in any::<bool>(),
    ) {
        let arguments = json!({ "command": first, "edits": [{ "new": second, "all": flag }, third], "n": [1, 2] });
        let shown = request(arguments.clone()).show(Some(&KnowsValue(SECRET)));
        let mut expected = Vec::new();
        texts(&arguments, &mut expected);
        let is_text = |field: &&ShownField| {
            let last = field.lines.last().map_or("", |line| line.as_str());
            field.kind == ShownKind::Argument && !last.ends_with(" ⟨boolean⟩") && !last.ends_with(" ⟨list⟩")
        };
        let read: Vec<String> =
            shown.fields.iter().filter(is_text).map(|field| read_back(field, SECRET)).collect();
        prop_assert_eq!(read, expected);
    }
}
