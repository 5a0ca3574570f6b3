//! `toolgate export`: writes sessions as Markdown, as an HTML page, or as an archive.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::json;
use toolgate::{
    archive::{ExportFormat, ExportOptions, ExportRedaction, ExportSummary, Exporter},
    value::SessionId,
};

use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::{ids, runtime, signals::StopSignals, style},
};

/// Writes sessions and those of their agents to a file or to the standard output.
///
/// Secrets are redacted unless --raw is given. Only a raw archive (--format json --raw) is lossless and
/// can be imported again as a session.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate export 4c21                                  Markdown, to the standard output
  toolgate export 4c21 --format html --output page.html  a page for a browser
  toolgate export 4c21 77aa --format json --raw --output two.jsonl
                                                        a lossless archive of both")]
pub struct ExportArgs {
    /// The sessions: ids, or parts of them
    #[arg(required = true, value_name = "SESSION")]
    pub ids: Vec<String>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = "markdown", value_parser = format_parser())]
    pub format: ExportFormat,
    /// Write to this file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Leave out the instructions of runs and of imported sessions
    #[arg(long)]
    pub no_system: bool,
    /// Leave out calls and their results
    #[arg(long)]
    pub no_tool_calls: bool,
    /// Add models, tokens, costs, times and ids; JSON always has them
    #[arg(long)]
    pub metadata: bool,
    /// Redact secrets; this is the default
    #[arg(long, conflicts_with = "raw")]
    pub redact: bool,
    /// Write everything as it is stored, secrets included
    #[arg(long)]
    pub raw: bool,
}

fn format_parser() -> impl TypedValueParser<Value = ExportFormat> {
    PossibleValuesParser::new(ExportFormat::ALL.map(ExportFormat::as_str))
        .try_map(|word| word.parse::<ExportFormat>())
}

impl ExportArgs {
    fn options(&self) -> ExportOptions {
        ExportOptions {
            format: self.format,
            include_system: !self.no_system,
            include_tool_calls: !self.no_tool_calls,
            include_metadata: self.metadata,
            redaction: if self.raw {
                ExportRedaction::Raw
            } else {
                ExportRedaction::Redact
            },
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(export_sessions(args, cx))
}

async fn export_sessions(args: &ExportArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    if cx.out.is_json() && args.output.is_none() {
        return Err(
            CliError::usage("--json prints the result of an export, not the export")
                .with_hint("name a file with --output"),
        );
    }
    check_leaving_out(args)?;
    let store = cx.open_store().await?;
    let mut sessions: Vec<SessionId> = Vec::new();
    for id in &args.ids {
        let session = ids::find_session(&store, id).await?;
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }
    let exporter = if args.raw {
        Exporter::new(store)
    } else {
        // The redactor is that of the configuration, so the gate has to be opened.
        GateArgs::default().open_gate(cx).await?.exporter()
    };
    if args.raw {
        let text = "warning: the export is not redacted; it may contain keys and other secrets";
        cx.out.print_note(style::warn(text))?;
    }
    match &args.output {
        Some(path) => write_file(args, cx, &exporter, &sessions, path).await,
        None => write_output(args, &exporter, &sessions).await,
    }
}

/// Checks that nothing is left out of a lossless archive.
fn check_leaving_out(args: &ExportArgs) -> Result<(), CliError> {
    let leaves_out = args.no_system || args.no_tool_calls;
    if args.raw && args.format == ExportFormat::Json && leaves_out {
        return Err(
            CliError::usage("a raw archive is lossless; nothing can be left out of it")
                .with_hint("use --redact, or another format"),
        );
    }
    Ok(())
}

/// Writes to the standard output.
async fn write_output(
    args: &ExportArgs,
    exporter: &Exporter,
    sessions: &[SessionId],
) -> Result<Exit, CliError> {
    let mut out = io::stdout().lock();
    if !out.is_terminal() {
        drop(out);
        // Not locked: the lock of the standard output must not be held while the store answers.
        exporter
            .export(sessions, &args.options(), io::stdout())
            .await?;
        return Ok(Exit::Done);
    }
    let mut text = Vec::new();
    exporter
        .export(sessions, &args.options(), &mut text)
        .await?;
    // A terminal obeys control characters, and the text is that of models and tools.
    let text = style::escape_controls(&String::from_utf8_lossy(&text));
    out.write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Writes a file: first beside it, so that there is never half an export.
async fn write_file(
    args: &ExportArgs,
    cx: &CommandContext,
    exporter: &Exporter,
    sessions: &[SessionId],
    path: &Path,
) -> Result<Exit, CliError> {
    let shown = style::escape_controls(&path.display().to_string());
    let problem = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "choose another name, or replace it with --force",
            _ => "nothing was written; choose another place",
        };
        CliError::usage(format!("{shown}: {error}")).with_hint(hint)
    };
    let exists = || problem(io::Error::from(io::ErrorKind::AlreadyExists));
    // Also a link that leads nowhere: nothing is written through a link.
    if !args.force && path.symlink_metadata().is_ok() {
        return Err(exists());
    }
    if path.is_dir() {
        return Err(problem(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    // Before the file is created: an interrupted export leaves nothing, least of all secrets in a file
    // that no list shows.
    let mut stops = StopSignals::listen();
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(problem)?;
    let writer = io::BufWriter::new(file.as_file_mut());
    let options = args.options();
    let done = tokio::select! {
        done = exporter.export(sessions, &options, writer) => done?,
        stop = stops.next() => return Ok(stop.exit_status()),
    };
    file.as_file().sync_all().map_err(problem)?;
    // Renaming replaces a link itself and not the file that it leads to.
    let kept = if args.force {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    kept.map_err(|error| problem(error.error))?;
    print_result(args, cx, path, &done)?;
    Ok(Exit::Done)
}

fn print_result(
    args: &ExportArgs,
    cx: &CommandContext,
    path: &Path,
    done: &ExportSummary,
) -> Result<(), CliError> {
    if cx.out.is_json() {
        return cx.out.print_json(&json!({
            "file": path,
            "format": args.format.as_str(),
            "sessions": done.sessions,
            "messages": done.messages,
            "redacted": done.redacted,
            "root": done.root,
        }));
    }
    let count = match done.sessions.len() {
        1 => "1 session".to_owned(),
        count => format!("{count} sessions"),
    };
    let path = style::escape_controls(&path.display().to_string());
    let state = if done.redacted {
        "redacted"
    } else {
        "not redacted"
    };
    cx.out.print_line(format_args!(
        "wrote {count}, {} messages, {state}: {path}",
        done.messages
    ))
}
