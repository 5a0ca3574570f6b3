//! A question about five megabytes of text, answered by a coordinator that never reads them.
//!
//! Run it with `cargo run --release -p recursive-strategy`. It needs no key and no network: the models are the simple
//! rules in `models.rs`, which know nothing but what they are asked with.

mod models;

use std::fmt::Write as _;

use models::{Coordinator, Reader};
use toolgate::{
    Documents, LoopEvent, Recursive,
    layers::{ProgressManager, ToastManager},
    prelude::*,
};

/// A log of shipments with a few lines in it that matter, and what these add up to.
fn shipments(bytes: usize) -> (String, u64) {
    let (mut text, mut seed, mut total, mut line) =
        (String::with_capacity(bytes + 100), 7_u64, 0, 0_u64);
    while text.len() < bytes {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (number, port) = (
            (seed >> 33) % 100_000,
            ["Rotterdam", "Århus", "Gdańsk"][(seed >> 40) as usize % 3],
        );
        line += 1;
        if line % 9_001 == 0 {
            total += number;
            writeln!(
                text,
                "container {line:06}: customs refunded {number} EUR in {port}"
            )
            .expect("memory takes text");
        } else {
            writeln!(
                text,
                "container {line:06}: cleared after {} h in {port}",
                number % 96
            )
            .expect("memory takes text");
        }
    }
    (text, total)
}

fn print(event: &Event, progress: &ProgressManager, toasts: &ToastManager) {
    progress.apply(event);
    toasts.apply(event);
    let Some(LoopEvent::RecursiveIteration {
        iteration,
        max,
        ready,
        tokens,
        summary,
        scratchpad,
        budget,
    }) = event.as_loop()
    else {
        return;
    };
    println!(
        "round {iteration}/{max}: {summary}; {tokens} tokens, {budget} % of the budget, ready: {ready}"
    );
    if !scratchpad.is_empty() {
        println!("  notes: {scratchpad}");
    }
    progress
        .active()
        .iter()
        .for_each(|item| println!("  on a screen: {} {:?}", item.label, item.percent));
    toasts
        .current()
        .iter()
        .for_each(|toast| println!("  on a screen: {}: {}", toast.title, toast.message));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (text, expected) = shipments(5 << 20);
    println!(
        "{} bytes of shipments; a model is shown none of them unless it asks\n",
        text.len()
    );
    let documents = Documents::new().with_text("shipments.log", text)?;

    let recursive = Recursive::builder(documents, Reader::new())
        .max_iterations(4)
        .build();
    let registry = Registry::new();
    recursive.install(&registry)?;
    let session = Session::builder(Coordinator::new(), registry)
        .strategy(recursive)
        .build()
        .await?;

    let (progress, toasts) = (ProgressManager::new(), ToastManager::new());
    let screen = session.bus().attach(move |delivery| {
        if let Delivery::Event(event) = delivery {
            print(&event, &progress, &toasts);
        }
    });
    let report = session.run("How much did customs refund in all?").await?;
    screen.finish().await;

    let read: usize = report.messages.iter().map(|message| message.size()).sum();
    println!("\n{}\nThe coordinator has read {read} bytes.", report.text);
    assert!(
        report.text.contains(&format!(" {expected} EUR ")),
        "the answer is {expected}"
    );
    Ok(())
}
