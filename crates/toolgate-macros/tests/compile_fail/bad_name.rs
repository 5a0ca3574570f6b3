use toolgate::*;

/// Reads.
#[tool(name = "read file")]
async fn read(path: String) {}

/// Measures.
#[tool]
async fn größe(path: String) {}

fn main() {}
