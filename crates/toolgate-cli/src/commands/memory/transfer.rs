//! `toolgate memory export` and `import`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde_json::json;
use toolgate::{
    Gate,
    memory::{Memory, read_memory_file, write_memory_file},
};

use super::{MemoryExportArgs, MemoryImportArgs, forget::count_memories};
use crate::{CliError, CommandContext, Exit, env::style};

/// The maximum size of a file of memories.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

pub(super) async fn export_memories(
    args: &MemoryExportArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let mut filter = memory.filter();
    filter
        .scopes
        .extend(args.scope.resolve(gate, memory).await?);
    let memories = memory.export(filter).await?;
    let text = write_memory_file(&memories);
    let Some(path) = &args.output else {
        // The file is the result, with and without --json.
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(Exit::Done);
    };
    write_new_file(path, &text)?;
    let count = memories.len();
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "exported": count, "file": path }))?;
    } else {
        let shown = style::escape_controls(&path.display().to_string());
        cx.out.print_line(format_args!(
            "{} {} to {shown}",
            style::good("exported"),
            count_memories(count)
        ))?;
    }
    Ok(Exit::Done)
}

/// Writes a file that only its owner may read, and never overwrites one.
fn write_new_file(path: &Path, text: &str) -> Result<(), CliError> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CliError::usage(format!("{shown} exists already"))
            .with_hint("name another file, or delete this one"),
        _ => CliError::new(format!("{shown} cannot be written: {error}")),
    })?;
    file.write_all(text.as_bytes())
        .map_err(|error| CliError::new(format!("{shown} cannot be written: {error}")))
}

pub(super) async fn import_memories(
    args: &MemoryImportArgs,
    cx: &CommandContext,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let text = read_input(&args.file)?;
    let shown = args.file.display();
    let memories = read_memory_file(&text).map_err(|error| {
        CliError::usage(format!("{shown}, {error}"))
            .with_hint("nothing was stored; a file is written by `toolgate memory export`")
    })?;
    let imported = memory.import(memories).await?;
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "stored": imported.stored,
            "duplicates": imported.duplicates,
        }))?;
    } else {
        cx.out.print_line(format_args!(
            "{} {}; {} were there already",
            style::good("imported"),
            count_memories(imported.stored),
            imported.duplicates
        ))?;
    }
    Ok(Exit::Done)
}

fn read_input(path: &Path) -> Result<String, CliError> {
    let shown = path.display();
    let failed = |error: io::Error| CliError::new(format!("{shown} cannot be read: {error}"));
    let mut text = String::new();
    // One byte more than the limit tells a larger file without loading it.
    let limit = MAX_FILE_BYTES + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_string(&mut text)
    } else {
        let file = File::open(path).map_err(failed)?;
        file.take(limit).read_to_string(&mut text)
    };
    read.map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(CliError::usage(format!("{shown} is larger than 64 MiB"))
            .with_hint("split it; each part begins with the first line of the file"));
    }
    Ok(text)
}
