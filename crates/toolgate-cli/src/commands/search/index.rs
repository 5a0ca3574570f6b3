//! `toolgate search reindex` and `status`: the index behind the logs.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use toolgate::search::{SearchCounts, SearchProgress};

use super::{SearchReindexArgs, open_search, with_hint};
use crate::{CliError, CommandContext, Exit, env::style};

pub(super) async fn rebuild(
    args: &SearchReindexArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let search = open_search(cx).await?;
    let failed = |error: toolgate::search::SearchError| with_hint(&error, error.hint());
    let before = search.status().await.map_err(failed)?;
    let bar = progress_bar(cx, &before.counts, args.continues);
    let report = |progress: SearchProgress| {
        bar.set_position(progress.events + progress.embedded);
        bar.set_message(match progress.embedded {
            0 => "indexing",
            _ => "embedding",
        });
    };
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
    if counts.stale_events > 0 {
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: the next search indexes them; `toolgate search reindex --continue` does it now"
        ))?;
    }
    Ok(Exit::Done)
}

/// Returns a bar that is drawn on a terminal only.
fn progress_bar(cx: &CommandContext, counts: &SearchCounts, continues: bool) -> ProgressBar {
    let target = if cx.out.can_redraw() && !cx.out.is_quiet() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    // How many events a rebuild reads is not known; the documents are the lower bound.
    let all = if continues { 0 } else { counts.documents };
    let bar = ProgressBar::with_draw_target(Some(all + counts.stale_events), target);
    let look = ProgressStyle::with_template("{msg:10} {bar:30} {pos} {elapsed}");
    match look {
        Ok(look) => bar.with_style(look),
        Err(_) => bar,
    }
}
