//! The tools of the scenarios, in two guises: run by Toolgate, or by a host with the same functions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use toolgate::{CallError, ErrorCategory, prelude::*};

use crate::stage::{Moment, Stage};

/// Who runs the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// Toolgate drives and runs.
    Core,
    /// A host does.
    Host,
}

/// What the tools have done so far, and what they do. Cloning shares it.
#[derive(Clone, Default)]
pub struct Deeds(Arc<Mutex<Vec<String>>>);

impl Deeds {
    /// Everything that was really done, in any order.
    pub fn done(&self) -> Vec<String> {
        let mut done = self.0.lock().expect("whole").clone();
        done.sort();
        done
    }

    /// Does the work of a tool.
    pub fn run(&self, tool: &str, arguments: &Arguments) -> Result<ToolOutput, ToolError> {
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
            "fail" => Err(ToolError::new("the disk is full").with_operator("ENOSPC on /dev/sda1")),
            "flaky" if before == 0 => Err(ToolError::transient("try again")),
            "flaky" => Ok("worked".into()),
            "shadowed" => Ok("the run's own".into()),
            "boom" => panic!("a secret in a panic"),
            other => Err(ToolError::new(format!("nobody knows how to {other}"))),
        }
    }

    /// Does the work of a tool as a host does it: it says what came of it, also if that was a panic.
    pub fn run_as_host(&self, tool: &str, arguments: &Arguments) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| self.run(tool, arguments))) {
            Ok(Ok(output)) => Outcome::ok(output),
            Ok(Err(error)) => Outcome::failed(error),
            Err(_) => Outcome::error(
                Status::Exception,
                CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly"),
            ),
        }
    }
}

/// The specs of all tools.
pub fn specs() -> Vec<ToolSpec> {
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

/// A registry of the tools for a regime.
pub fn registry(regime: Regime, specs: Vec<ToolSpec>, deeds: &Deeds, stage: &Stage) -> Registry {
    let registry = Registry::new();
    for spec in specs {
        let added = match regime {
            Regime::Core => registry.register(Played {
                spec,
                deeds: deeds.clone(),
                stage: stage.clone(),
            }),
            Regime::Host => registry.register_host(spec),
        };
        added.expect("free");
    }
    registry
}

/// A tool that Toolgate runs.
struct Played {
    spec: ToolSpec,
    deeds: Deeds,
    stage: Stage,
}

impl Tool for Played {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let name = self.spec.name.as_str();
        self.stage.reached(Moment::Runs(name.to_owned())).await;
        if name == "stops" {
            cx.cancelled().await;
            return Err(ToolError::cancelled());
        }
        if name.starts_with("hang") {
            std::future::pending::<()>().await;
        }
        self.deeds.run(name, &arguments)
    }
}
