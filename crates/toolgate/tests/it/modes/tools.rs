//! The tools of the scenarios: executed by Toolgate, or by a host with the same functions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use toolgate::{
    prelude::*,
    stack::{CallError, ErrorCategory, Failure},
    tool::{Context, ToolSpec},
    value::Schema,
};

use crate::modes::stage::{ActMoment, ActStage};

/// The mode of a run: the side that drives it and executes the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// Managed mode: Toolgate drives and executes.
    Managed,
    /// Host-driven mode: a host does.
    HostDriven,
}

/// The effects of the tools so far. Clones share them.
#[derive(Clone, Default)]
pub struct ToolEffects(Arc<Mutex<Vec<String>>>);

impl ToolEffects {
    /// Returns the effects, sorted.
    pub fn sorted_effects(&self) -> Vec<String> {
        let mut done = self.0.lock().expect("whole").clone();
        done.sort();
        done
    }

    /// Does the work of a tool.
    pub fn run_tool(&self, tool: &str, arguments: &Arguments) -> Result<ToolOutput, ToolError> {
        let mut done = self.0.lock().expect("whole");
        let before = done.iter().filter(|deed| deed.starts_with(tool)).count();
        done.push(format!("{tool}{}", arguments.as_json().as_value()));
        drop(done);
        let text = |name: &str| {
            arguments
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match tool {
            "look" | "slow" => Ok("seen".into()),
            "read" => Ok(format!("contents of {}", text("path")).into()),
            "note" => Ok(format!("noted {}", text("text")).into()),
            "ask_pay" => Ok(format!(
                "paid {}",
                arguments.get("amount").cloned().unwrap_or_default()
            )
            .into()),
            "fail" => {
                Err(ToolError::new("the disk is full").with_operator_detail("ENOSPC on /dev/sda1"))
            }
            "flaky" if before == 0 => Err(ToolError::transient("try again")),
            "flaky" => Ok("worked".into()),
            "shadowed" => Ok("the run's own".into()),
            "boom" => panic!("a secret in a panic"),
            other => Err(ToolError::new(format!("nobody knows how to {other}"))),
        }
    }

    /// Does the work of a tool as a host does: it returns an outcome, also for a panic.
    pub fn run_as_host(&self, tool: &str, arguments: &Arguments) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| self.run_tool(tool, arguments))) {
            Ok(Ok(output)) => Outcome::ok(output),
            Ok(Err(error)) => Outcome::failed(error),
            Err(_) => Outcome::error(
                Failure::Exception,
                CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly"),
            ),
        }
    }
}

/// Returns the specs of all tools.
pub fn tool_specs() -> Vec<ToolSpec> {
    let schema = |properties: Value, required: Value| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        Schema::new(schema).expect("a valid schema")
    };
    let reads = || Annotations::read_only().with_idempotent(true);
    let writes = || Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
    let nothing = || schema(json!({}), json!([]));
    let one = |name: &str, kind: &str| schema(json!({ name: { "type": kind } }), json!([name]));
    let spec = |name: &str, input: Schema, annotations| {
        ToolSpec::new(name, format!("Does {name}."), input).with_annotations(annotations)
    };
    vec![
        spec("look", nothing(), reads()),
        spec("read", one("path", "string"), reads()),
        spec("note", one("text", "string"), writes()),
        spec("ask_pay", one("amount", "integer"), writes()),
        spec("fail", nothing(), reads()),
        spec("flaky", nothing(), reads()),
        spec("boom", nothing(), reads()),
        spec("slow", nothing(), reads()),
        spec("stops", nothing(), writes()),
        spec("hang", nothing(), reads()),
        spec("hang_writing", nothing(), writes()),
    ]
}

/// Builds a registry of the tools for a mode.
pub fn build_registry(
    mode: RunMode,
    specs: Vec<ToolSpec>,
    deeds: &ToolEffects,
    stage: &ActStage,
) -> Registry {
    let registry = Registry::new();
    for spec in specs {
        let added = match mode {
            RunMode::Managed => registry.register(ManagedTool {
                spec,
                deeds: deeds.clone(),
                stage: stage.clone(),
            }),
            RunMode::HostDriven => registry.register_host(spec),
        };
        added.expect("free");
    }
    registry
}

/// A tool that Toolgate executes.
struct ManagedTool {
    spec: ToolSpec,
    deeds: ToolEffects,
    stage: ActStage,
}

impl Tool for ManagedTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let name = self.spec.name.as_str();
        self.stage
            .reach_moment(ActMoment::Runs(name.to_owned()))
            .await;
        if name == "stops" {
            cx.cancelled().await;
            return Err(ToolError::cancelled());
        }
        if name.starts_with("hang") {
            std::future::pending::<()>().await;
        }
        self.deeds.run_tool(name, &arguments)
    }
}
