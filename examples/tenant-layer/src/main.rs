//! A service for several tenants: a layer of one's own keeps their accounts apart, a layer of tower
//! limits how often a tool is called, and the tool gets its books as state.
//!
//! Run it with `cargo run --release -p tenant-layer`. It needs no key and no network: the model is
//! a script.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use toolgate::{
    Band, Layer, Next, RunReport,
    model::{PartContent, ScriptLine, ScriptedModel},
    prelude::*,
    stack::TowerLayer,
    tool::State,
};
use tower::ServiceBuilder;

/// The balances by account. It is shared by all calls, so it is cheap to clone.
type Books = Arc<Mutex<BTreeMap<String, i64>>>;

/// Returns the balance of an account.
#[tool(read_only)]
async fn balance(
    State(books): State<Books>,
    /// The account, such as `acme/main`.
    account: String,
) -> Result<i64, ToolError> {
    let books = books.lock().unwrap_or_else(PoisonError::into_inner);
    let found = books.get(&account).copied();
    found.ok_or_else(|| ToolError::new(format!("there is no account {account}")))
}

/// Blocks calls about accounts of another tenant. A session has its tenant as a label.
struct TenantLayer;

impl Layer for TenantLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let tenant = call.turn().labels.get("tenant");
        let account = call
            .arguments
            .get("account")
            .and_then(|value| value.as_str());
        let account = account.and_then(|account| account.split_once('/'));
        // A call without a tenant or without an account is blocked, too: it cannot be checked.
        match (tenant, account) {
            (Some(tenant), Some((owner, _))) if tenant == owner => next.run(call).await,
            _ => Outcome::refused(Refusal::Blocked, "this account belongs to another tenant"),
        }
    }

    /// Before anything runs, and before an approver is asked.
    fn band(&self) -> Band {
        Band::Decide
    }
}

/// Returns a layer that lets two calls through in an hour, made of two layers of tower.
fn hourly_limit() -> impl Layer {
    let limit = ServiceBuilder::new()
        .load_shed()
        .rate_limit(2, Duration::from_secs(3600));
    TowerLayer::new("hourly_limit", Band::Decide, limit.into_inner())
        .on_error(|_| Outcome::refused(Refusal::RateLimited, "the limit of this hour is reached"))
}

/// Asks for the balances of these accounts, one after the other.
async fn run_for(gate: &Gate, tenant: &str, accounts: &[&str]) -> toolgate::Result<RunReport> {
    let calls = accounts.iter().map(|account| {
        let line = ScriptLine::new();
        line.call("balance", json!({ "account": account }))
    });
    let model = ScriptedModel::new(calls.chain([ScriptLine::new().say("Done.")]));
    let builder = gate.session_builder(model)?.label("tenant", tenant);
    let session = builder.build().await?;
    Ok(session.run("How much is there?").await?)
}

/// Returns what the model was told, in order.
fn answers(report: &RunReport) -> Vec<String> {
    let parts = report.messages.iter().flat_map(|message| &message.parts);
    let answers = parts.filter_map(|part| match &part.content {
        PartContent::Result(answer) => Some(answer.text.to_string()),
        _ => None,
    });
    answers.collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> toolgate::Result<()> {
    let accounts = ["acme/main", "globex/main"];
    let opened = accounts.map(|account| (account.to_owned(), 100));
    let books = Books::new(Mutex::new(opened.into()));

    // Both layers take their place in the band `decide` of the default stack.
    let gate = Gate::builder()
        .in_memory()?
        .tool(balance.with_state(books))
        .layer(TenantLayer)
        .layer(hourly_limit())
        .build()?;

    for tenant in ["acme", "globex", "acme"] {
        println!("{tenant} asks for {accounts:?}:");
        let report = run_for(&gate, tenant, &accounts).await?;
        for answer in answers(&report) {
            println!("   {answer}");
        }
    }
    Ok(())
}
