//! What is said to begin a run: the words of the command line, what comes through a pipe, files.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use crate::{CliError, render::arguments::size};

/// How much of one source is passed on.
const MOST: usize = 256 * 1024;
/// How much is passed on altogether.
const MOST_TOGETHER: usize = 1024 * 1024;

/// Puts together what is said: the task, then what there is to read, each part under its name and fenced. Nothing if there
/// is nothing to say.
pub(crate) fn gather(
    words: &[String],
    files: &[PathBuf],
    dir: &Path,
) -> Result<Option<String>, CliError> {
    let from_stdin = matches!(words, [word] if word == "-");
    let mut parts = Vec::new();
    let piped = if from_stdin || !io::stdin().is_terminal() {
        read(&mut io::stdin().lock(), "the standard input")?
    } else {
        None
    };
    match (from_stdin, piped) {
        (true, Some(piped)) => parts.push(piped.text.trim_end().to_owned()),
        (true, None) => {
            return Err(
                CliError::usage("nothing came through the pipe").hint("`-` reads the task from it")
            );
        }
        (false, piped) => {
            let task = words.join(" ");
            parts.extend(Some(task.trim().to_owned()).filter(|task| !task.is_empty()));
            parts.extend(piped.map(|piped| piped.fenced("From the standard input")));
        }
    }
    for file in files {
        let name = file.display().to_string();
        let open = |error: io::Error| {
            CliError::usage(format!("{name}: {error}"))
                .hint("-f names a file to pass on, from the current directory")
        };
        let mut source = File::open(dir.join(file)).map_err(open)?;
        if !source.metadata().map_err(open)?.is_file() {
            return Err(CliError::usage(format!("{name} is not a plain file")));
        }
        let text = read(&mut source, &name)?;
        parts.push(text.unwrap_or_default().fenced(&format!("The file {name}")));
    }
    let together: usize = parts.iter().map(String::len).sum();
    if together > MOST_TOGETHER {
        return Err(
            CliError::usage(format!("{} are too much to begin with", size(together)))
                .hint("name fewer files; the agent can read files of the workspace by itself"),
        );
    }
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}

/// A text from somewhere, and how much of it is missing.
#[derive(Debug, Default, PartialEq)]
struct Source {
    text: String,
    is_cut: bool,
}

impl Source {
    /// The text between fences that it does not contain itself.
    fn fenced(&self, name: &str) -> String {
        let longest = self
            .text
            .split(|c| c != '`')
            .map(str::len)
            .max()
            .unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let cut = if self.is_cut {
            format!(" (only its first {})", size(MOST))
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

/// Reads a text up to a limit; nothing if it is empty.
fn read(from: &mut impl Read, name: &str) -> Result<Option<Source>, CliError> {
    let mut bytes = Vec::new();
    from.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > MOST;
    bytes.truncate(MOST);
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The limit may fall into a character.
        Err(error) if is_cut && error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.into_bytes()[..end]).into_owned()
        }
        Err(_) => {
            return Err(CliError::usage(format!("{name} is not text"))
                .hint("only UTF-8 text can be passed on"));
        }
    };
    Ok(Some(Source { text, is_cut }).filter(|source| !source.text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        read(&mut text.as_bytes(), "x")
            .expect("text")
            .unwrap_or_default()
    }

    #[test]
    fn no_text_can_end_its_own_fence() {
        assert_eq!(source("a").fenced("From x"), "From x:\n```\na\n```");
        assert_eq!(
            source("```\nb\n```\n").fenced("X"),
            "X:\n````\n```\nb\n```\n````"
        );
        assert_eq!(source("").fenced("X"), "X:\n```\n```");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_and_says_so() {
        let text = "x".repeat(MOST - 1) + "日本";
        let cut = source(&text);
        assert!(cut.is_cut && cut.text == "x".repeat(MOST - 1));
        assert!(cut.fenced("X").starts_with("X (only its first 262.1 kB):"));
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert_eq!(
            read(&mut &b"\xff\xfe"[..], "x")
                .expect_err("no text")
                .code(),
            crate::Exit::Usage
        );
        assert_eq!(read(&mut &b""[..], "x").expect("empty"), None);
    }
}
