//! What a tool finds while it runs is judged like what its call names: real tools below a policy.

mod redirects;
mod walks;

use std::{fs, path::Path};

use serde_json::Value;
use toolgate::{
    Resources,
    approval::{ApprovalAnswer, Decision},
    layers::{Approval, Configurable, PathBase, Policy, PolicyOptions},
    stack::{Call, CallSeed, SettledOutcome, Stack, Suspension},
    tool::Registry,
};
use toolgate_testkit::{plain_view, seed_for};
use toolgate_tools::{ToolboxOptions, Workspace, register_all};

/// A workspace with all file tools below a policy.
struct JudgedSpace {
    dir: tempfile::TempDir,
    registry: Registry,
}

impl JudgedSpace {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::new();
        let space = Self { dir, registry };
        for (name, content) in files {
            space.write_file(name, content);
        }
        let workspace = Workspace::open(space.root()).expect("a workspace");
        register_all(&space.registry, &workspace, &ToolboxOptions::default()).expect("new names");
        space
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn write_file(&self, name: &str, content: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, content).expect("written");
    }

    /// Returns the stack of these tools below a policy, written as TOML.
    fn stack(&self, policy: &str) -> Stack {
        stack_under(policy, self.root(), &self.registry)
    }

    async fn run(&self, policy: &str, tool: &str, arguments: Value) -> SettledOutcome {
        let call = Call::new(seed_for(&plain_view(&self.registry), tool, arguments));
        let outcome = self.stack(policy).run(call).await;
        outcome.settled().cloned().expect("settled")
    }

    /// Runs a call that has to be asked about, approves it, and returns what it settles with.
    async fn run_approved(&self, policy: &str, tool: &str, arguments: Value) -> SettledOutcome {
        run_approved(&self.stack(policy), &self.registry, tool, arguments).await
    }
}

fn stack_under(policy: &str, root: &Path, registry: &Registry) -> Stack {
    let options: PolicyOptions = toml::from_str(policy).expect("valid options");
    let resources = Resources::new().with(PathBase::new(root));
    let policy = Policy::configure(options, &resources).expect("a valid policy");
    let stack = Stack::over(registry.clone()).layer(policy);
    stack
        .layer(Approval::when_required())
        .build()
        .expect("in order")
}

async fn run_approved(
    stack: &Stack,
    registry: &Registry,
    tool: &str,
    arguments: Value,
) -> SettledOutcome {
    let view = plain_view(registry);
    let first = stack
        .run(Call::new(seed_for(&view, tool, arguments.clone())))
        .await;
    let Some(Suspension::Decision(request)) = first.suspension() else {
        panic!("approval is requested: {first:?}")
    };
    let answer = ApprovalAnswer::for_request(request, Decision::approve("ann"));
    let mut again = CallSeed {
        generation: 1,
        ..seed_for(&view, tool, arguments)
    };
    again.resumed.answers.push(answer);
    let outcome = stack.run(Call::new(again)).await;
    outcome.settled().cloned().expect("settled")
}

/// Returns everything that the model or an event could show of an outcome.
fn shown_text(outcome: &SettledOutcome) -> String {
    let error = outcome.error.as_ref().map(|error| error.model.clone());
    format!(
        "{}\n{}\n{}",
        outcome.model_text(),
        outcome.value,
        error.unwrap_or_default()
    )
}
