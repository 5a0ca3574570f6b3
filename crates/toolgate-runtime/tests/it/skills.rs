//! Skills in a run: what is announced, what loading changes, and what stays when another process
//! resumes it.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use serde_json::json;
use toolgate_core::{
    AnyLayer, BillingService, Budgets, CallId, Lease, MemoryStore, Message, MessagePart,
    ModelRequest, Outcome, PartContent, RecordKey, Refusal, Registry, Role, SessionEvent,
    SessionId, SettledOutcome, Stack, Status, StoppedClock, StoreError, StoreHandle, StoreRecord,
    Timestamp, ToolAnswer, ToolError, ToolRequest, Usage, View, from_fn, tool_fn,
};
use toolgate_runtime::{
    Dispatcher, ModelBilling, RequestContext, Skill, Skills, Strategy, StrategyAction, TurnContext,
    TurnReport, TurnRequest,
};
use uuid::Uuid;

const SESSION: SessionId = SessionId::new(Uuid::from_u128(77));

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A session that is driven by hand, iteration by iteration.
struct Rounds {
    skills: Skills,
    registry: Registry,
    store: StoreHandle,
    run: u64,
    session_tools: Vec<&'static str>,
    /// What the model has read so far.
    messages: Mutex<Vec<Arc<Message>>>,
}

/// Returns a billing without budgets.
fn free_billing(store: &StoreHandle) -> ModelBilling {
    let service = BillingService::new(store.clone(), Budgets::default());
    ModelBilling::new(service, Arc::new(StoppedClock))
}

/// What an iteration showed, and its result.
struct Seen {
    request: ModelRequest,
    layers: Vec<String>,
    texts: Vec<String>,
    statuses: Vec<Option<Status>>,
    onward: StrategyAction,
    events: Vec<SessionEvent>,
}

fn write(directory: &Path, name: &str, more: &str) {
    let folder = directory.join(name);
    fs::create_dir_all(folder.join("references")).expect("made");
    let text = format!(
        "---\nname: {name}\ndescription: Helps with {name}.\n{more}---\nInstructions of {name}.\n"
    );
    fs::write(folder.join(Skill::FILE), text).expect("written");
    fs::write(
        folder.join("references/more.md"),
        format!("More about {name}."),
    )
    .expect("written");
}

fn discovered() -> (tempfile::TempDir, Skills) {
    let dir = tempfile::tempdir().expect("a place");
    write(
        dir.path(),
        "pdf",
        "allowed-tools: read_pdf unknown Bash(git:*)\n",
    );
    write(dir.path(), "mail", "");
    for n in 0..5 {
        write(dir.path(), &format!("s{n}"), "");
    }
    let found = Skills::discover([dir.path()]);
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    (dir, found.skills)
}

impl Rounds {
    fn new(skills: Skills) -> Self {
        let registry = Registry::new();
        for name in ["read_pdf", "delete_all", "write"] {
            let tool = tool_fn(name, "Works.", async |_: Nothing, _| {
                Ok::<_, ToolError>("done")
            });
            registry.register(tool).expect("free");
        }
        skills.install(&registry).expect("free");
        let session_tools = vec!["read_pdf", "write", "load_skill", "load_reference"];
        Self {
            skills,
            registry,
            store: StoreHandle::new(MemoryStore::new()),
            run: 0,
            session_tools,
            messages: Mutex::default(),
        }
    }

    fn request(&self) -> ModelRequest {
        let view = toolgate_testkit::plain_view(&self.registry)
            .narrow_to(self.session_tools.iter().copied());
        let messages = self.messages.lock().expect("whole").clone();
        ModelRequest {
            instructions: Some("Be brief.".into()),
            view,
            messages,
            ..ModelRequest::default()
        }
    }

    async fn prepare(&self, request: &mut ModelRequest) -> Vec<AnyLayer> {
        let mut events = Vec::new();
        let mut layers = Vec::new();
        let mut round = RequestContext {
            iteration: 0,
            session: SESSION,
            run: self.run,
            store: &self.store,
            now: Timestamp::EPOCH,
            spending: &free_billing(&self.store),
            request,
            events: &mut events,
            layers: &mut layers,
        };
        self.skills
            .prepare_request(&mut round)
            .await
            .expect("prepares");
        layers
    }

    async fn turn(&self, view: View, layers: Vec<AnyLayer>, calls: Vec<ToolRequest>) -> TurnReport {
        let stack = Stack::over(self.registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let builder = Dispatcher::builder(stack)
            .session(SESSION)
            .store(self.store.clone())
            .take_over();
        let dispatcher = builder.build().await.expect("free");
        dispatcher
            .open_turn(TurnRequest::new(view, calls))
            .await
            .expect("opens")
            .run()
            .await
            .expect("runs")
    }

    async fn settled(&self, report: &TurnReport) -> (StrategyAction, Vec<SessionEvent>) {
        let mut events = Vec::new();
        let mut turned = TurnContext {
            iteration: 0,
            session: SESSION,
            run: self.run,
            store: &self.store,
            now: Timestamp::EPOCH,
            report,
            usage: Usage::default(),
            events: &mut events,
        };
        let onward = self
            .skills
            .turn_settled(&mut turned)
            .await
            .expect("settles");
        (onward, events)
    }

    async fn round(&self, calls: Vec<ToolRequest>) -> Seen {
        let mut request = self.request();
        let layers = self.prepare(&mut request).await;
        let names = layers
            .iter()
            .map(|layer| layer.name().as_str().to_owned())
            .collect();
        let report = self.turn(request.view.clone(), layers, calls).await;
        let texts = report
            .results
            .iter()
            .map(|result| result.model_text().unwrap_or_default().into_owned())
            .collect();
        let statuses = report
            .results
            .iter()
            .map(toolgate_runtime::CallResult::status)
            .collect();
        self.messages.lock().expect("whole").push(told(&report));
        let (onward, events) = self.settled(&report).await;
        Seen {
            request,
            layers: names,
            texts,
            statuses,
            onward,
            events,
        }
    }
}

/// Returns what the model reads of a turn.
fn told(report: &TurnReport) -> Arc<Message> {
    let answer = |result: &toolgate_runtime::CallResult| {
        let text = result.model_text().unwrap_or_default().into_owned();
        let call_id = result.call_id.to_string();
        let tool = result.tool.to_string();
        MessagePart::from(PartContent::Result(ToolAnswer {
            call_id,
            tool,
            text,
            is_error: false,
            media: Vec::new(),
        }))
    };
    Arc::new(Message::new(
        Role::Tool,
        report.results.iter().map(answer).collect(),
    ))
}

fn load(name: &str) -> ToolRequest {
    ToolRequest::from_json("c", "load_skill", json!({ "name": name }))
}

fn reference(skill: &str, path: &str) -> ToolRequest {
    ToolRequest::from_json(
        "r",
        "load_reference",
        json!({ "skill": skill, "path": path }),
    )
}

fn tools(seen: &Seen) -> Vec<&str> {
    seen.request
        .view
        .specs()
        .map(|spec| spec.name.as_str())
        .collect()
}

#[tokio::test]
async fn skills_are_announced_after_the_instructions_and_with_the_same_text_each_iteration() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let first = rounds.round(vec![load("pdf")]).await;
    let text = first.request.instructions.as_deref().expect("told");
    assert!(text.starts_with("Be brief.\n\n# Skills\n"), "{text}");
    assert!(
        text.contains("\n- mail: Helps with mail.\n- pdf: Helps with pdf.\n"),
        "{text}"
    );
    assert!(!text.contains("Instructions of"), "{text}");
    let second = rounds.round(vec![]).await;
    assert_eq!(
        second.request.instructions, first.request.instructions,
        "what a provider caches stays the same"
    );
}

#[tokio::test]
async fn a_session_that_may_not_load_gets_no_announcement() {
    let (_dir, skills) = discovered();
    let mut rounds = Rounds::new(skills);
    rounds.session_tools = vec!["write"];
    let seen = rounds.round(vec![load("pdf")]).await;
    assert_eq!(seen.request.instructions.as_deref(), Some("Be brief."));
    assert_eq!(
        (seen.statuses[0], seen.onward),
        (Some(Status::ToolNotFound), StrategyAction::Continue)
    );
}

#[tokio::test]
async fn a_skill_is_loaded_once_and_the_iteration_is_refunded() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let first = rounds.round(vec![load("pdf")]).await;
    assert!(
        first.texts[0].starts_with("# Skill: pdf\n\nInstructions of pdf.\n\nFiles of this skill"),
        "{:?}",
        first.texts
    );
    assert_eq!(first.onward, StrategyAction::Refund);
    assert_eq!(
        first.events,
        [SessionEvent::SkillLoaded {
            skill: "pdf".into(),
            refunded: true
        }]
    );
    let second = rounds.round(vec![load("pdf")]).await;
    assert_eq!(
        second.texts,
        ["The skill pdf is loaded already; its instructions were given above."]
    );
    assert_eq!(
        (second.onward, second.events.len()),
        (StrategyAction::Continue, 0)
    );
}

#[tokio::test]
async fn an_iteration_that_did_anything_else_is_counted() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let write = ToolRequest::from_json("w", "write", json!({}));
    let mixed = rounds.round(vec![load("pdf"), write]).await;
    assert_eq!(mixed.onward, StrategyAction::Continue);
    assert_eq!(
        mixed.events,
        [SessionEvent::SkillLoaded {
            skill: "pdf".into(),
            refunded: false
        }]
    );
    let failed = rounds.round(vec![load("mail"), load("nothing")]).await;
    assert_eq!(
        (failed.onward, failed.events.len()),
        (StrategyAction::Continue, 1)
    );
    let twice = rounds.round(vec![load("s0"), load("s0")]).await;
    assert_eq!(
        (twice.onward, twice.events.len()),
        (StrategyAction::Continue, 1)
    );
    let both = rounds.round(vec![load("s1"), load("s2")]).await;
    assert_eq!(
        (both.onward, both.events.len()),
        (StrategyAction::Refund, 2)
    );
}

#[tokio::test]
async fn loaded_skills_and_refunds_are_erased_with_the_session() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    rounds.round(vec![load("pdf")]).await;
    assert_eq!(
        rounds
            .store
            .list_records("skill", None, 10)
            .await
            .expect("reads")
            .len(),
        2,
        "the skill and its refund"
    );
    let held = rounds.store.erase_session(SESSION, Timestamp::EPOCH).await;
    if let Err(StoreError::LeaseHeld { session, fence, .. }) = held {
        let lease = Lease {
            session,
            fence,
            revision: 0,
        };
        let store = &rounds.store;
        store.release_lease(&lease).await.expect("releases");
        store
            .erase_session(SESSION, Timestamp::EPOCH)
            .await
            .expect("erases");
    }
    assert_eq!(
        rounds
            .store
            .list_records("skill", None, 10)
            .await
            .expect("reads"),
        []
    );
}

#[tokio::test]
async fn refunds_are_bounded_per_run_and_a_turn_keeps_its_refund() {
    let (_dir, skills) = discovered();
    let mut rounds = Rounds::new(skills.max_refunds(2));
    assert_eq!(
        rounds.round(vec![load("s0")]).await.onward,
        StrategyAction::Refund
    );
    let mut request = rounds.request();
    rounds.prepare(&mut request).await;
    let report = rounds.turn(request.view, vec![], vec![load("s1")]).await;
    for _ in 0..3 {
        assert_eq!(
            rounds.settled(&report).await.0,
            StrategyAction::Refund,
            "asking again gives the same answer"
        );
    }
    let third = rounds.round(vec![load("s2")]).await;
    assert_eq!(third.onward, StrategyAction::Continue);
    assert_eq!(
        third.events,
        [SessionEvent::SkillLoaded {
            skill: "s2".into(),
            refunded: false
        }]
    );
    rounds.run = 9;
    assert_eq!(
        rounds.round(vec![load("s3")]).await.onward,
        StrategyAction::Refund,
        "another run"
    );
    let none = Rounds::new(rounds.skills.clone().max_refunds(0));
    assert_eq!(
        none.round(vec![load("s4")]).await.onward,
        StrategyAction::Continue
    );
}

#[tokio::test]
async fn a_tool_that_is_held_back_is_shown_when_a_skill_names_it_and_the_session_allows_it() {
    let (dir, _) = discovered();
    write(dir.path(), "greedy", "allowed-tools: [delete_all]\n");
    let skills = Skills::discover([dir.path()])
        .skills
        .hold_back(["read_pdf", "delete_all"]);
    let rounds = Rounds::new(skills);
    let early = rounds
        .round(vec![ToolRequest::from_json("p", "read_pdf", json!({}))])
        .await;
    assert_eq!(tools(&early), ["load_reference", "load_skill", "write"]);
    assert_eq!(
        early.statuses,
        [Some(Status::ToolNotFound)],
        "a hidden tool is rejected"
    );
    rounds.round(vec![load("pdf"), load("greedy")]).await;
    let late = rounds.round(vec![
        ToolRequest::from_json("p", "read_pdf", json!({})),
        ToolRequest::from_json("d", "delete_all", json!({})),
    ]);
    let late = late.await;
    assert_eq!(
        tools(&late),
        ["load_reference", "load_skill", "read_pdf", "write"]
    );
    assert_eq!(
        late.statuses,
        [Some(Status::Ok), Some(Status::ToolNotFound)],
        "the session does not have the other"
    );
}

#[tokio::test]
async fn narrowing_leaves_only_tools_that_loaded_skills_name() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills.clone().narrowing());
    rounds.round(vec![load("mail")]).await;
    let before = rounds.round(vec![load("pdf")]).await;
    assert!(
        tools(&before).contains(&"write"),
        "a skill without a list limits nothing"
    );
    assert_eq!(
        tools(&rounds.round(vec![]).await),
        ["load_reference", "load_skill", "read_pdf"]
    );
    let wide = Rounds::new(skills);
    wide.round(vec![load("pdf")]).await;
    assert!(
        tools(&wide.round(vec![]).await).contains(&"write"),
        "unless asked for, a list limits nothing"
    );
}

#[tokio::test]
async fn the_layers_of_a_loaded_skill_apply_from_the_next_iteration_on() {
    let (_dir, skills) = discovered();
    let skills = skills.layers(|skill| match skill.file().name.as_str() {
        "pdf" => vec![AnyLayer::new(from_fn(async |_, _| {
            Outcome::refused(Refusal::Blocked, "by the skill")
        }))],
        _ => Vec::new(),
    });
    let mut rounds = Rounds::new(skills);
    assert_eq!(
        rounds
            .round(vec![load("pdf"), load("mail")])
            .await
            .layers
            .len(),
        0
    );
    let write = || vec![ToolRequest::from_json("w", "write", json!({}))];
    let next = rounds.round(write()).await;
    assert_eq!(
        (next.layers.len(), next.texts),
        (1, vec!["by the skill".to_owned()])
    );
    let (_other_dir, other) = discovered();
    rounds.skills = Skills::new(
        other
            .iter()
            .filter(|skill| skill.file().name != "pdf")
            .cloned(),
    )
    .layers(|_| vec![]);
    let mut request = rounds.request();
    let mut events = Vec::new();
    let mut layers = Vec::new();
    let mut round = RequestContext {
        iteration: 0,
        session: SESSION,
        run: 0,
        store: &rounds.store,
        now: Timestamp::EPOCH,
        spending: &free_billing(&rounds.store),
        request: &mut request,
        events: &mut events,
        layers: &mut layers,
    };
    let error = rounds
        .skills
        .prepare_request(&mut round)
        .await
        .expect_err("the layers are unknown")
        .to_string();
    assert!(
        error.contains("the skill pdf was loaded in this session and is missing now"),
        "{error}"
    );
}

#[tokio::test]
async fn loaded_skills_are_known_to_another_process() {
    let (dir, skills) = discovered();
    let rounds = Rounds::new(skills.hold_back(["read_pdf"]));
    rounds.round(vec![load("pdf")]).await;
    let again = Skills::discover([dir.path()])
        .skills
        .hold_back(["read_pdf"]);
    let elsewhere = Rounds {
        store: rounds.store.clone(),
        ..Rounds::new(again)
    };
    let seen = elsewhere.round(vec![load("pdf")]).await;
    assert!(tools(&seen).contains(&"read_pdf"));
    assert!(seen.texts[0].contains("loaded already"), "{:?}", seen.texts);
    assert_eq!(seen.onward, StrategyAction::Continue);
}

#[tokio::test]
async fn instructions_that_left_the_conversation_are_repeated() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    rounds.round(vec![load("pdf")]).await;
    rounds.round(vec![load("mail")]).await;
    let mut request = rounds.request();
    rounds.prepare(&mut request).await;
    assert!(
        !request
            .instructions
            .as_deref()
            .expect("told")
            .contains("Instructions of"),
        "both are in the conversation"
    );
    rounds.messages.lock().expect("whole").remove(0);
    let mut request = rounds.request();
    rounds.prepare(&mut request).await;
    let text = request.instructions.expect("told");
    assert!(
        text.ends_with("\n\n# Skill: pdf\n\nInstructions of pdf."),
        "{text}"
    );
}

#[tokio::test]
async fn a_load_whose_answer_never_reached_the_model_can_be_repeated() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let mut request = rounds.request();
    rounds.prepare(&mut request).await;
    let spoil = AnyLayer::new(toolgate_core::map_outcome(|_, _| {
        Outcome::refused(Refusal::Redacted, "withheld")
    }));
    let report = rounds
        .turn(request.view, vec![spoil], vec![load("pdf")])
        .await;
    assert_eq!(
        rounds.settled(&report).await,
        (StrategyAction::Continue, vec![])
    );
    let again = rounds.round(vec![load("pdf")]).await;
    assert!(
        again.texts[0].starts_with("# Skill: pdf"),
        "{:?}",
        again.texts
    );
    assert_eq!(
        again.onward,
        StrategyAction::Continue,
        "it is not the first"
    );
}

#[tokio::test]
async fn a_replayed_call_is_still_the_first() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let first = rounds.round(vec![load("pdf")]).await;
    let kept = rounds
        .store
        .load_record(&RecordKey::Other(format!("skill/{SESSION}/pdf").into()))
        .await
        .expect("reads");
    let Some(StoreRecord::Json(kept)) = kept else {
        panic!("not stored")
    };
    let id: CallId = serde_json::from_value(kept["call"].clone()).expect("an id");
    let mut seed = toolgate_testkit::seed("load_skill", json!({ "name": "pdf" }));
    seed.id = id;
    seed.turn = Arc::new(toolgate_core::TurnInfo::new(SESSION, seed.turn.turn));
    let clock = Arc::new(toolgate_testkit::TestClock::new());
    seed.env = toolgate_core::CallEnv::new(
        clock,
        rounds.store.clone(),
        Arc::new(toolgate_core::NoProbe),
    );
    let stack = Stack::over(rounds.registry.clone())
        .build()
        .expect("in order");
    let outcome = stack.run(toolgate_core::Call::new(seed)).await;
    let text = outcome
        .settled()
        .map(SettledOutcome::model_text)
        .unwrap_or_default()
        .into_owned();
    assert_eq!(text, first.texts[0]);
}

#[tokio::test]
async fn references_are_read_below_the_skill_and_other_paths_are_rejected_with_a_reason() {
    let (_dir, skills) = discovered();
    let rounds = Rounds::new(skills);
    let calls = vec![
        reference("pdf", "references/more.md"),
        reference("pdf", "../mail/SKILL.md"),
        reference("pdf", "/etc/passwd"),
        reference("pdf", "references/none.md"),
        reference("xml", "references/more.md"),
    ];
    let seen = rounds.round(calls).await;
    assert_eq!(seen.texts[0], "More about pdf.");
    assert_eq!(
        seen.texts[1],
        "\"../mail/SKILL.md\" in the skill pdf cannot be read: it is not a path below the folder."
    );
    assert!(
        seen.texts[2].ends_with("it is not a path below the folder."),
        "{:?}",
        seen.texts
    );
    assert!(
        seen.texts[3].ends_with("there is no such file."),
        "{:?}",
        seen.texts
    );
    assert!(
        seen.texts[4].starts_with("There is no skill named \"xml\". There are: mail, pdf, s0,"),
        "{:?}",
        seen.texts
    );
    assert_eq!(seen.onward, StrategyAction::Continue);
}
