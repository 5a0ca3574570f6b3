//! The recursive strategy in each iteration: instructs the coordinator, and ends the run when it is
//! done.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolgate_core::{BudgetAlert, BudgetAlertLevel, SessionEvent, StoreError};

use crate::{
    RecursiveStrategy, RequestContext, Strategy, StrategyAction, StrategyError, TurnContext,
    TurnReport,
    agent::recursive::{
        state::{LimitUsage, RecursiveRun},
        tools::NoteTool,
    },
};

impl Strategy for RecursiveStrategy {
    fn prepare_request<'a>(
        &'a self,
        request_context: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(async move {
            let state = self
                .load_run(request_context)
                .await
                .map_err(store_failure)?;
            let mut text = match &request_context.request.instructions {
                Some(before) => format!("{before}\n\n{}", self.build_instructions()),
                None => self.build_instructions(),
            };
            let notes = state.scratchpad();
            if !notes.is_empty() && !NoteTool::are_notes_visible(request_context.request) {
                text.push_str(&format!("\n\nYour notes so far:\n{notes}"));
            }
            request_context.request.instructions = Some(text.into());
            Ok(())
        })
    }

    fn turn_settled<'a>(
        &'a self,
        turned: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        Box::pin(async move {
            // A turn that was cancelled before an iteration was prepared here has nothing new.
            let Some(state) = self.current_run(turned) else {
                return Ok(StrategyAction::Continue);
            };
            state
                .record_usage(turned.store, turned.iteration, turned.usage.total_tokens())
                .await
                .map_err(store_failure)?;
            let iterations = turned.iteration.saturating_add(1);
            let used = state.limit_usage(&self.0.limits, iterations, turned.now);
            turned
                .events
                .extend(state.take_alerts().into_iter().map(SessionEvent::from));
            self.report_thresholds(turned, &state, &used)
                .await
                .map_err(store_failure)?;
            let answer = state.best_answer();
            let ready = answer.as_ref().is_some_and(|answer| answer.ready);
            turned
                .events
                .push(self.iteration_event(turned, &state, &used, ready));
            let onward = match answer {
                Some(answer) if answer.ready => StrategyAction::Finish(answer.text),
                best if used.percent >= 100 => StrategyAction::Finish(incomplete_answer(
                    &used,
                    best.map(|answer| answer.text),
                    &state,
                )),
                _ => return Ok(StrategyAction::Continue),
            };
            self.forget_run(turned.session);
            Ok(onward)
        })
    }
}

/// The thresholds that are reported on the bus.
const ALERT_AT: [u8; 3] = [75, 90, 100];

impl RecursiveStrategy {
    /// Number of documents that the instructions name.
    const NAMED: usize = 20;
    /// The maximum size of the scratchpad in an event.
    const SHOWN: usize = 4096;

    /// Builds the instructions: the same text in every iteration, so that providers can cache it.
    fn build_instructions(&self) -> String {
        let documents = &self.0.documents;
        let limits = &self.0.limits;
        let count = documents.iter().count();
        let mut text = format!(
            "# Working over a large context\n\nThe context is not part of this conversation: {count} documents with {} \
             bytes are held outside it.",
            documents.bytes()
        );
        for document in documents.iter().take(Self::NAMED) {
            text.push_str(&format!(
                "\n- {}: {} bytes",
                document.name(),
                document.bytes()
            ));
        }
        if count > Self::NAMED {
            text.push_str(&format!("\n- and {} more, see `peek`", count - Self::NAMED));
        }
        text.push_str(&format!(
            "\n\nFind out what you need with `peek`, `search` and `slice`. Let other models read what is long with \
             `delegate` and `delegate_batch`; they see nothing but the piece and the question. Keep findings with \
             `note`. When you know the answer, call `set_answer`; with `ready` false it keeps the best one so far. There \
             are at most {} iterations, {} tokens and {} seconds.",
            limits.iterations,
            limits.tokens,
            limits.time.as_secs()
        ));
        text
    }

    fn iteration_event(
        &self,
        turned: &TurnContext<'_>,
        state: &RecursiveRun,
        used: &LimitUsage,
        ready: bool,
    ) -> SessionEvent {
        let notes = state.scratchpad();
        let shown = notes.ceil_char_boundary(notes.len().saturating_sub(Self::SHOWN));
        SessionEvent::RecursiveIteration {
            iteration: turned.iteration.saturating_add(1),
            max: self.0.limits.iterations,
            ready,
            tokens: state.used_tokens(),
            summary: summarize_turn(turned.report),
            scratchpad: notes[shown..].to_owned(),
            budget: used.percent,
        }
    }

    /// Reports each threshold once in a run; a jump reports every one that was passed.
    async fn report_thresholds(
        &self,
        turned: &mut TurnContext<'_>,
        state: &RecursiveRun,
        used: &LimitUsage,
    ) -> Result<(), StoreError> {
        let turn = turned.report.turn.to_string();
        for percent in ALERT_AT
            .into_iter()
            .filter(|percent| used.percent >= *percent)
        {
            if state
                .claim_threshold(turned.store, "alerted", percent, &turn)
                .await?
            {
                let alert = BudgetAlert {
                    budget: format!("recursive {}", used.of),
                    period: "run".to_owned(),
                    percent,
                    level: BudgetAlertLevel::for_percent(percent),
                    spent: used.spent.clone(),
                    limit: used.limit.clone(),
                    amounts: Some(used.amounts),
                };
                turned.events.push(alert.into());
            }
        }
        Ok(())
    }
}

/// Summarizes an iteration in a line: each tool and how often it was called.
fn summarize_turn(report: &TurnReport) -> String {
    let mut done: Vec<(&str, u32)> = Vec::new();
    for result in &report.results {
        match done
            .iter_mut()
            .find(|(tool, _)| *tool == result.tool.as_str())
        {
            Some((_, times)) => *times += 1,
            None => done.push((result.tool.as_str(), 1)),
        }
    }
    let said = done.iter().map(|(tool, times)| match times {
        1 => (*tool).to_owned(),
        _ => format!("{tool} ×{times}"),
    });
    said.collect::<Vec<_>>().join(", ")
}

/// Builds the final answer of a run that has reached a limit.
fn incomplete_answer(
    used: &LimitUsage,
    answer: Option<String>,
    state: &Arc<RecursiveRun>,
) -> String {
    let mut text = format!(
        "This answer is incomplete: the limit of {} of this run is reached.",
        used.of
    );
    match (answer, state.scratchpad()) {
        (Some(answer), _) => text.push_str(&format!("\n\n{answer}")),
        (None, notes) if notes.is_empty() => text.push_str(" There are no findings."),
        (None, notes) => text.push_str(&format!(" Notes so far:\n\n{notes}")),
    }
    text
}

fn store_failure(error: StoreError) -> StrategyError {
    StrategyError(format!(
        "the state of the recursive run could not be read or written: {error}"
    ))
}
