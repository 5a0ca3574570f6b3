//! What the recursive strategy does in each round: tells the coordinator how to work, and sees when it is done.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolgate_core::{LoopEvent, StoreError};

use crate::{
    Onward, Recursive, Round, Strategy, StrategyError, TurnReport, Turned,
    recursive_state::{RunState, Used},
    recursive_tools::Note,
};

impl Strategy for Recursive {
    fn prepare<'a>(&'a self, round: &'a mut Round<'_>) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(async move {
            let state = self.begin(round).await.map_err(failed)?;
            let mut text = match &round.request.instructions {
                Some(before) => format!("{before}\n\n{}", self.instructions()),
                None => self.instructions(),
            };
            let notes = state.scratchpad();
            if !notes.is_empty() && !Note::all_in_sight(round.request) {
                text.push_str(&format!("\n\nYour notes so far:\n{notes}"));
            }
            round.request.instructions = Some(text.into());
            Ok(())
        })
    }

    fn settled<'a>(
        &'a self,
        turned: &'a mut Turned<'_>,
    ) -> BoxFuture<'a, Result<Onward, StrategyError>> {
        Box::pin(async move {
            // A turn that was given up before anybody prepared a round here says nothing new.
            let Some(state) = self.under_way(turned) else {
                return Ok(Onward::Continue);
            };
            state
                .step(turned.store, turned.iteration, turned.usage.total())
                .await
                .map_err(failed)?;
            let rounds = turned.iteration.saturating_add(1);
            let used = state.used(&self.0.limits, rounds, turned.now);
            turned
                .events
                .extend(state.take_alerts().into_iter().map(LoopEvent::from));
            self.alert(turned, &state, &used).await.map_err(failed)?;
            let answer = state.best_answer();
            let ready = answer.as_ref().is_some_and(|answer| answer.ready);
            turned
                .events
                .push(self.iteration(turned, &state, &used, ready));
            let onward = match answer {
                Some(answer) if answer.ready => Onward::Finish(answer.text),
                best if used.percent >= 100 => {
                    Onward::Finish(incomplete(&used, best.map(|answer| answer.text), &state))
                }
                _ => return Ok(Onward::Continue),
            };
            self.forget(turned.session);
            Ok(onward)
        })
    }
}

/// The thresholds that are told on the bus.
const ALERT_AT: [u8; 3] = [75, 90, 100];

impl Recursive {
    /// How many documents are named to the coordinator before it asks.
    const NAMED: usize = 20;
    /// The most bytes of the scratchpad that an event shows.
    const SHOWN: usize = 4096;

    /// The same text in every round, so that providers can keep it.
    fn instructions(&self) -> String {
        let (documents, limits) = (&self.0.documents, &self.0.limits);
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
             are at most {} rounds, {} tokens and {} seconds.",
            limits.iterations,
            limits.tokens,
            limits.time.as_secs()
        ));
        text
    }

    fn iteration(
        &self,
        turned: &Turned<'_>,
        state: &RunState,
        used: &Used,
        ready: bool,
    ) -> LoopEvent {
        let notes = state.scratchpad();
        let shown = notes.ceil_char_boundary(notes.len().saturating_sub(Self::SHOWN));
        LoopEvent::RecursiveIteration {
            iteration: turned.iteration.saturating_add(1),
            max: self.0.limits.iterations,
            ready,
            tokens: state.tokens(),
            summary: summary(turned.report),
            scratchpad: notes[shown..].to_owned(),
            budget: used.percent,
        }
    }

    /// Says each threshold once in a run; a jump says every one that was passed.
    async fn alert(
        &self,
        turned: &mut Turned<'_>,
        state: &RunState,
        used: &Used,
    ) -> Result<(), StoreError> {
        let turn = turned.report.turn.to_string();
        for percent in ALERT_AT
            .into_iter()
            .filter(|percent| used.percent >= *percent)
        {
            if state
                .first_to_say(turned.store, "alerted", percent, &turn)
                .await?
            {
                turned.events.push(LoopEvent::BudgetAlert {
                    budget: format!("recursive {}", used.of),
                    period: "run".to_owned(),
                    percent,
                    spent: used.spent.clone(),
                    limit: used.limit.clone(),
                });
            }
        }
        Ok(())
    }
}

/// What was done in a round, in a line: each tool and how often.
fn summary(report: &TurnReport) -> String {
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

/// The best that can be said when a limit is used up.
fn incomplete(used: &Used, answer: Option<String>, state: &Arc<RunState>) -> String {
    let mut text = format!(
        "This answer is incomplete: all {} of the run are used up.",
        used.of
    );
    match (answer, state.scratchpad()) {
        (Some(answer), _) => text.push_str(&format!("\n\n{answer}")),
        (None, notes) if notes.is_empty() => text.push_str(" Nothing was found out."),
        (None, notes) => text.push_str(&format!(" What was noted:\n\n{notes}")),
    }
    text
}

fn failed(error: StoreError) -> StrategyError {
    StrategyError(format!(
        "what the recursive run knows could not be read or written: {error}"
    ))
}
