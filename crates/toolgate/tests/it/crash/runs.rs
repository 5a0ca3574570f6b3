//! Whole runs: the replies of the model in each scenario, its budgets, and the process that resumes
//! the run.

use std::error::Error;

use futures::stream::BoxStream;
use serde_json::{Value, json};
use toolgate::{
    Agent, Model, Registry, RunEnd, RunReport, Session, Stack,
    budget::{
        BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, Payer,
        PriceTable, Prices,
    },
    layers::{Budget, BudgetOptions, OnUnknownCost},
    model::{Delta, ModelError, ModelName, ModelRequest, Role, ScriptLine, ScriptedModel, Usage},
    session::{RunOptions, SessionBuilder},
    stack::AnyLayer,
    store::{ApprovalFilter, StoreHandle},
};
use toolgate_testkit::crash::{ChildEnd, CrashChild, EffectLog};

use crate::crash::{
    scenarios::{build_layers, decide_all, test_keyring},
    tools::build_registry,
};

/// The agent that models delegate to.
pub(crate) const HELPER: &str = "helper";

/// The first message.
const TASK: &str = "do what has to be done";

/// The message that the user sends instead of a decision.
const NEVER_MIND: &str = "never mind";

/// The replies of a model, one per iteration, until it has nothing left to call.
pub(crate) struct RunScenario {
    pub(crate) name: &'static str,
    person: UserBehaviour,
    pays: bool,
    replies: &'static [PlannedCalls],
    helper: &'static [PlannedCalls],
}

type PlannedCalls = &'static [(&'static str, &'static str)];

/// The user's behaviour on approval requests.
#[derive(Clone, Copy, PartialEq)]
enum UserBehaviour {
    /// Decides in the process that asked.
    Decides,
    /// Decides after another process has started.
    DecidesLater,
    /// Sends another message instead, after another process has started.
    ChangesTheSubject,
}

pub(crate) const ALL: [RunScenario; 5] = [
    RunScenario {
        name: "run-rounds",
        person: UserBehaviour::Decides,
        pays: false,
        replies: &[
            &[("write", r#"{"name":"a"}"#), ("read", r#"{"name":"b"}"#)],
            &[
                ("flaky", r#"{"name":"c"}"#),
                ("transfer", r#"{"name":"d","amount":1}"#),
                ("nosuch", "{}"),
            ],
            &[
                ("pay", r#"{"name":"rent","amount":42}"#),
                ("fail", r#"{"name":"e"}"#),
            ],
        ],
        helper: &[],
    },
    RunScenario {
        name: "run-approval",
        person: UserBehaviour::DecidesLater,
        pays: false,
        replies: &[
            &[
                ("pay", r#"{"name":"tip","amount":7}"#),
                ("write", r#"{"name":"a"}"#),
            ],
            &[
                ("pay", r#"{"name":"yacht","amount":1000}"#),
                ("host", r#"{"name":"b"}"#),
            ],
            &[("transfer", r#"{"name":"c"}"#)],
        ],
        helper: &[],
    },
    RunScenario {
        name: "run-agent",
        person: UserBehaviour::DecidesLater,
        pays: false,
        replies: &[
            &[
                ("helper", r#"{"task":"one"}"#),
                ("write", r#"{"name":"a"}"#),
                ("helper", r#"{"task":"two"}"#),
            ],
            &[("transfer", r#"{"name":"b"}"#)],
        ],
        helper: &[
            &[("write", r#"{"name":"c"}"#)],
            &[("pay", r#"{"name":"rent","amount":42}"#)],
        ],
    },
    RunScenario {
        name: "run-budgets",
        person: UserBehaviour::Decides,
        pays: true,
        replies: &[
            &[
                ("write", r#"{"name":"a"}"#),
                ("helper", r#"{"task":"three"}"#),
            ],
            &[
                ("pay", r#"{"name":"yacht","amount":1000}"#),
                ("transfer", r#"{"name":"b"}"#),
            ],
        ],
        helper: &[&[
            ("write", r#"{"name":"c"}"#),
            ("pay", r#"{"name":"rent","amount":42}"#),
        ]],
    },
    RunScenario {
        name: "run-never-mind",
        person: UserBehaviour::ChangesTheSubject,
        pays: false,
        replies: &[
            &[("write", r#"{"name":"a"}"#)],
            &[("pay", r#"{"name":"rent","amount":42}"#)],
            &[("write", r#"{"name":"b"}"#)],
        ],
        helper: &[],
    },
];

/// Returns the budgets of a case, with room for requests that are lost with their process and
/// repeated.
pub(crate) fn budgets() -> Vec<BudgetRule> {
    let rule =
        |scope, unit, limit| BudgetRule::new("crash", scope, BudgetPeriod::Total, unit, limit);
    vec![
        rule(BudgetScope::User, BudgetUnit::Requests, 40),
        rule(BudgetScope::User, BudgetUnit::Usd, 1_000_000_000),
        rule(BudgetScope::User, BudgetUnit::Calls, 8),
        rule(BudgetScope::Session, BudgetUnit::Requests, 30),
        rule(BudgetScope::Session, BudgetUnit::Calls, 6),
        rule(BudgetScope::Run, BudgetUnit::Tokens, 1_000_000),
        rule(BudgetScope::Run, BudgetUnit::Usd, 1_000_000_000),
    ]
}

/// Resumes the run and drives it until it completes or waits for the next start.
pub(crate) async fn drive_run(
    scenario: &RunScenario,
    child: &CrashChild,
    store: StoreHandle,
) -> Result<ChildEnd, Box<dyn Error>> {
    if child.start_number() > 0 && scenario.person == UserBehaviour::DecidesLater {
        decide_all(&store, None).await?;
    }
    let session = scenario
        .session_builder(child, store.clone())?
        .build()
        .await?;
    let mut report = match scenario.next_message(child, &store).await? {
        Some(words) => {
            let options = RunOptions::new().abandon_pending();
            session.run_with(words, options).await?
        }
        None => session.resume().await?,
    };
    while report.end == RunEnd::Suspended {
        if !deliver_results(&session, &report).await? {
            match scenario.person {
                UserBehaviour::Decides => decide_all(&store, None).await?,
                UserBehaviour::DecidesLater | UserBehaviour::ChangesTheSubject => {
                    return Ok(ChildEnd::Waiting);
                }
            }
        }
        report = session.resume().await?;
    }
    // Nothing is left to do, so another run does nothing, and nothing stays reserved.
    let again = session.resume().await?;
    match (report.end, again.end, report.error) {
        (RunEnd::Completed, RunEnd::Completed, None) => Ok(ChildEnd::Done),
        (end, again, error) => {
            Err(format!("the run ended {end:?} and then {again:?}: {error:?}").into())
        }
    }
}

impl RunScenario {
    /// Returns the next message of the user, if it was not sent before.
    async fn next_message(
        &self,
        child: &CrashChild,
        store: &StoreHandle,
    ) -> Result<Option<&'static str>, Box<dyn Error>> {
        let messages = store.messages(child.session(), u64::MAX, 1000).await?;
        let said = messages
            .iter()
            .filter(|(_, said)| said.message.role == Role::User)
            .count();
        if said == 0 {
            return Ok(Some(TASK));
        }
        let asked = ApprovalFilter {
            session: Some(child.session()),
            pending: false,
            ..ApprovalFilter::default()
        };
        let asked = !store.approvals(asked).await?.is_empty();
        let instead = self.person == UserBehaviour::ChangesTheSubject && said == 1 && asked;
        Ok(instead.then_some(NEVER_MIND))
    }

    fn session_builder(
        &self,
        child: &CrashChild,
        store: StoreHandle,
    ) -> Result<SessionBuilder, Box<dyn Error>> {
        let registry = build_registry(child.effects());
        let user = child.session().to_string();
        let mut layers = build_layers(child)?;
        if self.pays {
            let payer = Payer {
                user: Some(user.as_str().into()),
                ..Payer::default()
            };
            let billing =
                BillingService::new(store.clone(), Budgets::new(budgets())).paid_by(payer);
            let free = BudgetOptions {
                on_unknown: OnUnknownCost::Free,
                ..BudgetOptions::default()
            };
            layers.insert(2, AnyLayer::new(Budget::new(free, billing)?));
        }
        let stack = Stack::over(registry.clone()).any_layers(layers).build()?;
        let session = child.session();
        let builder = Session::ungated(build_model(child, self.replies, "the end"), registry)
            .stack(stack)
            .max_tokens(100);
        let builder = builder
            .dispatcher(move |builder| {
                builder
                    .store(store)
                    .session(session)
                    .keyring(test_keyring())
            })
            .agent(self.build_agent(child));
        if !self.pays {
            return Ok(builder);
        }
        let payer = Payer {
            user: Some(user.as_str().into()),
            ..Payer::default()
        };
        Ok(builder
            .budgets(Budgets::new(budgets()))
            .prices(test_prices()?)
            .payer(payer))
    }

    fn build_agent(&self, child: &CrashChild) -> Agent {
        let tools: Registry = build_registry(child.effects());
        let agent = Agent::new(
            HELPER,
            "Helps.",
            build_model(child, self.helper, "the helper is done"),
            tools,
        );
        agent.session(|builder| builder.max_tokens(100))
    }
}

/// Delivers external results; returns true if there were any.
async fn deliver_results(session: &Session, report: &RunReport) -> Result<bool, Box<dyn Error>> {
    let mut delivered = false;
    for pending in report
        .pending
        .iter()
        .filter(|pending| pending.question.is_none())
    {
        let outcome = toolgate::Outcome::ok("the host did it");
        match session
            .dispatcher()
            .approval_service()
            .deliver_result(pending.turn, pending.call, outcome)
            .await
        {
            Ok(()) | Err(toolgate::session::DeliverError::Rejected(_)) => delivered = true,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(delivered)
}

fn test_prices() -> Result<Prices, Box<dyn Error>> {
    let table = json!({ "providers": { "scripted": { "models": { "script": { "input": 1, "output": 2 } } } } });
    Ok(Prices::from(serde_json::from_value::<PriceTable>(table)?))
}

/// Builds a model that requests these calls, and then replies with `words`.
fn build_model(child: &CrashChild, replies: &[PlannedCalls], words: &str) -> LoggingModel {
    let used = |line: ScriptLine| {
        line.usage(Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        })
    };
    let parsed =
        |arguments: &str| serde_json::from_str::<Value>(arguments).expect("arguments are JSON");
    let ask = |calls: &PlannedCalls| {
        calls.iter().fold(ScriptLine::new(), |line, (tool, with)| {
            line.call(*tool, parsed(with))
        })
    };
    let lines = replies
        .iter()
        .map(ask)
        .chain([ScriptLine::new().say(words)])
        .map(used);
    LoggingModel {
        model: ScriptedModel::new(lines),
        asks: child.model_requests(),
    }
}

/// A model that logs which reply is requested.
struct LoggingModel {
    model: ScriptedModel,
    asks: EffectLog,
}

impl Model for LoggingModel {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let task = request
            .messages
            .first()
            .map(|message| message.text())
            .unwrap_or_default();
        let replies = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        self.asks
            .record_request(&task, self.name().model.as_ref(), replies)
            .expect("the directory can be written to");
        self.model.reply(request)
    }
}
