//! Nothing that a gate owns can be given twice or differ.

use std::sync::Arc;

use toolgate::{
    Agent, Gate,
    approval::{KeyKind, Keyring, SecretKey, SuspendingApprover},
    gate::{ApproveMode, GateBuilder},
    model::ScriptedModel,
    store::{MemoryStore, StoreHandle},
    tool::Registry,
};

fn keyring() -> Keyring {
    let id = "k1".parse().expect("a valid id");
    Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [7; 32]))
}

fn problem_of(builder: GateBuilder) -> String {
    let error = builder.build().expect_err("rejected");
    assert!(error.is_invalid_configuration(), "{error}");
    error.to_string()
}

#[test]
fn what_is_given_twice_is_rejected_by_its_name() {
    let gate = || Gate::builder().in_memory().expect("keys");
    let store = || StoreHandle::new(MemoryStore::new());
    for (builder, named) in [
        (gate().store(store()), "store"),
        (gate().address("memory:"), "store"),
        (gate().keyring(keyring()), "keyring"),
        (gate().user("ann").user("bob"), "user"),
        (
            gate()
                .approver(SuspendingApprover)
                .approver(SuspendingApprover),
            "approver",
        ),
        (
            gate().approve(ApproveMode::Yes).approve(ApproveMode::Never),
            "approval mode",
        ),
        (
            gate().config(Default::default()).config(Default::default()),
            "configuration",
        ),
        (gate().workspace("/").workspace("/tmp"), "workspace"),
        (
            gate()
                .embedder(toolgate_testkit::WordEmbedder::new("a"))
                .embedder(toolgate_testkit::WordEmbedder::new("b")),
            "embedder",
        ),
    ] {
        let said = problem_of(builder);
        assert_eq!(said, format!("the {named} of the gate is given twice"));
    }
}

#[test]
fn layers_cannot_get_another_store_or_keyring_than_the_gate() {
    let gate = || Gate::builder().in_memory().expect("keys");
    assert_eq!(
        problem_of(gate().resource(keyring())),
        "the keyring belongs to the gate and is not a resource of layers"
    );
    assert_eq!(
        problem_of(gate().resource(StoreHandle::new(MemoryStore::new()))),
        "the store belongs to the gate and is not a resource of layers"
    );
}

#[tokio::test]
async fn a_gate_with_two_approvers_opens_no_session() {
    let gate = Gate::in_memory().expect("builds");
    let gate = gate
        .approver(SuspendingApprover)
        .approver(SuspendingApprover);
    let error = gate.session(ScriptedModel::new(["Hi."])).await;
    let error = error.expect_err("rejected");
    assert_eq!(error.to_string(), "the approver of the gate is given twice");
}

fn helper_agent() -> Agent {
    Agent::new(
        "helper",
        "Helps.",
        ScriptedModel::new(["Done."]),
        Registry::new(),
    )
}

fn recording_model() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(["Hi."]).store_requests())
}

fn is_shown(model: &ScriptedModel, tool: &str) -> bool {
    let request = model.requests().pop().expect("the model was asked");
    request.view.get(tool).is_some()
}

#[tokio::test]
async fn an_agent_belongs_to_the_session_that_it_was_given_to() {
    let gate = Gate::in_memory().expect("builds");
    for _ in 0..2 {
        let with_agent = recording_model();
        let builder = gate.session_builder(with_agent.clone()).expect("builds");
        let session = builder.agent(helper_agent()).build().await.expect("builds");
        session.run("Go.").await.expect("runs");
        assert!(is_shown(&with_agent, "helper"));

        let without = recording_model();
        let session = gate.session(without.clone()).await.expect("builds");
        session.run("Go.").await.expect("runs");
        assert!(!is_shown(&without, "helper"));
    }
    assert!(gate.view().expect("builds").get("helper").is_none());
}

#[tokio::test]
async fn an_agent_does_not_replace_a_tool_of_its_name() {
    let gate = Gate::in_memory().expect("builds");
    let builder = gate
        .session_builder(ScriptedModel::new(["Hi."]))
        .expect("builds");
    let twice = builder.agent(helper_agent()).agent(helper_agent());
    let error = twice.build().await.expect_err("rejected");
    assert!(
        error.to_string().contains("helper is already registered"),
        "{error}"
    );

    let read_output = Agent::new(
        "read_output",
        "Reads.",
        ScriptedModel::new(["Hi."]),
        Registry::new(),
    );
    let builder = gate
        .session_builder(ScriptedModel::new(["Hi."]))
        .expect("builds");
    let error = builder
        .agent(read_output)
        .build()
        .await
        .expect_err("rejected");
    assert!(
        error
            .to_string()
            .contains("read_output is already registered"),
        "{error}"
    );
}
