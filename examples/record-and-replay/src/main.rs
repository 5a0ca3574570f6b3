//! An agent whose model is recorded once and replayed afterwards, with all secrets redacted.
//!
//! Run it with `cargo run --release -p record-and-replay`. It needs no key and no network: the
//! recorded model is a script; use `gate::open_model("openai:…")` instead to record a real one.

use std::{fs, sync::Arc};

use serde_json::json;
use toolgate::{
    RunReport,
    layers::SecretScanner,
    model::{RecordingModel, ReplayModel, ScriptLine, ScriptedModel},
    prelude::*,
};

/// A value that must not be on the cassette.
const SECRET: &str = "sk-live-0123456789abcdefghijklmnop";

/// Returns the weather in a city.
#[tool(read_only)]
async fn weather(city: String) -> String {
    format!("{city}: 21 degrees, light wind")
}

async fn open_session(model: impl Model) -> toolgate::Result<Session> {
    let gate = Gate::in_memory()?.tool(weather)?;
    let builder = gate.session_builder(model)?;
    Ok(builder
        .instructions("Answer in one sentence.")
        .build()
        .await?)
}

/// Runs the same input with a model, and returns the report and the number of calls.
async fn run_question(model: impl Model) -> toolgate::Result<(RunReport, usize)> {
    let session = open_session(model).await?;
    let report = session
        .run(format!("What is the weather in Oslo? My key is {SECRET}."))
        .await?;
    let calls = report
        .messages
        .iter()
        .map(|message| message.calls().count())
        .sum();
    Ok((report, calls))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let cassette = directory.path().join("weather.cassette");
    let script = ScriptedModel::new([
        ScriptLine::new()
            .say("Let me look.")
            .call("weather", json!({ "city": "Oslo" })),
        ScriptLine::new().say(format!(
            "It is 21 degrees in Oslo. I will not repeat {SECRET}."
        )),
    ]);

    println!("1. recording");
    let recorded =
        RecordingModel::new(script, &cassette, Arc::new(SecretScanner::standard()))?.secret(SECRET);
    let (first, calls) = run_question(recorded).await?;
    println!("   {} after {calls} call: {}", first.end, first.text);

    let written = fs::read_to_string(&cassette)?;
    println!(
        "2. the cassette has {} lines; the secret is on it: {}",
        written.lines().count(),
        written.contains(SECRET)
    );
    assert!(!written.contains(SECRET));

    println!("3. replaying; the tools really run");
    let replay = || {
        Ok::<_, Box<dyn std::error::Error>>(
            ReplayModel::open(&cassette)?
                .redactor(Arc::new(SecretScanner::standard()))
                .secret(SECRET),
        )
    };
    let (again, calls) = run_question(replay()?).await?;
    println!("   {} after {calls} call: {}", again.end, again.text);
    assert_eq!((again.end, again.iterations), (first.end, first.iterations));

    println!("4. an input that was never recorded");
    let session = open_session(replay()?).await?;
    let other = session.run("What is the weather in Lima?").await?;
    let error = other.error.map(|error| match error {
        toolgate::session::RunError::Model(error) => error.to_string(),
        other => other.to_string(),
    });
    println!("   {}: {}", other.end, error.unwrap_or_default());
    assert_eq!(other.end, RunEnd::Failed);
    Ok(())
}
