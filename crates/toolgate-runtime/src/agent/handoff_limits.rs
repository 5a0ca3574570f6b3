//! Limits that a handoff sets for the agent it names. They can only tighten.

use std::{collections::HashSet, sync::Mutex};

use toolgate_core::{
    Band, Call, CallId, Json, Layer, LayerCapabilities, Next, NoteFields, Outcome, PolicyOverride,
    RecordKey, Refusal, SessionId, StoreError, StoreHandle, ToolName, note_keys,
};

use crate::{TurnReport, agent::DelegatingRun, session::SessionShared};

/// Stores the limits of the handoffs in a turn whose targets are agents of the session, so that they
/// hold for the rest of the run, also in another process.
pub(crate) async fn store_handoffs(
    session: &SessionShared,
    run: u64,
    report: &TurnReport,
) -> Result<(), StoreError> {
    for result in &report.results {
        let notes = result.outcome.as_ref();
        let notes = notes.and_then(|settled| settled.notes.fields());
        let Some((target, limits)) = notes.and_then(find_limits) else {
            continue;
        };
        if session.find_agent(&target).is_none() {
            continue;
        }
        let prefix = limits_prefix(session.dispatcher.session(), run, &target);
        let key = RecordKey::Other(format!("{prefix}{}", result.id).into());
        session
            .dispatcher
            .store()
            .put_json_once(key, limits)
            .await?;
    }
    Ok(())
}

/// Returns the target of the handoff in the notes of a call, and the limits for it.
fn find_limits(notes: &NoteFields) -> Option<(ToolName, Json)> {
    let handoff = notes.get(note_keys::HANDOFF).ok().flatten()?;
    let target = handoff.get("target")?.as_str()?;
    let limits = handoff.get("policy_override")?.clone();
    Some((ToolName::from(target), Json::new(limits).ok()?))
}

fn limits_prefix(session: SessionId, run: u64, target: &ToolName) -> String {
    format!("handoff/{session}/{run}/{target}/")
}

/// A layer that blocks what the handoffs to an agent do not allow.
pub(crate) struct HandoffLimits {
    limits: PolicyOverride,
    /// The session of the agent. Agents that it delegates to share its number of calls.
    work: SessionId,
    admitted: Mutex<HashSet<CallId>>,
}

impl HandoffLimits {
    /// The most handoffs to one agent that are read in a run.
    const MAX_HANDOFFS: usize = 1_000;

    /// Loads the limits that hold for the work of `agent` in session `work`, if there are any.
    pub(crate) async fn load(
        by: DelegatingRun<'_>,
        agent: &ToolName,
        work: SessionId,
    ) -> Result<Option<Self>, StoreError> {
        let dispatcher = &by.session.dispatcher;
        let prefix = limits_prefix(dispatcher.session(), by.run, agent);
        let found = dispatcher
            .store()
            .list_json(&prefix, None, Self::MAX_HANDOFFS);
        let tighter = |limits: Option<PolicyOverride>, (_, stored): (_, Json)| {
            let asked = parse_limits(&stored);
            Some(limits.map_or(asked.clone(), |limits| limits.tighten(&asked)))
        };
        let limits = found.await?.into_iter().fold(None, tighter);
        Ok(limits.map(|limits| Self {
            limits,
            work,
            admitted: Mutex::default(),
        }))
    }

    /// Checks whether the call is among the first `most` of the work, and remembers it.
    async fn admit(&self, call: &Call, most: u64) -> Result<bool, StoreError> {
        let lock = || {
            self.admitted
                .lock()
                .unwrap_or_else(|error| error.into_inner())
        };
        if lock().contains(&call.id) {
            return Ok(true);
        }
        let store: &StoreHandle = call.env().store();
        let id = Json::from(call.id.to_string());
        for place in 0..most {
            let key = format!("handoff-calls/{}/{place:012}", self.work);
            let taken = store.put_json_once(RecordKey::Other(key.into()), id.clone());
            match taken.await? {
                Some(other) if other != id => {}
                Some(_) | None => {
                    lock().insert(call.id);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Parses stored limits. Limits that cannot be read allow nothing.
fn parse_limits(stored: &Json) -> PolicyOverride {
    serde_json::from_value(stored.as_value().clone()).unwrap_or_else(|_| PolicyOverride {
        allowed_tools: Some([].into()),
        ..PolicyOverride::default()
    })
}

impl Layer for HandoffLimits {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let effect = call.annotations().strongest_effect();
        // Without the number of calls, which is checked below.
        let scope = PolicyOverride {
            max_calls: None,
            ..self.limits.clone()
        };
        if !scope.allows(&call.tool, effect, 0) {
            let text = "the handoff of this work does not allow this tool";
            return Outcome::refused(Refusal::OutOfScope, text);
        }
        let Some(most) = self.limits.max_calls.filter(|_| !call.is_rehearsal()) else {
            return next.run(call).await;
        };
        match self.admit(&call, most).await {
            Ok(true) => next.run(call).await,
            Ok(false) => Outcome::refused(
                Refusal::RateLimited,
                format!("the handoff of this work allows {most} calls, and they are made"),
            ),
            // Fail closed: the number of calls is unknown.
            Err(_) => Outcome::refused(
                Refusal::Blocked,
                "the number of calls that the handoff allows could not be checked",
            ),
        }
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind("handoff_limits")
    }
}
