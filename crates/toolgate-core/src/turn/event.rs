//! Events as they are stored and streamed. An invalid event can be neither created nor parsed.

use std::sync::Arc;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    AgentId, CallId, Labels, RejectCode, SessionEvent, SessionId, Timestamp, ToolEvent, ToolName,
    TurnId, TurnInfo,
};

/// Something that happened, once, in the order of its sequence number.
///
/// ```
/// use toolgate_core::Event;
/// let text = r#"{"type":"tool_execution_failed","sequence":1}"#;
/// assert!(serde_json::from_str::<Event>(text).unwrap_err().to_string().contains("missing field"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    sequence: u64,
    at: Timestamp,
    body: EventBody,
}

/// The content of an event: what happened, and to what.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    /// Something happened to one invocation.
    Tool(Arc<Invocation>, ToolEvent),
    /// Something happened to the turn as a whole.
    Turn(Arc<TurnInfo>, TurnEvent),
    /// Something happened to the run that the turn belongs to.
    Loop(Arc<TurnInfo>, SessionEvent),
}

/// Our record of one call in a turn: the part that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider is answered; never empty, unique within the turn.
    pub call_id: Arc<str>,
    /// The tool's name.
    pub tool: ToolName,
    /// The position in the model's message, counted from 0.
    pub emit_order: u32,
    /// The turn.
    pub turn: Arc<TurnInfo>,
}

/// An event of a turn as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnEvent {
    /// The model asked for a number of calls.
    TurnOpened {
        /// The number of calls.
        size: u32,
        /// The turn this one continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<TurnId>,
    },
    /// The turn was interrupted.
    TurnInterrupted {
        /// The reason.
        reason: String,
    },
    /// Every invocation is settled and the model may be asked to continue.
    TurnSettled,
    /// A result or decision was rejected. It changed nothing.
    // The alias is the former name: logs that an older version wrote are still read.
    #[serde(alias = "post_refused")]
    InputRejected {
        /// The invocation it was meant for.
        invocation_id: CallId,
        /// The kind of input.
        what: InputKind,
        /// The reason it was rejected.
        code: RejectCode,
    },
}

impl TurnEvent {
    /// Returns the wire name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TurnOpened { .. } => "turn_opened",
            Self::TurnInterrupted { .. } => "turn_interrupted",
            Self::TurnSettled => "turn_settled",
            Self::InputRejected { .. } => "input_rejected",
        }
    }

    /// The wire names that are read: the current ones, and the former name of `input_rejected`.
    const NAMES: [&'static str; 5] = [
        "turn_opened",
        "turn_interrupted",
        "turn_settled",
        "input_rejected",
        "post_refused",
    ];
}

/// The kinds of input that a turn accepts from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// The result of a tool.
    Result,
    /// The decision on an approval request.
    Decision,
}

/// An error that names the invalid field of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event}: {field} {problem}")]
pub struct InvalidEvent {
    /// The event's wire name.
    pub event: &'static str,
    /// The field's name.
    pub field: &'static str,
    /// The problem with it.
    pub problem: &'static str,
}

impl Event {
    /// Creates an event about an invocation, if it is valid.
    pub fn for_invocation(
        sequence: u64,
        at: Timestamp,
        invocation: Arc<Invocation>,
        event: ToolEvent,
    ) -> Result<Self, InvalidEvent> {
        let name = event.name();
        let invalid = |(field, problem)| InvalidEvent {
            event: name,
            field,
            problem,
        };
        check_turn_ids(&invocation.turn).map_err(invalid)?;
        if invocation.id.is_nil() {
            return Err(invalid(("invocation_id", "is empty")));
        }
        if invocation.call_id.is_empty() {
            return Err(invalid(("call_id", "is empty")));
        }
        if invocation.tool.as_str().is_empty() {
            return Err(invalid(("tool_name", "is empty")));
        }
        if sequence == 0 {
            return Err(invalid(("sequence", "counts from 1")));
        }
        event.check_fields().map_err(invalid)?;
        Ok(Self {
            sequence,
            at,
            body: EventBody::Tool(invocation, event),
        })
    }

    /// Creates an event about a turn, if it is valid.
    pub fn for_turn(
        sequence: u64,
        at: Timestamp,
        turn: Arc<TurnInfo>,
        event: TurnEvent,
    ) -> Result<Self, InvalidEvent> {
        let name = event.name();
        let invalid = |(field, problem)| InvalidEvent {
            event: name,
            field,
            problem,
        };
        check_turn_ids(&turn).map_err(invalid)?;
        if sequence == 0 {
            return Err(invalid(("sequence", "counts from 1")));
        }
        Ok(Self {
            sequence,
            at,
            body: EventBody::Turn(turn, event),
        })
    }

    /// Creates an event about the run that a turn is part of, if it is valid.
    pub fn for_run(
        sequence: u64,
        at: Timestamp,
        turn: Arc<TurnInfo>,
        event: SessionEvent,
    ) -> Result<Self, InvalidEvent> {
        let name = event.name();
        let invalid = |(field, problem)| InvalidEvent {
            event: name,
            field,
            problem,
        };
        check_turn_ids(&turn).map_err(invalid)?;
        if sequence == 0 {
            return Err(invalid(("sequence", "counts from 1")));
        }
        Ok(Self {
            sequence,
            at,
            body: EventBody::Loop(turn, event),
        })
    }

    /// Returns the number of the event in its session, counted from 1 without gaps.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the time it happened.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the content of an event: what happened, and to what.
    pub fn body(&self) -> &EventBody {
        &self.body
    }

    /// Returns the wire name.
    pub fn name(&self) -> &'static str {
        match &self.body {
            EventBody::Tool(_, event) => event.name(),
            EventBody::Turn(_, event) => event.name(),
            EventBody::Loop(_, event) => event.name(),
        }
    }

    /// Returns the turn it happened in.
    pub fn turn_info(&self) -> &Arc<TurnInfo> {
        match &self.body {
            EventBody::Tool(invocation, _) => &invocation.turn,
            EventBody::Turn(turn, _) | EventBody::Loop(turn, _) => turn,
        }
    }

    /// Returns the invocation and its event, if the event is about one.
    pub fn as_tool(&self) -> Option<(&Arc<Invocation>, &ToolEvent)> {
        match &self.body {
            EventBody::Tool(invocation, event) => Some((invocation, event)),
            EventBody::Turn(..) | EventBody::Loop(..) => None,
        }
    }

    /// Returns the turn event, if the event is about the turn as a whole.
    pub fn as_turn(&self) -> Option<&TurnEvent> {
        match &self.body {
            EventBody::Tool(..) | EventBody::Loop(..) => None,
            EventBody::Turn(_, event) => Some(event),
        }
    }

    /// Returns the run event, if the event is about the run.
    pub fn as_session(&self) -> Option<&SessionEvent> {
        match &self.body {
            EventBody::Tool(..) | EventBody::Turn(..) => None,
            EventBody::Loop(_, event) => Some(event),
        }
    }

    /// Returns the JSON Schema of every event on the wire.
    pub fn json_schema() -> Value {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let tool = generator.subschema_for::<WireToolEvent>();
        let turn = generator.subschema_for::<WireTurnEvent>();
        let run = generator.subschema_for::<WireSessionEvent>();
        let definitions = generator.take_definitions(true);
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Toolgate event",
            "description": "One line of a session's event log.",
            "anyOf": [tool, turn, run],
            "$defs": definitions,
        })
    }
}

fn check_turn_ids(turn: &TurnInfo) -> Result<(), (&'static str, &'static str)> {
    match turn {
        // Nil ids belong to calls without a runtime, which have no log.
        turn if turn.session.is_nil() => Err(("session_id", "is empty")),
        turn if turn.turn.is_nil() => Err(("turn_id", "is empty")),
        _ => Ok(()),
    }
}

/// The place of an event in its log, on the wire.
#[derive(Serialize, Deserialize, JsonSchema)]
struct WirePosition {
    sequence: u64,
    at: Timestamp,
}

/// The fields of the turn that every event has on the wire.
#[derive(Serialize, Deserialize, JsonSchema)]
struct WireTurn {
    session_id: SessionId,
    turn_id: TurnId,
    #[serde(default)]
    iteration: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    principal: Option<crate::Principal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
}

impl WireTurn {
    fn new(turn: &TurnInfo) -> Self {
        Self {
            session_id: turn.session,
            turn_id: turn.turn,
            iteration: turn.iteration,
            agent_id: turn.agent_id.clone(),
            agent_name: turn.agent_name.clone(),
            model: turn.model.clone(),
            provider: turn.provider.clone(),
            principal: turn.principal.clone(),
            run: turn.run,
            labels: turn.labels.clone(),
        }
    }
}

/// The additional fields of events about an invocation.
#[derive(Serialize, Deserialize, JsonSchema)]
struct WireInvocation {
    invocation_id: CallId,
    #[schemars(length(min = 1))]
    call_id: Arc<str>,
    #[schemars(length(min = 1))]
    tool_name: ToolName,
    emit_order: u32,
}

/// The published schema's form of an event; not used otherwise.
#[derive(JsonSchema)]
#[schemars(rename = "ToolEventOnTheWire")]
#[allow(dead_code)]
struct WireToolEvent {
    #[serde(flatten)]
    position: WirePosition,
    #[serde(flatten)]
    turn: WireTurn,
    #[serde(flatten)]
    invocation: WireInvocation,
    #[serde(flatten)]
    event: ToolEvent,
}

/// The published schema's form of an event; not used otherwise.
#[derive(JsonSchema)]
#[schemars(rename = "TurnEventOnTheWire")]
#[allow(dead_code)]
struct WireTurnEvent {
    #[serde(flatten)]
    position: WirePosition,
    #[serde(flatten)]
    turn: WireTurn,
    #[serde(flatten)]
    event: TurnEvent,
}

/// The published schema's form of an event; not used otherwise.
#[derive(JsonSchema)]
#[schemars(rename = "LoopEventOnTheWire")]
#[allow(dead_code)]
struct WireSessionEvent {
    #[serde(flatten)]
    position: WirePosition,
    #[serde(flatten)]
    turn: WireTurn,
    #[serde(flatten)]
    event: SessionEvent,
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct FlatWireEvent<'a> {
            // What the events of a turn and of a call have in common comes first: a store writes
            // it once.
            #[serde(flatten)]
            turn: WireTurn,
            #[serde(flatten)]
            invocation: Option<WireInvocation>,
            sequence: u64,
            at: Timestamp,
            #[serde(flatten)]
            event: FlatWireBody<'a>,
        }
        #[derive(Serialize)]
        // Untagged, because each event enum writes its own `type`.
        #[serde(untagged)]
        enum FlatWireBody<'a> {
            Tool(&'a ToolEvent),
            Turn(&'a TurnEvent),
            Loop(&'a SessionEvent),
        }
        let turn = WireTurn::new(self.turn_info());
        let (invocation, event) = match &self.body {
            EventBody::Turn(_, event) => (None, FlatWireBody::Turn(event)),
            EventBody::Loop(_, event) => (None, FlatWireBody::Loop(event)),
            EventBody::Tool(invocation, event) => {
                let wire = WireInvocation {
                    invocation_id: invocation.id,
                    call_id: invocation.call_id.clone(),
                    tool_name: invocation.tool.clone(),
                    emit_order: invocation.emit_order,
                };
                (Some(wire), FlatWireBody::Tool(event))
            }
        };
        FlatWireEvent {
            turn,
            invocation,
            sequence: self.sequence,
            at: self.at,
            event,
        }
        .serialize(serializer)
    }
}

/// Parses each part separately, so that an error names the missing or invalid field.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let map = Value::Object(Map::deserialize(deserializer)?);
        let WirePosition { sequence, at } =
            WirePosition::deserialize(&map).map_err(D::Error::custom)?;
        let wire = WireTurn::deserialize(&map).map_err(D::Error::custom)?;
        let turn = Arc::new(TurnInfo {
            session: wire.session_id,
            turn: wire.turn_id,
            iteration: wire.iteration,
            agent_id: wire.agent_id,
            agent_name: wire.agent_name,
            model: wire.model,
            provider: wire.provider,
            principal: wire.principal,
            run: wire.run,
            labels: wire.labels,
        });
        let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
        let event = if TurnEvent::NAMES.contains(&kind) {
            let event = TurnEvent::deserialize(&map).map_err(D::Error::custom)?;
            Self::for_turn(sequence, at, turn, event)
        } else if SessionEvent::NAMES.contains(&kind) {
            let event = SessionEvent::deserialize(&map).map_err(D::Error::custom)?;
            Self::for_run(sequence, at, turn, event)
        } else {
            // An unknown type ends up here too, and the error names it.
            let event = ToolEvent::deserialize(&map).map_err(D::Error::custom)?;
            let wire = WireInvocation::deserialize(&map).map_err(D::Error::custom)?;
            let id = wire.invocation_id;
            let call_id = wire.call_id;
            let tool = wire.tool_name;
            let invocation = Arc::new(Invocation {
                id,
                call_id,
                tool,
                emit_order: wire.emit_order,
                turn,
            });
            Self::for_invocation(sequence, at, invocation, event)
        };
        event.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, LogLevel, Notes, Progress, SettledOutcome, Status};
    use uuid::Uuid;

    fn turn() -> Arc<TurnInfo> {
        let mut turn = TurnInfo::new(
            SessionId::new(Uuid::from_u128(1)),
            TurnId::new(Uuid::from_u128(2)),
        );
        turn.agent_id = Some("main".into());
        Arc::new(turn)
    }

    /// Returns a turn in which every optional field is set.
    fn full_turn() -> TurnInfo {
        let mut info = TurnInfo::clone(&turn());
        info.agent_name = Some("a".into());
        info.model = Some("m".into());
        info.provider = Some("p".into());
        info.principal = Some("ann".into());
        info.run = Some(1);
        info.labels = Labels::new([("tenant", "acme")]).expect("valid");
        info
    }

    fn invocation() -> Invocation {
        Invocation {
            id: CallId::new(Uuid::from_u128(3)),
            call_id: "c1".into(),
            tool: "read".into(),
            emit_order: 0,
            turn: turn(),
        }
    }

    fn samples() -> Vec<Event> {
        let digest = Digest::of_bytes(b"x");
        let mut kinds = vec![
            ToolEvent::ToolRequested {
                arguments: None,
                arguments_digest: digest,
                arguments_bytes: 2,
                executor: None,
            },
            ToolEvent::ToolApprovalRequested(Box::new(crate::ApprovalRequest::for_call(
                &crate::Call::detached("t", crate::Arguments::empty()),
            ))),
            ToolEvent::ToolApproved {
                approver: "ann".into(),
                established: Default::default(),
                claimed_as: None,
                reason: None,
                edited: true,
                unseen: false,
                with: Vec::new(),
            },
            ToolEvent::ToolExecutionStarted {
                attempt: 1,
                executor: None,
                external: true,
                arguments_digest: digest,
                arguments: None,
            },
            ToolEvent::ToolExecutionProgress {
                progress: Progress::fraction(1, 2),
            },
            ToolEvent::ToolCallAudit {
                audit: Notes::default(),
            },
            ToolEvent::ToolLog {
                level: LogLevel::Warn,
                message: "odd".into(),
            },
        ];
        kinds.extend(Status::ALL.map(|status| {
            ToolEvent::from_settled(&SettledOutcome::new(status), false, None, None)
        }));
        let tool = kinds
            .into_iter()
            .map(|kind| Event::for_invocation(1, Timestamp::EPOCH, Arc::new(invocation()), kind));
        let refused = TurnEvent::InputRejected {
            invocation_id: invocation().id,
            what: InputKind::Result,
            code: RejectCode::Duplicate,
        };
        let whole = [
            TurnEvent::TurnOpened {
                size: 1,
                after: None,
            },
            TurnEvent::TurnSettled,
            refused,
        ];
        let whole = whole
            .into_iter()
            .map(|kind| Event::for_turn(1, Timestamp::EPOCH, turn(), kind));
        let run = session_event_samples()
            .into_iter()
            .map(|kind| Event::for_run(1, Timestamp::EPOCH, turn(), kind));
        tool.chain(whole)
            .chain(run)
            .map(|event| event.expect("valid"))
            .collect()
    }

    fn session_event_samples() -> Vec<SessionEvent> {
        let usage = crate::Usage {
            input: 3,
            ..Default::default()
        };
        let cost = crate::Cost::NanoUsd(7);
        let routed = crate::RoutedModel {
            requested: "a:b".into(),
            selected: "c:d".into(),
            reason: "rule".into(),
            weight: None,
        };
        let text = Some("hi".to_owned());
        let finish = crate::FinishReason::Stop;
        let error = "no".to_owned();
        let samples = vec![
            SessionEvent::UserMessage {
                message: 0,
                text: text.clone(),
                text_bytes: None,
                steering: true,
            },
            SessionEvent::ModelRouted(routed),
            SessionEvent::InferenceStarted {
                attempt: 1,
                messages: 1,
                tools: 2,
            },
            SessionEvent::InferenceFinished {
                message: 1,
                text,
                text_bytes: Some(20_000),
                calls: 0,
                finish,
                usage: Some(usage),
                cost,
            },
            SessionEvent::InferenceFailed {
                code: crate::ModelErrorKind::Auth,
                error,
                retry_in_ms: Some(5),
            },
            SessionEvent::HistoryCompacted {
                skipped: 4,
                kept: 2,
            },
            SessionEvent::SkillLoaded {
                skill: "pdf".into(),
                refunded: true,
            },
            SessionEvent::MemoryRecalled {
                memories: vec![crate::MemoryId::new(uuid::Uuid::from_u128(7))],
                tokens: 50,
            },
            SessionEvent::BudgetAlert(crate::BudgetAlert {
                budget: "session".into(),
                period: "total".into(),
                percent: 50,
                level: crate::BudgetAlertLevel::Info,
                spent: "1".into(),
                limit: "2".into(),
                amounts: Some(crate::BudgetAmounts {
                    unit: crate::AlertUnit::Calls,
                    spent: 1,
                    limit: 2,
                }),
            }),
            SessionEvent::RecursiveIteration {
                iteration: 1,
                max: 9,
                ready: false,
                tokens: 10,
                summary: "looked".into(),
                scratchpad: String::new(),
                budget: 3,
            },
            SessionEvent::ImportedCall {
                message: 1,
                label: "c1".into(),
                tool: "Read".into(),
                arguments: Some(crate::Json::from("x")),
            },
            SessionEvent::ImportedResult {
                message: 2,
                label: "c1".into(),
                tool: "Read".into(),
                text: Some("x".into()),
                text_bytes: Some(20_000),
                is_error: true,
            },
            SessionEvent::RunEnded {
                end: crate::RunEnd::Suspended,
                error: None,
                iterations: 1,
                usage,
                cost,
            },
        ];
        assert_eq!(
            samples.iter().map(SessionEvent::name).collect::<Vec<_>>(),
            SessionEvent::NAMES
        );
        // A variant's field with the name of a common field could not be parsed again.
        let common = serde_json::to_value(WireTurn::new(&full_turn())).expect("writes");
        for sample in &samples {
            let own = serde_json::to_value(sample).expect("writes");
            let twice = own
                .as_object()
                .into_iter()
                .flatten()
                .find(|(key, _)| common.get(key).is_some());
            assert_eq!(twice, None, "{}", sample.name());
        }
        samples
    }

    #[test]
    fn events_round_trip_and_fit_the_published_schema() {
        let schema = crate::Schema::new(Event::json_schema()).expect("a valid schema");
        for event in samples() {
            let value = serde_json::to_value(&event).expect("writes");
            assert_eq!(value["type"], event.name());
            assert_eq!(schema.check_value(&value), Ok(()), "{value}");
            assert_eq!(
                serde_json::from_value::<Event>(value).expect("reads"),
                event
            );
        }
    }

    #[test]
    fn an_invalid_event_cannot_be_created_and_the_field_is_named() {
        let make = |change: &dyn Fn(&mut Invocation), kind: ToolEvent| {
            let mut head = invocation();
            change(&mut head);
            Event::for_invocation(1, Timestamp::EPOCH, Arc::new(head), kind)
                .map_err(|error| error.field)
        };
        let ok = || ToolEvent::ToolLog {
            level: LogLevel::Info,
            message: String::new(),
        };
        assert!(make(&|_| {}, ok()).is_ok());
        assert_eq!(make(&|i| i.call_id = "".into(), ok()), Err("call_id"));
        assert_eq!(
            make(&|i| i.id = CallId::new(Uuid::nil()), ok()),
            Err("invocation_id")
        );
        let without_session = |i: &mut Invocation| {
            i.turn = Arc::new(TurnInfo::new(
                SessionId::new(Uuid::nil()),
                TurnId::new(Uuid::nil()),
            ));
        };
        assert_eq!(make(&without_session, ok()), Err("session_id"));
        let denied = |reason: Option<&str>, status| ToolEvent::ToolDenied {
            status,
            approver: None,
            established: Default::default(),
            reason: reason.map(str::to_owned),
            error: None,
        };
        assert!(make(&|_| {}, denied(Some("no"), Status::Denied)).is_ok());
        assert_eq!(make(&|_| {}, denied(None, Status::Denied)), Err("reason"));
        assert_eq!(
            make(&|_| {}, denied(Some(" "), Status::Denied)),
            Err("reason")
        );
        assert_eq!(make(&|_| {}, denied(Some("no"), Status::Ok)), Err("status"));
    }

    #[test]
    fn an_invalid_event_cannot_be_parsed_and_the_field_is_named() {
        let good = serde_json::to_value(&samples()[0]).expect("writes");
        for field in [
            "invocation_id",
            "call_id",
            "tool_name",
            "turn_id",
            "session_id",
            "emit_order",
            "sequence",
            "at",
        ] {
            let mut bad = good.clone();
            bad.as_object_mut().expect("an object").remove(field);
            let error = serde_json::from_value::<Event>(bad)
                .expect_err(field)
                .to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
        for (field, value) in [
            ("call_id", json!("")),
            ("tool_name", json!("")),
            ("type", json!("tool_finished")),
            ("sequence", json!(0)),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(serde_json::from_value::<Event>(bad).is_err(), "{field}");
        }
        let failed = ToolEvent::from_settled(
            &SettledOutcome::new(Status::ExecutorError),
            true,
            None,
            None,
        );
        let failed = Event::for_invocation(1, Timestamp::EPOCH, Arc::new(invocation()), failed)
            .expect("valid");
        let mut bad = serde_json::to_value(failed).expect("writes");
        bad["error"] = json!("");
        assert!(
            serde_json::from_value::<Event>(bad)
                .expect_err("no error")
                .to_string()
                .contains("error is empty")
        );
    }
}
