//! Whole runs: what a model replies in each scenario, what it is paid with, and how a process takes the run up.

use std::error::Error;

use futures::stream::BoxStream;
use serde_json::{Value, json};
use toolgate::{
    Agent, AnyLayer, ApprovalFilter, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets,
    Delta, Model, ModelError, ModelName, ModelRequest, Payer, PriceTable, Prices, Registry, Role,
    RunEnd, RunReport, Session, SessionBuilder, Stack, StoreHandle, Usage,
    layers::{Budget, BudgetOptions, OnUnknownCost, SharedAccounts, StoreAccounts},
    models::{Line, Scripted},
};
use toolgate_testkit::crash::{CrashChild, EffectLog, Ended};

use crate::{
    scenarios::{decide_all, keyring, layers},
    tools::registry,
};

/// The agent that models delegate to.
pub(crate) const HELPER: &str = "helper";

/// What a person says first.
const TASK: &str = "do what has to be done";

/// What they say instead of deciding, where they do not decide.
const NEVER_MIND: &str = "never mind";

/// What a model replies, round by round, until it has nothing left to call.
pub(crate) struct Run {
    pub(crate) name: &'static str,
    person: Person,
    pays: bool,
    replies: &'static [Calls],
    helper: &'static [Calls],
}

type Calls = &'static [(&'static str, &'static str)];

/// What the person does about questions.
#[derive(Clone, Copy, PartialEq)]
enum Person {
    /// Answers in the process that asked.
    Decides,
    /// Answers when another process has been started.
    DecidesLater,
    /// Says something else instead, when another process has been started.
    ChangesTheSubject,
}

pub(crate) const ALL: [Run; 5] = [
    Run {
        name: "run-rounds",
        person: Person::Decides,
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
    Run {
        name: "run-approval",
        person: Person::DecidesLater,
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
    Run {
        name: "run-agent",
        person: Person::DecidesLater,
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
    Run {
        name: "run-budgets",
        person: Person::Decides,
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
    Run {
        name: "run-never-mind",
        person: Person::ChangesTheSubject,
        pays: false,
        replies: &[
            &[("write", r#"{"name":"a"}"#)],
            &[("pay", r#"{"name":"rent","amount":42}"#)],
            &[("write", r#"{"name":"b"}"#)],
        ],
        helper: &[],
    },
];

/// What a case may spend. There is room for requests that are lost with their process and sent again.
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

/// Takes the run up where it stands and goes on until it has an answer, or waits for the next start.
pub(crate) async fn drive(
    scenario: &Run,
    child: &CrashChild,
    store: StoreHandle,
) -> Result<Ended, Box<dyn Error>> {
    if child.start() > 0 && scenario.person == Person::DecidesLater {
        decide_all(&store, None).await?;
    }
    let session = scenario.session(child, store.clone())?.build().await?;
    let mut report = match scenario.next_words(child, &store).await? {
        Some(words) => session.run(words).await?,
        None => session.resume().await?,
    };
    while report.end == RunEnd::Suspended {
        if !hand_in(&session, &report).await? {
            match scenario.person {
                Person::Decides => decide_all(&store, None).await?,
                Person::DecidesLater | Person::ChangesTheSubject => return Ok(Ended::Waiting),
            }
        }
        report = session.resume().await?;
    }
    // There is nothing left to do, so nothing is done, and nothing stays set aside.
    let again = session.resume().await?;
    match (report.end, again.end, report.error) {
        (RunEnd::Completed, RunEnd::Completed, None) => Ok(Ended::Done),
        (end, again, error) => {
            Err(format!("the run ended {end:?} and then {again:?}: {error:?}").into())
        }
    }
}

impl Run {
    /// What the person says now, if it was not said before.
    async fn next_words(
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
        let instead = self.person == Person::ChangesTheSubject && said == 1 && asked;
        Ok(instead.then_some(NEVER_MIND))
    }

    fn session(
        &self,
        child: &CrashChild,
        store: StoreHandle,
    ) -> Result<SessionBuilder, Box<dyn Error>> {
        let (registry, user) = (registry(child.effects()), child.session().to_string());
        let mut layers = layers(child)?;
        if self.pays {
            let payer = Payer {
                user: Some(user.as_str().into()),
                ..Payer::default()
            };
            let accounts =
                StoreAccounts::new(store.clone(), Budgets::new(budgets())).paid_by(payer);
            let free = BudgetOptions {
                on_unknown: OnUnknownCost::Free,
                ..BudgetOptions::default()
            };
            layers.insert(
                2,
                AnyLayer::new(Budget::new(free, SharedAccounts::new(accounts))?),
            );
        }
        let stack = Stack::over(registry.clone()).any_layers(layers).build()?;
        let session = child.session();
        let builder = Session::builder(model(child, self.replies, "the end"), registry)
            .stack(stack)
            .max_tokens(100);
        let builder = builder
            .dispatcher(move |builder| {
                builder
                    .store_handle(store)
                    .session(session)
                    .keyring(keyring())
            })
            .agent(self.agent(child));
        if !self.pays {
            return Ok(builder);
        }
        let payer = Payer {
            user: Some(user.as_str().into()),
            ..Payer::default()
        };
        Ok(builder
            .budgets(Budgets::new(budgets()))
            .prices(prices()?)
            .payer(payer))
    }

    fn agent(&self, child: &CrashChild) -> Agent {
        let tools: Registry = registry(child.effects());
        let agent = Agent::new(
            HELPER,
            "Helps.",
            model(child, self.helper, "the helper is done"),
            tools,
        );
        agent.session(|builder| builder.max_tokens(100))
    }
}

/// Delivers what was run outside, and says whether there was something.
async fn hand_in(session: &Session, report: &RunReport) -> Result<bool, Box<dyn Error>> {
    let mut delivered = false;
    for pending in report
        .pending
        .iter()
        .filter(|pending| pending.question.is_none())
    {
        let outcome = toolgate::Outcome::ok("the host did it");
        match session
            .dispatcher()
            .deliver(pending.turn, pending.call, outcome)
            .await
        {
            Ok(()) | Err(toolgate::PostError::Refused(_)) => delivered = true,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(delivered)
}

fn prices() -> Result<Prices, Box<dyn Error>> {
    let table = json!({ "providers": { "scripted": { "models": { "script": { "input": 1, "output": 2 } } } } });
    Ok(Prices::from(serde_json::from_value::<PriceTable>(table)?))
}

/// A model that asks for these calls, and then says `words`.
fn model(child: &CrashChild, replies: &[Calls], words: &str) -> Noted {
    let used = |line: Line| {
        line.usage(Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        })
    };
    let parsed =
        |arguments: &str| serde_json::from_str::<Value>(arguments).expect("arguments are JSON");
    let ask = |calls: &Calls| {
        calls.iter().fold(Line::new(), |line, (tool, with)| {
            line.call(*tool, parsed(with))
        })
    };
    let lines = replies
        .iter()
        .map(ask)
        .chain([Line::new().say(words)])
        .map(used);
    Noted {
        model: Scripted::new(lines),
        asks: child.asks(),
    }
}

/// Writes down which reply it is asked for.
struct Noted {
    model: Scripted,
    asks: EffectLog,
}

impl Model for Noted {
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
            .ask(&task, self.name().model.as_ref(), replies)
            .expect("the directory can be written to");
        self.model.reply(request)
    }
}
