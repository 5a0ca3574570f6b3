use toolgate::*;

/// Reads.
#[tool]
async fn read(path: &str) {}

/// Reads many.
#[tool]
async fn read_many(paths: &[String]) {}

/// Reads perhaps.
#[tool]
async fn read_perhaps(path: Option<&std::path::Path>) {}

/// Looks.
#[tool]
async fn look(cx: &mut Context) {}

fn main() {}
