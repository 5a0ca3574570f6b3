//! What the model asked for, on its way through a stack.

use std::{fmt, future::Future, ops::Deref, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Admission, AgentId, Annotations, Answer, Arguments, CallId, Env, IdempotencyKey, Json, Outcome,
    Principal, Record, RecordKey, SessionId, Settled, ShownTool, Stops, StoreError, Timestamp,
    ToolName, ToolSpec, TurnId, Verdict,
};

/// A tool call as a model wrote it, before anything was checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequest {
    /// The provider's id: a label that may be empty or used twice.
    pub provider_call_id: String,
    /// The name of the tool, whatever it is.
    pub tool: String,
    /// The arguments, whatever they are.
    pub arguments: RawArguments,
}

/// Arguments as a provider delivers them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawArguments {
    /// Text that should be JSON.
    Text(String),
    /// JSON that should be an object.
    Json(Json),
}

impl ToolRequest {
    /// How many bytes name, label and arguments have.
    pub fn size(&self) -> usize {
        let arguments = match &self.arguments {
            RawArguments::Text(text) => text.len(),
            RawArguments::Json(json) => json.size(),
        };
        self.provider_call_id.len() + self.tool.len() + arguments
    }

    /// A request with arguments as text.
    pub fn text(provider_call_id: &str, tool: &str, arguments: &str) -> Self {
        let arguments = RawArguments::Text(arguments.to_owned());
        Self {
            provider_call_id: provider_call_id.to_owned(),
            tool: tool.to_owned(),
            arguments,
        }
    }

    /// A request with arguments as JSON. Values nested too deeply are refused like unreadable text.
    pub fn json(provider_call_id: &str, tool: &str, arguments: Value) -> Self {
        let arguments = match Json::new(arguments) {
            Ok(json) => RawArguments::Json(json),
            Err(error) => RawArguments::Text(error.to_string()),
        };
        Self {
            provider_call_id: provider_call_id.to_owned(),
            tool: tool.to_owned(),
            arguments,
        }
    }
}

/// The turn a call belongs to; shared by all calls of the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct TurnInfo {
    /// Which session.
    pub session: SessionId,
    /// Which turn.
    pub turn: TurnId,
    /// Which round of the loop, counted from 0.
    #[serde(default)]
    pub iteration: u32,
    /// Which agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// What the agent is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<Arc<str>>,
    /// Which model asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Which provider served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// On whose behalf the agent works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// Which run of the session: the number of the message that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
}

impl TurnInfo {
    /// A turn about which nothing but the ids is known.
    pub fn new(session: SessionId, turn: TurnId) -> Self {
        Self {
            session,
            turn,
            iteration: 0,
            agent_id: None,
            agent_name: None,
            model: None,
            provider: None,
            principal: None,
            run: None,
        }
    }
}

/// One call. Layers look at it, may hand on a copy with other arguments, and never change it in place.
///
/// It reads like a [`CallData`] and is as large as a pointer, so that layers can hold, clone and move it freely.
/// Which tool is called, by whom and in which turn cannot be changed by a layer: a call that reaches the
/// executor under another name or id than it entered with is not executed.
#[derive(Clone)]
pub struct Call(Arc<CallData>);

/// What a layer can see of a call at a glance; [`Call`] has methods for the rest.
#[derive(Clone)]
#[non_exhaustive]
pub struct CallData {
    /// The runtime's own id, unique everywhere.
    pub id: CallId,
    /// How often the call has been suspended before.
    pub generation: u32,
    /// Which tool.
    pub tool: ToolName,
    /// With which arguments, as far as the layers above have shaped them.
    pub arguments: Arguments,
    /// Which attempt this is, counted from 1; kept by the runtime.
    pub attempt: u32,
    /// When the call has to be over.
    pub deadline: Option<Timestamp>,
    /// Tells the call to stop.
    pub cancel: CancellationToken,
    stops: Stops,
    fixed: Arc<Fixed>,
}

/// What stays the same for a call whatever layers do.
struct Fixed {
    original: Arguments,
    provider_call_id: Arc<str>,
    emit_order: u32,
    turn: Arc<TurnInfo>,
    shown: Option<Arc<ShownTool>>,
    refusal: Option<Outcome>,
    resumed: Resumed,
    attempts_before: u32,
    rehearsal: bool,
    closing: Option<Arc<Settled>>,
    env: Env,
}

/// See [`Call::origin`].
pub(crate) struct Origin(Arc<Fixed>);

/// Everything a call is made from.
#[derive(Debug, Clone)]
pub struct CallSeed {
    /// The runtime's own id.
    pub id: CallId,
    /// How often the call has been suspended before.
    pub generation: u32,
    /// The provider's id.
    pub provider_call_id: Arc<str>,
    /// The position in the model's message.
    pub emit_order: u32,
    /// The turn.
    pub turn: Arc<TurnInfo>,
    /// What the view said about the request.
    pub admission: Admission,
    /// What has been answered since the call was first made.
    pub resumed: Resumed,
    /// How often the executor was started before the call was last suspended.
    pub attempts_before: u32,
    /// Whether the call is only walked through to see what would happen. It never reaches the executor.
    pub rehearsal: bool,
    /// How the call ended outside the stack, if it did: its turn was interrupted, or its process was lost. It enters
    /// once more so that those who record and those who have to clear up see the end. Nothing is decided or run.
    pub closing: Option<Arc<Settled>>,
    /// Tells the call to stop.
    pub cancel: CancellationToken,
    /// The surroundings.
    pub env: Env,
}

/// What has been answered since a call was first made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resumed {
    /// Decisions, oldest first.
    pub answers: Vec<Answer>,
    /// Results of attempts that are known without running them again, by attempt, counted from 1.
    pub results: Vec<(u32, Arc<Settled>)>,
}

impl Call {
    /// Makes a call that can enter a stack.
    ///
    /// It enters with the arguments the model wrote. If a decision edited them, the edited ones take their place
    /// where deciding begins, so that people edit what they were shown and get exactly what they wrote.
    pub fn new(seed: CallSeed) -> Self {
        let CallSeed {
            id,
            generation,
            provider_call_id,
            emit_order,
            turn,
            admission,
            resumed,
            attempts_before,
            rehearsal,
            closing,
            cancel,
            env,
        } = seed;
        let Admission {
            tool,
            shown,
            arguments,
            refusal,
        } = admission;
        let original = arguments.clone();
        let fixed = Arc::new(Fixed {
            original,
            provider_call_id,
            emit_order,
            turn,
            shown,
            refusal,
            resumed,
            attempts_before,
            rehearsal,
            closing,
            env,
        });
        let (attempt, deadline, stops) = (1, None, Stops::default());
        Self(Arc::new(CallData {
            id,
            generation,
            tool,
            arguments,
            attempt,
            deadline,
            cancel,
            stops,
            fixed,
        }))
    }

    /// A call outside any runtime, for trying out a stack by hand.
    pub fn detached(tool: &str, arguments: Arguments) -> Self {
        let nil = uuid::Uuid::nil();
        Self::new(CallSeed {
            id: CallId::new(nil),
            generation: 0,
            provider_call_id: "detached".into(),
            emit_order: 0,
            turn: Arc::new(TurnInfo::new(SessionId::new(nil), TurnId::new(nil))),
            admission: Admission {
                tool: tool.into(),
                shown: None,
                arguments,
                refusal: None,
            },
            resumed: Resumed::default(),
            attempts_before: 0,
            rehearsal: false,
            closing: None,
            cancel: CancellationToken::new(),
            env: Env::detached(),
        })
    }

    /// A copy with other arguments.
    pub fn with_arguments(mut self, arguments: Arguments) -> Self {
        Arc::make_mut(&mut self.0).arguments = arguments;
        self
    }

    /// The same call as another attempt.
    pub(crate) fn with_attempt(mut self, attempt: u32) -> Self {
        if self.attempt != attempt {
            Arc::make_mut(&mut self.0).attempt = attempt;
        }
        self
    }

    /// A copy that has to be over after `span`, with a cancellation token of its own.
    ///
    /// Stopping the copy does not stop the call it was made from, so another attempt starts fresh.
    pub fn with_time_limit(mut self, span: Duration) -> Self {
        let limit = self.env().clock().now().plus(span);
        let data = Arc::make_mut(&mut self.0);
        data.deadline = Some(data.deadline.map_or(limit, |deadline| deadline.min(limit)));
        data.cancel = data.cancel.child_token();
        data.stops = Stops::default();
        self
    }

    /// Ways to stop what the tool has started and what does not stop by itself when the tool is dropped.
    pub fn stops(&self) -> &Stops {
        &self.stops
    }

    /// Whether the call is only walked through to see what would happen: nothing may be counted, kept or sent for it.
    pub fn is_rehearsal(&self) -> bool {
        self.fixed.rehearsal
    }

    /// How the call ended outside the stack, if that is why it enters once more.
    pub fn closing(&self) -> Option<&Arc<Settled>> {
        self.fixed.closing.as_ref()
    }

    /// The arguments exactly as the model wrote them.
    pub fn original(&self) -> &Arguments {
        &self.fixed.original
    }

    /// The provider's id, which may be empty or used twice.
    pub fn provider_call_id(&self) -> &str {
        &self.fixed.provider_call_id
    }

    /// The position in the model's message, counted from 0.
    pub fn emit_order(&self) -> u32 {
        self.fixed.emit_order
    }

    /// The turn.
    pub fn turn(&self) -> &Arc<TurnInfo> {
        &self.fixed.turn
    }

    /// The tool as the model was shown it, if the call came through a view.
    pub fn shown(&self) -> Option<&Arc<ShownTool>> {
        self.fixed.shown.as_ref()
    }

    /// The spec of the tool itself, if it is known.
    pub fn spec(&self) -> Option<&ToolSpec> {
        self.shown().map(|shown| &shown.entry.spec)
    }

    /// What the tool does; for an unknown tool, anything.
    pub fn annotations(&self) -> &Annotations {
        static ANYTHING: std::sync::OnceLock<Annotations> = std::sync::OnceLock::new();
        self.spec().map_or_else(
            || ANYTHING.get_or_init(Annotations::default),
            |spec| &spec.annotations,
        )
    }

    /// The key by which an outside system can recognise a repeat.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey::of(self.id)
    }

    /// What has been answered since the call was first made.
    pub fn resumed(&self) -> &Resumed {
        &self.fixed.resumed
    }

    /// The surroundings.
    pub fn env(&self) -> &Env {
        &self.fixed.env
    }

    /// Does something once for this call, however often the call enters the stack.
    ///
    /// The answer is kept in the store under the call's id and `key`, and given again from there. If the
    /// process is lost between doing and keeping, it is done again: what must not be, has to be claimed first.
    pub async fn once<F, Fut>(&self, key: &str, act: F) -> Result<Json, StoreError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Json>,
    {
        let key = RecordKey::Layer(self.id, key.into());
        let store = self.env().store();
        if let Some(Record::Json(kept)) = store.record(&key).await? {
            return Ok(kept);
        }
        let done = act().await;
        match store.once(key, Record::Json(done.clone())).await? {
            Some(Record::Json(kept)) => Ok(kept),
            Some(_) | None => Ok(done),
        }
    }

    pub(crate) fn refusal(&self) -> Option<&Outcome> {
        self.fixed.refusal.as_ref()
    }

    /// What a call is told apart by from another one of the same id, such as one that was kept from an earlier pass.
    pub(crate) fn origin(&self) -> Origin {
        Origin(self.fixed.clone())
    }

    pub(crate) fn is_of(&self, origin: &Origin) -> bool {
        Arc::ptr_eq(&self.fixed, &origin.0)
    }

    pub(crate) fn attempts_before(&self) -> u32 {
        self.fixed.attempts_before
    }
}

impl Resumed {
    /// The result of an attempt, if it is known.
    pub fn result(&self, attempt: u32) -> Option<&Arc<Settled>> {
        self.results
            .iter()
            .find(|(known, _)| *known == attempt)
            .map(|(_, settled)| settled)
    }

    /// The arguments of the newest decision that edits them.
    pub fn edits(&self) -> Option<&Arguments> {
        self.answers
            .iter()
            .rev()
            .find_map(|answer| match &answer.decision.verdict {
                Verdict::ApproveWithEdits { arguments } => Some(arguments),
                Verdict::Approve | Verdict::Deny { .. } => None,
            })
    }
}

impl Deref for Call {
    type Target = CallData;
    fn deref(&self) -> &CallData {
        &self.0
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No arguments here: `{:?}` ends up in logs.
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}
