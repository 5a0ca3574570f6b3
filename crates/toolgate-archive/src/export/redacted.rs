//! The redacted archive: events and messages for programs that read, not for importing.

use std::{io::Write, sync::Arc};

use serde::Serialize;
use serde_json::Value;
use toolgate_core::{
    EventBody, Json, MessageRecord, PartContent, RawArguments, SessionEvent, SessionId,
    StoreRecord, ToolRequest,
};

use super::{
    ExportOptions, ExportRedaction, ExportSummary, Exporter,
    instructions::SessionInstructions,
    session_records::{LogScan, PAGE_EVENTS, RecordPages},
};
use crate::{
    ExportError,
    line::{ArchiveHeader, ArchiveLine, SessionLine},
    writer::ArchiveWriter,
};

/// The kinds of lines in a redacted archive.
const CONTAINS: [&str; 3] = [
    "redacted_events",
    "redacted_messages",
    "redacted_instructions",
];

/// Instructions in a redacted archive.
#[derive(Serialize)]
struct ShownInstructions<'a> {
    session: SessionId,
    /// The message that begins the run which they belong to; nothing for those of another program.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    text: &'a str,
}

impl Exporter {
    pub(super) async fn export_redacted(
        &self,
        sessions: &[SessionId],
        options: &ExportOptions,
        out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        let mut writer = ArchiveWriter::new(out);
        let header = ArchiveHeader::new(sessions, true, &CONTAINS);
        writer.put(&ArchiveLine::Archive(header))?;
        let mut written = Vec::new();
        let mut messages = 0;
        let mut waiting: Vec<_> = sessions.iter().rev().copied().collect();
        while let Some(session) = waiting.pop() {
            if written.contains(&session) {
                continue;
            }
            let agents = self.write_redacted(session, options, &mut writer).await?;
            messages += self.write_records(session, options, &mut writer).await?;
            waiting.extend(agents.into_iter().rev());
            written.push(session);
        }
        let (_, root) = writer.finish()?;
        Ok(ExportSummary {
            sessions: written,
            messages,
            redacted: true,
            root: Some(root),
        })
    }

    /// Writes the events of a session and returns the sessions of its agents.
    async fn write_redacted<W: Write + Send>(
        &self,
        session: SessionId,
        options: &ExportOptions,
        writer: &mut ArchiveWriter<W>,
    ) -> Result<Vec<SessionId>, ExportError> {
        let row = self.load_row(session).await?;
        let mut line = SessionLine::from_row(&row);
        for text in [&mut line.directory, &mut line.title].into_iter().flatten() {
            *text = self.visible_text(text, ExportRedaction::Redact)?;
        }
        writer.put(&ArchiveLine::Session(line))?;
        let mut scan = LogScan::default();
        let mut agents = Vec::new();
        let mut after = 0;
        loop {
            let page = self.store.events(session, after, PAGE_EVENTS).await?;
            let Some(last) = page.last() else {
                return Ok(agents);
            };
            after = last.sequence();
            for call in scan.add_events(&page).1 {
                let agent = call.agent_session();
                if self.store.revision(agent).await? > 0 {
                    agents.push(agent);
                }
            }
            for event in &page {
                if options.include_tool_calls || !is_of_call(event.body()) {
                    let value = serde_json::to_value(event).map_err(std::io::Error::from)?;
                    writer.put(&ArchiveLine::RedactedEvent(self.redact_value(value)?))?;
                }
            }
        }
    }

    /// Writes the messages and then the instructions of a session, and returns the number of messages.
    async fn write_records<W: Write + Send>(
        &self,
        session: SessionId,
        options: &ExportOptions,
        writer: &mut ArchiveWriter<W>,
    ) -> Result<u64, ExportError> {
        let mut pages = RecordPages::of_session(&self.store, session);
        let mut messages = 0;
        let mut instructions = SessionInstructions::default();
        loop {
            let page = pages.next_page().await?;
            if page.is_empty() {
                break;
            }
            for (name, record) in page {
                instructions.add_record(&name, &record);
                let StoreRecord::Message(record) = record else {
                    continue;
                };
                messages += 1;
                let value = shown_message(&record, options);
                let value = serde_json::to_value(value).map_err(std::io::Error::from)?;
                writer.put(&ArchiveLine::RedactedMessage(self.redact_value(value)?))?;
            }
        }
        if options.include_system {
            self.write_instructions(session, &instructions, writer)?;
        }
        Ok(messages)
    }

    fn write_instructions<W: Write + Send>(
        &self,
        session: SessionId,
        found: &SessionInstructions,
        writer: &mut ArchiveWriter<W>,
    ) -> Result<(), ExportError> {
        let imported = found.imported.iter().map(|text| (None, text.clone()));
        let changes = found.list_changes().into_iter();
        let of_runs = changes.map(|(run, text)| (Some(run), text));
        for (run, text) in imported.chain(of_runs) {
            let shown = ShownInstructions {
                session,
                run,
                text: &text,
            };
            let value = serde_json::to_value(shown).map_err(std::io::Error::from)?;
            writer.put(&ArchiveLine::RedactedInstructions(
                self.redact_value(value)?,
            ))?;
        }
        Ok(())
    }

    fn redact_value(&self, value: Value) -> Result<Json, ExportError> {
        let json = Json::new(value).map_err(|_| toolgate_core::RedactionError)?;
        self.visible_json(&json, ExportRedaction::Redact)
    }
}

/// Checks whether an event has the arguments or the result of a call, of ours or of another program.
fn is_of_call(body: &EventBody) -> bool {
    match body {
        EventBody::Tool(..) => true,
        EventBody::Loop(_, event) => matches!(
            event,
            SessionEvent::ImportedCall { .. } | SessionEvent::ImportedResult { .. }
        ),
        EventBody::Turn(..) => false,
    }
}

/// Returns what a redacted archive has of a message: no items of providers, which may hide anything,
/// no media, which cannot be searched for secrets, and no calls if they are left out.
fn shown_message(record: &MessageRecord, options: &ExportOptions) -> MessageRecord {
    let mut record = record.clone();
    let mut message = (*record.message).clone();
    message.parts.retain(|part| match &part.content {
        PartContent::Text(_) | PartContent::Reasoning(_) => true,
        PartContent::Call(_) | PartContent::Result(_) | PartContent::Ran(_) => {
            options.include_tool_calls
        }
        PartContent::Media(_) | PartContent::Opaque => false,
    });
    for part in &mut message.parts {
        part.native = None;
        match &mut part.content {
            PartContent::Result(answer) => answer.media.clear(),
            // As JSON, so that the redactor sees the names of the arguments.
            PartContent::Call(request) => parse_arguments(request),
            PartContent::Text(_)
            | PartContent::Reasoning(_)
            | PartContent::Ran(_)
            | PartContent::Media(_)
            | PartContent::Opaque => {}
        }
    }
    record.message = Arc::new(message);
    record
}

fn parse_arguments(request: &mut ToolRequest) {
    if let RawArguments::Text(text) = &request.arguments
        && let Some(json) = serde_json::from_str(text)
            .ok()
            .and_then(|value| Json::new(value).ok())
    {
        request.arguments = RawArguments::Json(json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_a_provider_sent_as_text_have_names_for_the_redactor() {
        let mut request = ToolRequest::from_text("c1", "pay", r#"{"ssn":"078-05-1120"}"#);
        parse_arguments(&mut request);
        let RawArguments::Json(json) = &request.arguments else {
            panic!("{request:?}");
        };
        assert!(json.as_value().get("ssn").is_some());
        let mut broken = ToolRequest::from_text("c1", "pay", "{");
        parse_arguments(&mut broken);
        assert_eq!(broken.arguments, RawArguments::Text("{".to_owned()));
    }
}
