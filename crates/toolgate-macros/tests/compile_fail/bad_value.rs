use toolgate::*;

/// Waits.
#[tool(kind)]
async fn wait() {}

/// Waits less.
#[tool(idempotent = true)]
async fn wait_less() {}

/// Waits more.
#[tool(cost = "a lot")]
async fn wait_more() {}

/// Pays out.
#[tool(cost = -1)]
async fn pay_out() {}

fn main() {}
