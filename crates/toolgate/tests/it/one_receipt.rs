//! Every invocation has one receipt in the ledger, with the status it settled with.

use std::{collections::BTreeMap, time::Duration};

use crate::approval_world::{
    ApprovalWorld, look_request, pay_request, pending_request, resume_turn, run_turn,
};
use serde_json::json;
use toolgate::{
    Resources,
    layers::{Config, Ledger, ReceiptFilter, default_stack},
    prelude::*,
    session::{TurnReport, TurnRequest},
    stack::ToolRequest,
    value::CallId,
};

const CONFIG: &str = "
[layers.receipts]
sink = 'store'
[layers.idempotency]
[layers.approval]
tools = ['pay']
expires_after = '60s'
[layers.scope]
stage = 'test'
allowed_tools = ['look', 'pay', 'boom', 'fail', 'endless']
";

/// Creates a world with tools that end in every way, and the default stack.
fn world_and_stack() -> (ApprovalWorld, impl Fn() -> Stack) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let world = ApprovalWorld::new();
    let boom = tool_fn("boom", "Panics.", |_: Nothing, _cx| async {
        panic!("no") as Result<(), ToolError>
    });
    let fail = tool_fn("fail", "Fails.", |_: Nothing, _cx| async {
        Err::<(), _>(ToolError::new("no"))
    });
    let forbidden = tool_fn("forbidden", "Is blocked.", |_: Nothing, _cx| async {
        Ok::<_, ToolError>(())
    });
    let endless = tool_fn("endless", "Never ends.", |_: Nothing, _cx| {
        std::future::pending::<Result<(), ToolError>>()
    });
    world.registry.register(boom).expect("free");
    world.registry.register(fail).expect("free");
    world.registry.register(forbidden).expect("free");
    world.registry.register(endless).expect("free");
    let registry = world.registry.clone();
    let ring = world.ring.clone();
    let stack = move || {
        let parts = Resources::new().with(ring.clone());
        let layers = Config::parse(CONFIG)
            .and_then(|config| default_stack(&config, &parts))
            .expect("valid");
        Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order")
    };
    (world, stack)
}

/// Asserts that the receipts match exactly these results.
async fn assert_receipts(world: &ApprovalWorld, report: &TurnReport) {
    let filter = ReceiptFilter {
        limit: 1_000,
        ..ReceiptFilter::default()
    };
    let ledger = Ledger::main(world.handle());
    let page = ledger.list_receipts(&filter).await.expect("reads");
    let mut found: BTreeMap<CallId, Vec<Status>> = BTreeMap::new();
    for sealed in &page.receipts {
        found
            .entry(sealed.receipt.invocation_id)
            .or_default()
            .push(sealed.receipt.status);
    }
    let settled =
        |result: &toolgate::session::CallResult| Some((result.id, vec![result.status()?]));
    let wanted: BTreeMap<CallId, Vec<Status>> = report.results.iter().filter_map(settled).collect();
    assert_eq!(found, wanted);
    ledger.verify(&[], None).await.expect("whole");
}

fn tool_call(id: &str, tool: &str) -> ToolRequest {
    ToolRequest::from_json(id, tool, json!({}))
}

#[tokio::test]
async fn every_settled_call_has_one_receipt_with_its_status() {
    let (world, stack) = world_and_stack();
    let process = world.open_process(stack()).await;
    let calls = vec![
        look_request("1"),
        look_request("2"),
        tool_call("3", "boom"),
        tool_call("4", "fail"),
        tool_call("5", "nowhere"),
        tool_call("6", "forbidden"),
        ToolRequest::from_json("7", "look", json!([])),
        ToolRequest::from_json("8", "pay", json!({ "amount": "x" })),
        pay_request("9", 1),
        pay_request("10", 2),
        pay_request("11", 3),
    ];
    let report = run_turn(&process, world.view(), calls).await;
    assert_receipts(&world, &report).await;
    let desk = world.approval_service();
    desk.decide(&pending_request(&report, 8), Decision::approve("ann"))
        .await
        .expect("taken");
    desk.decide(&pending_request(&report, 9), Decision::deny("ann", None))
        .await
        .expect("taken");
    world.clock.advance(Duration::from_secs(60));
    let process = world.open_process(stack()).await;
    let report = resume_turn(&process, &report, world.view()).await;
    let statuses = crate::approval_world::call_statuses(&report);
    assert_eq!(
        statuses[8..],
        [
            Some(Status::Ok),
            Some(Status::Denied),
            Some(Status::Expired)
        ]
    );
    assert_receipts(&world, &report).await;
}

#[tokio::test]
async fn a_lost_or_interrupted_call_has_one_receipt_too() {
    let (world, stack) = world_and_stack();
    let process = world.open_process(stack()).await;
    let open = TurnRequest::new(
        world.view(),
        vec![
            tool_call("1", "endless"),
            pay_request("2", 4),
            tool_call("3", "endless"),
        ],
    );
    let turn = process.open_turn(open).await.expect("opens");
    let id = turn.turn();
    let lost = tokio::spawn(turn.run_to_end());
    tokio::task::yield_now().await;
    lost.abort();
    let _ = lost.await;
    let process = world.open_process(stack()).await;
    let turn = process.resume(id, world.view()).await.expect("resumes");
    let handle = turn.handle();
    let waiting = tokio::spawn(turn.run_to_end());
    tokio::task::yield_now().await;
    handle.interrupt("enough").await.expect("is recorded");
    while !waiting.is_finished() {
        world.clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    let stopped = waiting.await.expect("no panic").expect("runs");
    assert!(
        stopped
            .results
            .iter()
            .all(|result| result.outcome.is_some()),
        "{stopped:?}"
    );
    assert_receipts(&world, &stopped).await;
}
