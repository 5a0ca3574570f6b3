//! An agent that is stopped before it exceeds its budget: budgets in the store, alerts, unknown
//! prices.
//!
//! Run it with `cargo run --release -p budget-refusal`. It needs no key and no network: the model is
//! a script that reports its usage, as providers do.

use serde_json::json;
use toolgate::{
    budget::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Payer, PriceTable, Prices},
    event::{BusDelivery, SessionEvent},
    model::{ModelName, ScriptLine, ScriptedModel, Usage},
    prelude::*,
};

/// One dollar in billionths, the unit of budgets.
const DOLLAR: u64 = 1_000_000_000;

fn own_prices() -> Result<Prices, serde_json::Error> {
    // A table like the bundled one (`model::bundled_prices`), for a model of your own.
    let table: PriceTable = serde_json::from_value(json!({
        "as_of": "2026-11-16",
        "source": ["the cost of our own machine"],
        "providers": { "acme": { "models": { "large": { "input": 2.0, "output": 10.0 } } } },
    }))?;
    Ok(table.into())
}

/// Builds a model that uses 1000 tokens in and 500 tokens out: 0.7 cents at the prices above.
fn scripted_model(name: &str) -> ScriptedModel {
    let usage = Usage {
        input: 1_000,
        output: 500,
        ..Usage::default()
    };
    ScriptedModel::new([ScriptLine::new().say("Done.").usage(usage).always()])
        .named(ModelName::new("acme", name))
}

fn open_gate() -> Result<Gate, Box<dyn std::error::Error>> {
    let project = BudgetRule::new(
        "website",
        BudgetScope::Project,
        BudgetPeriod::Day,
        BudgetUnit::Usd,
        DOLLAR / 40,
    );
    let person = BudgetRule::new(
        "every-user",
        BudgetScope::User,
        BudgetPeriod::Month,
        BudgetUnit::Requests,
        100,
    );
    let payer = Payer {
        user: Some("ann".into()),
        project: Some("website".into()),
        ..Payer::default()
    };
    let gate = Gate::builder().in_memory()?.payer(payer);
    let gate = gate.budget(project).budget(person);
    Ok(gate.prices(own_prices()?).build()?)
}

async fn open_session(gate: &Gate, model: &str) -> toolgate::Result<Session> {
    let builder = gate.session_builder(scripted_model(model))?;
    Ok(builder.max_tokens(500).build().await?)
}

fn print_alert(event: &Event) {
    if let Some(SessionEvent::BudgetAlert(alert)) = event.as_session() {
        println!("   {}: {alert}", alert.level.as_str());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = open_gate()?;
    for run in 1..=4 {
        // A new session each time: the spending is in the store, and other processes see it, too.
        let session = open_session(&gate, "large").await?;
        let mut events = session.bus().subscribe();
        let report = session.run("Write the page.").await?;
        println!("run {run}: {}, cost {}", report.end, report.cost);
        while let Some(delivery) = events.try_next() {
            if let BusDelivery::Event(event) = delivery {
                print_alert(&event);
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

    println!("a model without a known price:");
    let session = open_session(&gate, "unheard-of").await?;
    let report = session.run("Write the page.").await?;
    let cause = report
        .error
        .as_ref()
        .and_then(|error| std::error::Error::source(error))
        .map(ToString::to_string);
    println!("   {}: {}", report.end, cause.unwrap_or_default());
    assert_eq!(report.end, RunEnd::BudgetExceeded);
    Ok(())
}
