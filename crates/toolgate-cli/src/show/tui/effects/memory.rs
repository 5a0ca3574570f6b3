//! `/memory` in the chat: what `toolgate memory` does, with the same functions.

use toolgate::{
    Gate,
    memory::{Memory, MemoryEdit, MemoryPage, MemoryRecord, NewMemory, PutMemory, RecallOptions},
    value::SessionId,
};

use super::{EffectRunner, describe_problem};
use crate::{
    CliError,
    commands::memory::{
        change_memory, describe_remains, describe_source, find_memory, list_fields,
        source_session_exists, usual_scope,
    },
    env::{ids, style},
    show::tui::UiMessage,
};

/// The number of memories in the window.
const MAX_SHOWN: usize = 100;

impl EffectRunner {
    /// Runs `/memory` and shows its answer.
    pub(super) async fn show_memories(&self, argument: String) {
        let answered = answer_memory(&self.gate, self.session.id(), argument.trim()).await;
        let text = answered.unwrap_or_else(|error| describe_problem(&error));
        let _ = self.back.send(UiMessage::MemoriesListed(text));
    }
}

/// Returns the answer to `/memory` with these words.
async fn answer_memory(
    gate: &Gate,
    session: SessionId,
    argument: &str,
) -> Result<String, CliError> {
    let memory = gate.memory();
    let (word, rest) = split_word(argument);
    match word {
        "" | "list" => list_text(&memory, session).await,
        "search" => search_text(gate, session, rest).await,
        "add" => add_text(&memory, rest).await,
        "show" => show_text(&memory, rest).await,
        "why" => why_text(gate, rest).await,
        "edit" => edit_text(&memory, rest).await,
        "forget" => forget_text(&memory, rest).await,
        _ => search_text(gate, session, argument).await,
    }
}

/// Returns the first word and the rest.
fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

async fn search_text(gate: &Gate, session: SessionId, words: &str) -> Result<String, CliError> {
    let memory = gate.memory();
    let options = RecallOptions {
        session: Some(session),
        project: memory.project_directory().cloned(),
        ..gate.memory_section().recall_options()
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

async fn add_text(memory: &Memory, text: &str) -> Result<String, CliError> {
    let new = NewMemory::new(text, usual_scope(memory));
    let put = memory.add(new).await?;
    let word = match put {
        PutMemory::Stored(_) => "Added",
        PutMemory::Duplicate(_) => "Unchanged, one says the same",
    };
    Ok(format!("{word}: {}", memory_line(put.record())))
}

async fn show_text(memory: &Memory, id: &str) -> Result<String, CliError> {
    let record = find_memory(memory, id).await?;
    let fields = list_fields(&record);
    let mut lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name:<9} {value}"))
        .collect();
    lines.push(String::new());
    lines.push(style::escape_controls(record.content.as_str()));
    Ok(lines.join("\n"))
}

async fn why_text(gate: &Gate, id: &str) -> Result<String, CliError> {
    let record = find_memory(&gate.memory(), id).await?;
    let session_exists = source_session_exists(gate, &record).await?;
    let command = |arguments: &str| format!("toolgate {arguments}");
    let lines = describe_source(&record, session_exists, command);
    Ok(format!("{}\n\n{}", memory_line(&record), lines.join("\n")))
}

async fn edit_text(memory: &Memory, argument: &str) -> Result<String, CliError> {
    let (id, text) = split_word(argument);
    if text.is_empty() {
        return Err(CliError::usage("there is no new text")
            .with_hint("write it after the id: /memory edit ID TEXT"));
    }
    let edit = MemoryEdit {
        content: Some(text.to_owned()),
        ..MemoryEdit::default()
    };
    let record = change_memory(memory, id, edit).await?;
    Ok(format!("Changed: {}", memory_line(&record)))
}

async fn list_text(memory: &Memory, session: SessionId) -> Result<String, CliError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{memory::MemoryOrigin, model::ScriptedModel};

    /// Answers `/memory` with these words, and returns the problem instead of an answer.
    async fn answer(gate: &Gate, session: SessionId, argument: &str) -> String {
        let answered = answer_memory(gate, session, argument).await;
        answered.unwrap_or_else(|error| describe_problem(&error))
    }

    #[tokio::test]
    async fn memories_are_added_shown_changed_and_explained() {
        let gate = Gate::in_memory().expect("opens");
        let model = ScriptedModel::new(["Hi."]);
        let session = gate.session(model).await.expect("opens").id();
        let added = answer(&gate, session, "add We deploy on Fridays").await;
        assert!(added.starts_with("Added: "), "{added}");
        let again = answer(&gate, session, "add we deploy  on FRIDAYS!").await;
        assert!(again.starts_with("Unchanged"), "{again}");
        let all = gate.memory().list(MemoryPage::default()).await;
        let record = all.expect("lists").remove(0);
        assert_eq!(record.source.origin, MemoryOrigin::User);
        let id = ids::short_id(record.id);
        let shown = answer(&gate, session, &format!("show {id}")).await;
        assert!(
            shown.contains("kind") && shown.ends_with("We deploy on Fridays"),
            "{shown}"
        );
        let why = answer(&gate, session, &format!("why {id}")).await;
        assert!(why.contains("added by the user"), "{why}");
        let edited = answer(&gate, session, &format!("edit {id} We deploy on Mondays")).await;
        assert!(edited.contains("Mondays"), "{edited}");
        let found = answer(&gate, session, "deploy Mondays").await;
        assert!(found.contains("We deploy on Mondays"), "{found}");
        let forgotten = answer(&gate, session, &format!("forget {id}")).await;
        assert!(forgotten.starts_with("Forgotten: "), "{forgotten}");
        let listed = answer(&gate, session, "").await;
        assert_eq!(listed, "There are no memories here yet.");
    }

    #[tokio::test]
    async fn a_change_without_an_id_or_a_text_says_what_to_write() {
        let gate = Gate::in_memory().expect("opens");
        let model = ScriptedModel::new(["Hi."]);
        let session = gate.session(model).await.expect("opens").id();
        let no_text = answer(&gate, session, "edit 4c21").await;
        assert!(no_text.contains("/memory edit ID TEXT"), "{no_text}");
        let unknown = answer(&gate, session, "show 4c21").await;
        assert!(unknown.contains("there is no memory 4c21"), "{unknown}");
    }
}
