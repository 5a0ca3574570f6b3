use toolgate::*;

/// Wipes.
#[tool(read_only, destructive)]
async fn wipe() {}

/// Writes.
#[tool(side_effect = "workspace_write", read_only)]
async fn write() {}

fn main() {}
