//! Every invocation has one receipt in the ledger, however it ends, and the receipt says how.

mod approving;

use std::{collections::BTreeMap, time::Duration};

use approving::{World, look, pay, question, resume, run};
use serde_json::json;
use toolgate::{
    CallId, Parts,
    layers::{Config, Ledger, ReceiptFilter, default_stack},
    prelude::*,
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

/// A world with tools that end in every way, and the stack that people get.
fn world() -> (World, impl Fn() -> Stack) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let world = World::new();
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
    let (registry, ring) = (world.registry.clone(), world.ring.clone());
    let stack = move || {
        let parts = Parts::new().with(ring.clone());
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

/// Makes sure that the receipts are exactly about these results.
async fn assert_receipts(world: &World, report: &TurnReport) {
    let filter = ReceiptFilter {
        limit: 1_000,
        ..ReceiptFilter::default()
    };
    let ledger = Ledger::main(world.handle());
    let page = ledger.list(&filter).await.expect("reads");
    let mut found: BTreeMap<CallId, Vec<Status>> = BTreeMap::new();
    for sealed in &page.receipts {
        found
            .entry(sealed.receipt.invocation_id)
            .or_default()
            .push(sealed.receipt.status);
    }
    let settled = |result: &toolgate::CallResult| Some((result.id, vec![result.status()?]));
    let wanted: BTreeMap<CallId, Vec<Status>> = report.results.iter().filter_map(settled).collect();
    assert_eq!(found, wanted);
    ledger.verify(&[], None).await.expect("whole");
}

fn call(id: &str, tool: &str) -> ToolRequest {
    ToolRequest::json(id, tool, json!({}))
}

#[tokio::test]
async fn however_a_call_ends_there_is_one_receipt_that_says_so() {
    let (world, stack) = world();
    let process = world.process(stack()).await;
    let calls = vec![
        look("1"),
        look("2"),
        call("3", "boom"),
        call("4", "fail"),
        call("5", "nowhere"),
        call("6", "forbidden"),
        ToolRequest::json("7", "look", json!([])),
        ToolRequest::json("8", "pay", json!({ "amount": "x" })),
        pay("9", 1),
        pay("10", 2),
        pay("11", 3),
    ];
    let report = run(&process, world.view(), calls).await;
    assert_receipts(&world, &report).await;
    let desk = world.desk();
    desk.decide(&question(&report, 8), Decision::approve("ann"))
        .await
        .expect("taken");
    desk.decide(&question(&report, 9), Decision::deny("ann", None))
        .await
        .expect("taken");
    world.clock.advance(Duration::from_secs(60));
    let process = world.process(stack()).await;
    let report = resume(&process, &report, world.view()).await;
    let statuses = approving::statuses(&report);
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
async fn a_call_that_is_lost_or_stopped_has_one_receipt_too() {
    let (world, stack) = world();
    let process = world.process(stack()).await;
    let open = TurnRequest::new(
        world.view(),
        vec![call("1", "endless"), pay("2", 4), call("3", "endless")],
    );
    let turn = process.open(open).await.expect("opens");
    let id = turn.turn();
    let lost = tokio::spawn(turn.run_to_end());
    tokio::task::yield_now().await;
    lost.abort();
    let _ = lost.await;
    let process = world.process(stack()).await;
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
