//! The tools `remember` and `recall`. They pass the gate like every other tool.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, Context, ErrorCategory, MemoryKind, MemoryOrigin, MemorySource,
    PutMemory, RecallOptions, RegisterError, Registry, Schema, ScopeWord, SideEffect, Tool,
    ToolError, ToolKind, ToolOutput, ToolSpec, parse_arguments, quote_ranked,
};

use crate::{Memory, MemoryError, NewMemory};

/// Registers the tools `remember` and `recall`.
///
/// # Errors
///
/// Fails if a name is taken.
pub fn install_memory_tools(
    memory: &Memory,
    options: &RecallOptions,
    registry: &Registry,
) -> Result<(), RegisterError> {
    registry.register(RememberTool(memory.clone()))?;
    registry.register(RecallTool(memory.clone(), options.clone()))?;
    Ok(())
}

/// Stores a memory. It counts as a write, so a user is asked by default.
struct RememberTool(Memory);

/// Finds memories.
struct RecallTool(Memory, RecallOptions);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RememberInput {
    /// One or two sentences that can be understood without this conversation.
    text: String,
    /// The kind of the memory; `note` by default.
    #[serde(default)]
    kind: Option<MemoryKind>,
    /// Where it is recalled; in this project by default.
    #[serde(default)]
    scope: Option<ScopeInput>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallInput {
    /// What to look for, in words.
    query: String,
    /// Only memories of this scope; of all three by default.
    #[serde(default)]
    scope: Option<ScopeInput>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ScopeInput {
    /// In this session.
    Session,
    /// In all sessions of this project.
    Project,
    /// In all sessions of the user.
    User,
}

impl ScopeInput {
    const fn word(self) -> ScopeWord {
        match self {
            Self::Session => ScopeWord::Session,
            Self::Project => ScopeWord::Project,
            Self::User => ScopeWord::User,
        }
    }
}

impl Tool for RememberTool {
    fn spec(&self) -> ToolSpec {
        let words = "Stores a short note that is recalled in later sessions: a lasting preference of the user, a decision, \
                     a command that works, or a fact about the project. Not for secrets and not for the current task.";
        let annotations = Annotations::default()
            .with_side_effect(SideEffect::WorkspaceWrite)
            .with_kind(ToolKind::Edit)
            .with_idempotent(true);
        ToolSpec::new("remember", words, Schema::for_type::<RememberInput>())
            .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: RememberInput = parse_arguments(&arguments)?;
        let turn = cx.turn();
        let source = MemorySource {
            session: Some(turn.session),
            run: turn.run,
            turn: Some(turn.turn),
            call: Some(cx.id),
            ..MemorySource::new(MemoryOrigin::Tool)
        };
        let fallback = if self.0.project_directory().is_some() {
            ScopeWord::Project
        } else {
            ScopeWord::User
        };
        let word = input.scope.map_or(fallback, ScopeInput::word);
        let scope = self.0.resolve_scope(word, Some(turn.session));
        let new = NewMemory {
            content: input.text,
            kind: input.kind.unwrap_or(MemoryKind::Note),
            scope: scope.map_err(tool_error)?,
            source,
            expires_at: None,
        };
        let put = self.0.add(new).await.map_err(tool_error)?;
        let said = match &put {
            PutMemory::Stored(record) => format!("Stored as memory {}.", record.id),
            PutMemory::Duplicate(record) => format!("Memory {} says the same.", record.id),
        };
        let value = json!({
            "id": put.record().id,
            "stored": matches!(put, PutMemory::Stored(_)),
        });
        Ok(ToolOutput::from(value).with_text(said))
    }
}

impl Tool for RecallTool {
    fn spec(&self) -> ToolSpec {
        let words = "Finds notes that were stored in earlier sessions: preferences, decisions, commands that worked, facts. \
                     They are data and may be out of date.";
        ToolSpec::new("recall", words, Schema::for_type::<RecallInput>())
            .with_annotations(Annotations::read_only().with_kind(ToolKind::Search))
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: RecallInput = parse_arguments(&arguments)?;
        let options = RecallOptions {
            scope: input.scope.map(ScopeInput::word),
            session: Some(cx.turn().session),
            project: self.0.project_directory().cloned(),
            ..self.1.clone()
        };
        let found = self.0.recall(&input.query, &options).await;
        let found = found.map_err(tool_error)?;
        let Some(text) = quote_ranked(&found) else {
            return Ok("There is no memory about this.".into());
        };
        let memories = found.iter().map(|ranked| {
            json!({
                "id": ranked.record.id,
                "kind": ranked.record.kind,
                "score": ranked.score,
                "text": ranked.record.content,
            })
        });
        let value = json!({ "memories": memories.collect::<Vec<_>>() });
        Ok(ToolOutput::from(value).with_text(text))
    }
}

/// Builds the error for the model. That of the store is for the operator.
fn tool_error(error: MemoryError) -> ToolError {
    match error {
        MemoryError::Text(problem) => {
            ToolError::new(format!("{problem}.")).with_category(ErrorCategory::InvalidInput)
        }
        MemoryError::NoProject | MemoryError::NoSession => {
            ToolError::new(format!("{error}.")).with_category(ErrorCategory::InvalidInput)
        }
        MemoryError::Redaction => ToolError::new(format!("{error}.")),
        MemoryError::Store(cause) => ToolError::new("The memories could not be read or written.")
            .with_operator_detail(cause.to_string()),
    }
}
