//! What a model asks for in each scenario, what a person says to it, and how a process drives it from wherever it stands.

use std::{error::Error, sync::Arc, time::Duration};

use serde_json::json;
use toolgate::{
    AnyLayer, ApprovalFilter, ApprovalRequest, Approvals, Arguments, Decision, Dispatcher, KeyKind,
    Keyring, Outcome, PostError, Question, SecretKey, SessionId, Stack, StoreHandle, Suspension,
    ToolRequest, TurnEnd, TurnFilter, TurnId, TurnReport, TurnRequest, View,
    layers::{Approval, Receipts, Retry, RetryOptions, Span, Validate},
};
use toolgate_testkit::crash::{CrashChild, Ended};

use crate::{
    runs,
    tools::{noted, registry},
};

/// What a model asks for, turn by turn.
struct Scenario {
    name: &'static str,
    answers: Answers,
    turns: &'static [&'static [(&'static str, &'static str)]],
}

/// When the person answers.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    /// In the process that asked.
    AtOnce,
    /// When another process has been started.
    AfterRestart,
    /// At the desk, while the turn is driven and waits.
    MeanwhileAtTheDesk,
}

const ALL: [Scenario; 9] = [
    Scenario {
        name: "parallel-writes",
        answers: Answers::AtOnce,
        turns: &[&[
            ("write", r#"{"name":"a"}"#),
            ("write", r#"{"name":"b"}"#),
            ("read", r#"{"name":"c"}"#),
            ("write", r#"{"name":"d"}"#),
            ("write", r#"{"name":"e"}"#),
            ("write", r#"{"name":"f"}"#),
        ]],
    },
    Scenario {
        name: "approvals",
        answers: Answers::AfterRestart,
        turns: &[&[
            ("pay", r#"{"name":"rent","amount":42}"#),
            ("write", r#"{"name":"a"}"#),
            ("pay", r#"{"name":"yacht","amount":1000}"#),
            ("pay", r#"{"name":"tip","amount":7}"#),
            ("read", r#"{"name":"b"}"#),
        ]],
    },
    Scenario {
        name: "inbox",
        answers: Answers::MeanwhileAtTheDesk,
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
    Scenario {
        name: "retries",
        answers: Answers::AtOnce,
        turns: &[&[
            ("flaky", r#"{"name":"a"}"#),
            ("flaky", r#"{"name":"b"}"#),
            ("write", r#"{"name":"c"}"#),
        ]],
    },
    Scenario {
        name: "nested",
        answers: Answers::AfterRestart,
        turns: &[&[
            ("delegate", r#"{"name":"inner","amount":1}"#),
            ("host", r#"{"name":"outer","amount":2}"#),
            ("write", r#"{"name":"a"}"#),
        ]],
    },
    Scenario {
        name: "edits",
        answers: Answers::AtOnce,
        turns: &[&[
            ("pay", r#"{"name":"tip","amount":7}"#),
            ("pay", r#"{"name":"odd","amount":13}"#),
            ("pay", r#"{"name":"rent","amount":42}"#),
        ]],
    },
    Scenario {
        name: "reconcile",
        answers: Answers::AtOnce,
        turns: &[&[
            ("transfer", r#"{"name":"a","amount":1}"#),
            ("transfer", r#"{"name":"b","amount":2}"#),
            ("write", r#"{"name":"c"}"#),
            ("transfer", r#"{"name":"d","amount":3}"#),
        ]],
    },
    Scenario {
        name: "mixed",
        answers: Answers::AtOnce,
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
    Scenario {
        name: "long",
        answers: Answers::AtOnce,
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

impl Scenario {
    fn calls(&self, turn: usize) -> Option<Vec<ToolRequest>> {
        let calls = self.turns.get(turn)?.iter().enumerate();
        Some(
            calls
                .map(|(n, (tool, arguments))| {
                    ToolRequest::text(&format!("call_{n}"), tool, arguments)
                })
                .collect(),
        )
    }
}

/// The name of every scenario, of turns and of runs.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter()
        .map(|scenario| scenario.name)
        .chain(runs::ALL.iter().map(|scenario| scenario.name))
}

/// Takes the session up where it stands and goes on until it is done, or waits for the next start.
pub(crate) async fn drive(child: &CrashChild, store: StoreHandle) -> Result<Ended, Box<dyn Error>> {
    if let Some(scenario) = runs::ALL
        .iter()
        .find(|scenario| scenario.name == child.scenario())
    {
        return runs::drive(scenario, child, store).await;
    }
    let scenario = ALL
        .iter()
        .find(|scenario| scenario.name == child.scenario())
        .ok_or("there is no such scenario")?;
    if child.start() > 0 && scenario.answers == Answers::AfterRestart {
        // As a process that only decides would, before anybody drives the session.
        decide_all(&store, Some(child.session())).await?;
    }
    if scenario.answers == Answers::MeanwhileAtTheDesk {
        tokio::spawn(sit_at_the_desk(store.clone(), child.session()));
    }
    let registry = registry(child.effects());
    let stack = Stack::over(registry.clone())
        .any_layers(layers(child)?)
        .build()?;
    let view = View::under(&registry, &stack)?;
    let builder = Dispatcher::builder(stack)
        .session(child.session())
        .store_handle(store)
        .keyring(keyring());
    let dispatcher = builder.build().await?;
    loop {
        let every = TurnFilter {
            open: false,
            ..TurnFilter::open(child.session())
        };
        let turns = dispatcher.store().turns(every).await?;
        let run = match turns.last() {
            Some(last) if last.settled_at.is_none() => {
                dispatcher.resume(last.turn, view.clone()).await?
            }
            last => {
                let Some(calls) = scenario.calls(turns.len()) else {
                    return Ok(Ended::Done);
                };
                dispatcher
                    .open(continued(
                        TurnRequest::new(view.clone(), calls),
                        last.map(|last| last.turn),
                    ))
                    .await?
            }
        };
        let report = match scenario.answers {
            Answers::MeanwhileAtTheDesk => run.run_to_end().await?,
            Answers::AtOnce | Answers::AfterRestart => run.run().await?,
        };
        let delivered = deliver_all(&dispatcher, &report).await?;
        if report.end == TurnEnd::Suspended && !delivered {
            match scenario.answers {
                Answers::AtOnce => answer_all(&dispatcher).await?,
                Answers::AfterRestart => return Ok(Ended::Waiting),
                Answers::MeanwhileAtTheDesk => {
                    return Err("a turn that is driven to its end is not suspended".into());
                }
            }
        }
    }
}

fn continued(request: TurnRequest, after: Option<TurnId>) -> TurnRequest {
    match after {
        Some(turn) => request.after(turn),
        None => request,
    }
}

pub(crate) fn layers(child: &CrashChild) -> Result<Vec<AnyLayer>, Box<dyn Error>> {
    let notices = Arc::new(child.notices());
    let (asked, approved, denied) = (
        noted(&notices, "on_request"),
        noted(&notices, "on_approved"),
        noted(&notices, "on_denied"),
    );
    let asks = ["pay", "delegate", "host"];
    let approval = Approval::when(move |call| {
        asks.contains(&call.tool.as_str())
            .then(|| "it costs money".to_owned())
    })
    .keyring(keyring())
    .on_request(move |call, _| asked(call))
    .on_approved(move |call, _| approved(call))
    .on_denied(move |call, _| denied(call));
    // An attempt that was lost with its process counts, so there have to be more than kills.
    let soon = Span::from(Duration::from_millis(1));
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

/// The same in every process.
pub(crate) fn keyring() -> Keyring {
    let id = "crash".parse().expect("a name for a key");
    Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [7; 32]))
}

/// What the person says: always the same to the same question.
fn decision(request: &ApprovalRequest) -> Decision {
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
        // Not what the tool takes: it must not run with that.
        Some(13) => Decision::approve_with_edits(
            "ann",
            edited(json!({ "name": "odd", "amount": "thirteen" })),
        ),
        _ => Decision::approve("ann"),
    }
}

/// Answers every open question of a session, or of all, at the desk. One that was answered before, unseen, is refused, which is
/// fine.
pub(crate) async fn decide_all(
    store: &StoreHandle,
    session: Option<SessionId>,
) -> Result<(), Box<dyn Error>> {
    let desk = Approvals::new(store.clone()).keyring(keyring());
    for row in desk
        .pending(ApprovalFilter {
            session,
            ..ApprovalFilter::default()
        })
        .await?
    {
        match desk
            .decide(Question::from(&*row.request), decision(&row.request))
            .await
        {
            Ok(_) | Err(PostError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Looks for questions and answers them until the process ends. If the store fails, the person tries again.
async fn sit_at_the_desk(store: StoreHandle, session: SessionId) {
    loop {
        let _ = decide_all(&store, Some(session)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The same through whoever drives it.
async fn answer_all(dispatcher: &Dispatcher) -> Result<(), Box<dyn Error>> {
    let open = ApprovalFilter {
        session: Some(dispatcher.session()),
        ..ApprovalFilter::default()
    };
    for row in dispatcher.store().approvals(open).await? {
        match dispatcher
            .decide(
                row.turn,
                Question::from(&*row.request),
                decision(&row.request),
            )
            .await
        {
            Ok(()) | Err(PostError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Delivers what was run outside, and says whether there was something.
async fn deliver_all(dispatcher: &Dispatcher, report: &TurnReport) -> Result<bool, Box<dyn Error>> {
    let waiting = report
        .results
        .iter()
        .filter(|result| matches!(result.waits_for, Some(Suspension::Result)));
    let mut delivered = false;
    for result in waiting {
        match dispatcher
            .deliver(report.turn, result.id, Outcome::ok("the host did it"))
            .await
        {
            Ok(()) | Err(PostError::Refused(_)) => delivered = true,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(delivered)
}
