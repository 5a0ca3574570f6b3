use toolgate::*;

/// Waits.
#[tool(kind = "read", idempotent, kind = "edit")]
async fn wait() {}

fn main() {}
