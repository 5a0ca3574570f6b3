use toolgate::*;

/// Adds.
#[tool(idempotnt)]
async fn add(a: i64) {}

/// Subtracts.
#[tool(colour = "red")]
async fn subtract(a: i64) {}

fn main() {}
