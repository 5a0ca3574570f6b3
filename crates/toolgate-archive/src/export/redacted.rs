//! The redacted archive: events and messages for programs that read, not for importing.

use std::{io::Write, sync::Arc};

use serde_json::Value;
use toolgate_core::{
    EventBody, Json, MessageRecord, PartContent, RawArguments, SessionId, StoreRecord, ToolRequest,
};

use super::{
    ExportOptions, ExportRedaction, ExportSummary, Exporter,
    session_records::{LogScan, PAGE_EVENTS, RecordPages},
};
use crate::{
    ExportError,
    line::{ArchiveHeader, ArchiveLine, SessionLine},
    writer::ArchiveWriter,
};

impl Exporter {
    pub(super) async fn export_redacted(
        &self,
        sessions: &[SessionId],
        options: &ExportOptions,
        out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        let mut writer = ArchiveWriter::new(out);
        let header = ArchiveHeader::new(sessions, true, &["redacted_events", "redacted_messages"]);
        writer.put(&ArchiveLine::Archive(header))?;
        let mut written = Vec::new();
        let mut messages = 0;
        let mut waiting: Vec<_> = sessions.iter().rev().copied().collect();
        while let Some(session) = waiting.pop() {
            if written.contains(&session) {
                continue;
            }
            let agents = self.write_redacted(session, options, &mut writer).await?;
            messages += self.write_messages(session, options, &mut writer).await?;
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
                let is_call = matches!(event.body(), EventBody::Tool(..));
                if options.include_tool_calls || !is_call {
                    let value = serde_json::to_value(event).map_err(std::io::Error::from)?;
                    writer.put(&ArchiveLine::RedactedEvent(self.redact_value(value)?))?;
                }
            }
        }
    }

    async fn write_messages<W: Write + Send>(
        &self,
        session: SessionId,
        options: &ExportOptions,
        writer: &mut ArchiveWriter<W>,
    ) -> Result<u64, ExportError> {
        let mut pages = RecordPages::of_session(&self.store, session);
        let mut messages = 0;
        loop {
            let page = pages.next_page().await?;
            if page.is_empty() {
                return Ok(messages);
            }
            for (_, record) in page {
                let StoreRecord::Message(record) = record else {
                    continue;
                };
                messages += 1;
                let value = shown_message(&record, options);
                let value = serde_json::to_value(value).map_err(std::io::Error::from)?;
                writer.put(&ArchiveLine::RedactedMessage(self.redact_value(value)?))?;
            }
        }
    }

    fn redact_value(&self, value: Value) -> Result<Json, ExportError> {
        let json = Json::new(value).map_err(|_| toolgate_core::RedactionError)?;
        self.visible_json(&json, ExportRedaction::Redact)
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
