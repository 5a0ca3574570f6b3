//! What happened in a scenario, in lines that are the same in every run.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use toolgate::{
    CallId, Content, Event, Role, SessionId,
    layers::{Ledger, ReceiptFilter},
};
use toolgate_testkit::LifecycleChecker;

use crate::{play::Ended, world::World};

/// Fields that say when, how long or in which bytes, and are not part of the story.
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
    "asked_by",
    "requester",
    "tool",
    "layers",
    "usage",
    "cost",
];

/// One event, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub session: String,
    /// The turn, its round and its run.
    pub turn: String,
    /// The call, if it is about one.
    pub call: Option<String>,
    pub event: &'static str,
    pub fields: Map<String, Value>,
}

/// What happened in a scenario.
pub struct Transcript {
    pub lines: Vec<Line>,
    /// Receipts by call.
    pub receipts: BTreeMap<String, Value>,
    /// What each run ended with.
    pub ends: Vec<String>,
    /// What was said, as the store has it.
    pub said: Vec<String>,
    /// What the model was asked with, each time.
    pub asked: Vec<String>,
    /// What tools have really done.
    pub done: Vec<String>,
}

/// Short names for ids, in the order in which they turn up.
#[derive(Default)]
struct Names {
    names: HashMap<String, String>,
    counts: HashMap<char, usize>,
}

impl Names {
    fn name(&mut self, kind: char, id: &str) -> String {
        let Self { names, counts } = self;
        let name = names.entry(id.to_owned()).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            format!("{kind}{count}")
        });
        name.clone()
    }

    /// The text with every id replaced by its name.
    fn shorten(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (id, name)| text.replace(id, name))
    }
}

impl Transcript {
    /// Reads everything from the store, and checks what holds for every session.
    pub async fn of(world: &World, ends: &[Ended]) -> Self {
        let (mut names, mut lines, mut said) = (Names::default(), Vec::new(), Vec::new());
        let (mut sessions, mut settled) = (vec![world.session], Vec::new());
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
                lines.push(line(&mut names, event));
                sessions.extend(delegated(world, event).await);
            }
            said.extend(conversation(world, session, &names).await);
        }
        let receipts = receipts(world, &names, settled).await;
        let ends = ends
            .iter()
            .map(|ended| names.shorten(&end(ended)))
            .collect();
        Self {
            lines,
            receipts,
            ends,
            said,
            asked: world.model.asked(),
            done: world.deeds.done(),
        }
    }
}

impl std::fmt::Display for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n# receipts")?;
        for (call, receipt) in &self.receipts {
            writeln!(f, "{call} {}", brief(receipt))?;
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

impl std::fmt::Display for Line {
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

/// Takes an event apart.
fn line(names: &mut Names, event: &Event) -> Line {
    let info = event.turn_info();
    let session = names.name('S', &info.session.to_string());
    // Of a later run than the first, it says which.
    let run = info
        .run
        .filter(|run| *run > 0)
        .map(|run| format!("@{run}"))
        .unwrap_or_default();
    let turn = format!(
        "{}.{}{run}",
        names.name('T', &info.turn.to_string()),
        info.iteration
    );
    let call = event.as_tool().map(|(invocation, _)| {
        let name = names.name('C', &invocation.id.to_string());
        format!("{name} {}", invocation.tool)
    });
    let mut fields = serde_json::to_value(event).expect("writes");
    strip(&mut fields, NOISE);
    let fields = names.shorten(&fields.to_string());
    let Value::Object(fields) = sorted(serde_json::from_str(&fields).expect("still JSON")) else {
        panic!("an event is an object");
    };
    Line {
        session,
        turn,
        call,
        event: event.name(),
        fields,
    }
}

/// The same with fields by name: a build may keep them in the order in which they were written.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<String, Value> = map
                .into_iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Takes fields out, at any depth.
pub fn strip(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| !fields.contains(&key.as_str()) && !value.is_null());
            map.values_mut().for_each(|value| strip(value, fields));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, fields)),
        _ => {}
    }
}

/// The session of the agent that a call was delegated to, if it was.
async fn delegated(world: &World, event: &Event) -> Option<SessionId> {
    let (invocation, event) = event.as_tool()?;
    let toolgate::ToolEvent::ToolRequested { .. } = event else {
        return None;
    };
    let session = SessionId::new(invocation.id.uuid());
    let events = world.store.events(session, 0, 1).await.expect("reads");
    (!events.is_empty()).then_some(session)
}

/// One receipt per settled call, and none for any other.
async fn receipts(
    world: &World,
    names: &Names,
    mut settled: Vec<CallId>,
) -> BTreeMap<String, Value> {
    let filter = ReceiptFilter {
        limit: 1_000,
        ..ReceiptFilter::default()
    };
    let ledger = Ledger::main(world.store.clone());
    let page = ledger.list(&filter).await.expect("reads");
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
            "a receipt says who ran it: {:?}",
            sealed.receipt
        );
        let value = serde_json::to_value(&sealed.receipt).expect("writes");
        let value =
            sorted(serde_json::from_str(&names.shorten(&value.to_string())).expect("still JSON"));
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

/// What people read first on a receipt.
fn brief(receipt: &Value) -> Value {
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
    strip(&mut brief, &["decided_at", "at"]);
    sorted(brief)
}

/// What was said in a session, oldest first.
async fn conversation(world: &World, session: SessionId, names: &Names) -> Vec<String> {
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

fn part_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Reasoning(text) => format!("({text})"),
        Content::Call(request) => format!("{}?", request.tool),
        Content::Result(answer) => {
            format!(
                "{}{} {}",
                answer.tool,
                if answer.is_error { "!" } else { ":" },
                answer.text
            )
        }
        Content::Ran(call) => format!("{} ran", call.tool),
        Content::Media(_) => "media".to_owned(),
        Content::Opaque => "opaque".to_owned(),
    }
}

/// How a run ended, in a line.
fn end(ended: &Ended) -> String {
    let report = match ended {
        Ok(report) => report,
        Err(error) => return format!("error: {}", chain(error)),
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
        text.push_str(&format!("; {}", chain(error)));
    }
    text
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
