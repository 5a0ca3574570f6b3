//! What is found of a session when another process takes it up: settled, pending, unknown, to be run again.

use std::fmt;

use toolgate_core::{CallId, Phase, Status, ToolName, TurnFilter, TurnId, View};

use crate::{DispatchError, Dispatcher, TurnRun, active::Active};

/// The open turns of a session, ready to be driven, each with what was found of it.
#[derive(Debug)]
pub struct Recovery {
    /// The turns, oldest first.
    pub runs: Vec<TurnRun>,
}

/// What was found of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnFound {
    /// Which turn.
    pub turn: TurnId,
    /// Its calls in the order the model asked; none for a turn that is new.
    pub calls: Vec<FoundCall>,
}

/// What was found of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCall {
    /// Which call.
    pub id: CallId,
    /// Which tool.
    pub tool: ToolName,
    /// What was found.
    pub found: CallFound,
}

/// How a call stands after the loss of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallFound {
    /// It has an outcome, which it keeps.
    Settled(Status),
    /// It waits for a decision.
    Pending,
    /// It was decided on and has not run since.
    Decided,
    /// It waits for a result from outside.
    Outside,
    /// It had not started.
    NotStarted,
    /// It had started, its tool knows that it took effect, and what came of it.
    Reconciled,
    /// It had started and is run again, because that does no harm or nothing had happened.
    RunAgain,
    /// It had started, and nobody knows whether it took effect. It is settled as `outcome_unknown`.
    Unknown,
}

impl Dispatcher {
    /// Takes up every turn of the session that is not settled, as [`Dispatcher::resume`] does with one.
    ///
    /// `view` is what the model was shown; tools that are gone since settle as such.
    pub async fn recover(&self, view: &View) -> Result<Recovery, DispatchError> {
        let mut runs = Vec::new();
        let mut filter = TurnFilter::open(self.session());
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
    /// How many calls were found to stand like this.
    pub fn count(&self, wanted: impl Fn(CallFound) -> bool) -> usize {
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

impl TurnFound {
    /// A turn that is new.
    pub(crate) fn nothing(turn: TurnId) -> Self {
        Self {
            turn,
            calls: Vec::new(),
        }
    }

    /// How the calls of a turn stand that was just read.
    pub(crate) fn of(active: &Active) -> Self {
        let state = active.state();
        let call = |(slot, work): (&toolgate_core::Slot, &crate::active::Work)| {
            let answered = work.resumed.answers.len() >= slot.generation() as usize;
            let found = match slot.phase() {
                Some(Phase::Settled(status)) => CallFound::Settled(status),
                Some(Phase::AwaitingApproval) if answered => CallFound::Decided,
                Some(Phase::AwaitingApproval) => CallFound::Pending,
                Some(Phase::Approved) => CallFound::Decided,
                Some(Phase::AwaitingResult) => CallFound::Outside,
                // Whether it is run again is decided next.
                Some(Phase::Running) => CallFound::Unknown,
                Some(Phase::Requested) | None => CallFound::NotStarted,
            };
            FoundCall {
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

impl fmt::Display for TurnFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn {}: {} calls", self.turn, self.calls.len())?;
        self.calls
            .iter()
            .try_for_each(|call| write!(f, "\n  {} {}: {}", call.id, call.tool, call.found))
    }
}

impl fmt::Display for CallFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled(status) => write!(f, "settled as {status}"),
            Self::Pending => f.write_str("waits for a decision"),
            Self::Decided => f.write_str("decided on, has not run since"),
            Self::Outside => f.write_str("waits for a result from outside"),
            Self::NotStarted => f.write_str("had not started"),
            Self::Reconciled => f.write_str("had taken effect, as its tool knows"),
            Self::RunAgain => f.write_str("is run again"),
            Self::Unknown => f.write_str("had started; nobody knows whether it took effect"),
        }
    }
}
