use toolgate::*;

/// Reads.
#[tool]
async fn read(#[cfg(unix)] path: String) {}

fn main() {}
