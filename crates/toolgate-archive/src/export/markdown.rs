//! A session as Markdown: for people, and for importing it again as history.

use std::{fmt::Write as _, io::Write};

use toolgate_core::{Cost, SessionId, Usage};

use super::{
    ExportOptions, ExportRedaction, ExportSummary, Exporter,
    transcript::{Transcript, TranscriptCall, TranscriptItem, TranscriptText},
};
use crate::{
    ExportError,
    markdown_marks::{MARKDOWN_VERSION, MarkdownKey, MarkdownMark, fence_for},
};

impl Exporter {
    pub(super) async fn export_markdown(
        &self,
        sessions: &[SessionId],
        options: &ExportOptions,
        mut out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        let redacted = options.redaction == ExportRedaction::Redact;
        let mut summary = ExportSummary {
            sessions: Vec::new(),
            messages: 0,
            redacted,
            root: None,
        };
        for session in sessions {
            for transcript in self.load_transcripts(*session, options).await? {
                out.write_all(render_page(&transcript, options).as_bytes())?;
                summary.sessions.push(transcript.row.session);
                summary.messages += transcript.messages;
            }
        }
        out.flush()?;
        Ok(summary)
    }
}

struct MarkdownPage {
    key: MarkdownKey,
    text: String,
    /// The number of marks in the text.
    marks: usize,
}

impl MarkdownPage {
    /// Adds a part: its mark, a heading for people, and the text exactly as it is.
    fn add(&mut self, mark: &MarkdownMark, heading: &str, text: &str) {
        self.add_mark(mark);
        // One line: a name in it may have line breaks, and an empty line ends the heading.
        let heading = heading.replace(['\n', '\r'], " ");
        let _ = write!(self.text, "{heading}\n\n{text}\n\n");
    }

    fn add_mark(&mut self, mark: &MarkdownMark) {
        let _ = writeln!(self.text, "{}", self.key.write(mark));
        self.marks += 1;
    }

    /// Checks that no text of the session has the key, so that none of them can begin a part.
    fn has_own_key(&self) -> bool {
        self.key.count_in(&self.text) == self.marks
    }

    fn add_code(&mut self, mark: &MarkdownMark, heading: &str, language: &str, text: &str) {
        let fence = fence_for(text);
        let block = format!("{fence}{language}\n{text}\n{fence}");
        self.add(mark, heading, &block);
    }
}

fn render_page(transcript: &Transcript, options: &ExportOptions) -> String {
    let mut keys = MarkdownKey::candidates(transcript.row.session);
    let mut rendered = keys.next().map(|key| render_with(key, transcript, options));
    while let Some(page) = rendered.take_if(|page| !page.has_own_key()) {
        // Found before the page is rendered again: a text may contain the first thousand keys.
        let unused = keys.find(|key| key.count_in(&page.text) == 0);
        rendered = unused.map(|key| render_with(key, transcript, options));
    }
    rendered.map(|page| page.text).unwrap_or_default()
}

fn render_with(key: MarkdownKey, transcript: &Transcript, options: &ExportOptions) -> MarkdownPage {
    let mut page = MarkdownPage {
        key,
        text: String::new(),
        marks: 0,
    };
    let mark = MarkdownMark::Session {
        version: MARKDOWN_VERSION,
        session: transcript.row.session,
        redacted: options.redaction == ExportRedaction::Redact,
        created_at: Some(transcript.row.created_at),
    };
    let heading = format!("# {}", transcript.title);
    page.add(&mark, &heading, &describe_session(transcript, options));
    for item in &transcript.items {
        add_item(&mut page, item, options);
    }
    page.add_mark(&MarkdownMark::End);
    page
}

/// Returns the lines about the session below its title.
fn describe_session(transcript: &Transcript, options: &ExportOptions) -> String {
    let row = &transcript.row;
    let mut text = match options.redaction {
        ExportRedaction::Redact => "Secrets in this file are redacted.".to_owned(),
        ExportRedaction::Raw => "This file is not redacted.".to_owned(),
    };
    if let Some(origin) = &transcript.origin {
        let _ = write!(text, " The session was imported ({}).", origin.format);
    }
    if !options.include_metadata {
        return text;
    }
    let _ = write!(
        text,
        "\n\n- Session: `{}`\n- Began: {}\n- Last event: {}",
        row.session, row.created_at, row.updated_at
    );
    if let Some(parent) = row.parent {
        let _ = write!(text, "\n- Works for session: `{parent}`");
    }
    if let Some(directory) = &transcript.directory {
        let _ = write!(text, "\n- Directory: `{}`", directory.replace('`', "'"));
    }
    let _ = write!(text, "\n- Tokens: {}", tokens_text(transcript.usage));
    if let Some(cost) = transcript.cost {
        let _ = write!(text, "\n- Cost: {cost}");
    }
    text
}

pub(super) fn tokens_text(usage: Usage) -> String {
    let cached = usage.cache_read.saturating_add(usage.cache_write);
    let input = usage.input.saturating_add(cached);
    format!("{input} in, {} out", usage.output)
}

fn add_item(page: &mut MarkdownPage, item: &TranscriptItem, options: &ExportOptions) {
    match item {
        TranscriptItem::System(text) => page.add(&MarkdownMark::System, "## Instructions", text),
        TranscriptItem::User(item) => {
            let mark = MarkdownMark::User { at: item.at };
            page.add(&mark, &text_heading("User", item, options), &item.text);
        }
        TranscriptItem::Assistant(item) => {
            let mark = MarkdownMark::Assistant {
                at: item.at,
                model: item.model.as_deref().map(str::to_owned),
            };
            page.add(&mark, &text_heading("Assistant", item, options), &item.text);
        }
        TranscriptItem::Call(call) => add_call(page, call, options),
        TranscriptItem::Note(text, _) => page.add(&MarkdownMark::Note, "### Note", text),
        TranscriptItem::End(end, error, _) => {
            let text = match error {
                Some(error) => format!("The run ended: {}. {error}", end.text()),
                None => format!("The run ended: {}.", end.text()),
            };
            page.add(&MarkdownMark::Note, "---", &text);
        }
    }
}

fn text_heading(who: &str, item: &TranscriptText, options: &ExportOptions) -> String {
    if !options.include_metadata {
        return format!("## {who}");
    }
    let mut heading = format!("## {who} · {}", item.at);
    if let Some(model) = &item.model {
        let _ = write!(heading, " · {model}");
    }
    if let Some(usage) = item.usage {
        let _ = write!(heading, " · {}", tokens_text(usage));
    }
    if item.cost != Cost::Unknown {
        let _ = write!(heading, " · {}", item.cost);
    }
    heading
}

fn add_call(page: &mut MarkdownPage, call: &TranscriptCall, options: &ExportOptions) {
    let tool = call.tool.replace(['`', '\n', '\r'], "'");
    let mut heading = format!("### Call `{tool}`: {}", call.state_text());
    if let Some(duration) = call.facts.duration_ms {
        let _ = write!(heading, ", {duration} ms");
    }
    if let Some(approver) = call
        .facts
        .approver
        .as_ref()
        .filter(|_| options.include_metadata)
    {
        let _ = write!(heading, ", decided by {approver}");
    }
    let label = call.label.clone();
    let mark = MarkdownMark::Call {
        label: label.clone(),
        tool: call.tool.clone(),
    };
    page.add_code(&mark, &heading, "json", &call.arguments);
    if let Some(result) = &call.result {
        let mark = MarkdownMark::Result {
            label,
            tool: call.tool.clone(),
            is_error: call.facts.is_error,
        };
        page.add_code(&mark, "#### Result", "text", result);
    }
}
