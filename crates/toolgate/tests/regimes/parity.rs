//! Both regimes lead to the same: compared line by line, apart from a short list of fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    play::play,
    scenario::Scenario,
    tools::Regime,
    transcript::{Line, Transcript, strip},
};

/// What differs between the regimes, and why. The guide has the same list.
///
/// * `executor`, `external`: who ran the tool is what the regimes differ in.
/// * `fingerprint`: the source of a tool is part of it.
/// * `token`: the digest of an approval's token, which binds the fingerprint.
/// * `timeout`: how a tool was stopped that took too long. Whoever runs a tool keeps its time, and so what the layers of
///   the band `bound` have seen differs, too.
pub const DIFFERS: &[&str] = &["executor", "external", "fingerprint", "token", "timeout"];

/// Fields of a receipt that say when.
const WHEN: &[&str] = &["started_at", "ended_at", "at", "decided_at", "duration_us"];

/// Plays a scenario with Toolgate driving and compares it with its snapshot.
pub async fn check_core(name: &str, scenario: &Scenario) -> Transcript {
    let transcript = play(scenario, Regime::Core).await;
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, transcript.to_string());
    });
    transcript
}

/// The same, and makes sure that a host that drives gets the same.
pub async fn check(name: &str, scenario: &Scenario) {
    let (core, host) = check_apart_from_ends(name, scenario).await;
    same("how runs ended", &core.ends, &host.ends);
}

/// The same, where a host is told in another way how its run ended.
pub async fn check_apart_from_ends(name: &str, scenario: &Scenario) -> (Transcript, Transcript) {
    let core = check_core(name, scenario).await;
    let host = play(scenario, Regime::Host).await;
    same("what happens between calls", &around(&core), &around(&host));
    same("the life of each call", &by_call(&core), &by_call(&host));
    same("receipts", &receipts(&core), &receipts(&host));
    same("what was said", &core.said, &host.said);
    same("what the model was asked with", &core.asked, &host.asked);
    same("what tools did", &core.done, &host.done);
    (core, host)
}

/// Shows only what differs.
#[track_caller]
fn same(what: &str, core: &[String], host: &[String]) {
    let only = |these: &[String], those: &[String], mark: &str| {
        let only = these.iter().filter(|line| !those.contains(line));
        only.map(|line| format!("{mark} {line}\n"))
            .collect::<String>()
    };
    let (ours, theirs) = (only(core, host, "core:"), only(host, core, "host:"));
    assert!(
        core == host,
        "{what} is not the same, or not in the same order:\n{ours}{theirs}"
    );
}

/// The events of turns and runs, in order.
fn around(transcript: &Transcript) -> Vec<String> {
    transcript
        .lines
        .iter()
        .filter(|line| line.call.is_none())
        .map(comparable)
        .collect()
}

/// The events of each call, in order.
fn by_call(transcript: &Transcript) -> Vec<String> {
    let mut calls: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in &transcript.lines {
        if let Some(call) = &line.call {
            calls
                .entry(call)
                .or_default()
                .push(format!("{call} {}", comparable(line)));
        }
    }
    calls.into_values().flatten().collect()
}

fn comparable(line: &Line) -> String {
    let mut fields = Value::Object(line.fields.clone());
    strip(&mut fields, DIFFERS);
    format!("{} {} {} {fields}", line.session, line.turn, line.event)
}

/// The receipts, field by field.
fn receipts(transcript: &Transcript) -> Vec<String> {
    let mut lines = Vec::new();
    for (call, receipt) in &transcript.receipts {
        let mut receipt = receipt.clone();
        strip(&mut receipt, DIFFERS);
        strip(&mut receipt, WHEN);
        if let Some(layers) = receipt["layers"].as_array_mut() {
            layers.retain(|layer| layer["band"] != "bound");
        }
        let fields = receipt.as_object().expect("a record");
        let fields = fields.iter().filter(|(_, value)| **value != json!({}));
        lines.extend(fields.map(|(field, value)| format!("{call} {field}: {value}")));
    }
    lines
}
