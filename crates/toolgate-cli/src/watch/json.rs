//! A run as JSON, one value per line: every event as it is stored, and the report at the end.

use serde_json::{Value, json};
use toolgate::{Delta, Piece, RunReport};

use super::Sink;
use crate::{CliError, Exit, Out, feed::Fed};

/// Prints events as they are stored.
pub(crate) struct JsonSink {
    out: Out,
    pieces: bool,
}

impl JsonSink {
    /// With pieces of replies that are still coming, or without.
    pub(crate) fn new(out: Out, pieces: bool) -> Self {
        Self { out, pieces }
    }
}

impl Sink for JsonSink {
    fn fed(&mut self, fed: &Fed) -> Result<(), CliError> {
        match fed {
            Fed::Event(event) => self.out.json(&**event),
            Fed::Piece(piece) if self.pieces => {
                piece_json(piece).map_or(Ok(()), |piece| self.out.json(&piece))
            }
            Fed::Piece(_) => Ok(()),
        }
    }

    fn stopping(&mut self) -> Result<(), CliError> {
        Ok(())
    }
}

fn piece_json(piece: &Piece) -> Option<Value> {
    let (kind, text) = match &piece.delta {
        Delta::Text(text) => ("text", text),
        Delta::Reasoning(text) => ("reasoning", text),
        Delta::Routed(_) | Delta::Call { .. } | Delta::Arguments { .. } | Delta::Done(_) => {
            return None;
        }
    };
    Some(
        json!({ "type": "piece", "session_id": piece.turn.session, "turn_id": piece.turn.turn, kind: text }),
    )
}

/// The last line: what came of the run.
pub(crate) fn report_json(report: &RunReport, exit: Exit) -> Value {
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
        "text": report.text,
        "iterations": report.iterations,
        "usage": report.usage,
        "cost": report.cost,
        "pending": pending,
        "error": report.error.as_ref().map(|error| CliError::of(error).to_string()),
    })
}
