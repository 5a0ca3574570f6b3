use toolgate::*;

/// Looks.
#[tool]
async fn look(cx: &Context, path: String, other: toolgate::Context) {}

fn main() {}
