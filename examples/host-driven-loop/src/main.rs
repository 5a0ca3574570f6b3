//! A host with a loop, a model and tools of its own. It asks the gate before each call, runs what
//! it may run, and settles it. When it dies between a payment and its report, it does not pay again.
//!
//! Run it with `cargo run --release -p host-driven-loop`. It needs no key and no network: the
//! host's model is a script.

use std::{collections::HashMap, error::Error};

use futures::StreamExt;
use serde_json::json;
use toolgate::{
    RunReport,
    model::{Delta, ModelRequest, Reply, ScriptLine, ScriptedModel},
    prelude::*,
    session::{HostAction, HostCall, HostStep, HostedRun, RunOptions},
    stack::ReconciledAttempt,
    tool::ToolSpec,
    value::{IdempotencyKey, Schema},
};

/// The host's own records: what it has paid, by the key of the call. The key stays the same when
/// the run is resumed.
#[derive(Default)]
struct Payments(HashMap<IdempotencyKey, String>);

impl Payments {
    /// Pays. The host dies after its first payment.
    fn pay(&mut self, call: &HostCall) -> Result<String, &'static str> {
        let paid = format!("paid {}", call.arguments.as_json());
        println!("   the host pays: {}", call.arguments.as_json());
        self.0.insert(call.idempotency_key, paid);
        Err("the host dies before it can report that")
    }

    /// Returns what is known about a call that was handed out before.
    fn look_up(&self, call: &HostCall) -> ReconciledAttempt {
        match self.0.get(&call.idempotency_key) {
            Some(paid) => {
                println!("   the host has paid this already, and reports it: {paid}");
                ReconciledAttempt::Happened(paid.as_str().into())
            }
            None => ReconciledAttempt::DidNotHappen,
        }
    }
}

/// Sends a request to the host's model.
async fn ask_model(model: &ScriptedModel, request: &ModelRequest) -> Result<Reply, Box<dyn Error>> {
    match model.reply(request).collect::<Vec<_>>().await.pop() {
        Some(Ok(Delta::Done(reply))) => Ok(*reply),
        other => Err(format!("no reply: {other:?}").into()),
    }
}

/// The loop of the host. An error leaves the run where it is.
async fn drive(
    mut run: HostedRun,
    model: &ScriptedModel,
    payments: &mut Payments,
) -> Result<RunReport, Box<dyn Error>> {
    loop {
        match run.next_step() {
            HostStep::Ask => {
                let request = run.begin_iteration(model.name()).await?.clone();
                run.submit_reply(ask_model(model, &request).await?).await?;
            }
            HostStep::Settle => settle_next(&mut run, payments).await?,
            HostStep::Finish => match run.finish().await? {
                Ok(report) => return Ok(report),
                Err(again) => run = again,
            },
            HostStep::Cancel => return Ok(run.cancel().await?),
        }
    }
}

/// Settles the next call of the model, or ends the iteration.
async fn settle_next(run: &mut HostedRun, payments: &mut Payments) -> Result<(), Box<dyn Error>> {
    for action in run.call_actions() {
        match action {
            HostAction::Ask { request, .. } => {
                println!("   carol approves: {}", request.arguments.as_json());
                run.decide(&*request, Decision::approve("carol")).await?;
                return Ok(());
            }
            HostAction::Run(call) => {
                let paid = payments.pay(&call)?;
                run.deliver_result(call.call, Outcome::ok(paid)).await?;
                return Ok(());
            }
            // A host that died had this call: it must not simply be run again.
            HostAction::Reconcile(call) => {
                run.reconcile(call.call, payments.look_up(&call)).await?;
                return Ok(());
            }
            HostAction::Settled(_) => {}
            HostAction::Delegated(_) => return Err("this host has no agents".into()),
        }
    }
    run.end_iteration().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let input = json!({ "type": "object", "properties": { "amount": { "maximum": 100 } } });
    let network = Annotations::default().with_side_effect(SideEffect::Network);
    let pay = ToolSpec::new("pay", "Pays an invoice.", Schema::new(input)?);
    let gate = Gate::in_memory()?.host_tool(pay.with_annotations(network))?;
    let both = ScriptLine::new().call("pay", json!({ "amount": 2000 }));
    let model = ScriptedModel::new([
        both.call("pay", json!({ "amount": 20 })),
        ScriptLine::new().say("Paid 20. The tool does not take 2000."),
    ]);

    println!("1. a host drives a run, and dies after it has paid");
    let mut payments = Payments::default();
    let session = gate.host_session_builder()?.build().await?;
    let id = session.id();
    let run = session.begin_hosted("Pay.", RunOptions::new()).await?;
    if let Err(error) = drive(run, &model, &mut payments).await {
        println!("   {error}");
    }
    drop(session);

    println!("2. another host resumes the run");
    let session = gate.host_session_builder()?.session(id).build().await?;
    let run = session.resume_hosted(RunOptions::new()).await?;
    let report = drive(run, &model, &mut payments).await?;
    println!("   {}", report.text);
    println!("3. payments: {}", payments.0.len());
    assert_eq!(payments.0.len(), 1);
    Ok(())
}
