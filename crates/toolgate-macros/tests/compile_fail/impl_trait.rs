use toolgate::*;

/// Says it.
#[tool]
async fn say(text: impl Into<String>) {}

fn main() {}
