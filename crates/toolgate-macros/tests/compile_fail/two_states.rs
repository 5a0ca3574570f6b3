use toolgate::{tool, tool::State};

/// Counts.
#[tool]
async fn count(State(a): State<u32>, State(b): State<u64>) -> u64 {
    u64::from(a) + b
}

fn main() {}
