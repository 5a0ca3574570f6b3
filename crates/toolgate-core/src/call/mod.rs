//! Calls: what the model asked for, on its way through a stack.

pub(crate) mod access;
pub(crate) mod env;
mod extensions;
pub(crate) mod notes;
pub(crate) mod outcome;
pub(crate) mod reports;
pub(crate) mod requirement;
pub(crate) mod status;
pub(crate) mod stop;

use std::{fmt, future::Future, ops::Deref, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Admission, AgentId, Annotations, ApprovalAnswer, Arguments, CallEnv, CallId, IdempotencyKey,
    Json, Labels, Outcome, Principal, RecordKey, SessionId, SettledOutcome, ShownTool, StartPermit,
    StopActions, StopReason, StoreError, Timestamp, ToolName, ToolSpec, TurnId, Verdict,
    call::{
        access::CallAccessJudge, extensions::CallExtensions, requirement::ApprovalRequirements,
    },
};

/// A tool call as a model wrote it, before anything was checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequest {
    /// The provider's id: a label that may be empty or used twice.
    pub provider_call_id: String,
    /// The name of the tool, unchecked.
    pub tool: String,
    /// The arguments, unchecked.
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
    /// Returns the size of name, label and arguments in bytes.
    pub fn size(&self) -> usize {
        let arguments = match &self.arguments {
            RawArguments::Text(text) => text.len(),
            RawArguments::Json(json) => json.size(),
        };
        self.provider_call_id.len() + self.tool.len() + arguments
    }

    /// Creates a request with arguments as text.
    pub fn from_text(provider_call_id: &str, tool: &str, arguments: &str) -> Self {
        let arguments = RawArguments::Text(arguments.to_owned());
        Self {
            provider_call_id: provider_call_id.to_owned(),
            tool: tool.to_owned(),
            arguments,
        }
    }

    /// Creates a request with arguments as JSON. Values nested too deeply are rejected like invalid
    /// JSON text.
    pub fn from_json(provider_call_id: &str, tool: &str, arguments: Value) -> Self {
        let arguments = match Json::new(arguments) {
            Ok(json) => RawArguments::Json(json),
            // The message is not JSON either, so the view rejects the request.
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
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The iteration of the run, counted from 0.
    #[serde(default)]
    pub iteration: u32,
    /// The agent's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The agent's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<Arc<str>>,
    /// The model that asked for the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The provider of that model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The principal on whose behalf the agent works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// The run of the session: the number of the message that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The labels of the session and the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl TurnInfo {
    /// Creates a turn of which only the ids are known.
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
            labels: Labels::default(),
        }
    }
}

/// One call. Layers read it, may pass on a copy with other arguments, and never change it in place.
///
/// It dereferences to [`CallData`] and has the size of a pointer, so that layers can hold, clone
/// and move it cheaply. A layer cannot change the tool, the caller or the turn: a call that reaches
/// the executor with another name or id than it entered with is not executed.
#[derive(Clone)]
pub struct Call(Arc<CallData>);

/// The fields of a call that a layer reads directly; [`Call`] has methods for the rest.
#[derive(Clone)]
#[non_exhaustive]
pub struct CallData {
    /// The runtime's own id, unique everywhere.
    pub id: CallId,
    /// The number of times approval was requested for the call before.
    pub generation: u32,
    /// The tool's name.
    pub tool: ToolName,
    /// The arguments as the layers above have shaped them.
    pub arguments: Arguments,
    /// The number of this attempt, counted from 1; set by the runtime.
    pub attempt: u32,
    /// The deadline of the call.
    pub deadline: Option<Timestamp>,
    /// Tells the call to stop.
    pub cancel: CancellationToken,
    stops: StopActions,
    extensions: CallExtensions,
    required: ApprovalRequirements,
    fixed: Arc<FixedCallData>,
}

/// The part of a call that no layer can change.
struct FixedCallData {
    original: Arguments,
    provider_call_id: Arc<str>,
    emit_order: u32,
    turn: Arc<TurnInfo>,
    shown: Option<Arc<ShownTool>>,
    refusal: Option<Outcome>,
    resumed: ResumeState,
    attempts_before: u32,
    rehearsal: bool,
    closing: Option<Arc<SettledOutcome>>,
    env: CallEnv,
}

/// The identity of one entry of a call into a stack; see [`Call::origin`].
pub(crate) struct CallOrigin(Arc<FixedCallData>);

/// The parts that [`Call::new`] builds a call from.
#[derive(Debug, Clone)]
pub struct CallSeed {
    /// The runtime's own id.
    pub id: CallId,
    /// The number of times approval was requested for the call before.
    pub generation: u32,
    /// The provider's id.
    pub provider_call_id: Arc<str>,
    /// The position in the model's message.
    pub emit_order: u32,
    /// The turn.
    pub turn: Arc<TurnInfo>,
    /// The view's answer to the request.
    pub admission: Admission,
    /// The decisions and results received since the call was first made.
    pub resumed: ResumeState,
    /// The number of times the executor was started before the call was last suspended.
    pub attempts_before: u32,
    /// True if the call only rehearses what would happen. It never reaches the executor.
    pub rehearsal: bool,
    /// The end of the call, if it ended outside the stack: its turn was interrupted, or its process
    /// was lost. It enters once more so that layers that record or clean up see the end. Nothing is
    /// decided or run.
    pub closing: Option<Arc<SettledOutcome>>,
    /// Tells the call to stop.
    pub cancel: CancellationToken,
    /// The services the runtime provides: clock, store, probe.
    pub env: CallEnv,
}

/// The decisions and results received since a call was first made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResumeState {
    /// Decisions, oldest first.
    pub answers: Vec<ApprovalAnswer>,
    /// Results of attempts that are known without running them again, by attempt, counted from 1.
    pub results: Vec<(u32, Arc<SettledOutcome>)>,
}

impl Call {
    /// Creates a call that can enter a stack.
    ///
    /// It enters with the arguments the model wrote. If a decision edited them, the edited ones
    /// replace them where the `decide` band begins, so that approvers edit what they were shown and
    /// get exactly what they wrote.
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
        let fixed = Arc::new(FixedCallData {
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
        let attempt = 1;
        let deadline = None;
        let stops = StopActions::default();
        Self(Arc::new(CallData {
            id,
            generation,
            tool,
            arguments,
            attempt,
            deadline,
            cancel,
            stops,
            extensions: CallExtensions::default(),
            required: ApprovalRequirements::default(),
            fixed,
        }))
    }

    /// Creates a call outside any runtime, for trying out a stack.
    pub fn detached(tool: &str, arguments: Arguments) -> Self {
        // Events reject nil ids, so a call without a runtime never gets into a log.
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
            resumed: ResumeState::default(),
            attempts_before: 0,
            rehearsal: false,
            closing: None,
            cancel: CancellationToken::new(),
            env: CallEnv::detached(),
        })
    }

    /// Returns a copy with other arguments.
    pub fn with_arguments(mut self, arguments: Arguments) -> Self {
        Arc::make_mut(&mut self.0).arguments = arguments;
        self
    }

    /// Returns a copy that carries `value` for the layers below and the executor. It replaces an
    /// earlier value of its type. A stack inside the executor does not see it: what holds in one
    /// stack, such as the judgement of a policy, says nothing in another.
    ///
    /// ```
    /// use toolgate_core::{Arguments, Call};
    ///
    /// #[derive(Debug, PartialEq)]
    /// struct Tenant(&'static str);
    ///
    /// let call = Call::detached("pay", Arguments::parse("{}")?).with_extension(Tenant("north"));
    /// assert_eq!(call.extension(), Some(&Tenant("north")));
    /// # Ok::<(), toolgate_core::JsonError>(())
    /// ```
    pub fn with_extension<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        Arc::make_mut(&mut self.0).extensions.add(value);
        self
    }

    /// Returns the value of this type that a layer above has put on the call, if one has.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.find()
    }

    /// Returns the call without extensions, for a stack that it enters. The judges of its accesses
    /// stay: an inner stack must not show what the outer one hides.
    pub(crate) fn without_extensions(mut self) -> Self {
        if !self.extensions.is_empty() {
            let data = Arc::make_mut(&mut self.0);
            let extensions = std::mem::take(&mut data.extensions);
            for judge in extensions.values::<CallAccessJudge>() {
                data.extensions.add(judge.clone());
            }
        }
        self
    }

    /// Returns the same call as another attempt.
    pub(crate) fn with_attempt(mut self, attempt: u32) -> Self {
        // Comparing first avoids a copy of the data if nothing changes.
        if self.attempt != attempt {
            Arc::make_mut(&mut self.0).attempt = attempt;
        }
        self
    }

    /// Returns a copy with a deadline after `span` and its own cancellation token.
    ///
    /// Stopping the copy does not stop the original call, so a retry starts fresh.
    pub fn with_time_limit(mut self, span: Duration) -> Self {
        let limit = self.env().clock().now().plus(span);
        let data = Arc::make_mut(&mut self.0);
        // An outer limit stays in force.
        data.deadline = Some(data.deadline.map_or(limit, |deadline| deadline.min(limit)));
        data.cancel = data.cancel.child_token();
        // A list of its own: a timeout must stop the work of this attempt only.
        data.stops = StopActions::default();
        self
    }

    /// Returns the actions that stop work which does not stop by itself when the tool is dropped.
    pub fn stops(&self) -> &StopActions {
        &self.stops
    }

    /// Checks whether the call only rehearses what would happen: nothing may be counted, stored or
    /// sent for it.
    pub fn is_rehearsal(&self) -> bool {
        self.fixed.rehearsal
    }

    /// Returns the end of the call, if it ended outside the stack and enters once more for that.
    pub fn closing_outcome(&self) -> Option<&Arc<SettledOutcome>> {
        self.fixed.closing.as_ref()
    }

    /// Returns the arguments exactly as the model wrote them.
    pub fn original_arguments(&self) -> &Arguments {
        &self.fixed.original
    }

    /// Returns the provider's id, which may be empty or used twice.
    pub fn provider_call_id(&self) -> &Arc<str> {
        &self.fixed.provider_call_id
    }

    /// Returns the position in the model's message, counted from 0.
    pub fn emit_order(&self) -> u32 {
        self.fixed.emit_order
    }

    /// Returns the turn.
    pub fn turn(&self) -> &Arc<TurnInfo> {
        &self.fixed.turn
    }

    /// Returns the tool as the model was shown it, if the call came through a view.
    pub fn shown_tool(&self) -> Option<&Arc<ShownTool>> {
        self.fixed.shown.as_ref()
    }

    /// Returns the spec of the tool itself, if it is known.
    pub fn spec(&self) -> Option<&ToolSpec> {
        self.shown_tool().map(|shown| &shown.entry.spec)
    }

    /// Returns the tool's annotations; an unknown tool may do anything.
    pub fn annotations(&self) -> &Annotations {
        // Fail closed: the default annotations declare nothing and count as the strongest effect.
        static ANYTHING: std::sync::OnceLock<Annotations> = std::sync::OnceLock::new();
        self.spec().map_or_else(
            || ANYTHING.get_or_init(Annotations::default),
            |spec| &spec.annotations,
        )
    }

    /// Returns the key by which an external system can recognise a repeated call.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        // By call and not by attempt: a retry has to look like a repeat to the external system.
        IdempotencyKey::for_call(self.id)
    }

    /// Returns the decisions and results received since the call was first made.
    pub fn resume_state(&self) -> &ResumeState {
        &self.fixed.resumed
    }

    /// Returns the services the runtime provides: clock, store, probe.
    pub fn env(&self) -> &CallEnv {
        &self.fixed.env
    }

    /// Waits until the request for the call is durable. A call enters the stack before that, so
    /// that its request, its start and what it waits for are one write. A layer that acts on
    /// something outside the call before it runs `next` waits for this first: after a crash, there
    /// is then a call to which the action belongs. The executor of a call that may write waits by
    /// itself.
    ///
    /// # Errors
    ///
    /// [`StopReason`] if the request cannot be recorded. Then the call does not run.
    pub async fn wait_until_recorded(&self) -> Result<(), StopReason> {
        match self.env().probe().when_recorded(self) {
            StartPermit::Now(recorded) => recorded,
            StartPermit::Later(recorded) => recorded.await,
        }
    }

    /// Performs `act` once for this call, however often the call enters the stack. The request for
    /// the call is durable before `act` runs.
    ///
    /// The answer is stored under the call's id and `key` and returned from there afterwards. If
    /// the process is lost between `act` and the write, `act` runs again: an effect that must not
    /// repeat has to be claimed first.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the record cannot be read or written; in the second case `act` has run. A
    /// record of another kind cannot be read, and `act` does not run.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropped after `act`, the future may leave no record, and `act` runs again.
    pub async fn perform_once<F, Fut>(&self, key: &str, act: F) -> Result<Json, StoreError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Json>,
    {
        let key = RecordKey::Layer(self.id, key.into());
        let store = self.env().store();
        if let Some(kept) = store.load_json(&key).await? {
            return Ok(kept);
        }
        self.wait_until_recorded()
            .await
            .map_err(|stop| StoreError::Backend(stop.to_string().into()))?;
        let done = act().await;
        // Another process may have been faster: the stored answer stands for both.
        Ok(store
            .put_json_once(key, done.clone())
            .await?
            .unwrap_or(done))
    }

    pub(crate) fn view_rejection(&self) -> Option<&Outcome> {
        self.fixed.refusal.as_ref()
    }

    /// Returns the identity that distinguishes this entry of the call from another one of the same
    /// id, such as a call that a layer stored from an earlier attempt.
    pub(crate) fn origin(&self) -> CallOrigin {
        CallOrigin(self.fixed.clone())
    }

    pub(crate) fn has_origin(&self, origin: &CallOrigin) -> bool {
        // By identity: an equal copy from an earlier entry may have other answers.
        Arc::ptr_eq(&self.fixed, &origin.0)
    }

    /// Returns the number of attempts before the call entered the stack this time.
    pub fn attempts_before(&self) -> u32 {
        self.fixed.attempts_before
    }
}

impl ResumeState {
    /// Returns the result of an attempt, if it is known.
    pub fn result_of_attempt(&self, attempt: u32) -> Option<&Arc<SettledOutcome>> {
        self.results
            .iter()
            .find(|(known, _)| *known == attempt)
            .map(|(_, settled)| settled)
    }

    /// Returns the arguments of the newest decision that edits them.
    pub fn edited_arguments(&self) -> Option<&Arguments> {
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
