//! The transcript of a scenario, in lines that are the same in every run.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use toolgate::{
    Event,
    layers::{Ledger, ReceiptFilter},
    model::{PartContent, Role},
    store::SessionFilter,
    value::{CallId, SessionId},
};
use toolgate_testkit::LifecycleChecker;

use crate::modes::{play::StepResult, world::ModeWorld};

/// The fields with times, durations and sizes, which differ between runs.
const NOISE: &[&str] = &[
    "sequence",
    "at",
    "session_id",
    "turn_id",
    "invocation_id",
    "call_id",
    "tool_name",
    "type",
    "iteration",
    "run",
    "agent_id",
    "agent_name",
    "model",
    "provider",
    "principal",
    "emit_order",
    "duration_ms",
    "arguments_digest",
    "arguments_bytes",
    "result_digest",
    "result_bytes",
    "model_bytes",
    "fingerprint",
    "policy_version",
    "expires_at",
    "approval_id",
    "approval_digest",
    "asked_by",
    "requester",
    "tool",
    "layers",
    "usage",
    "cost",
];

/// One event, split into its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    pub session: String,
    /// The turn, its iteration and its run.
    pub turn: String,
    /// The call, for events about a call.
    pub call: Option<String>,
    pub event: &'static str,
    pub fields: Map<String, Value>,
}

/// The transcript of a scenario.
pub struct ScenarioTranscript {
    pub lines: Vec<EventLine>,
    /// Receipts by call.
    pub receipts: BTreeMap<String, Value>,
    /// The end of each run.
    pub ends: Vec<String>,
    /// The stored messages.
    pub said: Vec<String>,
    /// The requests to the model.
    pub asked: Vec<String>,
    /// The effects of the tools.
    pub done: Vec<String>,
}

/// Short names for ids, in the order in which they appear.
#[derive(Default)]
struct ShortNames {
    names: HashMap<String, String>,
    counts: HashMap<char, usize>,
}

impl ShortNames {
    fn short_name(&mut self, kind: char, id: &str) -> String {
        let Self { names, counts } = self;
        let name = names.entry(id.to_owned()).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            format!("{kind}{count}")
        });
        name.clone()
    }

    /// Replaces every id in a text with its short name.
    fn shorten(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (id, name)| text.replace(id, name))
    }
}

impl ScenarioTranscript {
    /// Loads everything from the store, and checks the rules of every session.
    pub async fn load(world: &ModeWorld, ends: &[StepResult]) -> Self {
        let mut names = ShortNames::default();
        let mut lines = Vec::new();
        let mut said = Vec::new();
        let mut sessions = vec![world.session];
        let mut settled = Vec::new();
        while let Some(session) = sessions.pop() {
            let events = world
                .store
                .events(session, 0, usize::MAX)
                .await
                .expect("reads");
            let summary = LifecycleChecker::check_all(events.iter().map(AsRef::as_ref));
            let summary = summary.unwrap_or_else(|violation| panic!("{violation}"));
            settled.extend(summary.ended.keys().copied());
            for event in &events {
                lines.push(event_line(&mut names, event));
                sessions.extend(delegated_session(world, event).await);
            }
            said.extend(load_messages(world, session, &names).await);
        }
        let receipts = load_receipts(world, &names, settled).await;
        let ends = ends
            .iter()
            .map(|ended| names.shorten(&format_end(ended)))
            .collect();
        Self {
            lines,
            receipts,
            ends,
            said,
            asked: world.model.requests(),
            done: world.deeds.sorted_effects(),
        }
    }
}

impl std::fmt::Display for ScenarioTranscript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n# receipts")?;
        for (call, receipt) in &self.receipts {
            writeln!(f, "{call} {}", main_fields(receipt))?;
        }
        writeln!(f, "\n# what was said")?;
        self.said
            .iter()
            .try_for_each(|said| writeln!(f, "{said}"))?;
        writeln!(f, "\n# what the model was asked with")?;
        self.asked
            .iter()
            .try_for_each(|asked| writeln!(f, "{asked}"))?;
        writeln!(f, "\n# how runs ended")?;
        self.ends.iter().try_for_each(|end| writeln!(f, "{end}"))?;
        write!(f, "\n# what tools did\n{}", self.done.join("\n"))
    }
}

impl std::fmt::Display for EventLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let call = self
            .call
            .as_deref()
            .map(|call| format!(" {call}"))
            .unwrap_or_default();
        write!(f, "{} {}{call} {}", self.session, self.turn, self.event)?;
        if self.fields.is_empty() {
            return Ok(());
        }
        write!(f, " {}", Value::Object(self.fields.clone()))
    }
}

/// Splits an event into its parts.
fn event_line(names: &mut ShortNames, event: &Event) -> EventLine {
    let info = event.turn_info();
    let session = names.short_name('S', &info.session.to_string());
    // Only later runs than the first are numbered.
    let run = info
        .run
        .filter(|run| *run > 0)
        .map(|run| format!("@{run}"))
        .unwrap_or_default();
    let turn = format!(
        "{}.{}{run}",
        names.short_name('T', &info.turn.to_string()),
        info.iteration
    );
    let call = event.as_tool().map(|(invocation, _)| {
        let name = names.short_name('C', &invocation.id.to_string());
        format!("{name} {}", invocation.tool)
    });
    let mut fields = serde_json::to_value(event).expect("writes");
    remove_fields(&mut fields, NOISE);
    let fields = names.shorten(&fields.to_string());
    let Value::Object(fields) = sort_fields(serde_json::from_str(&fields).expect("still JSON"))
    else {
        panic!("an event is an object");
    };
    EventLine {
        session,
        turn,
        call,
        event: event.name(),
        fields,
    }
}

/// Sorts fields by name: with another feature set, serde_json preserves the order of insertion.
fn sort_fields(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<String, Value> = map
                .into_iter()
                .map(|(key, value)| (key, sort_fields(value)))
                .collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sort_fields).collect()),
        other => other,
    }
}

/// Removes fields, at any depth. A map that has no other fields is removed with them.
pub fn remove_fields(value: &mut Value, fields: &[&str]) {
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    match value {
        Value::Object(map) => map.retain(|key, value| {
            if fields.contains(&key.as_str()) || value.is_null() {
                return false;
            }
            let was_empty = is_empty(value);
            remove_fields(value, fields);
            was_empty || !is_empty(value)
        }),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| remove_fields(item, fields)),
        _ => {}
    }
}

/// Returns the session of the agent that a call was delegated to.
async fn delegated_session(world: &ModeWorld, event: &Event) -> Option<SessionId> {
    let (invocation, event) = event.as_tool()?;
    let toolgate::event::ToolEvent::ToolRequested { .. } = event else {
        return None;
    };
    let session = invocation.id.agent_session();
    let events = world.store.events(session, 0, 1).await.expect("reads");
    let rows = world
        .store
        .sessions(SessionFilter::for_session(session))
        .await;
    for row in rows.expect("lists") {
        assert_eq!(row.parent, Some(invocation.turn.session));
    }
    (!events.is_empty()).then_some(session)
}

/// Loads the receipts, and checks that each settled call has exactly one.
async fn load_receipts(
    world: &ModeWorld,
    names: &ShortNames,
    mut settled: Vec<CallId>,
) -> BTreeMap<String, Value> {
    let filter = ReceiptFilter {
        limit: 1_000,
        ..ReceiptFilter::default()
    };
    let ledger = Ledger::main(world.store.clone());
    let page = ledger.list_receipts(&filter).await.expect("reads");
    ledger.verify(&[], None).await.expect("whole");
    let mut ids: Vec<CallId> = page
        .receipts
        .iter()
        .map(|sealed| sealed.receipt.invocation_id)
        .collect();
    ids.sort();
    settled.sort();
    assert_eq!(ids, settled, "every settled call has exactly one receipt");
    let receipt = |sealed: &toolgate::layers::SealedReceipt| {
        let ran = sealed.receipt.attempts > 0;
        assert_eq!(
            ran,
            sealed.receipt.executor.is_some(),
            "a receipt names its executor: {:?}",
            sealed.receipt
        );
        let value = serde_json::to_value(&sealed.receipt).expect("writes");
        let value = sort_fields(
            serde_json::from_str(&names.shorten(&value.to_string())).expect("still JSON"),
        );
        (
            format!(
                "{} {}",
                value["invocation_id"].as_str().expect("named"),
                sealed.receipt.tool_name
            ),
            value,
        )
    };
    page.receipts.iter().map(receipt).collect()
}

/// Returns the main fields of a receipt.
fn main_fields(receipt: &Value) -> Value {
    let mut brief = Map::new();
    for field in [
        "status",
        "attempts",
        "executor",
        "reason",
        "generation",
        "consent",
    ] {
        if let Some(value) = receipt.get(field).filter(|value| **value != 0) {
            brief.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(by) = receipt.pointer("/approval/by") {
        brief.insert("approved_by".to_owned(), by.clone());
    }
    let mut brief = Value::Object(brief);
    remove_fields(&mut brief, &["decided_at", "at"]);
    sort_fields(brief)
}

/// Loads the messages of a session, oldest first.
async fn load_messages(world: &ModeWorld, session: SessionId, names: &ShortNames) -> Vec<String> {
    let messages = world
        .store
        .messages(session, u64::MAX, 1_000)
        .await
        .expect("reads");
    let lines = messages.iter().map(|(number, said)| {
        let role = match said.message.role {
            Role::User => "user",
            Role::Assistant => "model",
            Role::Tool => "tools",
        };
        let parts: Vec<String> = said
            .message
            .parts
            .iter()
            .map(|part| part_text(&part.content))
            .collect();
        names.shorten(&format!("{session} {number} {role}: {}", parts.join(" | ")))
    });
    lines.collect()
}

fn part_text(content: &PartContent) -> String {
    match content {
        PartContent::Text(text) => text.clone(),
        PartContent::Reasoning(text) => format!("({text})"),
        PartContent::Call(request) => format!("{}?", request.tool),
        PartContent::Result(answer) => {
            format!(
                "{}{} {}",
                answer.tool,
                if answer.is_error { "!" } else { ":" },
                answer.text
            )
        }
        PartContent::Ran(call) => format!("{} ran", call.tool),
        PartContent::Media(_) => "media".to_owned(),
        PartContent::Opaque => "opaque".to_owned(),
    }
}

/// Formats the end of a run in one line.
fn format_end(ended: &StepResult) -> String {
    let report = match ended {
        Ok(report) => report,
        Err(error) => return format!("error: {error}"),
    };
    let mut text = format!(
        "{} after {} rounds: {:?}",
        report.end, report.iterations, report.text
    );
    for pending in &report.pending {
        let agents: String = pending
            .agents
            .iter()
            .map(|agent| format!("{agent} > "))
            .collect();
        text.push_str(&format!("; waits for {agents}{}", pending.tool));
    }
    if let Some(output) = &report.output {
        text.push_str(&format!("; output {}", output.as_value()));
    }
    if let Some(error) = &report.error {
        text.push_str(&format!("; {error}"));
    }
    text
}
