//! An agent that is refused before it spends more than it may: budgets in the store, alerts, prices that are not known.
//!
//! Run it with `cargo run --release -p budget-refusal`. It needs no key and no network: the model is a script that says
//! what it used, as providers do.

use serde_json::json;
use toolgate::{
    BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, LoopEvent, ModelName, Payer,
    PriceTable, Prices, StoreHandle, Usage,
    models::{Line, Scripted},
    prelude::*,
};

/// Dollars in billionths, as budgets count them.
const DOLLAR: u64 = 1_000_000_000;

fn prices() -> Result<Prices, serde_json::Error> {
    // A table like the one that comes along (`models::bundled_prices`), for a model of one's own.
    let table: PriceTable = serde_json::from_value(json!({
        "as_of": "2026-11-16",
        "source": ["what we pay for our own machine"],
        "providers": { "acme": { "models": { "large": { "input": 2.0, "output": 10.0 } } } },
    }))?;
    Ok(table.into())
}

/// A model that uses 1000 tokens to read and 500 to write: 0.7 cents at the prices above.
fn model(name: &str) -> Scripted {
    let usage = Usage {
        input: 1_000,
        output: 500,
        ..Usage::default()
    };
    Scripted::new([Line::new().say("Done.").usage(usage).always()])
        .named(ModelName::new("acme", name))
}

async fn session(store: &StoreHandle, name: &str) -> Result<Session, Box<dyn std::error::Error>> {
    let project = BudgetRule::new(
        "website",
        BudgetScope::Project,
        BudgetPeriod::Day,
        BudgetUnit::Usd,
        DOLLAR / 40,
    );
    let person = BudgetRule::new(
        "everybody",
        BudgetScope::User,
        BudgetPeriod::Month,
        BudgetUnit::Requests,
        100,
    );
    let store = store.clone();
    let payer = Payer {
        user: Some("ann".into()),
        project: Some("website".into()),
        ..Payer::default()
    };
    let builder = Session::builder(model(name), Registry::new())
        .max_tokens(500)
        .prices(prices()?)
        .payer(payer);
    let builder = builder.budgets(Budgets::new([project, person]));
    Ok(builder
        .dispatcher(move |dispatcher| dispatcher.store_handle(store))
        .build()
        .await?)
}

fn print(event: &Event) {
    if let Some(LoopEvent::BudgetAlert {
        budget,
        period,
        percent,
        spent,
        limit,
    }) = event.as_loop()
    {
        println!("   alert: {percent} % of {budget} for {period} is used: {spent} of {limit}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = StoreHandle::new(MemoryStore::new());
    for run in 1..=4 {
        // Each time another session, as if in another process: what is spent is in the store.
        let session = session(&store, "large").await?;
        let mut events = session.bus().subscribe();
        let report = session.run("Write the page.").await?;
        println!("run {run}: {}, cost {}", report.end, report.cost);
        while let Some(delivery) = events.try_next() {
            if let Delivery::Event(event) = delivery {
                print(&event);
            }
        }
        if let Some(error) = report.error {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            println!("   {error}: {cause}");
        }
        let expected = if run < 4 {
            RunEnd::Completed
        } else {
            RunEnd::BudgetExceeded
        };
        assert_eq!(report.end, expected);
    }

    println!("a model whose price nobody knows:");
    let report = session(&store, "unheard-of")
        .await?
        .run("Write the page.")
        .await?;
    let cause = report
        .error
        .as_ref()
        .and_then(|error| std::error::Error::source(error))
        .map(ToString::to_string);
    println!("   {}: {}", report.end, cause.unwrap_or_default());
    assert_eq!(report.end, RunEnd::BudgetExceeded);
    Ok(())
}
