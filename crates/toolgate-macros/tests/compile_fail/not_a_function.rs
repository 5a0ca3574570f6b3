use toolgate::*;

/// Adds.
#[tool]
struct Add;

fn main() {}
