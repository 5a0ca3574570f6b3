//! `toolgate search reindex` and `status`: the index behind the logs.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use toolgate::search::SearchProgress;

use super::{SearchReindexArgs, open_search, with_hint};
use crate::{CliError, CommandContext, Exit, env::style};

pub(super) async fn rebuild(
    args: &SearchReindexArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let search = open_search(cx).await?;
    let failed = |error: toolgate::search::SearchError| with_hint(&error, error.hint());
    let bar = progress_bar(cx);
    bar.set_message(if args.continues {
        "indexing"
    } else {
        "clearing"
    });
    let report = |progress: SearchProgress| BarPlace::of(&progress).show_on(&bar);
    let done = if args.continues {
        search.continue_index(report).await
    } else {
        search.reindex(report).await
    };
    bar.finish_and_clear();
    let done = done.map_err(failed)?;
    let counts = search.status().await.map_err(failed)?.counts;
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "events": done.events, "embedded": done.embedded, "documents": counts.documents,
            "complete": done.is_complete,
        }))?;
    } else {
        cx.out.print_line(format_args!(
            "{} {} events, {} documents",
            style::good("indexed"),
            done.events,
            counts.documents
        ))?;
    }
    Ok(Exit::Done)
}

pub(super) async fn print_status(cx: &CommandContext) -> Result<Exit, CliError> {
    let status = open_search(cx).await?.status().await;
    let status = status.map_err(|error| with_hint(&error, error.hint()))?;
    let counts = status.counts;
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "documents": counts.documents, "embedded": counts.embedded,
            "embedder": status.embedder.as_ref().map(|id| id.as_str()),
            "replaced_embedder": status.replaced.as_ref().map(|id| id.as_str()),
            "stale_sessions": counts.stale_sessions, "stale_events": counts.stale_events,
        }))?;
        return Ok(Exit::Done);
    }
    cx.out
        .print_line(format_args!("documents      {}", counts.documents))?;
    let missing = format!(
        "{} events of {} sessions",
        counts.stale_events, counts.stale_sessions
    );
    cx.out
        .print_line(format_args!("not indexed    {missing}"))?;
    match &status.embedder {
        Some(embedder) => {
            let id = style::escape_controls(embedder.as_str());
            cx.out.print_line(format_args!("embedder       {id}"))?;
            cx.out.print_line(format_args!(
                "embedded       {} of {}",
                counts.embedded, counts.documents
            ))?;
        }
        None => cx
            .out
            .print_line("embedder       none: search by words only")?,
    }
    if let Some(hint) = status.hint() {
        let hint = style::escape_controls(&hint);
        cx.out
            .print_note(format_args!("{}: {hint}", style::note("hint")))?;
    }
    let is_embedded = status.embedder.is_none() || counts.embedded >= counts.documents;
    if counts.stale_events > 0 || !is_embedded {
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: searches index what is missing, a part each; `toolgate search reindex --continue` does it now"
        ))?;
    }
    Ok(Exit::Done)
}

/// A place on the bar. Each phase begins at 0 and has a length of its own.
#[derive(Debug, PartialEq, Eq)]
struct BarPlace {
    phase: &'static str,
    position: u64,
    length: u64,
}

impl BarPlace {
    fn of(progress: &SearchProgress) -> Self {
        let is_embedding = progress.pending_documents > 0;
        // Others may write meanwhile, and that is indexed as well.
        if is_embedding {
            Self {
                phase: "embedding",
                position: progress.embedded,
                length: progress.pending_documents.max(progress.embedded),
            }
        } else {
            Self {
                phase: "indexing",
                position: progress.events,
                length: progress.pending_events.max(progress.events),
            }
        }
    }

    fn show_on(&self, bar: &ProgressBar) {
        bar.set_message(self.phase);
        bar.set_length(self.length);
        bar.set_position(self.position);
    }
}

/// Returns a bar that is drawn on a terminal only. Its length is known when a phase begins.
fn progress_bar(cx: &CommandContext) -> ProgressBar {
    let target = if cx.out.can_redraw() && !cx.out.is_quiet() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let look = ProgressStyle::with_template("{msg:10} {bar:30} {pos}/{len} {elapsed}");
    match look {
        Ok(look) => bar.with_style(look),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_has_one_length_per_phase_and_never_runs_over_it() {
        let mut progress = SearchProgress::default();
        progress.pending_events = 10;
        progress.events = 4;
        let place = |phase, position, length| BarPlace {
            phase,
            position,
            length,
        };
        assert_eq!(BarPlace::of(&progress), place("indexing", 4, 10));
        progress.events = 12;
        assert_eq!(BarPlace::of(&progress), place("indexing", 12, 12));
        progress.pending_documents = 7;
        assert_eq!(BarPlace::of(&progress), place("embedding", 0, 7));
        progress.embedded = 9;
        assert_eq!(BarPlace::of(&progress), place("embedding", 9, 9));
    }
}
