use toolgate::*;

/// Adds.
#[tool]
async fn add((a, b): (i64, i64)) {}

/// Ignores.
#[tool]
async fn ignore(_: String) {}

fn main() {}
