//! The input of a run: the task on the command line, the standard input, files.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use toolgate::session::Documents;

use crate::{CliError, show::render::arguments::format_bytes};

/// The size limit of one source; the rest is truncated.
const MAX_SOURCE_BYTES: usize = 256 * 1024;
/// The size limit of the whole input.
const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// Builds the input: the task, then the standard input and the files, each under its name and
/// fenced. Returns `None` if all are empty.
pub(crate) fn gather_input(
    words: &[String],
    files: &[PathBuf],
    dir: &Path,
) -> Result<Option<String>, CliError> {
    let from_stdin = matches!(words, [word] if word == "-");
    let mut parts = Vec::new();
    // Reading from a terminal would wait for Ctrl-D, which the user does not expect.
    let piped = if from_stdin || !io::stdin().is_terminal() {
        read_source(&mut io::stdin().lock(), "the standard input")?
    } else {
        None
    };
    match (from_stdin, piped) {
        (true, Some(piped)) => parts.push(piped.text.trim_end().to_owned()),
        (true, None) => {
            return Err(CliError::usage("the standard input is empty")
                .with_hint("`-` reads the task from it"));
        }
        (false, piped) => {
            let task = words.join(" ");
            parts.extend(Some(task.trim().to_owned()).filter(|task| !task.is_empty()));
            parts.extend(piped.map(|piped| piped.format_fenced("From the standard input")));
        }
    }
    for file in files {
        let name = file.display().to_string();
        let open = |error: io::Error| {
            CliError::usage(format!("{name}: {error}")).with_hint(
                "-f names a file to send, relative to the current directory or that of -C",
            )
        };
        let mut source = File::open(dir.join(file)).map_err(open)?;
        // A pipe or a device could block, or never end.
        if !source.metadata().map_err(open)?.is_file() {
            return Err(CliError::usage(format!("{name} is not a plain file")));
        }
        let text = read_source(&mut source, &name)?;
        parts.push(
            text.unwrap_or_default()
                .format_fenced(&format!("The file {name}")),
        );
    }
    let together: usize = parts.iter().map(String::len).sum();
    if together > MAX_INPUT_BYTES {
        return Err(CliError::usage(format!(
            "the input has {}, which is too much",
            format_bytes(together)
        ))
        .with_hint("name fewer files; the agent can read files of the workspace by itself"));
    }
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}

/// Reads the files and the standard input as documents of any size, each under its name. There may be
/// none only if `resumed`: the session may not need them any more.
pub(crate) fn gather_documents(
    files: &[PathBuf],
    dir: &Path,
    resumed: bool,
) -> Result<Option<Documents>, CliError> {
    let mut documents = Documents::new();
    let mut add = |name: &str, text: io::Result<String>| {
        let text = text.map_err(|error| CliError::usage(format!("{name}: {error}")))?;
        if text.is_empty() {
            return Ok(());
        }
        let added = std::mem::take(&mut documents).with_text(name, text);
        documents = added.map_err(|error| CliError::usage(error.to_string()))?;
        Ok::<_, CliError>(())
    };
    if !io::stdin().is_terminal() {
        add("stdin", io::read_to_string(io::stdin().lock()))?;
    }
    for file in files {
        let name = file.display().to_string();
        add(&name, fs::read_to_string(dir.join(file)))?;
    }
    match documents.bytes() {
        0 if resumed => Ok(None),
        0 => Err(CliError::usage("the recursive strategy has no documents")
            .with_hint("name files with -f, or pipe a text in")),
        _ => Ok(Some(documents)),
    }
}

/// The text of one source.
#[derive(Debug, Default, PartialEq)]
struct InputSource {
    text: String,
    is_cut: bool,
}

impl InputSource {
    /// Returns the text in a fence that is longer than any run of backticks inside it.
    fn format_fenced(&self, name: &str) -> String {
        // A text that could close its own fence could pose as words of the user.
        let longest = self
            .text
            .split(|c| c != '`')
            .map(str::len)
            .max()
            .unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let cut = if self.is_cut {
            format!(" (only its first {})", format_bytes(MAX_SOURCE_BYTES))
        } else {
            String::new()
        };
        let end = if self.text.ends_with('\n') || self.text.is_empty() {
            ""
        } else {
            "\n"
        };
        format!("{name}{cut}:\n{fence}\n{}{end}{fence}", self.text)
    }
}

/// Reads a text up to the limit; `None` if it is empty.
fn read_source(from: &mut impl Read, name: &str) -> Result<Option<InputSource>, CliError> {
    let mut bytes = Vec::new();
    from.take(MAX_SOURCE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > MAX_SOURCE_BYTES;
    bytes.truncate(MAX_SOURCE_BYTES);
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The limit may fall inside a character; only then is the error at the end harmless.
        Err(error) if is_cut && error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.into_bytes()[..end]).into_owned()
        }
        Err(_) => {
            return Err(CliError::usage(format!("{name} is not text"))
                .with_hint("only UTF-8 text can be sent"));
        }
    };
    Ok(Some(InputSource { text, is_cut }).filter(|source| !source.text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_from(text: &str) -> InputSource {
        read_source(&mut text.as_bytes(), "x")
            .expect("text")
            .unwrap_or_default()
    }

    #[test]
    fn no_text_can_end_its_own_fence() {
        assert_eq!(
            source_from("a").format_fenced("From x"),
            "From x:\n```\na\n```"
        );
        assert_eq!(
            source_from("```\nb\n```\n").format_fenced("X"),
            "X:\n````\n```\nb\n```\n````"
        );
        assert_eq!(source_from("").format_fenced("X"), "X:\n```\n```");
    }

    #[test]
    fn a_long_text_is_truncated_at_a_character_boundary_and_marked() {
        let text = "x".repeat(MAX_SOURCE_BYTES - 1) + "日本";
        let cut = source_from(&text);
        assert!(cut.is_cut && cut.text == "x".repeat(MAX_SOURCE_BYTES - 1));
        assert!(
            cut.format_fenced("X")
                .starts_with("X (only its first 262.1 kB):")
        );
    }

    #[test]
    fn input_that_is_not_text_is_rejected() {
        assert_eq!(
            read_source(&mut &b"\xff\xfe"[..], "x")
                .expect_err("no text")
                .exit_status(),
            crate::Exit::Usage
        );
        assert_eq!(read_source(&mut &b""[..], "x").expect("empty"), None);
    }
}
