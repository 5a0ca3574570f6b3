use toolgate::*;

/// Writes.
#[tool(side_effect = "workspace-write")]
async fn write(path: String) {}

fn main() {}
