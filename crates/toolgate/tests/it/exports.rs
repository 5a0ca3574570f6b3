//! Exports through the front door: what a run began with is in them, and no secret is.

use std::sync::Arc;

use toolgate::{
    Gate,
    archive::{ExportFormat, ExportOptions, ExportRedaction},
    model::{Model, ModelSource, ScriptedModel},
    store::{MemoryStore, RunInstructions, StoreHandle},
    value::SessionId,
};

const SECRET: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";

fn open_gate(store: &StoreHandle, instructions: &str) -> Gate {
    let builder = Gate::builder()
        .store(store.clone())
        .keyring(toolgate_testkit::keyring_with("k", 1))
        .user("ann");
    let builder = builder.default_instructions(instructions);
    builder.build().expect("opens")
}

fn greeting_model() -> ModelSource {
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(["Hi.", "Hi.", "Hi."]));
    ModelSource::Open(model)
}

async fn export(gate: &Gate, session: SessionId, format: ExportFormat, with: bool) -> String {
    let options = ExportOptions {
        format,
        include_system: with,
        ..ExportOptions::default()
    };
    let mut file = Vec::new();
    let exporter = gate.exporter();
    let done = exporter.export(&[session], &options, &mut file).await;
    done.expect("exports");
    String::from_utf8(file).expect("text")
}

/// Stores two runs under one text of instructions, and one under another.
async fn three_runs(store: &StoreHandle) -> (Gate, SessionId) {
    let first = open_gate(store, &format!("Answer briefly. {SECRET}"));
    let session = first.session(greeting_model()).await.expect("opens");
    let id = session.id();
    session.run("one").await.expect("runs");
    session.run("two").await.expect("runs");
    drop(session);
    let second = open_gate(store, "Answer at length.");
    let session = second.open_session(id, greeting_model()).await;
    session.expect("opens").run("three").await.expect("runs");
    (second, id)
}

#[tokio::test]
async fn the_text_of_instructions_is_stored_once_for_the_runs_that_have_it() {
    let store = StoreHandle::new(MemoryStore::new());
    let (_, session) = three_runs(&store).await;
    let mut stored = Vec::new();
    for number in [0, 2, 4] {
        let run = store.load_run(session, number).await.expect("reads");
        stored.extend(run.expect("a record").instructions.clone());
    }
    assert_eq!(
        stored,
        [
            RunInstructions::Text(format!("Answer briefly. {SECRET}").into()),
            RunInstructions::SameAs(0),
            RunInstructions::Text("Answer at length.".into()),
        ]
    );
}

#[tokio::test]
async fn instructions_are_exported_where_they_change_and_can_be_left_out() {
    let store = StoreHandle::new(MemoryStore::new());
    let (gate, session) = three_runs(&store).await;
    for format in ExportFormat::ALL {
        let whole = export(&gate, session, format, true).await;
        assert_eq!(whole.matches("Answer briefly.").count(), 1, "{whole}");
        assert_eq!(whole.matches("Answer at length.").count(), 1, "{whole}");
        assert!(!whole.contains(SECRET), "{whole}");
        let part = export(&gate, session, format, false).await;
        assert!(!part.contains("Answer"), "{part}");
        assert!(part.contains("three"), "{part}");
    }
    let raw = ExportOptions {
        format: ExportFormat::Json,
        redaction: ExportRedaction::Raw,
        ..ExportOptions::default()
    };
    let mut file = Vec::new();
    let done = gate.exporter().export(&[session], &raw, &mut file).await;
    done.expect("exports");
    let file = String::from_utf8(file).expect("text");
    assert_eq!(file.matches(SECRET).count(), 1, "lossless, and once");
}
