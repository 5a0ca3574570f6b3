use toolgate::*;

/// Asks.
#[tool]
async fn query(query: String) {}

fn main() {}
