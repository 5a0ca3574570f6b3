//! The calls of the model in each scenario, the decisions on them, and the process that drives it
//! from any state.

use std::{error::Error, sync::Arc, time::Duration};

use serde_json::json;
use toolgate::{
    Arguments, Decision, Outcome, Stack, View,
    approval::{ApprovalRequest, ApprovalRequestRef, ApprovalService, KeyKind, Keyring, SecretKey},
    layers::{Approval, HumanDuration, Receipts, Retry, RetryOptions, Validate},
    session::{DeliverError, Dispatcher, TurnEnd, TurnReport, TurnRequest},
    stack::{AnyLayer, Suspension, ToolRequest},
    store::{ApprovalFilter, StoreHandle, TurnFilter},
    value::{SessionId, TurnId},
};
use toolgate_testkit::crash::{ChildEnd, CrashChild};

use crate::crash::{
    runs,
    tools::{build_registry, log_callbacks},
};

/// The calls of a model, turn by turn.
struct TurnScenario {
    name: &'static str,
    answers: DecisionTiming,
    turns: &'static [&'static [(&'static str, &'static str)]],
}

/// The time and place of the decisions.
#[derive(Clone, Copy, PartialEq)]
enum DecisionTiming {
    /// In the process that asked.
    AtOnce,
    /// After another process has started.
    AfterRestart,
    /// Through the approval service, while the turn is driven and waits.
    MeanwhileAtTheDesk,
}

const ALL: [TurnScenario; 9] = [
    TurnScenario {
        name: "parallel-writes",
        answers: DecisionTiming::AtOnce,
        turns: &[&[
            ("write", r#"{"name":"a"}"#),
            ("write", r#"{"name":"b"}"#),
            ("read", r#"{"name":"c"}"#),
            ("write", r#"{"name":"d"}"#),
            ("write", r#"{"name":"e"}"#),
            ("write", r#"{"name":"f"}"#),
        ]],
    },
    TurnScenario {
        name: "approvals",
        answers: DecisionTiming::AfterRestart,
        turns: &[&[
            ("pay", r#"{"name":"rent","amount":42}"#),
            ("write", r#"{"name":"a"}"#),
            ("pay", r#"{"name":"yacht","amount":1000}"#),
            ("pay", r#"{"name":"tip","amount":7}"#),
            ("read", r#"{"name":"b"}"#),
        ]],
    },
    TurnScenario {
        name: "inbox",
        answers: DecisionTiming::MeanwhileAtTheDesk,
        turns: &[
            &[
                ("pay", r#"{"name":"rent","amount":42}"#),
                ("write", r#"{"name":"a"}"#),
                ("pay", r#"{"name":"tip","amount":7}"#),
            ],
            &[
                ("pay", r#"{"name":"yacht","amount":1000}"#),
                ("transfer", r#"{"name":"b"}"#),
            ],
        ],
    },
    TurnScenario {
        name: "retries",
        answers: DecisionTiming::AtOnce,
        turns: &[&[
            ("flaky", r#"{"name":"a"}"#),
            ("flaky", r#"{"name":"b"}"#),
            ("write", r#"{"name":"c"}"#),
        ]],
    },
    TurnScenario {
        name: "nested",
        answers: DecisionTiming::AfterRestart,
        turns: &[&[
            ("delegate", r#"{"name":"inner","amount":1}"#),
            ("host", r#"{"name":"outer","amount":2}"#),
            ("write", r#"{"name":"a"}"#),
        ]],
    },
    TurnScenario {
        name: "edits",
        answers: DecisionTiming::AtOnce,
        turns: &[&[
            ("pay", r#"{"name":"tip","amount":7}"#),
            ("pay", r#"{"name":"odd","amount":13}"#),
            ("pay", r#"{"name":"rent","amount":42}"#),
        ]],
    },
    TurnScenario {
        name: "reconcile",
        answers: DecisionTiming::AtOnce,
        turns: &[&[
            ("transfer", r#"{"name":"a","amount":1}"#),
            ("transfer", r#"{"name":"b","amount":2}"#),
            ("write", r#"{"name":"c"}"#),
            ("transfer", r#"{"name":"d","amount":3}"#),
        ]],
    },
    TurnScenario {
        name: "mixed",
        answers: DecisionTiming::AtOnce,
        turns: &[&[
            ("write", r#"{"name":"same"}"#),
            ("write", r#"{"name":"same","amount":2}"#),
            ("read", r#"{"name":"same"}"#),
            ("nosuch", r#"{"name":"x"}"#),
            ("write", r#"{"nome":"typo"}"#),
            ("fail", r#"{"name":"y"}"#),
            ("pay", r#"{"name":"rent","amount":42}"#),
            ("transfer", r#"{"name":"z"}"#),
        ]],
    },
    TurnScenario {
        name: "long",
        answers: DecisionTiming::AtOnce,
        turns: &[
            &[("write", r#"{"name":"a"}"#), ("read", r#"{"name":"b"}"#)],
            &[
                ("pay", r#"{"name":"rent","amount":42}"#),
                ("flaky", r#"{"name":"c"}"#),
            ],
            &[
                ("transfer", r#"{"name":"d"}"#),
                ("pay", r#"{"name":"yacht","amount":1000}"#),
            ],
            &[("write", r#"{"name":"e"}"#)],
        ],
    },
];

impl TurnScenario {
    fn calls(&self, turn: usize) -> Option<Vec<ToolRequest>> {
        let calls = self.turns.get(turn)?.iter().enumerate();
        Some(
            calls
                .map(|(n, (tool, arguments))| {
                    ToolRequest::from_text(&format!("call_{n}"), tool, arguments)
                })
                .collect(),
        )
    }
}

/// Returns the names of all scenarios, of turns and of runs.
pub(crate) fn scenario_names() -> impl Iterator<Item = &'static str> {
    ALL.iter()
        .map(|scenario| scenario.name)
        .chain(runs::ALL.iter().map(|scenario| scenario.name))
}

/// Resumes the session and drives it until it is done or waits for the next start.
pub(crate) async fn drive_session(
    child: &CrashChild,
    store: StoreHandle,
) -> Result<ChildEnd, Box<dyn Error>> {
    if let Some(scenario) = runs::ALL
        .iter()
        .find(|scenario| scenario.name == child.scenario())
    {
        return runs::drive_run(scenario, child, store).await;
    }
    let scenario = ALL
        .iter()
        .find(|scenario| scenario.name == child.scenario())
        .ok_or("there is no such scenario")?;
    if child.start_number() > 0 && scenario.answers == DecisionTiming::AfterRestart {
        // As a process that only decides would, before the session has a driver.
        decide_all(&store, Some(child.session())).await?;
    }
    if scenario.answers == DecisionTiming::MeanwhileAtTheDesk {
        tokio::spawn(decide_until_the_end(store.clone(), child.session()));
    }
    let registry = build_registry(child.effects());
    let stack = Stack::over(registry.clone())
        .any_layers(build_layers(child)?)
        .build()?;
    let view = View::for_stack(&registry, &stack)?;
    let builder = Dispatcher::builder(stack)
        .session(child.session())
        .store(store)
        .keyring(test_keyring());
    let dispatcher = builder.build().await?;
    loop {
        let every = TurnFilter {
            open: false,
            ..TurnFilter::open_in(child.session())
        };
        let turns = dispatcher.store().turns(every).await?;
        let run = match turns.last() {
            Some(last) if last.settled_at.is_none() => {
                dispatcher.resume(last.turn, view.clone()).await?
            }
            last => {
                let Some(calls) = scenario.calls(turns.len()) else {
                    return Ok(ChildEnd::Done);
                };
                dispatcher
                    .open_turn(continue_after(
                        TurnRequest::new(view.clone(), calls),
                        last.map(|last| last.turn),
                    ))
                    .await?
            }
        };
        let report = match scenario.answers {
            DecisionTiming::MeanwhileAtTheDesk => run.run_to_end().await?,
            DecisionTiming::AtOnce | DecisionTiming::AfterRestart => run.run().await?,
        };
        let delivered = deliver_all(&dispatcher, &report).await?;
        if report.end == TurnEnd::Suspended && !delivered {
            match scenario.answers {
                DecisionTiming::AtOnce => decide_through_driver(&dispatcher).await?,
                DecisionTiming::AfterRestart => return Ok(ChildEnd::Waiting),
                DecisionTiming::MeanwhileAtTheDesk => {
                    return Err("a turn that is driven to its end is not suspended".into());
                }
            }
        }
    }
}

fn continue_after(request: TurnRequest, after: Option<TurnId>) -> TurnRequest {
    match after {
        Some(turn) => request.after(turn),
        None => request,
    }
}

pub(crate) fn build_layers(child: &CrashChild) -> Result<Vec<AnyLayer>, Box<dyn Error>> {
    let notices = Arc::new(child.notices());
    let asked = log_callbacks(&notices, "on_request");
    let approved = log_callbacks(&notices, "on_approved");
    let denied = log_callbacks(&notices, "on_denied");
    let asks = ["pay", "delegate", "host"];
    let approval = Approval::when(move |call| {
        asks.contains(&call.tool.as_str())
            .then(|| "it costs money".to_owned())
    })
    .keyring(test_keyring())
    .on_request(move |call, _| asked(call.id))
    .on_approved(move |made| approved(made.approval_id.call_id()))
    .on_denied(move |made| denied(made.approval_id.call_id()));
    // An attempt that was lost with its process counts, so the limit has to exceed the number of
    // kills.
    let soon = HumanDuration::from(Duration::from_millis(1));
    let retry = Retry::new(RetryOptions {
        max_attempts: 20,
        initial_delay: soon,
        max_delay: soon,
        ..Default::default()
    })?;
    Ok(vec![
        AnyLayer::new(Receipts::to_store()),
        AnyLayer::new(Validate::new()),
        AnyLayer::new(approval),
        AnyLayer::new(retry),
    ])
}

/// Returns the keyring, the same in every process.
pub(crate) fn test_keyring() -> Keyring {
    let id = "crash".parse().expect("a name for a key");
    Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [7; 32]))
}

/// Returns the decision: always the same on the same request.
fn decide_request(request: &ApprovalRequest) -> Decision {
    let edited = |arguments| Arguments::try_from(arguments).expect("an object");
    match request
        .arguments
        .get("amount")
        .and_then(serde_json::Value::as_i64)
    {
        Some(amount) if amount > 100 => Decision::deny("ann", Some("too much")),
        Some(7) => {
            Decision::approve_with_edits("ann", edited(json!({ "name": "tip", "amount": 8 })))
        }
        // Invalid for the tool, which must not run with it.
        Some(13) => Decision::approve_with_edits(
            "ann",
            edited(json!({ "name": "odd", "amount": "thirteen" })),
        ),
        _ => Decision::approve("ann"),
    }
}

/// Decides every pending approval of a session, or of all, through the approval service. A decision
/// that was stored just before a crash is rejected as a duplicate, which is fine.
pub(crate) async fn decide_all(
    store: &StoreHandle,
    session: Option<SessionId>,
) -> Result<(), Box<dyn Error>> {
    let desk = ApprovalService::new(store.clone()).keyring(test_keyring());
    for row in desk
        .list_approvals(ApprovalFilter {
            session,
            ..ApprovalFilter::default()
        })
        .await?
    {
        match desk
            .decide(
                ApprovalRequestRef::from(&*row.request),
                decide_request(&row.request),
            )
            .await
        {
            Ok(_) | Err(DeliverError::Rejected(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Decides pending approvals until the process ends. If the store fails, it retries.
async fn decide_until_the_end(store: StoreHandle, session: SessionId) {
    loop {
        let _ = decide_all(&store, Some(session)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Decides every pending approval with the service of the driver.
async fn decide_through_driver(dispatcher: &Dispatcher) -> Result<(), Box<dyn Error>> {
    let open = ApprovalFilter {
        session: Some(dispatcher.session()),
        ..ApprovalFilter::default()
    };
    for row in dispatcher.store().approvals(open).await? {
        match dispatcher
            .approval_service()
            .decide(
                ApprovalRequestRef::from(&*row.request),
                decide_request(&row.request),
            )
            .await
        {
            Ok(_) | Err(DeliverError::Rejected(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Delivers external results; returns true if there were any.
async fn deliver_all(dispatcher: &Dispatcher, report: &TurnReport) -> Result<bool, Box<dyn Error>> {
    let waiting = report
        .results
        .iter()
        .filter(|result| matches!(result.waits_for, Some(Suspension::Result)));
    let mut delivered = false;
    for result in waiting {
        match dispatcher
            .approval_service()
            .deliver_result(report.turn, result.id, Outcome::ok("the host did it"))
            .await
        {
            Ok(()) | Err(DeliverError::Rejected(_)) => delivered = true,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(delivered)
}
