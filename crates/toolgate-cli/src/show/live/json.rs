//! A run as JSON lines: every event as it is stored, and a report at the end.

use serde_json::{Value, json};
use toolgate::{Gate, RunReport, event::StreamPiece, model::Delta};

use super::FeedSink;
use crate::{CliError, CommandOutput, Exit, show::feed::FeedItem};

/// A sink that prints events as they are stored.
pub(crate) struct JsonSink {
    out: CommandOutput,
    pieces: bool,
}

impl JsonSink {
    /// Creates a sink, with or without the fragments of streaming replies.
    pub(crate) fn new(out: CommandOutput, pieces: bool) -> Self {
        Self { out, pieces }
    }
}

impl FeedSink for JsonSink {
    async fn receive(&mut self, fed: &FeedItem) -> Result<(), CliError> {
        match fed {
            FeedItem::Event(event) => self.out.print_json(&**event),
            FeedItem::Piece(piece) if self.pieces => {
                piece_json(piece).map_or(Ok(()), |piece| self.out.print_json(&piece))
            }
            FeedItem::Piece(_) => Ok(()),
        }
    }

    fn notify_stopping(&mut self) -> Result<(), CliError> {
        Ok(())
    }
}

fn piece_json(piece: &StreamPiece) -> Option<Value> {
    let (kind, text) = match &piece.delta {
        Delta::Text(text) => ("text", text),
        Delta::Reasoning(text) => ("reasoning", text),
        // Retries are events.
        Delta::Routed(_)
        | Delta::Retry(_)
        | Delta::Call { .. }
        | Delta::Arguments { .. }
        | Delta::Done(_) => return None,
    };
    Some(
        json!({ "type": "piece", "session_id": piece.turn.session, "turn_id": piece.turn.turn,
            "after": piece.after, kind: text }),
    )
}

/// Builds the last line: the report of the run, with its texts as events show them.
pub(crate) fn report_json(gate: &Gate, report: &RunReport, exit: Exit) -> Value {
    let error = { report.error.as_ref() }.map(|error| CliError::from_error(error).to_string());
    let pending: Vec<Value> = report
        .pending
        .iter()
        .map(|pending| {
            let approval = pending.question.as_ref().map(|question| question.approval_id);
            json!({ "session_id": pending.session, "invocation_id": pending.call, "tool_name": pending.tool,
                "approval_id": approval })
        })
        .collect();
    json!({
        "type": "report",
        "session_id": report.session,
        "end": report.end,
        "exit": exit.code(),
        "text": gate.redact_text(&report.text),
        "iterations": report.iterations,
        "usage": report.usage,
        "cost": report.cost,
        "pending": pending,
        "error": error.map(|error| gate.redact_text(&error)),
    })
}
