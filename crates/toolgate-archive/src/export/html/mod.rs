//! A session as one HTML page: no script, no request, everything of the session escaped.

mod diff;
mod message;
mod style;

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use toolgate_core::{Digest, SessionId, Timestamp, escape_invisible};

use self::{diff::render_changes, message::render_markdown, style::STYLE};
use super::{
    ExportOptions, ExportRedaction, ExportSummary, Exporter,
    markdown::tokens_text,
    transcript::{Transcript, TranscriptCall, TranscriptItem, TranscriptText},
};
use crate::ExportError;

/// The longest text of a call that the page shows. The rest is counted.
const SHOWN_BYTES: usize = 200 * 1024;

impl Exporter {
    pub(super) async fn export_html(
        &self,
        sessions: &[SessionId],
        options: &ExportOptions,
        mut out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        let mut transcripts = Vec::new();
        for session in sessions {
            transcripts.extend(self.load_transcripts(*session, options).await?);
        }
        let page = render_page(&transcripts, options);
        out.write_all(page.into_string().as_bytes())?;
        out.flush()?;
        Ok(ExportSummary {
            sessions: transcripts.iter().map(|one| one.row.session).collect(),
            messages: transcripts.iter().map(|one| one.messages).sum(),
            redacted: options.redaction == ExportRedaction::Redact,
            root: None,
        })
    }
}

/// Returns the policy of the page: nothing is loaded, nothing runs, and only our own style counts.
fn content_policy() -> String {
    let digest = STANDARD.encode(Digest::of_bytes(STYLE.as_bytes()).as_bytes());
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
}

fn render_page(transcripts: &[Transcript], options: &ExportOptions) -> Markup {
    let title = transcripts
        .first()
        .map_or("Session", |first| first.title.as_str());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(content_policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                title { (visible(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @for (number, transcript) in transcripts.iter().enumerate() {
                    (render_session(number, transcript, options))
                }
                footer { "Exported by Toolgate " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

fn render_session(number: usize, transcript: &Transcript, options: &ExportOptions) -> Markup {
    let is_redacted = options.redaction == ExportRedaction::Redact;
    let row = &transcript.row;
    html! {
        section.session id=(format!("s{number}")) {
            header {
                h1 { (visible(&transcript.title)) }
                p.badges {
                    @if is_redacted { span.badge.good { "redacted" } } @else { span.badge.bad { "not redacted" } }
                    @if let Some(origin) = &transcript.origin {
                        span.badge.far { "imported: " (visible(&origin.format)) }
                    }
                    @if row.parent.is_some() { span.badge.far { "agent" } }
                    span.badge { (time_text(row.created_at)) }
                    span.badge { (transcript.messages) " messages" }
                }
                @if options.include_metadata { (render_facts(transcript)) }
            }
            (render_timeline(number, transcript))
            main {
                @for (place, item) in transcript.items.iter().enumerate() {
                    (render_item(&item_id(number, place), item, options))
                }
            }
        }
    }
}

fn item_id(session: usize, place: usize) -> String {
    format!("s{session}i{place}")
}

fn render_facts(transcript: &Transcript) -> Markup {
    let row = &transcript.row;
    html! {
        dl {
            dt { "Session" } dd { code { (row.session) } }
            @if let Some(parent) = row.parent { dt { "Works for" } dd { code { (parent) } } }
            @if let Some(directory) = &transcript.directory { dt { "Directory" } dd { code { (visible(directory)) } } }
            dt { "Began" } dd { (row.created_at) }
            dt { "Last event" } dd { (row.updated_at) }
            dt { "Tokens" } dd { (tokens_text(transcript.usage)) }
            @if let Some(cost) = transcript.cost { dt { "Cost" } dd { (cost) } }
        }
    }
}

/// Renders the timeline: one line per message of the user and per call.
fn render_timeline(number: usize, transcript: &Transcript) -> Markup {
    let began = transcript.row.created_at;
    html! {
        details.timeline {
            summary { "Timeline" }
            ol {
                @for (place, item) in transcript.items.iter().enumerate() {
                    @match item {
                        TranscriptItem::User(text) => li.user {
                            a href=(format!("#{}", item_id(number, place))) { (first_line(&text.text)) }
                            time { (offset_text(began, text.at)) }
                        },
                        TranscriptItem::Call(call) => li class=(state_class(call)) {
                            a href=(format!("#{}", item_id(number, place))) { (visible(&call.tool)) }
                            " " span.state { (call.state_text()) }
                            time {
                                @if let Some(at) = call.facts.requested_at { (offset_text(began, at)) }
                                @if let Some(duration) = call.facts.duration_ms { ", " (duration_text(duration)) }
                            }
                        },
                        TranscriptItem::End(end, _, at) => li.end {
                            span { "Run ended: " (end.text()) }
                            time { (offset_text(began, *at)) }
                        },
                        TranscriptItem::System(_) | TranscriptItem::Assistant(_) | TranscriptItem::Note(..) => {},
                    }
                }
            }
        }
    }
}

fn render_item(id: &str, item: &TranscriptItem, options: &ExportOptions) -> Markup {
    match item {
        TranscriptItem::System(text) => html! {
            details.system id=(id) { summary { "Instructions" } (render_markdown(text)) }
        },
        TranscriptItem::User(text) => render_text(id, "user", "User", text, options),
        TranscriptItem::Assistant(text) => render_text(id, "assistant", "Assistant", text, options),
        TranscriptItem::Call(call) => render_call(id, call, options),
        TranscriptItem::Note(text, at) => html! {
            p.note id=(id) title=(at) { (visible(text)) }
        },
        TranscriptItem::End(end, error, at) => html! {
            p.end id=(id) title=(at) {
                "Run ended: " (end.text())
                @if let Some(error) = error { ": " (visible(error)) }
            }
        },
    }
}

fn render_text(
    id: &str,
    class: &str,
    who: &str,
    item: &TranscriptText,
    options: &ExportOptions,
) -> Markup {
    html! {
        article class=(class) id=(id) {
            p.who {
                b { (who) }
                @if let Some(model) = &item.model { " " span.model { (visible(model)) } }
                " " time datetime=(item.at) { (time_text(item.at)) }
                @if options.include_metadata {
                    @if let Some(usage) = item.usage { " " span.model { (tokens_text(usage)) } }
                }
            }
            (render_markdown(&item.text))
            @for media in &item.media { (message::render_media(media)) }
        }
    }
}

fn render_call(id: &str, call: &TranscriptCall, options: &ExportOptions) -> Markup {
    let facts = &call.facts;
    html! {
        details class=(format!("call {}", state_class(call))) id=(id) {
            summary {
                span.dot {} code.tool { (visible(&call.tool)) }
                " " span.hint { (first_line(&short_arguments(call))) }
                span.state {
                    (call.state_text())
                    @if let Some(duration) = facts.duration_ms { " · " (duration_text(duration)) }
                }
            }
            @if options.include_metadata { (render_call_facts(call)) }
            @match render_changes(call) {
                Some(changes) => (changes),
                None => { h4 { "Arguments" } pre { (bounded(&call.arguments)) } }
            }
            @if !facts.files.is_empty() {
                h4 { "Changed files" }
                ul { @for change in &facts.files { li { code { (visible(&change.path)) } } } }
            }
            @if let Some(result) = &call.result { h4 { "Result" } pre { (bounded(result)) } }
        }
    }
}

fn render_call_facts(call: &TranscriptCall) -> Markup {
    let facts = &call.facts;
    html! {
        dl {
            @if let Some(at) = facts.requested_at { dt { "Requested" } dd { (at) } }
            @if let Some(at) = facts.settled_at { dt { "Settled" } dd { (at) } }
            @if facts.attempts > 1 { dt { "Attempts" } dd { (facts.attempts) } }
            @if let Some(approver) = &facts.approver { dt { "Decided by" } dd { (visible(approver)) } }
            @if let Some(status) = facts.status { dt { "Status" } dd { code { (status.as_str()) } } }
        }
    }
}

/// Returns the class for the colour of a call.
fn state_class(call: &TranscriptCall) -> &'static str {
    match call.facts.status {
        Some(toolgate_core::Status::Ok) => "ok",
        Some(_) => "failed",
        None if call.facts.is_error => "failed",
        None if call.is_imported => "foreign",
        None => "pending",
    }
}

/// Returns the argument that says most about a call.
fn short_arguments(call: &TranscriptCall) -> String {
    let value = call.value.as_ref().map(|json| json.as_value());
    let names = ["path", "command", "pattern", "query", "url", "file_path"];
    let found = names.iter().find_map(|name| value?.get(name)?.as_str());
    found.unwrap_or_default().to_owned()
}

/// Returns a text in which nothing is invisible: no control characters, nothing that turns or hides
/// other text.
pub(super) fn visible(text: &str) -> String {
    escape_invisible(text).into_owned()
}

fn bounded(text: &str) -> String {
    if text.len() <= SHOWN_BYTES {
        return visible(text);
    }
    let end = text.floor_char_boundary(SHOWN_BYTES);
    let left = text.len() - end;
    format!("{}\n… {left} more bytes", visible(&text[..end]))
}

fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let short: String = line.chars().take(100).collect();
    visible(&short)
}

/// Returns a time without fractions of a second.
fn time_text(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('T') {
        Some((day, time)) => format!("{day} {} UTC", time.get(..5).unwrap_or(time)),
        None => text,
    }
}

fn offset_text(began: Timestamp, at: Timestamp) -> String {
    let seconds = at.since(began).as_secs();
    match seconds {
        0..60 => format!("+{seconds} s"),
        60..3_600 => format!("+{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("+{}:{:02} h", seconds / 3_600, seconds % 3_600 / 60),
    }
}

fn duration_text(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        _ => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
    }
}
