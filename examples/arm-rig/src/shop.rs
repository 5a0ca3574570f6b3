//! The shop of the example: its tools, the approver, and the script of the model.

use rig_core::test_utils::{MockCompletionModel, MockTurn};
use serde_json::json;
use toolgate::{approval::ApprovalRequest, prelude::*};

/// Looks up the payments of a customer.
#[tool(read_only, idempotent)]
async fn look_up(
    /// The customer.
    name: String,
) -> String {
    format!("{name} paid 20 twice")
}

/// Sends money back.
#[tool(side_effect = "network")]
async fn refund(
    /// The customer.
    name: String,
    /// The amount.
    amount: u32,
) -> String {
    format!("sent {amount} to {name}")
}

/// The approver: approves small amounts.
struct Carol;

impl Approver for Carol {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let amount = request
            .arguments
            .get("amount")
            .and_then(|amount| amount.as_u64());
        Some(match amount {
            Some(amount) if amount <= 50 => Decision::approve("carol"),
            _ => Decision::deny("carol", Some("that is more than was paid")),
        })
    }
}

/// Opens a session for a host with a loop of its own. By default, read-only calls run, and all
/// others need approval.
pub async fn session() -> toolgate::Result<Session> {
    let gate = Gate::in_memory()?.tool(look_up)?.tool(refund)?;
    let gate = gate.approver(Carol);
    Ok(gate.host_session_builder()?.build().await?)
}

/// Scripts the model: it looks up a payment, refunds it, requests too much, and sends invalid
/// arguments.
pub fn model() -> MockCompletionModel {
    MockCompletionModel::from_turns([
        MockTurn::tool_call("call_1", "look_up", json!({ "name": "Ann" })),
        MockTurn::tool_call("call_2", "refund", json!({ "name": "Ann", "amount": 20 })),
        MockTurn::tool_call("call_3", "refund", json!({ "name": "Bob", "amount": 2000 })),
        MockTurn::tool_call("call_4", "refund", json!({ "name": "Bob" })),
        MockTurn::text("Ann has her money back. Bob has to wait for an approver."),
    ])
}
