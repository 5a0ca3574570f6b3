use toolgate::{Registry, tool, tool::State};

/// Counts.
#[tool]
async fn count(State(start): State<u32>, by: u32) -> u32 {
    start + by
}

fn main() {
    let _ = Registry::new().register(count);
}
