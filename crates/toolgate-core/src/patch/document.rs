//! Parses a unified diff into files.

use std::{iter::Peekable, str::SplitInclusive};

use super::{
    FilePatch, InvalidPatch, PatchHunk, headers::FileHeaders, invalid_line, names::parse_name,
    push_file, shorten,
};

/// The lines of a patch without their `\n`, numbered from 1.
pub(super) type PatchLines<'a> = Peekable<NumberedLines<'a>>;

pub(super) struct NumberedLines<'a> {
    lines: SplitInclusive<'a, char>,
    number: usize,
}

impl<'a> Iterator for NumberedLines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        self.number += 1;
        Some((self.number, line.strip_suffix('\n').unwrap_or(line)))
    }
}

/// Splits a patch into lines.
pub(super) fn numbered_lines(text: &str) -> PatchLines<'_> {
    NumberedLines {
        lines: text.split_inclusive('\n'),
        number: 0,
    }
    .peekable()
}

/// Parses a unified diff of one or more files.
pub(super) fn parse_unified(text: &str) -> Result<Vec<FilePatch>, InvalidPatch> {
    let mut parser = PatchParser {
        lines: numbered_lines(text),
        files: Vec::new(),
        section: None,
    };
    while let Some((number, line)) = parser.lines.next() {
        parser.parse_line(number, line.strip_suffix('\r').unwrap_or(line))?;
    }
    parser.finish_section()?;
    if parser.files.is_empty() {
        let problem = "the patch names no file; write a unified diff with ---, +++ and @@ lines";
        Err(InvalidPatch(problem.to_owned()))
    } else {
        Ok(parser.files)
    }
}

struct PatchParser<'a> {
    lines: PatchLines<'a>,
    files: Vec<FilePatch>,
    /// The file whose headers and hunks are being parsed.
    section: Option<FileSection>,
}

#[derive(Default)]
struct FileSection {
    headers: FileHeaders,
    hunks: Vec<PatchHunk>,
}

impl PatchParser<'_> {
    fn parse_line(&mut self, number: usize, line: &str) -> Result<(), InvalidPatch> {
        if let Some(rest) = line.strip_prefix("diff --git ") {
            self.start_section(FileHeaders::new(number, Some(rest)))
        } else if let Some(rest) = line.strip_prefix("--- ") {
            self.parse_names(number, rest)
        } else if line.starts_with("@@ ") {
            let hunk = PatchHunk::parse(number, line, &mut self.lines)?;
            let section = self
                .section
                .as_mut()
                .filter(|section| section.headers.names.is_some());
            section
                .ok_or_else(|| invalid_line(number, "a hunk without --- and +++ lines before it"))?
                .hunks
                .push(hunk);
            Ok(())
        } else if line.starts_with("*** ") || line.starts_with("+++ ") {
            // `*** Begin Patch` is another format; it must not pass as a comment.
            let line = shorten(line);
            let problem = format!("{line:?} is out of place; write a unified diff");
            Err(invalid_line(number, problem))
        } else if let Some(section) = self.section.as_mut() {
            section.headers.parse_line(number, line)
        } else if FileHeaders::is_git_header(line) {
            // Text above the first file is a comment, unless another program could take it for a
            // header of that file.
            let problem = format!("{:?} comes before diff --git", shorten(line));
            Err(invalid_line(number, problem))
        } else {
            Ok(())
        }
    }

    /// Parses the `---` line and the `+++` line after it.
    fn parse_names(&mut self, number: usize, old: &str) -> Result<(), InvalidPatch> {
        let next = self
            .lines
            .next()
            .map(|(_, line)| line.strip_suffix('\r').unwrap_or(line));
        let Some(new) = next.and_then(|line| line.strip_prefix("+++ ")) else {
            let problem = "there is no +++ line after the --- line";
            return Err(invalid_line(number, problem));
        };
        // A plain diff has no `diff --git` lines: the next `---` line starts the next file.
        let is_next = |section: &FileSection| section.headers.names.is_some();
        if self.section.as_ref().is_none_or(is_next) {
            self.start_section(FileHeaders::new(number, None))?;
        }
        let names = (parse_name(old, number)?, parse_name(new, number + 1)?);
        self.section.get_or_insert_default().headers.names = Some(names);
        Ok(())
    }

    fn start_section(&mut self, headers: FileHeaders) -> Result<(), InvalidPatch> {
        self.finish_section()?;
        self.section = Some(FileSection {
            headers,
            hunks: Vec::new(),
        });
        Ok(())
    }

    fn finish_section(&mut self) -> Result<(), InvalidPatch> {
        match self.section.take() {
            Some(FileSection { headers, hunks }) => {
                push_file(&mut self.files, headers.into_patch(hunks)?)
            }
            None => Ok(()),
        }
    }
}
