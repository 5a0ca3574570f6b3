//! The tools of the scenarios. Whatever they do to the world goes to the effect log.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate::{
    Annotations, ApprovalRequest, Arguments, Call, Context, Executor, ExecutorTag, Existing,
    IdempotencyKey, Outcome, Reconciled, Registry, Resource, Schema, SideEffect, Tool, ToolError,
    ToolOutput, ToolSpec, Trust,
};
use toolgate_testkit::crash::EffectLog;

/// Every tool there is:
///
/// * `write`, `pay`: change something and cannot tell afterwards whether they did
/// * `read`: only looks
/// * `flaky`: fails every other time, and a repeat does no harm
/// * `transfer`: changes something and can tell afterwards
/// * `fail`: does something and then fails
/// * `delegate`: asks for itself while it runs, as an agent inside a tool would
/// * `host`: is run by somebody outside
pub(crate) fn registry(effects: &EffectLog) -> Registry {
    let registry = Registry::new();
    let writes = Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
    let mut reconciled = writes.clone();
    reconciled.reconcile = true;
    for (name, annotations, habit) in [
        (
            "write",
            writes.clone().with_resource(Resource::path("name")),
            Habit::Works,
        ),
        ("pay", writes.clone(), Habit::Works),
        ("read", Annotations::read_only(), Habit::Works),
        (
            "flaky",
            writes.clone().with_idempotent(true),
            Habit::FailsEveryOtherTime,
        ),
        ("transfer", reconciled, Habit::Works),
        ("fail", writes.clone(), Habit::Fails),
    ] {
        let spec = ToolSpec::new(name, "Does something.", schema()).with_annotations(annotations);
        registry
            .register(Logged {
                spec,
                habit,
                effects: effects.clone(),
            })
            .expect("the name is free");
    }
    let spec =
        ToolSpec::new("delegate", "Asks while it runs.", schema()).with_annotations(writes.clone());
    let delegate = Delegate(effects.clone());
    registry
        .add(
            spec,
            ExecutorTag::Native,
            Trust::Trusted,
            delegate,
            Existing::Refuse,
        )
        .expect("the name is free");
    registry
        .register_host(ToolSpec::new("host", "Runs outside.", schema()).with_annotations(writes))
        .expect("the name is free");
    registry
}

fn schema() -> Schema {
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "amount": { "type": "integer" } },
        "required": ["name"],
        "additionalProperties": false,
    });
    Schema::new(schema).expect("a schema")
}

/// What a call does, in words.
fn work(arguments: &Arguments) -> String {
    let amount = arguments
        .get("amount")
        .and_then(Value::as_i64)
        .map(|amount| format!(" {amount}"));
    let name = arguments
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    format!("{name}{}", amount.unwrap_or_default())
}

#[derive(Clone, Copy, PartialEq)]
enum Habit {
    Works,
    Fails,
    FailsEveryOtherTime,
}

/// A tool that logs its effect.
struct Logged {
    spec: ToolSpec,
    habit: Habit,
    effects: EffectLog,
}

impl Tool for Logged {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        // Lets calls that run at the same time take turns.
        tokio::task::yield_now().await;
        if self.habit == Habit::FailsEveryOtherTime && cx.attempt % 2 == 1 {
            return Err(ToolError::transient("not now"));
        }
        let work = work(&arguments);
        self.effects
            .happen(&cx.idempotency_key(), self.spec.name.as_str(), &work)?;
        tokio::task::yield_now().await;
        match self.habit {
            Habit::Fails => Err(ToolError::new("no luck")),
            Habit::Works | Habit::FailsEveryOtherTime => {
                Ok(ToolOutput::from(format!("did {work}")))
            }
        }
    }

    async fn reconcile(&self, arguments: Arguments, key: IdempotencyKey) -> Reconciled {
        match self.effects.has(&key) {
            Ok(true) => Reconciled::Happened(ToolOutput::from(format!("did {}", work(&arguments)))),
            Ok(false) => Reconciled::DidNotHappen,
            Err(_) => Reconciled::Unknown,
        }
    }
}

/// Asks through the call it runs in, and acts when it comes back with the answer.
struct Delegate(EffectLog);

impl Executor for Delegate {
    async fn execute(&self, call: Call) -> Outcome {
        let mine = call
            .resumed()
            .answers
            .iter()
            .any(|answer| answer.asked_by.as_str() == "executor");
        if !mine {
            return Outcome::ask(
                ApprovalRequest::about(&call).because("the agent inside wants to go on"),
            );
        }
        let work = work(&call.arguments);
        match self.0.happen(&call.idempotency_key(), "delegate", &work) {
            Ok(()) => Outcome::ok(format!("did {work}")),
            Err(error) => Outcome::failed(error.into()),
        }
    }
}

/// Keeps what callbacks do out of the way of the calls.
pub(crate) fn noted(
    notices: &Arc<EffectLog>,
    kind: &'static str,
) -> impl Fn(&Call) + Send + Sync + 'static {
    let notices = notices.clone();
    move |call| {
        notices
            .happen(&call.idempotency_key(), kind, "")
            .expect("the directory can be written to")
    }
}
