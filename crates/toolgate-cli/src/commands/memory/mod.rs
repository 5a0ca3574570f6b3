//! `toolgate memory`: lists, adds, finds, changes and forgets memories, and moves them as a file.

mod change;
mod forget;
mod print;
mod read;
mod transfer;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use toolgate::{
    Gate,
    memory::{Memory, MemoryId, MemoryKind, MemoryPage, MemoryRecord, RecallScope, ScopeWord},
    value::SessionId,
};

pub(crate) use self::{
    change::{change_memory, usual_scope},
    forget::describe_remains,
    read::{describe_source, list_fields, source_session_exists},
};
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::{ids, runtime, times},
};

/// Lists, adds, finds, changes and forgets memories: short texts that later sessions recall.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory add \"We deploy on Fridays\"       recalled in this project
  toolgate memory search \"when do we deploy\"       what a run with this request would recall
  toolgate memory why 4c21                          where it came from
  toolgate memory forget 4c21                       delete its text and its vector")]
pub struct MemoryArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub what: MemoryCommand,
}

/// A subcommand of `toolgate memory`.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// List memories, the newest first
    List(MemoryListArgs),
    /// Add a memory
    Add(MemoryAddArgs),
    /// Find the memories that are relevant to a text
    Search(MemorySearchArgs),
    /// Show a memory
    Show(MemoryShowArgs),
    /// Change the text, the kind or the expiry of a memory
    Edit(MemoryEditArgs),
    /// Delete memories
    Forget(MemoryForgetArgs),
    /// Say where a memory came from
    Why(MemoryWhyArgs),
    /// Write memories to a file
    Export(MemoryExportArgs),
    /// Read memories from a file
    Import(MemoryImportArgs),
}

/// The scope of memories.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArgs {
    /// The scope: one session, this directory, or everything of the user
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<ScopeName>,
    /// The session of `--scope session`: an id, or a part of one
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
}

/// The word for a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeName {
    /// One session.
    Session,
    /// The sessions of this directory.
    Project,
    /// All sessions of the user.
    User,
}

/// Lists memories of this directory and of the user, the newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory list
  toolgate memory list --all                also those of other directories and of sessions
  toolgate memory list --kind preference
  toolgate memory list --json")]
pub struct MemoryListArgs {
    /// The scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// List the memories of all scopes
    #[arg(long, conflicts_with = "scope")]
    pub all: bool,
    /// Only memories of this kind: preference, decision, command, fact or note
    #[arg(long, value_name = "KIND")]
    pub kind: Option<MemoryKind>,
    /// Include memories that have expired
    #[arg(long)]
    pub expired: bool,
    /// Only memories older than this one: an id, or a part of one
    #[arg(long, value_name = "ID")]
    pub before: Option<String>,
    /// Maximum number of memories
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// Adds a memory. The same text in the same scope is stored once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory add \"We deploy on Fridays\"
  toolgate memory add --scope user --kind preference \"I prefer small commits\"
  toolgate memory add --expires 30d \"The staging host is slow\"")]
pub struct MemoryAddArgs {
    /// The text
    #[arg(required = true, value_name = "TEXT")]
    pub text: Vec<String>,
    /// The scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// The kind: preference, decision, command, fact or note
    #[arg(long, value_name = "KIND", default_value = "note")]
    pub kind: MemoryKind,
    /// Forget it after this time, such as 30d
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    pub expires: Option<std::time::Duration>,
}

/// Finds the memories that are relevant to a text, the most relevant first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory search \"when do we deploy\"
  toolgate memory search --min-score 0 --limit 50 deploy")]
pub struct MemorySearchArgs {
    /// The text
    #[arg(required = true, value_name = "TEXT")]
    pub text: Vec<String>,
    /// The scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of memories
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Minimum relevance, from 0 to 1
    #[arg(long, value_name = "SCORE")]
    pub min_score: Option<f32>,
    /// Maximum number of tokens of all of them
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<usize>,
}

/// Shows a memory: its text, its scope and its uses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory show 4c21
  toolgate memory show 4c21 --json")]
pub struct MemoryShowArgs {
    /// The memory: an id, or a part of one
    pub id: String,
}

/// Says where a memory came from: the session, the run, the time, the pattern or the call.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory why 4c21
  toolgate memory why 4c21 --json")]
pub struct MemoryWhyArgs {
    /// The memory: an id, or a part of one
    pub id: String,
}

/// Changes the text, the kind or the expiry of a memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory edit 4c21 \"We deploy on Mondays\"
  toolgate memory edit 4c21 --kind fact --expires never")]
pub struct MemoryEditArgs {
    /// The memory: an id, or a part of one
    pub id: String,
    /// The new text
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// The new kind: preference, decision, command, fact or note
    #[arg(long, value_name = "KIND")]
    pub kind: Option<MemoryKind>,
    /// Forget it after this time, such as 30d, or never
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
}

/// Deletes memories: text and vector.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory forget 4c21 77aa
  toolgate memory forget --scope project --all    after confirmation")]
pub struct MemoryForgetArgs {
    /// The memories: ids, or parts of them
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub ids: Vec<String>,
    /// The scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Delete all memories of the scope
    #[arg(long, requires = "scope")]
    pub all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Writes memories to a file, one JSON object on each line.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory export > memories.jsonl
  toolgate memory export --scope user --output memories.jsonl")]
pub struct MemoryExportArgs {
    /// The scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Write to this new file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Reads memories from a file that `export` wrote. Those of a project become memories of this
/// directory. If a line is wrong, nothing is stored.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate memory import memories.jsonl
  ssh laptop toolgate memory export | toolgate memory import -")]
pub struct MemoryImportArgs {
    /// The file; `-` is the standard input
    pub file: PathBuf,
}

/// Runs the subcommand.
pub(crate) fn run(args: &MemoryArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(async {
        let gate = GateArgs::default().open_gate(cx).await?;
        let memory = gate.memory();
        match &args.what {
            MemoryCommand::List(args) => read::list_memories(args, cx, &gate, &memory).await,
            MemoryCommand::Search(args) => read::search_memories(args, cx, &gate, &memory).await,
            MemoryCommand::Show(args) => read::show_memory(args, cx, &memory).await,
            MemoryCommand::Why(args) => read::explain_source(args, cx, &gate, &memory).await,
            MemoryCommand::Add(args) => change::add_memory(args, cx, &gate, &memory).await,
            MemoryCommand::Edit(args) => change::edit_memory(args, cx, &memory).await,
            MemoryCommand::Forget(args) => forget::forget_memories(args, cx, &gate, &memory).await,
            MemoryCommand::Export(args) => {
                transfer::export_memories(args, cx, &gate, &memory).await
            }
            MemoryCommand::Import(args) => transfer::import_memories(args, cx, &memory).await,
        }
    })
}

impl ScopeName {
    pub(crate) const fn word(self) -> ScopeWord {
        match self {
            Self::Session => ScopeWord::Session,
            Self::Project => ScopeWord::Project,
            Self::User => ScopeWord::User,
        }
    }
}

impl ScopeArgs {
    /// Returns the scope that was named, if one was.
    async fn resolve(&self, gate: &Gate, memory: &Memory) -> Result<Option<RecallScope>, CliError> {
        let session = self.find_session(gate).await?;
        let Some(scope) = self.scope else {
            return Ok(session.map(RecallScope::Session));
        };
        let resolved = memory.resolve_scope(scope.word(), session);
        resolved.map(Some).map_err(|error| {
            CliError::usage(error.to_string()).with_hint("name the session with --session ID")
        })
    }

    async fn find_session(&self, gate: &Gate) -> Result<Option<SessionId>, CliError> {
        match &self.session {
            Some(text) => ids::find_session(gate.store(), text).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Finds the memory that `text` names: a whole id, or a part at its beginning or end.
pub(crate) async fn find_memory(memory: &Memory, text: &str) -> Result<MemoryRecord, CliError> {
    let unknown = || {
        CliError::usage(format!("there is no memory {text}"))
            .with_hint("`toolgate memory list --all` shows them")
    };
    if let Ok(id) = text.trim().parse::<MemoryId>() {
        return memory.show(id).await?.ok_or_else(unknown);
    }
    let mut known = Vec::new();
    loop {
        let page = MemoryPage {
            with_expired: true,
            before: known.last().map(|record: &MemoryRecord| record.id),
            limit: 500,
            ..MemoryPage::default()
        };
        let found = memory.list(page).await?;
        let is_last = found.len() < 500;
        known.extend(found);
        if is_last {
            break;
        }
    }
    let ids = known.iter().map(|record| record.id);
    // The plural is made with an `s`.
    let id = ids::find_id(text, "memorie", ids)?.ok_or_else(unknown)?;
    let found = known.into_iter().find(|record| record.id == id);
    found.ok_or_else(unknown)
}
