//! What a store and a policy know of a session: its labels, its owner and its last run.

use std::{
    future::pending,
    slice,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream::BoxStream};

use serde_json::json;
use toolgate::{
    Agent, Config, Resources, default_stack,
    layers::{Ledger, SharedRedactor},
    model::{Delta, ModelError, ModelName, ModelRequest, ScriptLine, ScriptedModel},
    prelude::*,
    session::{DeliverError, RejectCode, RunOptions, RunUpdate, SessionBuildError, SessionBuilder},
    store::{MemoryStore, RunState, SessionFilter, SqliteStore, StoreHandle},
    tool::Context,
    value::{Labels, SessionId},
};
use toolgate_testkit::authenticated;

/// What the tool has seen.
type SeenLabels = Arc<Mutex<Vec<Labels>>>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Returns tools that note the labels of their calls.
fn looking_tools(seen: &SeenLabels) -> Registry {
    let registry = Registry::new();
    for name in ["look", "ask_look"] {
        let seen = seen.clone();
        let look = tool_fn(name, "Looks.", move |_: Nothing, cx: Context| {
            seen.lock().expect("whole").push(cx.labels().clone());
            async { Ok::<_, ToolError>("seen") }
        });
        let look = look.with_annotations(Annotations::read_only());
        registry.register(look).expect("free");
    }
    registry
}

/// Opens a session of the tenant `acme` in which the model looks in every iteration but the last.
async fn open_session(store: &MemoryStore, id: SessionId, config: &str) -> (Session, SeenLabels) {
    open_with(store, id, config, |builder| builder.label("tenant", "acme")).await
}

async fn open_with(
    store: &MemoryStore,
    id: SessionId,
    config: &str,
    setup: impl FnOnce(SessionBuilder) -> SessionBuilder,
) -> (Session, SeenLabels) {
    let seen = SeenLabels::default();
    let registry = looking_tools(&seen);
    let resources = Resources::new();
    let config = format!("[layers.approval]\ntools = ['ask_*']\n{config}");
    let config = Config::parse(&config).expect("parses");
    let layers = default_stack(&config, &resources).expect("valid");
    let redactor = resources.get::<SharedRedactor>().expect("redacts");
    let stack = Stack::over(registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let model = ScriptedModel::new([
        ScriptLine::new().call("look", json!({})),
        ScriptLine::new().call("ask_look", json!({})),
        ScriptLine::new().say("Done."),
    ]);
    let store = store.clone();
    let builder = Session::ungated(model, registry).stack(stack).store(store);
    let builder = builder.dispatcher(move |builder| builder.redactor(redactor).take_over());
    let session = setup(builder.session(id)).build().await.expect("builds");
    (session, seen)
}

fn new_id() -> SessionId {
    SessionId::from_source(&toolgate::value::TimeOrderedIds)
}

#[tokio::test]
async fn labels_reach_the_tool_receipts_events_and_the_session_row() {
    let store = MemoryStore::new();
    let id = new_id();
    let (session, seen) = open_session(&store, id, "").await;
    let options = RunOptions::new().label("request", "r-1");
    let report = session.run_with("look", options).await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    let wanted = Labels::new([("tenant", "acme"), ("request", "r-1")]).expect("valid");
    assert_eq!(
        seen.lock().expect("whole").as_slice(),
        slice::from_ref(&wanted)
    );

    let handle = StoreHandle::new(store.clone());
    let events = handle.events(id, 0, 100).await.expect("reads");
    assert!(
        events
            .iter()
            .all(|event| event.turn_info().labels == wanted)
    );
    let receipts = Ledger::main(handle.clone());
    let receipts = receipts
        .list_receipts(&Default::default())
        .await
        .expect("reads");
    assert_eq!(receipts.receipts[0].receipt.labels, wanted);
    let found = SessionFilter {
        labels: Labels::new([("request", "r-1")]).expect("valid"),
        unfinished: true,
        ..SessionFilter::default()
    };
    let rows = handle.sessions(found).await.expect("lists");
    assert_eq!((rows[0].session, &rows[0].labels), (id, &wanted));
}

#[tokio::test]
async fn a_resumed_run_has_the_labels_it_began_with() {
    let store = MemoryStore::new();
    let id = new_id();
    let (session, _) = open_session(&store, id, "").await;
    let options = RunOptions::new().label("request", "r-1");
    let report = session.run_with("look", options).await.expect("runs");
    let question = report.pending[0].question.clone().expect("is asked");
    drop(session);
    // Another process, which names none of them.
    let (session, seen) = open_with(&store, id, "", |builder| builder).await;
    let decision = Decision::approve("ann");
    session
        .decide(&*question, decision)
        .await
        .expect("is accepted");
    session.resume().await.expect("resumes");
    let wanted = Labels::new([("tenant", "acme"), ("request", "r-1")]).expect("valid");
    assert_eq!(
        seen.lock().expect("whole").as_slice(),
        slice::from_ref(&wanted)
    );
    let events = StoreHandle::new(store)
        .events(id, 0, 100)
        .await
        .expect("reads");
    let last = events.last().expect("there are events");
    assert_eq!(
        (last.name(), &last.turn_info().labels),
        ("run_ended", &wanted)
    );
}

#[tokio::test]
async fn an_agent_inherits_the_labels_of_the_run() {
    let seen = SeenLabels::default();
    let look = ScriptLine::new().call("look", json!({}));
    let model = ScriptedModel::new([look, "Seen.".into()]);
    let helper = Agent::new("helper", "Looks.", model, looking_tools(&seen));
    let delegate = ScriptLine::new().call("helper", json!({ "task": "look" }));
    let model = ScriptedModel::new([delegate, "Done.".into()]);
    let builder = Session::ungated(model, Registry::new()).agent(helper);
    let session = builder
        .label("tenant", "acme")
        .build()
        .await
        .expect("builds");
    let options = RunOptions::new().label("request", "r-1");
    session.run_with("look", options).await.expect("runs");
    let wanted = Labels::new([("tenant", "acme"), ("request", "r-1")]).expect("valid");
    assert_eq!(*seen.lock().expect("whole"), [wanted]);
}

#[tokio::test]
async fn a_policy_rule_can_match_labels() {
    let rule = "[layers.policy]\ndefault = 'allow'\n[[layers.policy.rules]]\neffect = 'deny'\n\
                labels = { tenant = 'acme', env = 'prod' }\n";
    let store = MemoryStore::new();
    let (session, seen) = open_session(&store, new_id(), rule).await;
    let run = |env| session.run_with("look", RunOptions::new().label("env", env));
    run("prod").await.expect("runs");
    assert!(seen.lock().expect("whole").is_empty(), "it is denied");
    let (session, seen) = open_session(&store, new_id(), rule).await;
    let options = RunOptions::new().label("env", "test");
    session.run_with("look", options).await.expect("runs");
    assert_eq!(seen.lock().expect("whole").len(), 1, "one of two labels");
}

#[tokio::test]
async fn labels_are_redacted_and_an_invalid_one_is_an_error() {
    let store = MemoryStore::new();
    let id = new_id();
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let options = RunOptions::new().label("token", secret);
    let (session, _) = open_session(&store, id, "").await;
    session.run_with("look", options).await.expect("runs");
    let events = StoreHandle::new(store.clone()).events(id, 0, 100).await;
    let text = serde_json::to_string(&events.expect("reads")).expect("is JSON");
    assert!(text.contains(r#""labels":{"#) && !text.contains(secret));
    let options = RunOptions::new().label("Not A Name", "x");
    assert!(session.run_with("look", options).await.is_err());
    let builder = Session::ungated_host(Registry::new()).label("tenant", "");
    assert!(matches!(
        builder.build().await,
        Err(SessionBuildError::Label(_))
    ));
}

#[tokio::test]
async fn the_owner_of_a_session_approves_without_a_quorum_and_never_with_one() {
    for (config, approves) in [("", true), ("quorum = 1\n", false), ("quorum = 2\n", false)] {
        let owned = |builder: SessionBuilder| builder.principal("eve");
        let (session, seen) = open_with(&MemoryStore::new(), new_id(), config, owned).await;
        let report = session.run("look").await.expect("runs");
        let question = report.pending[0].question.clone().expect("is asked");
        let decided = session
            .decide(&*question, Decision::approve(authenticated("Eve")))
            .await;
        if approves {
            decided.expect("is accepted");
            session.resume().await.expect("resumes");
        } else {
            let code = RejectCode::SelfApproval;
            assert!(matches!(decided, Err(DeliverError::Rejected(found)) if found == code));
            let denied = session
                .decide(&*question, Decision::deny("eve", None))
                .await;
            denied.expect("the owner may deny");
        }
        let ran = seen.lock().expect("whole").len();
        assert_eq!(ran, if approves { 2 } else { 1 }, "{config:?}");
    }
}

/// A model that never replies.
struct SilentModel(ModelName);

impl Model for SilentModel {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        futures::stream::once(pending()).boxed()
    }
}

#[tokio::test]
async fn a_run_that_is_lost_while_the_model_is_asked_is_found_by_its_owner() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(dir.path().join("toolgate.db")).expect("opens");
    let store = StoreHandle::new(store);
    let open = async |model: Arc<dyn Model>| {
        let handle = store.clone();
        let builder = Session::ungated(model, Registry::new()).principal("ann");
        let builder = builder.dispatcher(|builder| builder.store(handle).take_over());
        let id = "00000000-0000-0000-0000-0000000000aa".parse();
        builder
            .session(id.expect("an id"))
            .build()
            .await
            .expect("builds")
    };
    let session = open(Arc::new(SilentModel(ModelName::new("a", "silent")))).await;
    let mut stream = session.stream("hello");
    while let Some(update) = stream.next().await {
        if matches!(&update, RunUpdate::Event(event) if event.name() == "inference_started") {
            break;
        }
    }
    drop(stream);
    let unfinished = SessionFilter {
        unfinished: true,
        principal: Some("ann".into()),
        ..SessionFilter::default()
    };
    let rows = store.sessions(unfinished.clone()).await.expect("lists");
    let states: Vec<_> = rows
        .iter()
        .map(|row| row.last_run.map(|last| last.state))
        .collect();
    assert_eq!(states, [Some(RunState::Running)]);
    drop(session);

    let session = open(Arc::new(ScriptedModel::new(["Hello."]))).await;
    let report = session.resume().await.expect("resumes");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "Hello.")
    );
    let rows = store.sessions(unfinished).await.expect("lists");
    assert!(rows.is_empty(), "it has ended");
}

#[tokio::test]
async fn a_session_of_a_gate_has_a_redacted_title_and_its_directory() {
    let workspace = tempfile::tempdir().expect("a directory");
    let gate = Gate::builder().in_memory().expect("keys");
    let gate = gate
        .workspace(workspace.path())
        .open()
        .await
        .expect("opens");
    let model = || ScriptedModel::from_toml("[[reply]]\ntext = 'done'").expect("a scenario");
    let session = gate.session(model()).await.expect("a session");
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let message = format!("use {secret}\nto   push");
    session.run(message.as_str()).await.expect("runs");
    let filter = SessionFilter::for_session(session.id());
    let row = gate
        .store()
        .sessions(filter)
        .await
        .expect("lists")
        .remove(0);
    let title = row.title.expect("a title").to_string();
    assert!(title.starts_with("use [redacted"), "{title}");
    assert!(
        title.ends_with("to push") && !title.contains(secret),
        "{title}"
    );
    let directory = workspace.path().canonicalize().expect("exists");
    assert_eq!(row.directory.as_deref(), directory.to_str());
}
