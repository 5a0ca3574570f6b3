//! `toolgate import`: imports archives of sessions, and the sessions of other agents.

mod discover;
mod opencode;
mod source;

use std::{
    io::BufReader,
    path::{Path, PathBuf},
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use toolgate::{
    Gate,
    archive::{ForeignFormat, ImportResult, ImportState, Importer},
};

use self::source::{ImportSource, KnownFile};
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::{ids, runtime, style},
};

/// The most warnings of one session that are printed.
const SHOWN_WARNINGS: usize = 5;

/// Imports archives that `toolgate export --format json --raw` wrote, Markdown of `toolgate export`, or
/// the session files of other agents.
///
/// Imported sessions are listed, shown and exported like all others. They are history: they cannot be
/// resumed, and there are no receipts for calls that Toolgate did not make.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate import session.jsonl         an archive; it is verified before anything is stored
  toolgate import --from claude         what is new in the sessions of Claude Code
  toolgate import --from codex --path ~/old/codex")]
pub struct ImportArgs {
    /// The files
    #[arg(value_name = "FILE", required_unless_present = "from")]
    pub files: Vec<PathBuf>,
    /// Import sessions of this program: those that it stored here, or the named files
    #[arg(long, value_name = "PROGRAM", value_parser = format_parser())]
    pub from: Option<ForeignFormat>,
    /// Look for the sessions of the program in this directory
    #[arg(long, value_name = "DIR", requires = "from", conflicts_with = "files")]
    pub path: Option<PathBuf>,
}

fn format_parser() -> impl TypedValueParser<Value = ForeignFormat> {
    PossibleValuesParser::new(ForeignFormat::ALL.map(ForeignFormat::as_str))
        .try_map(|word| word.parse::<ForeignFormat>())
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(import_files(args, cx))
}

/// The number of sessions by what was done with them, and of files that failed.
#[derive(Default)]
struct ImportTotals {
    added: u64,
    grown: u64,
    unchanged: u64,
    diverged: u64,
    failed: u64,
}

async fn import_files(args: &ImportArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    // The text of other programs passes the redactor of the configuration.
    let gate = GateArgs::default().open_gate(cx).await?;
    let importer = gate.importer();
    let (files, is_search) = match args.from {
        Some(format) if args.files.is_empty() => {
            (discover::find_files(format, args.path.as_deref())?, true)
        }
        Some(_) | None => (args.files.clone(), false),
    };
    let import = ImportRun {
        cx,
        gate: &gate,
        importer,
        from: args.from,
        is_search,
        progress: progress_bar(cx, files.len(), is_search),
    };
    let mut totals = ImportTotals::default();
    for file in &files {
        import.import_file(file, &mut totals).await?;
        import.progress.inc(1);
    }
    import.progress.finish_and_clear();
    import.print_totals(&totals)?;
    Ok(if totals.failed > 0 {
        Exit::Failed
    } else {
        Exit::Done
    })
}

/// Returns the bar that shows how far a search through the files of a program came.
fn progress_bar(cx: &CommandContext, files: usize, is_search: bool) -> ProgressBar {
    if !is_search || cx.out.is_quiet() || !cx.out.can_redraw() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(files as u64), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{bar:30} {pos} of {len} files") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// An import of one or more files.
struct ImportRun<'a> {
    cx: &'a CommandContext,
    gate: &'a Gate,
    importer: Importer,
    from: Option<ForeignFormat>,
    is_search: bool,
    progress: ProgressBar,
}

impl ImportRun<'_> {
    /// Imports a file. One that fails does not keep the others of a search from being imported.
    async fn import_file(&self, path: &Path, totals: &mut ImportTotals) -> Result<(), CliError> {
        let shown = style::escape_controls(&path.display().to_string());
        match self.import_source(path, totals).await {
            Ok(()) => Ok(()),
            Err(error) if self.is_search => {
                totals.failed += 1;
                if self.cx.out.is_json() {
                    let error = error.to_string();
                    return self
                        .cx
                        .out
                        .print_json(&json!({ "file": path, "error": error }));
                }
                let text = format!("{shown}: {error}");
                self.progress
                    .suspend(|| self.cx.out.print_note(style::warn(text)))
            }
            Err(error) => Err(error.while_doing(format!("{shown} cannot be imported"))),
        }
    }

    async fn import_source(&self, path: &Path, totals: &mut ImportTotals) -> Result<(), CliError> {
        let known = match self.from {
            Some(format) => Some(KnownFile::new(format, path)?),
            None => None,
        };
        // A file that did not change since the last time is not read again.
        if let Some(known) = known.as_ref().filter(|_| self.is_search)
            && let Some(sessions) = known.load(self.gate.store()).await?
        {
            totals.unchanged += sessions;
            return Ok(());
        }
        let results = match ImportSource::open(path, self.from)? {
            // Programs also leave files that have only bookkeeping; a search passes over them.
            ImportSource::Foreign(_, sessions) if sessions.is_empty() && self.is_search => {
                Vec::new()
            }
            source => import_source(&self.importer, source).await?,
        };
        if let Some(known) = known {
            known.store(self.gate.store(), &results).await?;
        }
        for (format, result) in &results {
            totals.add(result);
            self.print_result(path, format, result)?;
        }
        Ok(())
    }

    fn print_result(
        &self,
        path: &Path,
        format: &str,
        result: &ImportResult,
    ) -> Result<(), CliError> {
        let out = &self.cx.out;
        if out.is_json() {
            return out.print_json(&json!({
                "file": path,
                "format": format,
                "session": result.session,
                "messages": result.message_count,
                "state": result.state.as_str(),
                "warnings": result.warnings,
            }));
        }
        let is_news = matches!(result.state, ImportState::Added | ImportState::Grown);
        self.progress.suspend(|| {
            if is_news && !out.is_quiet() {
                let id = ids::short_id(result.session);
                let state = result.state.as_str();
                let count = result.message_count;
                out.print_line(format_args!(
                    "{} {id}, {count} messages",
                    style::good(state)
                ))?;
            }
            self.print_warnings(path, &result.warnings)
        })
    }

    fn print_warnings(&self, path: &Path, warnings: &[String]) -> Result<(), CliError> {
        let path = style::escape_controls(&path.display().to_string());
        for warning in warnings.iter().take(SHOWN_WARNINGS) {
            let text = format!("{path}: {}", style::escape_controls(warning));
            self.cx.out.print_note(style::warn(text))?;
        }
        match warnings.len().saturating_sub(SHOWN_WARNINGS) {
            0 => Ok(()),
            more => {
                let text = format!("{path}: {more} more warnings; --json prints all of them");
                self.cx.out.print_note(style::warn(text))
            }
        }
    }

    fn print_totals(&self, totals: &ImportTotals) -> Result<(), CliError> {
        if self.cx.out.is_json() {
            return Ok(());
        }
        self.cx.out.print_line(totals.describe())
    }
}

/// Imports one file of any known format, and returns what to tell the user about it.
///
/// # Errors
///
/// Fails if the file cannot be read, if it is of no known format, or if the store failed.
pub(crate) async fn import_one_file(gate: &Gate, path: &Path) -> Result<String, CliError> {
    let source = ImportSource::open(path, None)?;
    let results = import_source(&gate.importer(), source).await?;
    let mut totals = ImportTotals::default();
    results.iter().for_each(|(_, result)| totals.add(result));
    let warnings = results.iter().flat_map(|(_, result)| &result.warnings);
    Ok(match warnings.count() {
        0 => totals.describe(),
        count => {
            let text = totals.describe();
            format!("{text}; warnings: {count}, `toolgate import` prints them")
        }
    })
}

/// Imports what a file has, and returns the results with the words for their formats.
async fn import_source(
    importer: &Importer,
    source: ImportSource,
) -> Result<Vec<(&'static str, ImportResult)>, CliError> {
    let mut results = Vec::new();
    match source {
        ImportSource::Archive(file) => {
            let imported = importer.import_archive(BufReader::new(file)).await?;
            results.extend(imported.into_iter().map(|result| ("archive", result)));
        }
        ImportSource::Foreign(format, sessions) if sessions.is_empty() => {
            return Err(CliError::new(format!(
                "the file has no messages of {}",
                format.program()
            )));
        }
        ImportSource::Foreign(format, sessions) => {
            for session in sessions {
                let result = importer.import_foreign(&session).await?;
                results.push((format.as_str(), result));
            }
        }
    }
    Ok(results)
}

impl ImportTotals {
    fn describe(&self) -> String {
        let Self {
            added,
            grown,
            unchanged,
            diverged,
            failed,
        } = self;
        let mut text = format!("sessions: {added} added, {grown} grown, {unchanged} unchanged");
        if *diverged > 0 {
            text += &format!(", {diverged} not continued by their files");
        }
        if *failed > 0 {
            text += &format!(", {failed} files failed");
        }
        text
    }

    fn add(&mut self, result: &ImportResult) {
        match result.state {
            ImportState::Added => self.added += 1,
            ImportState::Grown => self.grown += 1,
            ImportState::Unchanged => self.unchanged += 1,
            ImportState::Diverged => self.diverged += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_file_is_imported_whatever_its_format_and_says_what_became_of_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("3f1c.jsonl");
        let line = |side: bool, text: &str| json!({ "type": "user", "sessionId": "3f1c", "isSidechain": side, "message": { "content": text } });
        let text = format!("{}\n{}\n", line(false, "Hi."), line(true, "Look."));
        std::fs::write(&file, text).expect("writes");
        let gate = Gate::in_memory().expect("opens");
        let said = import_one_file(&gate, &file).await.expect("imports");
        assert_eq!(
            said,
            "sessions: 1 added, 0 grown, 0 unchanged; warnings: 1, `toolgate import` prints them"
        );
        let other = directory.path().join("notes.txt");
        std::fs::write(&other, "hello").expect("writes");
        assert!(import_one_file(&gate, &other).await.is_err());
    }
}
