//! An agent of rig whose tools pass the gate: one call runs, one is approved, one is denied, and all
//! leave receipts.
//!
//! Run it with `cargo run` in its directory. It needs no key and no network: it uses rig's own
//! scripted model.

use std::error::Error;

use arm_rig::{for_rig, shop};
use rig_agent::AgentBuilder;
use toolgate::{layers::Ledger, session::RunOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let session = shop::session().await?;
    let armed = session.arm_tools(RunOptions::new()).await?;
    let agent = AgentBuilder::new(shop::model())
        .preamble("You work in a shop. Refund what was paid for by mistake.")
        .dynamic_tools(for_rig(armed.tools())?)
        .build();

    let answer = agent
        .prompt("Ann paid twice, and so did Bob.")
        .max_turns(8)
        .await?;
    println!("{}\n", answer.output());

    let receipts = Ledger::main(session.dispatcher().store().clone())
        .list_receipts(&Default::default())
        .await?;
    for sealed in receipts.receipts {
        let receipt = &sealed.receipt;
        let who = receipt
            .approval
            .as_ref()
            .and_then(|approval| approval.by.clone());
        let who = who
            .map(|who| format!("decided by {who}"))
            .unwrap_or_default();
        println!(
            "{:<10} {:<16} {who} {}",
            receipt.tool_name,
            receipt.status,
            receipt.reason.as_deref().unwrap_or("")
        );
    }
    Ok(())
}
