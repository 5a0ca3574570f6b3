use toolgate::*;

/// Reads.
#[tool(kind = "reed")]
async fn read(path: String) {}

/// Writes.
#[tool(kind = 7)]
async fn write(path: String) {}

fn main() {}
