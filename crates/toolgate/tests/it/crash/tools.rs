//! The tools of the scenarios. Their side effects go to the effect log.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate::{
    Annotations, Arguments, Call, Outcome, Registry, SideEffect, Tool, ToolError,
    approval::ApprovalRequest,
    stack::{Executor, ExecutorTag, ReconciledAttempt},
    tool::{Context, OnExisting, Resource, SourceTrust, ToolOutput, ToolSpec},
    value::{CallId, IdempotencyKey, Schema},
};
use toolgate_testkit::crash::EffectLog;

/// Builds the registry of all tools:
///
/// * `write`, `pay`: change something and cannot reconcile afterwards
/// * `read`: only reads
/// * `flaky`: fails every other time, and can be retried
/// * `transfer`: changes something and can reconcile afterwards
/// * `fail`: does something and then fails
/// * `delegate`: asks for approval while it runs, as an agent inside a tool would
/// * `host`: is executed by the host
pub(crate) fn build_registry(effects: &EffectLog) -> Registry {
    let registry = Registry::new();
    let writes = Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
    let mut reconciled = writes.clone();
    reconciled.reconcile = true;
    for (name, annotations, habit) in [
        (
            "write",
            writes.clone().with_resource(Resource::path("name")),
            ToolHabit::Works,
        ),
        ("pay", writes.clone(), ToolHabit::Works),
        ("read", Annotations::read_only(), ToolHabit::Works),
        (
            "flaky",
            writes.clone().with_idempotent(true),
            ToolHabit::FailsEveryOtherTime,
        ),
        ("transfer", reconciled, ToolHabit::Works),
        ("fail", writes.clone(), ToolHabit::Fails),
    ] {
        let spec =
            ToolSpec::new(name, "Does something.", tool_schema()).with_annotations(annotations);
        registry
            .register(LoggedTool {
                spec,
                habit,
                effects: effects.clone(),
            })
            .expect("the name is free");
    }
    let spec = ToolSpec::new("delegate", "Asks while it runs.", tool_schema())
        .with_annotations(writes.clone());
    let delegate = AskingTool(effects.clone());
    registry
        .register_from(
            spec,
            ExecutorTag::Native,
            SourceTrust::Trusted,
            delegate,
            OnExisting::Reject,
        )
        .expect("the name is free");
    registry
        .register_host(
            ToolSpec::new("host", "Runs outside.", tool_schema()).with_annotations(writes),
        )
        .expect("the name is free");
    registry
}

fn tool_schema() -> Schema {
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "amount": { "type": "integer" } },
        "required": ["name"],
        "additionalProperties": false,
    });
    Schema::new(schema).expect("a schema")
}

/// Describes the effect of a call.
fn describe_effect(arguments: &Arguments) -> String {
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
enum ToolHabit {
    Works,
    Fails,
    FailsEveryOtherTime,
}

/// A tool that logs its effect.
struct LoggedTool {
    spec: ToolSpec,
    habit: ToolHabit,
    effects: EffectLog,
}

impl Tool for LoggedTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        // Yields, so that parallel calls interleave.
        tokio::task::yield_now().await;
        if self.habit == ToolHabit::FailsEveryOtherTime && cx.attempt % 2 == 1 {
            return Err(ToolError::transient("not now"));
        }
        let work = describe_effect(&arguments);
        self.effects
            .record_effect(&cx.idempotency_key(), self.spec.name.as_str(), &work)?;
        tokio::task::yield_now().await;
        match self.habit {
            ToolHabit::Fails => Err(ToolError::new("no luck")),
            ToolHabit::Works | ToolHabit::FailsEveryOtherTime => {
                Ok(ToolOutput::from(format!("did {work}")))
            }
        }
    }

    async fn reconcile(&self, arguments: Arguments, key: IdempotencyKey) -> ReconciledAttempt {
        match self.effects.has_effect(&key) {
            Ok(true) => ReconciledAttempt::Happened(ToolOutput::from(format!(
                "did {}",
                describe_effect(&arguments)
            ))),
            Ok(false) => ReconciledAttempt::DidNotHappen,
            Err(_) => ReconciledAttempt::Unknown,
        }
    }
}

/// A tool that asks for approval through its own call, and acts when it is resumed with the
/// decision.
struct AskingTool(EffectLog);

impl Executor for AskingTool {
    async fn execute(&self, call: Call) -> Outcome {
        let mine = call
            .resume_state()
            .answers
            .iter()
            .any(|answer| answer.asked_by.as_str() == "executor");
        if !mine {
            return Outcome::await_decision(
                ApprovalRequest::for_call(&call).with_reason("the agent inside wants to go on"),
            );
        }
        let work = describe_effect(&call.arguments);
        match self
            .0
            .record_effect(&call.idempotency_key(), "delegate", &work)
        {
            Ok(()) => Outcome::ok(format!("did {work}")),
            Err(error) => Outcome::failed(error.into()),
        }
    }
}

/// Logs the effects of callbacks apart from those of calls.
pub(crate) fn log_callbacks(
    notices: &Arc<EffectLog>,
    kind: &'static str,
) -> impl Fn(CallId) -> std::future::Ready<()> + Send + Sync + 'static {
    let notices = notices.clone();
    move |call| {
        notices
            .record_effect(&IdempotencyKey::for_call(call), kind, "")
            .expect("the directory can be written to");
        std::future::ready(())
    }
}
