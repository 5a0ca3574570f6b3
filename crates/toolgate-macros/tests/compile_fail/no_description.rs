use toolgate::*;

#[tool]
async fn silent(path: String) {}

#[tool(description = "  ")]
async fn empty(path: String) {}

fn main() {}
