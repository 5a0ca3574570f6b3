//! `/memory` in the chat: lists, finds and forgets memories.

use toolgate::memory::{Memory, MemoryPage, MemoryRecord, RecallOptions};

use super::EffectRunner;
use crate::{
    CliError,
    commands::memory::{describe_remains, find_memory},
    env::{ids, style},
    show::tui::UiMessage,
};

/// The number of memories in the window.
const MAX_SHOWN: usize = 100;

impl EffectRunner {
    /// Runs `/memory` and shows its answer.
    pub(super) async fn show_memories(&self, argument: String) {
        let answered = self.answer_memory(argument.trim()).await;
        let text = answered.unwrap_or_else(|error| error.to_string());
        let _ = self.back.send(UiMessage::MemoriesListed(text));
    }

    async fn answer_memory(&self, argument: &str) -> Result<String, CliError> {
        let memory = self.gate.memory();
        let (word, rest) = argument
            .split_once(char::is_whitespace)
            .unwrap_or((argument, ""));
        match word {
            "" | "list" => list_text(&memory, self.session.id()).await,
            "forget" => forget_text(&memory, rest.trim()).await,
            "search" => self.search_text(&memory, rest.trim()).await,
            _ => self.search_text(&memory, argument).await,
        }
    }

    async fn search_text(&self, memory: &Memory, words: &str) -> Result<String, CliError> {
        let options = RecallOptions {
            session: Some(self.session.id()),
            project: memory.project_directory().cloned(),
            ..self.gate.memory_section().recall_options()
        };
        let found = memory.search(words, &options).await?;
        if found.is_empty() {
            return Ok("No memory is relevant enough.".to_owned());
        }
        let lines = found
            .iter()
            .map(|ranked| format!("{:.3}  {}", ranked.score, memory_line(&ranked.record)));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }
}

async fn list_text(
    memory: &Memory,
    session: toolgate::value::SessionId,
) -> Result<String, CliError> {
    let scopes = RecallOptions {
        session: Some(session),
        project: memory.project_directory().cloned(),
        ..RecallOptions::default()
    }
    .scopes();
    let page = MemoryPage {
        scopes,
        limit: MAX_SHOWN,
        ..MemoryPage::default()
    };
    let found = memory.list(page).await?;
    if found.is_empty() {
        return Ok("There are no memories here yet.".to_owned());
    }
    let lines: Vec<String> = found.iter().map(memory_line).collect();
    Ok(lines.join("\n"))
}

async fn forget_text(memory: &Memory, id: &str) -> Result<String, CliError> {
    let record = find_memory(memory, id).await?;
    let mut filter = memory.filter();
    filter.ids = vec![record.id];
    let forgotten = memory.forget(filter).await?;
    Ok(format!(
        "Forgotten: {}\n\n{}",
        memory_line(&record),
        describe_remains(forgotten.remains)
    ))
}

fn memory_line(record: &MemoryRecord) -> String {
    let words: Vec<&str> = record.content.as_str().split_whitespace().collect();
    let text = style::escape_controls(&words.join(" "));
    format!("{}  {:<10}  {text}", ids::short_id(record.id), record.kind)
}
