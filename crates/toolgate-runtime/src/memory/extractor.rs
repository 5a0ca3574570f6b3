//! Extracts memories at the end of a run: by patterns, and by a model if there is one.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolgate_core::{
    ExtractionPattern, FoundMemory, MAX_FOUND_MEMORIES, MemoryOrigin, MemorySource, RawArguments,
    RecallScope, ScopeWord, find_memories, remember_command,
};

use crate::{
    CapturedCall, CapturedRun, Memory, MemoryError, ModelExtractor, NewMemory, RunEndError,
    RunEndHook,
};

/// The tool whose successful commands are remembered, and the argument that has the command.
const SHELL_TOOL: &str = "run_shell";
const SHELL_ARGUMENT: &str = "command";

/// Finds memories in a run: in what the user and the model said, and in commands that worked. It
/// never reads the result of a tool.
///
/// ```
/// use toolgate_core::{ExtractionPattern, MemoryKind};
/// use toolgate_runtime::MemoryExtractor;
/// let extractor = MemoryExtractor::standard()
///     .pattern(ExtractionPattern::new("deploys", MemoryKind::Fact, ["we deploy with"]));
/// assert_eq!(extractor.patterns().last().map(|pattern| pattern.name()), Some("deploys"));
/// ```
#[derive(Clone, Debug)]
pub struct MemoryExtractor {
    patterns: Vec<ExtractionPattern>,
    commands: bool,
    model: Option<ModelExtractor>,
}

impl MemoryExtractor {
    /// Creates an extractor with the standard patterns, which also remembers commands that worked.
    pub fn standard() -> Self {
        Self {
            patterns: ExtractionPattern::standard(),
            commands: true,
            model: None,
        }
    }

    /// Creates an extractor that finds nothing.
    pub const fn empty() -> Self {
        Self {
            patterns: Vec::new(),
            commands: false,
            model: None,
        }
    }

    /// Adds a pattern.
    pub fn pattern(mut self, pattern: ExtractionPattern) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// Also asks a model, within its budget. A model that fails leaves the work to the patterns.
    pub fn model(mut self, model: ModelExtractor) -> Self {
        self.model = Some(model);
        self
    }

    /// Returns the patterns.
    pub fn patterns(&self) -> &[ExtractionPattern] {
        &self.patterns
    }

    /// Finds memories in a run, each text once, at most 10.
    pub async fn extract(&self, run: &CapturedRun) -> Vec<FoundMemory> {
        let mut found = find_memories(&self.patterns, run.messages.iter().map(Arc::as_ref));
        if self.commands {
            found.extend(run.calls.iter().filter_map(worked_command));
        }
        if let Some(model) = &self.model {
            found.extend(model.extract(run).await);
        }
        let mut seen = std::collections::BTreeSet::new();
        found.retain(|memory| seen.insert(memory.content.normalised()));
        found.truncate(MAX_FOUND_MEMORIES);
        found
    }
}

/// Returns the memory of a command that succeeded.
fn worked_command(call: &CapturedCall) -> Option<FoundMemory> {
    if call.tool.as_str() != SHELL_TOOL || call.succeeded != Some(true) {
        return None;
    }
    let arguments = match &call.request.arguments {
        RawArguments::Json(json) => json.as_value().clone(),
        RawArguments::Text(text) => serde_json::from_str(text).ok()?,
    };
    let found = remember_command(arguments.get(SHELL_ARGUMENT)?.as_str()?)?;
    Some(FoundMemory {
        turn: Some(call.turn),
        call: call.id,
        ..found
    })
}

/// The hook that extracts memories at the end of each run and stores them.
#[derive(Debug, Clone)]
pub struct MemoryExtraction {
    memory: Memory,
    extractor: MemoryExtractor,
}

impl MemoryExtraction {
    /// The name of the hook.
    pub const NAME: &'static str = "memory";

    /// Creates the hook.
    pub const fn new(memory: Memory, extractor: MemoryExtractor) -> Self {
        Self { memory, extractor }
    }

    async fn store_memories(&self, run: &CapturedRun) -> Result<(), MemoryError> {
        for found in self.extractor.extract(run).await {
            let source = MemorySource {
                session: Some(run.session),
                run: Some(run.run),
                turn: found.turn,
                call: found.call,
                pattern: found.pattern.clone(),
                ..MemorySource::new(match found.pattern {
                    Some(_) => MemoryOrigin::Pattern,
                    None => MemoryOrigin::Model,
                })
            };
            let new = NewMemory {
                content: found.content.to_string(),
                kind: found.kind,
                scope: self.scope_for(found.scope, run),
                source,
                expires_at: None,
            };
            match self.memory.add(new).await {
                // A text that cannot be stored is left out: the others are.
                Ok(_) | Err(MemoryError::Text(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.memory.forget_expired().await.map(drop)
    }

    /// Returns the scope of a found memory; without a project it stays in its session.
    fn scope_for(&self, word: ScopeWord, run: &CapturedRun) -> RecallScope {
        let resolved = self.memory.resolve_scope(word, Some(run.session));
        resolved.unwrap_or(RecallScope::Session(run.session))
    }
}

impl RunEndHook for MemoryExtraction {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn run_ended<'a>(&'a self, run: &'a CapturedRun) -> BoxFuture<'a, Result<(), RunEndError>> {
        Box::pin(async move {
            let stored = self.store_memories(run).await;
            stored.map_err(|error| RunEndError(error.to_string()))
        })
    }
}
