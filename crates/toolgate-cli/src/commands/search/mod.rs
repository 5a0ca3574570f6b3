//! `toolgate search`: finds messages, calls and results of all sessions.

mod index;
mod print;

use clap::{Args, Subcommand, ValueEnum};
use toolgate::{
    search::{
        InvalidSearchFilter, SearchFilter, SearchMode, SearchRequest, SearchSection, SearchService,
    },
    store::StoreHandle,
};

use crate::{CliError, CommandContext, Exit, env::runtime, show::hit_origins::HitOrigins};

/// Finds messages, calls and results of all sessions, by words and by meaning.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  toolgate search certificate expired            by words and by meaning
  toolgate search '\"connection refused\" -test'   a phrase, without a word
  toolgate search 'migr* tool:shell after:3d'     a prefix, with filters
  toolgate search --status failed --project .     only filters: the newest ones
  toolgate search -- status                       a word that is also a subcommand"
)]
pub struct SearchArgs {
    /// A subcommand, in place of a query.
    #[command(subcommand)]
    pub what: Option<SearchCommand>,
    /// Words, \"phrases\", prefixes (migr*), exclusions (-word) and filters (tool:shell)
    #[arg(value_name = "QUERY")]
    pub query: Vec<String>,
    /// The way to search
    #[arg(long, value_name = "MODE", default_value = "hybrid")]
    pub mode: SearchModeArg,
    /// Only these documents.
    #[command(flatten)]
    pub filter: SearchFilterArgs,
    /// Maximum number of hits, up to 100
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// Continue after a page: the value `next` of its JSON
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// The filters of a search; each can be repeated.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct SearchFilterArgs {
    /// Only this session: an id, or a part of one
    #[arg(long, value_name = "ID")]
    pub session: Vec<String>,
    /// Only user, assistant, tool, call, result or title
    #[arg(long, value_name = "ROLE")]
    pub role: Vec<String>,
    /// Only calls and results of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Vec<String>,
    /// Only results with this status; `failed` for all but ok
    #[arg(long, value_name = "STATUS")]
    pub status: Vec<String>,
    /// Only sessions in this directory, or one whose path ends so
    #[arg(long, value_name = "DIR")]
    pub project: Vec<String>,
    /// Only this agent, by name or id
    #[arg(long, value_name = "NAME")]
    pub agent: Vec<String>,
    /// Only this model: provider:name, or only the name
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,
    /// Nothing older: a date (2026-01-31), a time, or an age (3d)
    #[arg(long, value_name = "TIME")]
    pub after: Option<String>,
    /// Nothing newer: a date, a time, or an age
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
}

/// The value of `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchModeArg {
    /// By words.
    Text,
    /// By meaning.
    Semantic,
    /// Both.
    Hybrid,
}

/// A subcommand of `toolgate search`.
#[derive(Debug, Subcommand)]
pub enum SearchCommand {
    /// Build the index again from the logs
    Reindex(SearchReindexArgs),
    /// Show the size of the index, and what is not indexed yet
    #[command(after_help = "\
Examples:
  toolgate search status
  toolgate search status --json")]
    Status,
}

/// Builds the index again from the logs. Sessions can be used meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate search reindex
  toolgate search reindex --continue   index only what is missing, also after an interruption")]
pub struct SearchReindexArgs {
    /// Keep the index, and add what is missing
    #[arg(long = "continue")]
    pub continues: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SearchArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    match &args.what {
        None => runtime::block_on(search_sessions(args, cx)),
        Some(SearchCommand::Reindex(args)) => runtime::block_on(index::rebuild(args, cx)),
        Some(SearchCommand::Status) => runtime::block_on(index::print_status(cx)),
    }
}

async fn search_sessions(args: &SearchArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let filter = args.filter.to_filter(cx)?;
    let mut request = SearchRequest::new(&args.query.join(" "))
        .mode(args.mode.into())
        .filter(filter)
        .limit(args.limit);
    if let Some(cursor) = &args.cursor {
        let cursor = cursor.trim().parse().map_err(|error| {
            CliError::from_error(&error).with_hint("it is the value `next` of the JSON of a page")
        })?;
        request = request.after_cursor(cursor);
    }
    let store = cx.open_store().await?;
    let answer = open_search_over(cx, store.clone())?.search(&request).await;
    let answer = answer.map_err(|error| with_hint(&error, error.hint()))?;
    let origins = HitOrigins::load(&store, &answer.hits).await?;
    print::print_answer(cx, &answer, &origins)?;
    Ok(Exit::Done)
}

/// Opens the search over the database, with the embedder of the configuration.
pub(crate) async fn open_search(cx: &CommandContext) -> Result<SearchService, CliError> {
    let store = cx.open_store().await?;
    open_search_over(cx, store)
}

fn open_search_over(cx: &CommandContext, store: StoreHandle) -> Result<SearchService, CliError> {
    let section = cx.load_config()?.section::<SearchSection>()?;
    Ok(section.open_search(store)?)
}

fn with_hint(error: &(dyn std::error::Error + 'static), hint: Option<&str>) -> CliError {
    let failed = CliError::from_error(error);
    match hint {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

impl SearchFilterArgs {
    /// Returns the filter.
    pub(crate) fn to_filter(&self, cx: &CommandContext) -> Result<SearchFilter, CliError> {
        let mut filter = SearchFilter::default();
        let lists = [
            ("session", &self.session),
            ("role", &self.role),
            ("tool", &self.tool),
            ("status", &self.status),
            ("agent", &self.agent),
            ("model", &self.model),
        ];
        for (name, values) in lists {
            for value in values {
                filter
                    .add(name, value)
                    .map_err(|error| flag_error(&error))?;
            }
        }
        for project in &self.project {
            let directory = resolve_project(cx, project);
            filter
                .add("project", &directory)
                .map_err(|error| flag_error(&error))?;
        }
        for (name, value) in [("after", &self.after), ("before", &self.before)] {
            if let Some(value) = value {
                filter
                    .add(name, value)
                    .map_err(|error| flag_error(&error))?;
            }
        }
        Ok(filter)
    }
}

fn flag_error(error: &InvalidSearchFilter) -> CliError {
    CliError::usage(format!(
        "--{} {} is not understood",
        error.name, error.value
    ))
    .with_hint(format!("it accepts {}", error.expected))
}

/// Returns the directory that a flag names: a path that begins with a dot is seen from here.
pub(crate) fn resolve_project(cx: &CommandContext, project: &str) -> String {
    if !project.starts_with('.') {
        return project.to_owned();
    }
    let path = cx.paths.workspace.join(project);
    let path = path.canonicalize().unwrap_or(path);
    path.display().to_string()
}

impl From<SearchModeArg> for SearchMode {
    fn from(mode: SearchModeArg) -> Self {
        match mode {
            SearchModeArg::Text => Self::Text,
            SearchModeArg::Semantic => Self::Semantic,
            SearchModeArg::Hybrid => Self::Hybrid,
        }
    }
}
