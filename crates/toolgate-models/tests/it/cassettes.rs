//! Cassettes: recorded exchanges can be replayed, hold no secret, and damaged files are reported.

use std::{path::Path, sync::Arc, time::Duration};

use futures::{StreamExt, executor::block_on, stream, stream::BoxStream};
use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::{
    Delta, Effort, FinishReason, Json, Message, MessagePart, Model, ModelError, ModelErrorKind,
    ModelName, ModelRequest, PartContent, RedactionError, Redactor, Registry, Reply, Role,
    RoutedModel, Schema, TaskComplexity, ToolAnswer, ToolChoice, ToolRequest, ToolSpec, Usage,
};
use toolgate_models::{CassetteError, RecordingModel, ReplayModel, ScriptLine, ScriptedModel};

/// A model that replies with fixed deltas.
struct Fixed(ModelName, Vec<Result<Delta, ModelError>>);

impl Model for Fixed {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        stream::iter(self.1.clone()).boxed()
    }
}

/// A redactor that knows one secret and one secret field, or fails.
enum Redaction {
    Works,
    Fails,
    Panics,
}

impl Redaction {
    fn text(text: &str) -> String {
        text.replace("CANARY", "[gone]")
    }

    fn value(value: &Value) -> Value {
        match value {
            Value::String(text) => Self::text(text).into(),
            Value::Array(items) => items.iter().map(Self::value).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| {
                    (
                        key.clone(),
                        if key == "password" {
                            "[gone]".into()
                        } else {
                            Self::value(value)
                        },
                    )
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }
}

impl Redactor for Redaction {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        match self {
            Self::Works => Json::new(Self::value(value)).map_err(|_| RedactionError),
            Self::Fails => Err(RedactionError),
            Self::Panics => panic!("a broken redactor"),
        }
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        match self {
            Self::Works => Ok(Self::text(text)),
            Self::Fails => Err(RedactionError),
            Self::Panics => panic!("a broken redactor"),
        }
    }
}

fn redactor() -> Arc<dyn Redactor> {
    Arc::new(Redaction::Works)
}

fn name() -> ModelName {
    ModelName::new("test", "fixed")
}

fn play(model: &impl Model, request: &ModelRequest) -> Vec<Result<Delta, ModelError>> {
    block_on(model.reply(request).collect())
}

fn asked(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ModelRequest::default()
    }
}

fn reply_text(pieces: &[Result<Delta, ModelError>]) -> String {
    match pieces.last() {
        Some(Ok(Delta::Done(reply))) => reply.message.text(),
        other => panic!("no reply but {other:?}"),
    }
}

fn failure(pieces: &[Result<Delta, ModelError>]) -> &ModelError {
    pieces
        .last()
        .and_then(|piece| piece.as_ref().err())
        .expect("an error")
}

fn result(call_id: &str, text: &str) -> Message {
    let answer = ToolAnswer {
        call_id: call_id.into(),
        tool: "read".into(),
        text: text.into(),
        is_error: false,
        media: Vec::new(),
    };
    Message::new(Role::Tool, vec![PartContent::Result(answer).into()])
}

fn calling(id: &str) -> Message {
    Message::new(
        Role::Assistant,
        vec![PartContent::Call(ToolRequest::from_text(id, "read", r#"{"path":"a"}"#)).into()],
    )
}

fn delta() -> impl Strategy<Value = Delta> {
    let routed = RoutedModel {
        requested: "a:b".into(),
        selected: "c:d".into(),
        reason: "cheaper".into(),
        weight: Some(TaskComplexity::Light),
    };
    prop_oneof![
        Just(Delta::Routed(routed)),
        any::<String>().prop_map(Delta::Text),
        any::<String>().prop_map(Delta::Reasoning),
        (0..3usize, any::<String>(), any::<String>()).prop_map(|(index, id, tool)| Delta::Call {
            index,
            id,
            tool
        }),
        (0..3usize, any::<String>()).prop_map(|(index, text)| Delta::Arguments { index, text }),
    ]
}

fn last() -> impl Strategy<Value = Result<Delta, ModelError>> {
    let reply = (
        any::<String>(),
        any::<String>(),
        any::<Option<String>>(),
        any::<u64>(),
    )
        .prop_map(|(text, arguments, id, input)| {
            let parts = vec![
                MessagePart::from_text(&*text).with_native(
                    "wire",
                    json!({ "signature": text, "n": input, "x": [null, 1.5] }),
                ),
                PartContent::Call(ToolRequest::from_text("c", "t", &arguments)).into(),
                PartContent::Call(ToolRequest::from_json("c", "t", json!({ "a": arguments })))
                    .into(),
                PartContent::Opaque.into(),
            ];
            let usage = Some(Usage {
                input,
                ..Usage::default()
            });
            let message = Message::new(Role::Assistant, parts);
            Ok(Delta::Done(Box::new(Reply {
                message,
                usage,
                finish: FinishReason::Length,
                model: id.clone(),
                id,
            })))
        });
    let error = (
        any::<String>(),
        any::<Option<u16>>(),
        any::<Option<Duration>>(),
    )
        .prop_map(|(detail, status, wait)| {
            let error = ModelError::new(ModelErrorKind::Overloaded, name(), detail);
            Err(ModelError {
                status,
                retry_after: wait,
                ..error
            })
        });
    prop_oneof![reply, error]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recording_is_replayed_delta_by_delta(
        pieces in prop::collection::vec(delta(), 0..8),
        last in last(),
    ) {
        let mut script: Vec<_> = pieces.into_iter().map(Ok).collect();
        script.push(last);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.cassette");
        let request = asked(vec![Message::user("hello")]);
        let recorded = play(&RecordingModel::new(Fixed(name(), script.clone()), &path, redactor()).expect("opens"), &request);
        prop_assert_eq!(&recorded, &script);
        prop_assert_eq!(play(&ReplayModel::open(&path).expect("opens"), &request), script);
    }
}

/// Records a conversation of two iterations.
fn conversation(path: &Path) -> ModelRequest {
    let script = ScriptedModel::new([
        ScriptLine::new().call("read", json!({ "path": "a" })),
        "It says hello.".into(),
    ]);
    let model = RecordingModel::new(script, path, redactor()).expect("opens");
    let mut request = asked(vec![Message::user("What is in a?")]);
    request.instructions = Some("Be brief.".into());
    play(&model, &request);
    request.messages.extend([
        calling("id from one run").into(),
        result("id from one run", "hello").into(),
    ]);
    assert_eq!(reply_text(&play(&model, &request)), "It says hello.");
    request
}

#[test]
fn a_request_is_found_again_whatever_its_call_ids_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let mut request = conversation(&path);
    request.messages.truncate(1);
    request
        .messages
        .extend([calling("another").into(), result("another", "hello").into()]);
    let replay = ReplayModel::open(&path).expect("opens");
    assert_eq!(replay.name().to_string(), "scripted:script");
    assert_eq!(reply_text(&play(&replay, &request)), "It says hello.");
    assert_eq!(
        reply_text(&play(&replay, &request)),
        "It says hello.",
        "the last reply is repeated"
    );
}

#[test]
fn an_unrecorded_request_gets_the_first_difference() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let request = conversation(&path);
    let replay = || {
        ReplayModel::open(&path)
            .expect("opens")
            .redactor(redactor())
    };
    let registry = Registry::new();
    registry
        .register_host(ToolSpec::new("read", "Reads.", Schema::any_object()))
        .expect("free");
    let change = |change: &dyn Fn(&mut ModelRequest)| {
        let mut request = request.clone();
        change(&mut request);
        let error = failure(&play(&replay(), &request)).clone();
        assert_eq!(error.kind, ModelErrorKind::Setup);
        error.detail
    };
    type Edit<'a> = &'a dyn Fn(&mut ModelRequest);
    let cases: [(Edit<'_>, &str); 8] = [
        (
            &|request| request.messages[2] = result("id from one run", "bye").into(),
            "on line 3, message 3 differs: recorded was the tools \"read: hello\", requested is the tools \"read: bye\"",
        ),
        (
            &|request| request.messages[0] = Message::user("What?").into(),
            "on line 3, message 1 differs",
        ),
        (
            &|request| request.messages.truncate(2),
            "on line 3, message 3 is missing: recorded was the tools",
        ),
        (
            &|request| request.messages.push(calling("x").into()),
            "on line 3, message 4, of the model, is not in",
        ),
        (
            &|request| request.instructions = None,
            "the instructions differ",
        ),
        (
            &|request| request.view = toolgate_testkit::plain_view(&registry),
            "the tool read differs",
        ),
        (
            &|request| request.choice = ToolChoice::Required,
            "the setting choice differs",
        ),
        (
            &|request| request.effort = Some(Effort::High),
            "the setting effort differs",
        ),
    ];
    for (edit, wanted) in cases {
        let detail = change(edit);
        assert!(detail.contains(wanted), "{detail}\n{wanted}");
        assert!(detail.ends_with("record it again if the change is intended"));
    }
    let other = asked(vec![Message::user("CANARY")]);
    let blind = ReplayModel::open(&path).expect("opens");
    let seeing = replay();
    for replay in [blind, seeing] {
        assert!(
            !failure(&play(&replay, &other)).detail.contains("CANARY"),
            "a possible secret is not shown"
        );
    }
}

#[test]
fn in_order_the_requests_do_not_matter() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    conversation(&path);
    let replay = ReplayModel::open(&path).expect("opens").in_order();
    let request = ModelRequest::default();
    play(&replay, &request);
    assert_eq!(reply_text(&play(&replay, &request)), "It says hello.");
    assert!(
        failure(&play(&replay, &request))
            .detail
            .contains("has 2 exchanges")
    );
}

#[test]
fn the_same_request_gets_its_replies_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let script = ScriptedModel::new([
        ScriptLine::new().fail(ModelErrorKind::Overloaded, "busy"),
        "fine".into(),
    ]);
    let record = RecordingModel::new(script, &path, redactor()).expect("opens");
    let request = asked(vec![Message::user("hello")]);
    play(&record, &request);
    play(&record, &request);
    let replay = ReplayModel::open(&path).expect("opens");
    assert_eq!(
        failure(&play(&replay, &request)).kind,
        ModelErrorKind::Overloaded
    );
    assert_eq!(reply_text(&play(&replay, &request)), "fine");
}

#[test]
fn a_cassette_is_continued_and_stores_only_new_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let mut request = asked(vec![Message::user("hello")]);
    let mut sizes = Vec::new();
    for _ in 0..20 {
        let model = RecordingModel::new(
            ScriptedModel::new([ScriptLine::from("again").always()]),
            &path,
            redactor(),
        )
        .expect("opens");
        let before = std::fs::metadata(&path).expect("a file").len();
        play(&model, &request);
        sizes.push(std::fs::metadata(&path).expect("a file").len() - before);
        request.messages.extend([
            Message::assistant("again").into(),
            Message::user("hello").into(),
        ]);
    }
    assert!(sizes[19] < sizes[1] + 16, "{sizes:?}");
    request.messages.truncate(39);
    assert_eq!(
        reply_text(&play(&ReplayModel::open(&path).expect("opens"), &request)),
        "again"
    );
}

/// Returns a reply with secrets wherever a provider can put them, also spread over deltas.
fn leaking() -> Vec<Result<Delta, ModelError>> {
    let parts = vec![
        MessagePart::from_text("the key is sk-\"1 and CANARY")
            .with_native("wire", json!({ "text": "sk-\"1", "CANARYx": "CANARY" })),
        PartContent::Call(ToolRequest::from_text(
            "sk-\"1",
            "t",
            r#"{"password":"hunter2","k":"sk-\"1"}"#,
        ))
        .into(),
        PartContent::Call(ToolRequest::from_json(
            "c",
            "t",
            json!({ "password": "hunter2", "k": "sk-\"1" }),
        ))
        .into(),
    ];
    let arguments = r#"{"password":"hunter2","k":"sk-\"1"}"#;
    let mut pieces = vec![Delta::Call {
        index: 0,
        id: "sk-\"1".into(),
        tool: "t".into(),
    }];
    pieces.extend(arguments.chars().map(|c| Delta::Arguments {
        index: 0,
        text: c.into(),
    }));
    pieces.extend(
        "the key is sk-\"1 and CANARY"
            .chars()
            .map(|c| Delta::Text(c.into())),
    );
    pieces.extend("sk-\"1 CANARY".chars().map(|c| Delta::Reasoning(c.into())));
    let reply = Reply {
        id: Some("sk-\"1".into()),
        ..Reply::new(Message::new(Role::Assistant, parts))
    };
    pieces.push(Delta::Done(Box::new(reply)));
    pieces.into_iter().map(Ok).collect()
}

#[test]
fn no_secret_is_on_the_cassette() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let error = ModelError::new(ModelErrorKind::Auth, name(), "sk-\"1 is not CANARY");
    let mut request = asked(vec![
        Message::user("CANARY sk-\"1"),
        calling("sk-\"1"),
        result("sk-\"1", "CANARY sk-\"1"),
    ]);
    request.instructions = Some("CANARY sk-\"1".into());
    request.extra.insert("key".into(), "sk-\"1 CANARY".into());
    for pieces in [
        leaking(),
        vec![Ok(Delta::Text("sk-\"1".into())), Err(error)],
    ] {
        let model = RecordingModel::new(Fixed(name(), pieces.clone()), &path, redactor())
            .expect("opens")
            .secret("sk-\"1");
        assert_eq!(
            play(&model, &request),
            pieces,
            "the caller gets the unredacted reply"
        );
        assert!(!format!("{model:?}").contains("sk-"));
    }
    let text = std::fs::read_to_string(&path).expect("a file");
    // Single characters would hide it: without secrets there are far fewer deltas.
    for secret in [
        "sk-\"1", "sk-\\\"1", "sk-\\\\", "CANARY\"", "CANARY ", "hunter2",
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert_eq!(
        text.matches("\"arguments\":{\"index\"").count(),
        1,
        "{text}"
    );
    let replay = ReplayModel::open(&path)
        .expect("opens")
        .secret("sk-\"1")
        .redactor(redactor());
    assert!(reply_text(&play(&replay, &request)).starts_with("the key is [redacted] and [gone]"));
}

#[test]
fn if_redaction_fails_nothing_is_written_and_the_model_is_not_called() {
    for broken in [Redaction::Fails, Redaction::Panics] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.cassette");
        let script = Arc::new(ScriptedModel::new(["hello"]).store_requests());
        let model = RecordingModel::new(script.clone(), &path, Arc::new(broken)).expect("opens");
        let empty = std::fs::read(&path).expect("a file");
        let pieces = play(&model, &asked(vec![Message::user("hello")]));
        let wanted = "the exchange was not recorded: redaction failed, so nothing was written";
        assert_eq!(
            (pieces.len(), failure(&pieces).detail.as_str()),
            (1, wanted)
        );
        assert_eq!(std::fs::read(&path).expect("a file"), empty);
        assert!(script.requests().is_empty());
    }
}

#[test]
fn if_the_reply_cannot_be_redacted_it_fails_and_nothing_is_written() {
    /// A redactor that fails on a certain text.
    struct NotThis;
    impl Redactor for NotThis {
        fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
            self.redact_text(&value.to_string()).map(|_| value.clone())
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
            if text.contains("unspeakable") {
                Err(RedactionError)
            } else {
                Ok(text.to_owned())
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let model = RecordingModel::new(
        ScriptedModel::new(["unspeakable"]),
        &path,
        Arc::new(NotThis),
    )
    .expect("opens");
    let empty = std::fs::read(&path).expect("a file");
    let pieces = play(&model, &asked(vec![Message::user("hello")]));
    assert_eq!(failure(&pieces).kind, ModelErrorKind::Setup);
    assert_eq!(std::fs::read(&path).expect("a file"), empty);
}

#[test]
#[cfg(unix)]
fn only_the_owner_can_read_a_cassette() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let _model =
        RecordingModel::new(ScriptedModel::new(["hello"]), &path, redactor()).expect("opens");
    assert_eq!(
        std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}

#[test]
fn one_cassette_has_one_recorder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    let first =
        RecordingModel::new(ScriptedModel::new(["hello"]), &path, redactor()).expect("opens");
    let second = RecordingModel::new(ScriptedModel::new(["hello"]), &path, redactor());
    assert!(matches!(second, Err(CassetteError::Busy { .. })));
    drop(first);
    assert!(RecordingModel::new(ScriptedModel::new(["hello"]), &path, redactor()).is_ok());
}

#[test]
fn an_unusable_cassette_names_the_problem_and_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.cassette");
    conversation(&path);
    let good = std::fs::read_to_string(&path).expect("a file");
    let header = good.lines().next().expect("a header");
    let cases = [
        (String::new(), ":1: the cassette is damaged: it is empty"),
        (
            "hello\n".to_owned(),
            ":1: the cassette is damaged: the header is missing",
        ),
        (
            good.replace("cassette\":1", "cassette\":2"),
            "has version 2, and this program reads up to version 1",
        ),
        (
            good.trim_end().to_owned(),
            ":3: the cassette is damaged: the line is truncated",
        ),
        (
            format!("{header}\n{{\n"),
            ":2: the cassette is damaged: EOF while parsing an object",
        ),
        (
            format!("{header}\n{{}}\n"),
            ":2: the cassette is damaged: missing field `request` at column 2",
        ),
        (
            format!("{header}\n{}\n", good.lines().nth(2).expect("an exchange")),
            ":2: the cassette is damaged: the exchange before it is missing",
        ),
    ];
    for (text, wanted) in cases {
        std::fs::write(&path, &text).expect("writes");
        let error = ReplayModel::open(&path).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}\n{wanted}");
        if !text.is_empty() {
            let again = RecordingModel::new(ScriptedModel::new(["x"]), &path, redactor())
                .expect_err("a damaged file is not continued");
            assert_eq!(again.to_string(), error);
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
        }
    }
    let missing = ReplayModel::open(folder.path().join("none")).expect_err("no such file");
    assert!(matches!(missing, CassetteError::Io { .. }));
}
