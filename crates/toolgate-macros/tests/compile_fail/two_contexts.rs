use toolgate::*;

/// Looks.
#[tool]
async fn look(cx: &Context, path: String, other: toolgate::tool::Context) {}

fn main() {}
