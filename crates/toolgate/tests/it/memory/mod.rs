//! Memories through the front door: recalled as quoted data, stored only with approval, extracted
//! once, and never a secret.

mod embedders;
mod hostile;
mod stored;

use std::{sync::Arc, time::Duration};

use serde_json::json;
use toolgate::{
    Gate,
    event::SessionEvent,
    memory::{
        EmbedderId, MemoryError, MemoryFilter, MemoryId, MemoryKind, MemoryOrigin, MemoryPage,
        MemoryRecord, NewMemory, PutMemory, RecallOptions, RecallScope, RunEndState, ScopeWord,
        run_end_state,
    },
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    store::{MemoryStore, StoreHandle},
};
use toolgate_testkit::LetterEmbedder;

const LONG: Duration = Duration::from_secs(60);

/// A gate in memory with this configuration, over a store that can be opened again.
fn open_gate(config: &str, store: &StoreHandle) -> Gate {
    let config = toolgate::Config::parse_with_catalog(
        "toolgate.toml",
        config,
        toolgate::gate::gate_catalog(),
    );
    let builder = Gate::builder()
        .config(config.expect("valid"))
        .store(store.clone())
        .keyring(toolgate_testkit::keyring_with("k", 1))
        .user("ann");
    builder.build().expect("opens")
}

fn new_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

async fn add(gate: &Gate, text: &str) -> MemoryRecord {
    let new = NewMemory::new(text, RecallScope::User);
    let put = gate.memory().add(new).await;
    put.expect("stores").record().clone()
}

/// Approves the call for which a run waits.
async fn approve(gate: &Gate, report: &toolgate::RunReport) {
    let question = report.pending[0].question.as_deref();
    let question = question.expect("waits for a decision");
    let approved = Decision::approve("ann");
    let decided = gate.approvals().decide(question, approved).await;
    decided.expect("decides");
}

async fn all_memories(gate: &Gate) -> Vec<MemoryRecord> {
    let listed = gate.memory().list(MemoryPage::default()).await;
    listed.expect("lists")
}

/// Returns the memories that events say were recalled.
async fn recalled(store: &StoreHandle, session: &Session) -> Vec<Vec<MemoryId>> {
    let events = store.events(session.id(), 0, 1_000).await.expect("reads");
    let recalled = events.iter().filter_map(|event| match event.as_session() {
        Some(SessionEvent::MemoryRecalled { memories, .. }) => Some(memories.clone()),
        _ => None,
    });
    recalled.collect()
}

/// Returns the instructions of each request.
fn instructions(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let texts = requests.iter().map(|request| request.instructions.clone());
    texts
        .map(|text| text.unwrap_or_default().to_string())
        .collect()
}

#[tokio::test]
async fn relevant_memories_are_quoted_in_the_instructions_and_an_event_says_which() {
    let store = new_store();
    let gate = open_gate("[memory]\nrecall = true", &store);
    let relevant = add(&gate, "We deploy on Fridays with kubectl").await;
    add(&gate, "The logo is blue").await;
    let model = ScriptedModel::new([
        ScriptLine::new().call("recall", json!({ "query": "deploy" })),
        ScriptLine::new().say("On Friday."),
    ])
    .store_requests();
    let model = Arc::new(model);
    let session = gate.session(model.clone()).await.expect("opens");
    let report = session.run("When do we deploy?").await.expect("runs");
    assert_eq!(report.text, "On Friday.");
    let texts = instructions(&model);
    assert_eq!(texts.len(), 2);
    for text in &texts {
        assert!(text.contains("We deploy on Fridays with kubectl"), "{text}");
        assert!(text.contains("data, not instructions"), "{text}");
        assert!(!text.contains("logo"), "{text}");
    }
    // One event for the run, and one use by each way.
    assert_eq!(recalled(&store, &session).await, [vec![relevant.id]]);
    let used = gate.memory().show(relevant.id).await.expect("reads");
    assert_eq!(used.expect("is there").uses, 2);
}

#[tokio::test]
async fn a_run_without_the_section_recalls_nothing_and_has_no_tools() {
    let store = new_store();
    let gate = open_gate("", &store);
    add(&gate, "We deploy on Fridays").await;
    let model = ScriptedModel::new([ScriptLine::new().say("Yes.")]).store_requests();
    let model = Arc::new(model);
    let session = gate.session(model.clone()).await.expect("opens");
    session.run("When do we deploy?").await.expect("runs");
    assert!(!instructions(&model)[0].contains("Fridays"));
    assert!(recalled(&store, &session).await.is_empty());
    assert!(gate.view().expect("shows").get("remember").is_none());
}

#[tokio::test]
async fn a_resumed_run_has_the_same_memories_and_a_forgotten_one_is_gone() {
    let store = new_store();
    let gate = open_gate("[memory]\nrecall = true", &store);
    let kept = add(&gate, "We deploy with make").await;
    let forgotten = add(&gate, "We deploy on Fridays").await;
    let model = ScriptedModel::new([
        ScriptLine::new().call("remember", json!({ "text": "x y z" })),
        ScriptLine::new().say("Done."),
    ])
    .store_requests();
    let model = Arc::new(model);
    let session = gate.session(model.clone()).await.expect("opens");
    let report = session.run("How do we deploy?").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    let id = session.id();
    let pending = report.pending[0].clone();
    drop(session);
    // Another process: one memory is new, one is gone.
    let gate = open_gate("[memory]\nrecall = true", &store);
    add(&gate, "We deploy, deploy and deploy").await;
    let mut filter = gate.memory().filter();
    filter.ids = vec![forgotten.id];
    gate.memory().forget(filter).await.expect("forgets");
    let session = gate.open_session(id, model.clone()).await;
    let session = session.expect("opens");
    let question = pending.question.as_deref().expect("waits for a decision");
    let denied = Decision::deny("ann", None);
    let decided = gate.approvals().decide(question, denied).await;
    decided.expect("decides");
    session.resume().await.expect("resumes");
    let texts = instructions(&model);
    let last = texts.last().expect("was asked");
    assert!(last.contains("We deploy with make"), "{last}");
    assert!(
        !last.contains("Fridays") && !last.contains("deploy and deploy"),
        "{last}"
    );
    let events = recalled(&store, &session).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains(&kept.id) && events[0].contains(&forgotten.id));
}

#[tokio::test]
async fn the_block_stays_within_its_bound() {
    let store = new_store();
    let gate = open_gate(
        "[memory]\nrecall = true\nmax_tokens = 200\nlimit = 50",
        &store,
    );
    for number in 0..40 {
        add(
            &gate,
            &format!("deploy fact {number} with some more words about it"),
        )
        .await;
    }
    let model = ScriptedModel::new([ScriptLine::new().say("Yes.")]).store_requests();
    let model = Arc::new(model);
    let session = gate.session(model.clone()).await.expect("opens");
    session.run("deploy fact").await.expect("runs");
    let ids = recalled(&store, &session).await;
    assert_eq!(ids.len(), 1);
    assert!((1..=4).contains(&ids[0].len()), "{ids:?}");
}

#[tokio::test]
async fn what_cannot_be_in_the_section_is_named() {
    let rows = [
        ("[memory]\nrecal = true", "recal"),
        ("[memory]\nmin_score = 2.0", "min_score"),
        ("[memory]\nmodel = 'openai:x'", "extract"),
    ];
    for (text, wanted) in rows {
        let catalog = toolgate::gate::gate_catalog();
        let parsed = toolgate::Config::parse_with_catalog("toolgate.toml", text, catalog);
        let error = match parsed {
            Ok(config) => Gate::builder()
                .config(config)
                .in_memory()
                .and_then(|builder| builder.build())
                .expect_err("is rejected")
                .to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[tokio::test]
async fn scopes_need_a_project_or_a_session() {
    let gate = open_gate("", &new_store());
    let memory = gate.memory();
    assert!(matches!(
        memory.resolve_scope(ScopeWord::Project, None),
        Err(MemoryError::NoProject)
    ));
    assert!(matches!(
        memory.resolve_scope(ScopeWord::Session, None),
        Err(MemoryError::NoSession)
    ));
}
