//! Nothing that a gate owns can be given twice or differ.

use toolgate::{
    Gate,
    approval::{KeyKind, Keyring, SecretKey, SuspendingApprover},
    gate::{ApproveMode, GateBuilder},
    model::ScriptedModel,
    store::{MemoryStore, StoreHandle},
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
