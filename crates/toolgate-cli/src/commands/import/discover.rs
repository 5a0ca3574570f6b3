//! Finds the session files of other agents where these store them.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use toolgate::archive::ForeignFormat;

use crate::CliError;

/// The most files of one search, and the deepest folder.
const MAX_FILES: usize = 100_000;
const MAX_DEPTH: usize = 6;

/// Returns the session files of a program, in the order of their paths.
pub(super) fn find_files(
    format: ForeignFormat,
    given: Option<&Path>,
) -> Result<Vec<PathBuf>, CliError> {
    let root = match given {
        Some(given) => given.to_owned(),
        None => default_root(format)?,
    };
    if !root.exists() {
        let text = format!(
            "there are no sessions of {} at {}",
            format.program(),
            root.display()
        );
        return Err(CliError::usage(text).with_hint("name the directory with --path"));
    }
    let mut files = Vec::new();
    collect_files(format, &root, 0, &mut files)?;
    files.sort();
    Ok(files)
}

/// Returns the directory in which a program stores its sessions.
fn default_root(format: ForeignFormat) -> Result<PathBuf, CliError> {
    let home = etcetera::home_dir().map_err(|_| {
        CliError::usage("the home directory is not known")
            .with_hint("name the directory with --path")
    })?;
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    Ok(match format {
        ForeignFormat::Claude => {
            let base =
                set(std::env::var_os("CLAUDE_CONFIG_DIR")).unwrap_or_else(|| home.join(".claude"));
            base.join("projects")
        }
        ForeignFormat::Codex => {
            let base = set(std::env::var_os("CODEX_HOME")).unwrap_or_else(|| home.join(".codex"));
            base.join("sessions")
        }
        ForeignFormat::Gemini => home.join(".gemini/tmp"),
        ForeignFormat::Qwen => home.join(".qwen/projects"),
        ForeignFormat::Cline => home.join(".cline/data/sessions"),
        ForeignFormat::Opencode => {
            let base =
                set(std::env::var_os("XDG_DATA_HOME")).unwrap_or_else(|| home.join(".local/share"));
            base.join("opencode")
        }
        ForeignFormat::Markdown => {
            return Err(CliError::usage("Markdown has no place of its own")
                .with_hint("name the files, or a directory with --path"));
        }
    })
}

/// Checks whether a file has the name of a session of the program.
fn is_session_file(format: ForeignFormat, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    match format {
        ForeignFormat::Claude => name.ends_with(".jsonl"),
        ForeignFormat::Codex => name.starts_with("rollout-") && name.ends_with(".jsonl"),
        ForeignFormat::Gemini => {
            let is_named = name.ends_with(".jsonl") || name.ends_with(".json");
            name.starts_with("session-") && is_named
        }
        ForeignFormat::Qwen => folder == "chats" && name.ends_with(".jsonl"),
        ForeignFormat::Cline => name.ends_with(".messages.json"),
        ForeignFormat::Opencode => name == "opencode.db",
        ForeignFormat::Markdown => name.ends_with(".md"),
    }
}

fn collect_files(
    format: ForeignFormat,
    directory: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // The kind of the entry itself: a link is neither followed nor read.
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            collect_files(format, &path, depth + 1, files)?;
        } else if kind.is_file() && is_session_file(format, &path) {
            if files.len() >= MAX_FILES {
                return Err(
                    CliError::usage(format!("there are more than {MAX_FILES} files"))
                        .with_hint("name a smaller directory with --path"),
                );
            }
            files.push(path);
        }
    }
    Ok(())
}
