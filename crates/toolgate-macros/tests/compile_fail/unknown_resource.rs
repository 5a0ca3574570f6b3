use toolgate::*;

/// Reads.
#[tool(resource = "pth")]
async fn read(path: String, first_line: Option<u32>) {}

/// Looks.
#[tool(resource_name = "cx")]
async fn look(cx: &Context) {}

fn main() {}
