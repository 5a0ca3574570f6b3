//! Parity of managed and host-driven mode: compared line by line, apart from a short list of
//! fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::modes::{
    play::play_scenario,
    scenario::ModeScenario,
    tools::RunMode,
    transcript::{EventLine, ScenarioTranscript, remove_fields},
};

/// The fields that differ between the modes. The guide has the same list.
///
/// * `executor`, `external`: another side executes the tool; that is the difference between the modes.
/// * `fingerprint`: the source of a tool is part of it.
/// * `token`, `approval_digest`: the digest of an approval's token, which binds the fingerprint.
/// * `timeout`: the way a slow tool was stopped. The side that executes a tool enforces its timeout, so the notes of
///   the layers in the band `bound` differ, too.
pub const DIFFERS: &[&str] = &[
    "executor",
    "external",
    "fingerprint",
    "token",
    "approval_digest",
    "timeout",
];

/// The fields of a receipt that hold times.
const TIME_FIELDS: &[&str] = &["started_at", "ended_at", "at", "decided_at", "duration_us"];

/// Plays a scenario in managed mode and compares it with its snapshot.
pub async fn check_managed(name: &str, scenario: &ModeScenario) -> ScenarioTranscript {
    let transcript = play_scenario(scenario, RunMode::Managed).await;
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, transcript.to_string());
    });
    transcript
}

/// Plays a scenario in both modes, which have to produce the same.
pub async fn check_both(name: &str, scenario: &ModeScenario) {
    let (core, host) = check_apart_from_ends(name, scenario).await;
    assert_same("how runs ended", &core.ends, &host.ends);
}

/// Plays a scenario in both modes, where a host receives the end of its run in another form.
pub async fn check_apart_from_ends(
    name: &str,
    scenario: &ModeScenario,
) -> (ScenarioTranscript, ScenarioTranscript) {
    let core = check_managed(name, scenario).await;
    let host = play_scenario(scenario, RunMode::HostDriven).await;
    assert_same(
        "the events between calls",
        &events_between_calls(&core),
        &events_between_calls(&host),
    );
    assert_same(
        "the life of each call",
        &events_by_call(&core),
        &events_by_call(&host),
    );
    assert_same("receipts", &receipt_fields(&core), &receipt_fields(&host));
    assert_same("what was said", &core.said, &host.said);
    assert_same("what the model was asked with", &core.asked, &host.asked);
    assert_same("what tools did", &core.done, &host.done);
    (core, host)
}

/// Asserts equality, and prints only the differences.
#[track_caller]
fn assert_same(what: &str, core: &[String], host: &[String]) {
    let only = |these: &[String], those: &[String], mark: &str| {
        let only = these.iter().filter(|line| !those.contains(line));
        only.map(|line| format!("{mark} {line}\n"))
            .collect::<String>()
    };
    let ours = only(core, host, "core:");
    let theirs = only(host, core, "host:");
    assert!(
        core == host,
        "{what} is not the same, or not in the same order:\n{ours}{theirs}"
    );
}

/// Returns the events of turns and runs, in order.
fn events_between_calls(transcript: &ScenarioTranscript) -> Vec<String> {
    transcript
        .lines
        .iter()
        .filter(|line| line.call.is_none())
        .map(comparable_line)
        .collect()
}

/// Returns the events of each call, in order.
fn events_by_call(transcript: &ScenarioTranscript) -> Vec<String> {
    let mut calls: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in &transcript.lines {
        if let Some(call) = &line.call {
            calls
                .entry(call)
                .or_default()
                .push(format!("{call} {}", comparable_line(line)));
        }
    }
    calls.into_values().flatten().collect()
}

fn comparable_line(line: &EventLine) -> String {
    let mut fields = Value::Object(line.fields.clone());
    remove_fields(&mut fields, DIFFERS);
    format!("{} {} {} {fields}", line.session, line.turn, line.event)
}

/// Returns the receipts, field by field.
pub fn receipt_fields(transcript: &ScenarioTranscript) -> Vec<String> {
    let mut lines = Vec::new();
    for (call, receipt) in &transcript.receipts {
        let mut receipt = receipt.clone();
        remove_fields(&mut receipt, DIFFERS);
        remove_fields(&mut receipt, TIME_FIELDS);
        if let Some(layers) = receipt["layers"].as_array_mut() {
            layers.retain(|layer| layer["band"] != "bound");
        }
        let fields = receipt.as_object().expect("a record");
        let fields = fields.iter().filter(|(_, value)| **value != json!({}));
        lines.extend(fields.map(|(field, value)| format!("{call} {field}: {value}")));
    }
    lines
}
