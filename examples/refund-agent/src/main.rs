//! A process that is killed in the middle of a payment: after the approval, and after the bank has
//! the order. Another process continues, and the refund is made once.
//!
//! Run it with `cargo run --release -p refund-agent`. It needs no key and no network: the model is
//! a script and the bank is a file. Every step is a process of its own.

use std::path::{Path, PathBuf};
use std::{error::Error, fs, io::Write, process::Command, time::Duration};

use serde_json::json;
use toolgate::{
    gate::StateDir,
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    stack::ReconciledAttempt,
    tool::{Context, ToolSpec, parse_arguments},
    value::{IdempotencyKey, Schema},
};

/// The variable that makes the bank accept an order and never answer.
const SILENT_BANK: &str = "SILENT_BANK";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Refund {
    customer: String,
    amount: u32,
}

/// The bank: it has a line for every order, which begins with the idempotency key of the call.
struct Bank(PathBuf);

impl Tool for Bank {
    fn spec(&self) -> ToolSpec {
        let mut annotations = Annotations::default().with_side_effect(SideEffect::Network);
        annotations.reconcile = true;
        ToolSpec::new("refund", "Sends money back.", Schema::for_type::<Refund>())
            .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let Refund { customer, amount } = parse_arguments(&arguments)?;
        let mut bank = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.0)?;
        writeln!(bank, "{} {amount} to {customer}", cx.idempotency_key())?;
        if std::env::var_os(SILENT_BANK).is_some() {
            std::future::pending::<()>().await;
        }
        Ok("sent".into())
    }

    /// Called after a loss: only the bank knows whether it has the order.
    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> ReconciledAttempt {
        match fs::read_to_string(&self.0) {
            Ok(orders) if orders.contains(&key.to_string()) => {
                println!("   the bank has the order: it is not sent again");
                ReconciledAttempt::Happened("sent".into())
            }
            Ok(_) => ReconciledAttempt::DidNotHappen,
            Err(_) => ReconciledAttempt::Unknown,
        }
    }
}

/// Opens the gate, as every process does: the same database and the same keys.
async fn open_gate(dir: &Path) -> toolgate::Result<Gate> {
    let gate = Gate::builder().address(format!("sqlite:{}", dir.join("agent.db").display()));
    let gate = gate.state_dir(StateDir::new(dir.join("home"))?);
    gate.tool(Bank(dir.join("bank.txt"))).open().await
}

/// The agent: begins its run, or continues the one that is in the database.
async fn work(dir: &Path) -> toolgate::Result<()> {
    let gate = open_gate(dir).await?;
    let model = ScriptedModel::new([
        ScriptLine::new().call("refund", json!({ "customer": "Ann", "amount": 20 })),
        ScriptLine::new().say("Ann has her 20 back."),
    ]);
    let begun = gate.store().sessions(Default::default()).await?.pop();
    let report = if let Some(row) = begun {
        let session = gate.open_session(row.session, model).await?;
        session.resume().await?
    } else {
        gate.session(model).await?.run("Ann paid twice.").await?
    };
    match report.completed() {
        Ok(report) => println!("   the agent: {}", report.text),
        Err(incomplete) => println!("   {incomplete}"),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args().nth(1) {
        return Ok(work(Path::new(&dir)).await?);
    }
    let dir = tempfile::tempdir()?;
    let mut agent = Command::new(std::env::current_exe()?);
    agent.arg(dir.path());

    println!("1. an agent begins, and its process ends");
    agent.status()?;
    println!("2. carol approves, in another process");
    let gate = open_gate(dir.path()).await?;
    let approvals = gate.approvals();
    let pending = approvals
        .list_approvals(Default::default())
        .await?
        .remove(0);
    let decision = Decision::approve("carol");
    approvals.decide(&*pending.request, decision).await?;

    println!("3. an agent resumes, and is killed while it waits for the bank");
    let mut killed = agent.env(SILENT_BANK, "1").spawn()?;
    let orders = || fs::read_to_string(dir.path().join("bank.txt")).unwrap_or_default();
    while !orders().ends_with('\n') {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.kill()?;
    killed.wait()?;
    println!("4. an agent resumes");
    agent.env_remove(SILENT_BANK).status()?;

    println!("5. orders at the bank: {}", orders().lines().count());
    let page = gate.ledger().list_receipts(&Default::default()).await?;
    for receipt in page.receipts.iter().map(|sealed| &sealed.receipt) {
        println!("   receipt: {} {}", receipt.tool_name, receipt.status);
    }
    assert_eq!(orders().lines().count(), 1);
    Ok(())
}
