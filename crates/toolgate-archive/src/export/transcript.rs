//! A session as people read it: messages, calls with their outcomes, and what happened between.

mod call;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use toolgate_core::{
    Cost, EventBody, ImportOrigin, Invocation, Json, Media, Message, MessageRecord, PartContent,
    RawArguments, RecordKey, RunEnd, SessionEvent, SessionId, SessionRow, StoreRecord, Timestamp,
    ToolEvent, TurnId, Usage,
};

pub(crate) use self::call::TranscriptCall;
use self::call::{CallFacts, pretty_json};
use super::{
    ExportOptions, ExportRedaction, Exporter,
    instructions::SessionInstructions,
    session_records::{LogScan, PAGE_EVENTS, RecordPages},
};
use crate::ExportError;

/// A session and those of its agents.
#[derive(Debug)]
pub(crate) struct Transcript {
    pub(crate) row: SessionRow,
    pub(crate) origin: Option<ImportOrigin>,
    pub(crate) directory: Option<String>,
    pub(crate) title: String,
    pub(crate) items: Vec<TranscriptItem>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Cost>,
    pub(crate) messages: u64,
}

/// Something in a session, in order.
#[derive(Debug)]
pub(crate) enum TranscriptItem {
    System(String),
    User(TranscriptText),
    Assistant(TranscriptText),
    Call(Box<TranscriptCall>),
    Note(String, Timestamp),
    End(RunEnd, Option<String>, Timestamp),
}

/// A message of the user or the model.
#[derive(Debug)]
pub(crate) struct TranscriptText {
    pub(crate) text: String,
    pub(crate) at: Timestamp,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) usage: Option<Usage>,
    pub(crate) cost: Cost,
    pub(crate) media: Vec<Media>,
}

/// The whole log and the messages of a session, while its transcript is built.
#[derive(Default)]
struct SessionContent {
    events: Vec<Arc<toolgate_core::Event>>,
    messages: HashMap<u64, Arc<MessageRecord>>,
    instructions: SessionInstructions,
    /// The instructions of the runs in which they changed, by the message that begins the run.
    changed: BTreeMap<u64, Arc<str>>,
    calls: HashMap<(TurnId, u32), CallFacts>,
    results: HashMap<(TurnId, String), (String, bool)>,
    /// The turns whose calls a message asks for.
    asking: HashSet<TurnId>,
}

impl Exporter {
    /// Builds the transcripts of a session and of its agents, in the order in which they began.
    pub(crate) async fn load_transcripts(
        &self,
        session: SessionId,
        options: &ExportOptions,
    ) -> Result<Vec<Transcript>, ExportError> {
        let mut waiting = vec![session];
        let mut transcripts = Vec::new();
        while let Some(session) = waiting.pop() {
            let row = self.load_row(session).await?;
            let (content, agents) = self.load_content(&row).await?;
            transcripts.push(self.build_transcript(row, content, options).await?);
            waiting.extend(agents.into_iter().rev());
        }
        Ok(transcripts)
    }

    async fn load_content(
        &self,
        row: &SessionRow,
    ) -> Result<(SessionContent, Vec<SessionId>), ExportError> {
        let session = row.session;
        let mut content = SessionContent::default();
        let mut scan = LogScan::default();
        let mut agents = Vec::new();
        loop {
            let after = content.events.last().map_or(0, |event| event.sequence());
            let page = self.store.events(session, after, PAGE_EVENTS).await?;
            if page.is_empty() {
                break;
            }
            for call in scan.add_events(&page).1 {
                let agent = call.agent_session();
                if self.store.revision(agent).await? > 0 {
                    agents.push(agent);
                }
            }
            content.events.extend(page);
        }
        let mut pages = RecordPages::of_session(&self.store, session);
        loop {
            let page = pages.next_page().await?;
            if page.is_empty() {
                break;
            }
            page.into_iter()
                .for_each(|(name, record)| content.add_record(&name, record));
        }
        content.collect_calls();
        content.changed = content.instructions.list_changes();
        Ok((content, agents))
    }

    async fn build_transcript(
        &self,
        row: SessionRow,
        content: SessionContent,
        options: &ExportOptions,
    ) -> Result<Transcript, ExportError> {
        let redaction = options.redaction;
        let shown = |text: &str| self.visible_text(text, redaction);
        let title = row
            .title
            .as_ref()
            .map_or("Untitled session", |title| title.as_str());
        let mut transcript = Transcript {
            origin: self.store.load_import_origin(row.session).await?,
            directory: row.directory.as_deref().map(shown).transpose()?,
            title: shown(title)?,
            items: Vec::new(),
            usage: Usage::default(),
            cost: None,
            messages: content.messages.len() as u64,
            row,
        };
        if options.include_system {
            for text in &content.instructions.imported {
                transcript.items.push(TranscriptItem::System(shown(text)?));
            }
        }
        for event in &content.events {
            self.add_event(&mut transcript, &content, event, options)?;
        }
        Ok(transcript)
    }

    fn add_event(
        &self,
        transcript: &mut Transcript,
        content: &SessionContent,
        event: &toolgate_core::Event,
        options: &ExportOptions,
    ) -> Result<(), ExportError> {
        let (info, happened) = match event.body() {
            EventBody::Loop(info, happened) => (info, happened),
            EventBody::Tool(invocation, happened) => {
                let call = self.single_call(content, invocation, happened, options)?;
                transcript.items.extend(call);
                return Ok(());
            }
            EventBody::Turn(..) => return Ok(()),
        };
        let at = event.at();
        match happened {
            SessionEvent::UserMessage { message, text, .. } => {
                let system = self.changed_instructions(content, *message, options)?;
                transcript.items.extend(system);
                let item =
                    self.text_item(content, *message, text.as_deref(), at, options.redaction)?;
                transcript.items.push(TranscriptItem::User(item));
            }
            SessionEvent::InferenceFinished {
                message,
                text,
                usage,
                cost,
                ..
            } => {
                let mut item =
                    self.text_item(content, *message, text.as_deref(), at, options.redaction)?;
                item.model = info.model.clone();
                item.usage = *usage;
                item.cost = *cost;
                transcript.usage =
                    usage.map_or(transcript.usage, |more| transcript.usage.plus(more));
                transcript.cost = Some(transcript.cost.map_or(*cost, |sum| sum.plus(*cost)));
                if !item.text.trim().is_empty() || !item.media.is_empty() {
                    transcript.items.push(TranscriptItem::Assistant(item));
                }
                if options.include_tool_calls {
                    let calls = self.calls_of(content, *message, at, options.redaction)?;
                    transcript.items.extend(calls);
                }
            }
            SessionEvent::InferenceFailed { error, .. } => {
                let text = self.visible_text(error, options.redaction)?;
                let note = format!("A model request failed: {text}");
                transcript.items.push(TranscriptItem::Note(note, at));
            }
            SessionEvent::SkillLoaded { skill, .. } => {
                let note = format!("Loaded the skill {skill}");
                transcript.items.push(TranscriptItem::Note(note, at));
            }
            SessionEvent::MemoryRecalled { memories, .. } => {
                let note = match memories.len() {
                    1 => "1 memory of earlier work was given to the model".to_owned(),
                    count => format!("{count} memories of earlier work were given to the model"),
                };
                transcript.items.push(TranscriptItem::Note(note, at));
            }
            SessionEvent::HistoryCompacted { skipped, .. } => {
                let note = format!("The first {skipped} messages are no longer sent to the model");
                transcript.items.push(TranscriptItem::Note(note, at));
            }
            SessionEvent::RunEnded { end, error, .. } => {
                let error = error.as_deref();
                let error = error.map(|error| self.visible_text(error, options.redaction));
                let end = TranscriptItem::End(*end, error.transpose()?, at);
                transcript.items.push(end);
            }
            SessionEvent::ModelRouted(_)
            | SessionEvent::InferenceStarted { .. }
            | SessionEvent::BudgetAlert(_)
            | SessionEvent::RecursiveIteration { .. }
            | SessionEvent::ImportedCall { .. }
            | SessionEvent::ImportedResult { .. } => {}
        }
        Ok(())
    }

    /// Returns the instructions of the run that a message begins, if those before it were others.
    fn changed_instructions(
        &self,
        content: &SessionContent,
        message: u64,
        options: &ExportOptions,
    ) -> Result<Option<TranscriptItem>, ExportError> {
        let changed = content.changed.get(&message);
        let shown = changed.filter(|_| options.include_system);
        let text = shown.map(|text| self.visible_text(text, options.redaction));
        Ok(text.transpose()?.map(TranscriptItem::System))
    }

    /// Returns a call that no message asks for: a program or a user made it.
    fn single_call(
        &self,
        content: &SessionContent,
        invocation: &Invocation,
        event: &ToolEvent,
        options: &ExportOptions,
    ) -> Result<Option<TranscriptItem>, ExportError> {
        let ToolEvent::ToolRequested { arguments, .. } = event else {
            return Ok(None);
        };
        let turn = invocation.turn.turn;
        if !options.include_tool_calls || content.asking.contains(&turn) {
            return Ok(None);
        }
        let facts = content.calls.get(&(turn, invocation.emit_order)).cloned();
        let mut facts = facts.unwrap_or_default();
        let redaction = options.redaction;
        let value = arguments
            .as_ref()
            .map(|json| self.visible_json(json, redaction));
        let value = value.transpose()?;
        let result = facts.shown.take();
        let result = result
            .map(|text| self.visible_text(&text, redaction))
            .transpose()?;
        Ok(Some(TranscriptItem::Call(Box::new(TranscriptCall {
            label: invocation.call_id.to_string(),
            tool: self.visible_text(invocation.tool.as_str(), redaction)?,
            arguments: value
                .as_ref()
                .map_or_else(|| "(not shown)".to_owned(), pretty_json),
            value,
            result,
            facts,
            is_imported: false,
        }))))
    }

    /// Returns a message: the whole text of its record, or what the event shows of it.
    fn text_item(
        &self,
        content: &SessionContent,
        number: u64,
        shown: Option<&str>,
        at: Timestamp,
        redaction: ExportRedaction,
    ) -> Result<TranscriptText, ExportError> {
        let record = content.messages.get(&number);
        let text = match record {
            Some(record) => self.visible_text(&record.message.text(), redaction)?,
            // Events are redacted already.
            None => shown.unwrap_or_default().to_owned(),
        };
        let media = record
            .map(|record| media_of(&record.message))
            .unwrap_or_default();
        Ok(TranscriptText {
            text,
            at,
            model: None,
            usage: None,
            cost: Cost::Unknown,
            // An image cannot be searched for secrets.
            media: if redaction == ExportRedaction::Raw {
                media
            } else {
                Vec::new()
            },
        })
    }

    /// Returns the calls that a message asks for, in order.
    fn calls_of(
        &self,
        content: &SessionContent,
        number: u64,
        at: Timestamp,
        redaction: ExportRedaction,
    ) -> Result<Vec<TranscriptItem>, ExportError> {
        let Some(record) = content.messages.get(&number) else {
            return Ok(Vec::new());
        };
        let mut calls = Vec::new();
        for (order, request) in (0_u32..).zip(record.message.calls()) {
            let facts = content.calls.get(&(record.turn, order)).cloned();
            let is_imported = facts.is_none();
            // Another program says nothing about the time of a call but that of its message.
            let mut facts = facts.unwrap_or_else(|| CallFacts {
                requested_at: Some(at),
                ..CallFacts::default()
            });
            let label = match facts.label.as_str() {
                "" => request.provider_call_id.clone(),
                label => label.to_owned(),
            };
            let value = match &request.arguments {
                RawArguments::Json(json) => Some(json.clone()),
                RawArguments::Text(text) => text.parse::<Json>().ok(),
            };
            let value = value
                .map(|json| self.visible_json(&json, redaction))
                .transpose()?;
            let arguments = match (&value, &request.arguments) {
                (Some(json), _) => pretty_json(json),
                (None, RawArguments::Text(text)) => self.visible_text(text, redaction)?,
                (None, RawArguments::Json(json)) => pretty_json(json),
            };
            let result = content.results.get(&(record.turn, label.clone()));
            facts.is_error |= result.is_some_and(|(_, is_error)| *is_error);
            let result = result
                .map(|(text, _)| self.visible_text(text, redaction))
                .transpose()?;
            calls.push(TranscriptItem::Call(Box::new(TranscriptCall {
                label,
                tool: self.visible_text(&request.tool, redaction)?,
                arguments,
                value,
                result,
                facts,
                is_imported,
            })));
        }
        Ok(calls)
    }
}

impl SessionContent {
    fn add_record(&mut self, name: &str, record: StoreRecord) {
        self.instructions.add_record(name, &record);
        let (Some(RecordKey::Message(_, number)), StoreRecord::Message(message)) =
            (RecordKey::from_name(name), record)
        else {
            return;
        };
        for part in &message.message.parts {
            if let PartContent::Result(answer) = &part.content {
                let key = (message.turn, answer.call_id.clone());
                self.results
                    .insert(key, (answer.text.clone(), answer.is_error));
            }
        }
        if message.message.calls().next().is_some() {
            self.asking.insert(message.turn);
        }
        self.messages.insert(number, message);
    }

    /// Collects what the events say about each call.
    fn collect_calls(&mut self) {
        for event in &self.events {
            if let EventBody::Tool(invocation, happened) = event.body() {
                let key = (invocation.turn.turn, invocation.emit_order);
                let facts = self.calls.entry(key).or_default();
                facts.label = invocation.call_id.to_string();
                facts.apply(happened, event.at());
            }
        }
    }
}

/// Returns the images and files of a message.
fn media_of(message: &Message) -> Vec<Media> {
    let media = message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Media(media) => Some(media.clone()),
        _ => None,
    });
    media.collect()
}
