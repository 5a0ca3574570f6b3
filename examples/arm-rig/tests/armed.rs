//! Tests of an agent of rig with armed tools: the text its model reads, and the ledger.

use arm_rig::{for_rig, shop};
use rig_agent::AgentBuilder;
use rig_core::test_utils::{MockCompletionModel, MockTurn};
use serde_json::json;
use toolgate::{
    Session, Status,
    layers::{Ledger, ReceiptFilter},
    session::RunOptions,
};

/// Runs an agent, and returns its answer and everything its model has read by then.
async fn work(session: &Session, model: MockCompletionModel) -> (String, String) {
    let armed = session.arm_tools(RunOptions::new()).await.expect("armed");
    let tools = for_rig(armed.tools()).expect("named");
    let agent = AgentBuilder::new(model.clone())
        .dynamic_tools(tools)
        .build();
    let answer = agent
        .prompt("Ann paid twice, and so did Bob.")
        .max_turns(8)
        .await
        .expect("answers");
    let read = model.requests().pop().expect("was asked");
    (
        answer.output().to_owned(),
        serde_json::to_string(&read.chat_history).expect("writes"),
    )
}

async fn receipts(session: &Session) -> Vec<(String, Status, Option<String>)> {
    let ledger = Ledger::main(session.dispatcher().store().clone());
    ledger.verify(&[], None).await.expect("verified");
    let page = ledger
        .list_receipts(&ReceiptFilter::default())
        .await
        .expect("reads");
    let entry = |sealed: toolgate::layers::SealedReceipt| {
        let receipt = sealed.receipt;
        let by = receipt
            .approval
            .and_then(|approval| approval.by)
            .map(|by| by.to_string());
        (receipt.tool_name.to_string(), receipt.status, by)
    };
    let mut entries: Vec<_> = page.receipts.into_iter().map(entry).collect();
    entries.sort_by_key(|(tool, status, _)| (tool.clone(), status.as_str()));
    entries
}

#[tokio::test]
async fn every_call_of_the_agent_passes_the_gate_and_leaves_a_receipt() {
    let session = shop::session().await.expect("opens");
    let (answer, read) = work(&session, shop::model()).await;
    assert!(answer.starts_with("Ann has her money back."), "{answer}");
    for told in [
        "Ann paid 20 twice",
        "sent 20 to Ann",
        "Tool execution denied: that is more than was paid",
        "The arguments do not fit the schema",
    ] {
        assert!(
            read.contains(told),
            "the model was not told {told:?}: {read}"
        );
    }
    let carol = || Some("carol".to_owned());
    let expected = [
        ("look_up".to_owned(), Status::Ok, None),
        ("refund".to_owned(), Status::Denied, carol()),
        ("refund".to_owned(), Status::Ok, carol()),
        ("refund".to_owned(), Status::SchemaViolation, None),
    ];
    assert_eq!(receipts(&session).await, expected);
}

#[tokio::test]
async fn an_agent_is_armed_only_with_the_tools_that_are_allowed() {
    let session = shop::session().await.expect("opens");
    let options = RunOptions::new().allow(["look_up"]);
    let tools = session.arm_tools(options).await.expect("armed").tools();
    let names: Vec<_> = tools
        .iter()
        .map(|tool| tool.spec().name.to_string())
        .collect();
    assert_eq!(names, ["look_up"]);
    let model = MockCompletionModel::from_turns([
        MockTurn::tool_call("call_1", "look_up", json!({ "name": "Ann" })),
        MockTurn::text("Done."),
    ]);
    let agent = AgentBuilder::new(model)
        .dynamic_tools(for_rig(tools).expect("named"))
        .build();
    agent.prompt("Look.").max_turns(3).await.expect("answers");
    assert_eq!(receipts(&session).await.len(), 1);
}
