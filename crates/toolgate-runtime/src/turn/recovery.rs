//! The state of a session's open turns when another process resumes it: settled, pending, unknown,
//! to be run again.

use std::fmt;

use toolgate_core::{CallId, Phase, Status, ToolName, TurnFilter, TurnId, View};

use crate::{
    DispatchError, Dispatcher, TurnRun,
    turn::open_turn::{OpenTurn, answers::is_newest_answered},
};

/// The open turns of a session, ready to be driven, each with what was found of it.
#[derive(Debug)]
pub struct Recovery {
    /// The turns, oldest first.
    pub runs: Vec<TurnRun>,
}

/// State of one turn as it was found in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredTurn {
    /// The turn's id.
    pub turn: TurnId,
    /// Its calls in the order the model asked; none for a new turn.
    pub calls: Vec<RecoveredCall>,
}

/// State of one call as it was found in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredCall {
    /// The call's id.
    pub id: CallId,
    /// The tool's name.
    pub tool: ToolName,
    /// The state that was found.
    pub found: RecoveredState,
}

/// State of a call after the loss of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveredState {
    /// It has an outcome and keeps it.
    Settled(Status),
    /// It waits for a decision.
    Pending,
    /// It was decided on and has not run since.
    Decided,
    /// It waits for an external result.
    External,
    /// It had not started.
    NotStarted,
    /// It had started, and its tool knows that it took effect and with what result.
    Reconciled,
    /// It had started and is run again, because repeating it is harmless or nothing had happened.
    RunAgain,
    /// It had started, and it is unknown whether it took effect. It settles as `outcome_unknown`.
    Unknown,
}

impl Dispatcher {
    /// Resumes every unsettled turn of the session, as [`Dispatcher::resume`] does with one.
    ///
    /// `view` is what the model saw; calls of tools that are gone since settle as such.
    ///
    /// # Errors
    ///
    /// Fails if the store or journal failed, or if the log of a turn is damaged.
    pub async fn recover_turns(&self, view: &View) -> Result<Recovery, DispatchError> {
        let mut runs = Vec::new();
        let mut filter = TurnFilter::open_in(self.session());
        loop {
            let rows = self.0.store.turns(filter.clone()).await?;
            for row in &rows {
                runs.push(self.resume(row.turn, view.clone()).await?);
            }
            match rows.last() {
                Some(last) if rows.len() == filter.limit => filter.after = Some(last.turn),
                _ => return Ok(Recovery { runs }),
            }
        }
    }
}

impl Recovery {
    /// Counts the calls whose state `wanted` accepts.
    pub fn count_calls(&self, wanted: impl Fn(RecoveredState) -> bool) -> usize {
        self.runs
            .iter()
            .flat_map(|run| &run.found().calls)
            .filter(|call| wanted(call.found))
            .count()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return f.write_str("nothing to recover");
        }
        for (at, run) in self.runs.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", run.found())?;
        }
        Ok(())
    }
}

impl RecoveredTurn {
    /// Returns the empty finding of a new turn.
    pub(crate) fn empty(turn: TurnId) -> Self {
        Self {
            turn,
            calls: Vec::new(),
        }
    }

    /// Returns the state of the calls of a turn that was just loaded.
    pub(crate) fn from_open_turn(active: &OpenTurn) -> Self {
        let state = active.lock_state();
        let call = |(slot, work): (
            &toolgate_core::InvocationSlot,
            &crate::turn::open_turn::InvocationState,
        )| {
            let answered = is_newest_answered(&work.resumed.answers, slot.generation());
            let found = match slot.phase() {
                Some(Phase::Settled(status)) => RecoveredState::Settled(status),
                Some(Phase::AwaitingApproval) if answered => RecoveredState::Decided,
                Some(Phase::AwaitingApproval) => RecoveredState::Pending,
                Some(Phase::Approved) => RecoveredState::Decided,
                Some(Phase::AwaitingResult) => RecoveredState::External,
                // A running call may still be run again; `recover_started` decides that next.
                Some(Phase::Running) => RecoveredState::Unknown,
                Some(Phase::Requested) | None => RecoveredState::NotStarted,
            };
            RecoveredCall {
                id: slot.invocation().id,
                tool: slot.invocation().tool.clone(),
                found,
            }
        };
        let calls = state
            .turn
            .slots()
            .iter()
            .zip(&state.work)
            .map(call)
            .collect();
        Self {
            turn: active.info.turn,
            calls,
        }
    }
}

impl fmt::Display for RecoveredTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn {}: {} calls", self.turn, self.calls.len())?;
        self.calls
            .iter()
            .try_for_each(|call| write!(f, "\n  {} {}: {}", call.id, call.tool, call.found))
    }
}

impl fmt::Display for RecoveredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled(status) => write!(f, "settled as {status}"),
            Self::Pending => f.write_str("pending approval"),
            Self::Decided => f.write_str("decided, not run since"),
            Self::External => f.write_str("waits for an external result"),
            Self::NotStarted => f.write_str("had not started"),
            Self::Reconciled => f.write_str("had taken effect, according to its tool"),
            Self::RunAgain => f.write_str("is run again"),
            Self::Unknown => f.write_str("had started; outcome unknown"),
        }
    }
}
