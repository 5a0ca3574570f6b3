//! Tests of parsing scenarios, and of the errors for invalid ones.

use super::*;
use futures::{StreamExt, executor::block_on};
use toolgate_core::{Delta, Model, ModelError, ModelRequest, RawArguments, Reply};

fn reply(model: &ScriptedModel) -> Result<Reply, ModelError> {
    let pieces: Vec<_> = block_on(model.reply(&ModelRequest::default()).collect());
    match pieces.into_iter().next_back().expect("a last delta")? {
        Delta::Done(reply) => Ok(*reply),
        other => panic!("{other:?}"),
    }
}

const TOML: &str = r#"
    model = "scripted:captain"
    [[reply]]
    error = { kind = "overloaded", detail = "busy", status = 529, retry_after = "500ms" }
    [[reply]]
    reasoning = "hm"
    text = "I look."
    calls = [{ tool = "read", arguments = { path = "a", deep = [1, { x = true }] } }, { tool = "raw", arguments = "{", id = "c" }, { tool = "none" }]
    usage = { input = 5, output = 2 }
    finish = "length"
"#;
const JSON: &str = r#"{
    "model": "scripted:captain",
    "reply": [
        { "error": { "kind": "overloaded", "detail": "busy", "status": 529, "retry_after": "500ms" } },
        {
            "reasoning": "hm", "text": "I look.",
            "calls": [
                { "tool": "read", "arguments": { "path": "a", "deep": [1, { "x": true }] } },
                { "tool": "raw", "arguments": "{", "id": "c" },
                { "tool": "none" }
            ],
            "usage": { "input": 5, "output": 2 }, "finish": "length"
        }
    ]
}"#;

#[test]
fn toml_and_json_are_equivalent() {
    for model in [
        ScriptedModel::from_toml(TOML),
        ScriptedModel::from_json(JSON),
    ] {
        let model = model.expect("a scenario");
        assert_eq!(model.name().to_string(), "scripted:captain");
        let error = reply(&model).expect_err("the first line fails");
        assert_eq!(
            (error.kind, error.status),
            (ModelErrorKind::Overloaded, Some(529))
        );
        assert_eq!(error.retry_after, Some(Duration::from_millis(500)));
        let reply = reply(&model).expect("the second does not");
        assert_eq!(
            (reply.message.text(), reply.finish),
            ("I look.".to_owned(), FinishReason::Length)
        );
        assert_eq!(
            reply.usage,
            Some(Usage {
                input: 5,
                output: 2,
                ..Usage::default()
            })
        );
        // Parsed again, since the order of fields is not guaranteed; text that is no JSON is
        // compared as it is.
        let calls = reply.message.calls().map(|call| match &call.arguments {
            RawArguments::Text(text) => (
                call.tool.as_str(),
                serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
            ),
            RawArguments::Json(json) => panic!("{json} is not text"),
        });
        let wanted = [
            (
                "read",
                serde_json::json!({ "path": "a", "deep": [1, { "x": true }] }),
            ),
            ("raw", serde_json::json!("{")),
            ("none", serde_json::json!({})),
        ];
        assert_eq!(calls.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn an_unknown_word_is_named_with_its_position_and_the_nearest_known_one() {
    let cases = [
        (
            "[[reply]]\ntextt = \"x\"",
            "scenario.toml:2:1: reply[0] has no key `textt`; the nearest is `text`",
        ),
        (
            "[[replies]]\ntext = \"x\"",
            "scenario.toml:1:3: the scenario has no key `replies`; the nearest is `reply`",
        ),
        (
            "[[reply]]\ntext = \"x\"\n[[reply]]\ncalls = [{ tol = \"x\" }]",
            "scenario.toml:4:12: reply[1].calls[0] has no key `tol`; the nearest is `tool`",
        ),
        (
            "[[reply]]\nwhen = { last_contain = \"x\" }",
            "scenario.toml:2:10: reply[0].when has no key `last_contain`; the nearest is `last_contains`",
        ),
        (
            "[[reply]]\nerror = { kind = \"overload\" }",
            "scenario.toml:2:18: reply[0].error.kind has no word `overload`; the nearest is `overloaded`",
        ),
    ];
    for (text, wanted) in cases {
        let error = ScriptedModel::from_toml(text).expect_err(wanted);
        assert_eq!(error.to_string(), wanted);
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.starts_with("known are "))
        );
    }
    let error =
        ScriptedModel::from_json("{\"reply\": [\n{ \"txt\": \"x\" }]}").expect_err("a wrong key");
    assert!(
        error.to_string().starts_with("scenario.json:2:7: "),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("has no key `txt`; the nearest is `text`"),
        "{error}"
    );
}

#[test]
fn an_invalid_value_is_named_with_its_position() {
    let cases = [
        (
            "[[reply]]\ntext = 3",
            "scenario.toml:2:8: reply[0].text: invalid type: integer `3`, expected a string",
        ),
        (
            "chunk = 0",
            "scenario.toml:1:9: chunk: invalid value: integer `0`, expected a nonzero usize",
        ),
        (
            "model = \"x\"",
            "scenario.toml: model: \"x\" is not a model; write it as provider:model",
        ),
        (
            "[[reply]]",
            "scenario.toml: reply 1: is empty; give it text, reasoning, calls or error",
        ),
        (
            "[[reply]]\ntext = \"x\"\nrepeat = 0",
            "scenario.toml:3:10: reply[0].repeat: invalid value: integer `0`, expected a whole number of at least 1 or \"always\"",
        ),
        (
            "[[reply]]\ntext = \"x\"\nrepeat = \"ever\"",
            "scenario.toml:3:10: reply[0].repeat: invalid value: string \"ever\", expected a whole number of at least 1 or \"always\"",
        ),
        (
            "[[reply]]\ntext = \"x\"\nrepeat = \"always\"\n[[reply]]\ntext = \"y\"",
            "scenario.toml: reply 2: is never reached: the reply before it is always repeated",
        ),
        (
            "[[reply]]\nwhen = { last_contains = \"x\" }\ntext = \"x\"\nrepeat = 2",
            "scenario.toml: reply 1: has `when` and `repeat`; set `repeat` on the last of the alternatives",
        ),
        (
            "[[reply]]\ncalls = [{ tool = \"x\", arguments = { day = 2026-01-02 } }]",
            "scenario.toml: reply 1: has an unquoted date in its arguments; JSON has no dates",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(
            ScriptedModel::from_toml(text)
                .expect_err(wanted)
                .to_string(),
            wanted
        );
    }
    assert!(
        ScriptedModel::from_toml("[[reply]")
            .expect_err("not TOML")
            .to_string()
            .starts_with("scenario.toml:1:")
    );
}

#[test]
fn a_file_is_read_by_its_name_and_a_missing_one_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("a.toml", TOML), ("a.json", JSON)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writes");
        assert!(ScriptedModel::load(&path).is_ok(), "{name}");
    }
    let error = ScriptedModel::load(folder.path().join("none.toml")).expect_err("no such file");
    assert!(
        error
            .to_string()
            .contains("none.toml: the scenario cannot be read: "),
        "{error}"
    );
}
