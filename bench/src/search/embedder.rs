//! What the local embedding model costs.

use std::time::Instant;

use toolgate::model::{Embedder, LocalEmbedder};

use super::Fallible;
use crate::measure::{CostRow, median};

const SENTENCE: &str = "The timer was removed when the machine moved to Debian 13. I propose to install it again and to \
                        renew by hand once; the site has a fresh certificate until February, and the job runs twice a day.";
const TEXTS: usize = 256;

/// Measures the model. Its loading is measured only if nothing in this process has used it yet.
pub(super) async fn rows(rounds: usize) -> Fallible<Vec<CostRow>> {
    let embedder = LocalEmbedder::new();
    let start = Instant::now();
    embedder.embed(&["warm up"]).await?;
    let loading = start.elapsed().as_secs_f64() * 1e3;
    let texts = [SENTENCE; TEXTS];
    let mut times = Vec::new();
    for _ in 0..=rounds {
        let start = Instant::now();
        std::hint::black_box(embedder.embed(&texts).await?);
        times.push(start.elapsed().as_secs_f64() * 1e6 / TEXTS as f64);
    }
    Ok(vec![
        CostRow::new(
            "loading the local model, once per process",
            loading,
            "ms",
            None,
            "",
        ),
        CostRow::new(
            "embedding a message of 40 words",
            median(times),
            "us",
            None,
            "",
        ),
    ])
}
