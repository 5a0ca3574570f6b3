use toolgate::*;

/// Waits.
#[tool(timeout = "30")]
async fn wait() {}

/// Waits less.
#[tool(timeout = "0s")]
async fn wait_less() {}

fn main() {}
