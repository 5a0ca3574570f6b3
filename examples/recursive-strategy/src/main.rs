//! A question about five megabytes of text, answered by a coordinator that never reads them.
//!
//! Run it with `cargo run --release -p recursive-strategy`. It needs no key and no network: the
//! models are the simple rules in `models.rs`, which see only their requests.

mod models;

use std::fmt::Write as _;

use models::{Coordinator, PieceReader};
use toolgate::{
    event::{BusDelivery, SessionEvent},
    layers::{ProgressManager, ToastManager},
    prelude::*,
    session::{Documents, RecursiveStrategy},
};

/// Generates a log of shipments with a few relevant lines, and returns it with their sum.
fn generate_shipments(bytes: usize) -> (String, u64) {
    let mut text = String::with_capacity(bytes + 100);
    let mut seed = 7_u64;
    let mut total = 0;
    let mut line = 0_u64;
    while text.len() < bytes {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = (seed >> 33) % 100_000;
        let port = ["Rotterdam", "Århus", "Gdańsk"][(seed >> 40) as usize % 3];
        line += 1;
        if line.is_multiple_of(9_001) {
            total += number;
            writeln!(
                text,
                "container {line:06}: customs refunded {number} EUR in {port}"
            )
            .expect("writing to a string cannot fail");
        } else {
            writeln!(
                text,
                "container {line:06}: cleared after {} h in {port}",
                number % 96
            )
            .expect("writing to a string cannot fail");
        }
    }
    (text, total)
}

fn print_iteration(event: &Event, progress: &ProgressManager, toasts: &ToastManager) {
    progress.apply_event(event);
    toasts.apply_event(event);
    let Some(SessionEvent::RecursiveIteration {
        iteration,
        max,
        ready,
        tokens,
        summary,
        scratchpad,
        budget,
    }) = event.as_session()
    else {
        return;
    };
    println!(
        "iteration {iteration}/{max}: {summary}; {tokens} tokens, {budget} % of the budget, ready: {ready}"
    );
    if !scratchpad.is_empty() {
        println!("  notes: {scratchpad}");
    }
    progress
        .active_items()
        .iter()
        .for_each(|item| println!("  on a screen: {} {:?}", item.label, item.percent));
    toasts
        .current()
        .iter()
        .for_each(|toast| println!("  on a screen: {}: {}", toast.title, toast.message));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (text, expected) = generate_shipments(5 << 20);
    println!(
        "{} bytes of shipments; a model sees none of them unless it requests them\n",
        text.len()
    );
    let documents = Documents::new().with_text("shipments.log", text)?;

    let recursive = RecursiveStrategy::builder(documents, PieceReader::new())
        .max_iterations(4)
        .build();
    let gate = Gate::in_memory()?.install(|registry| recursive.install(registry))?;
    let builder = gate.session_builder(Coordinator::new())?;
    let session = builder.strategy(recursive).build().await?;

    let progress = ProgressManager::new();
    let toasts = ToastManager::new();
    let screen = session.bus().attach(move |delivery| {
        if let BusDelivery::Event(event) = delivery {
            print_iteration(&event, &progress, &toasts);
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
