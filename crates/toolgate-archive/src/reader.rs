//! Reads the lines of an archive and checks the link of each.

use std::io::{BufRead, Read};

use toolgate_core::Digest;

use crate::{
    ImportError,
    line::{ArchiveHeader, ArchiveLine, FORMAT, LineChain, MAX_LINE_BYTES, MAX_SESSIONS, VERSION},
};

/// Reads lines of bounded length.
pub(crate) struct ArchiveReader<R> {
    input: R,
    chain: LineChain,
    ended: bool,
}

impl<R: BufRead> ArchiveReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            chain: LineChain::new(),
            ended: false,
        }
    }

    /// Returns the number of the last line.
    pub(crate) fn line(&self) -> u64 {
        self.chain.lines
    }

    /// Returns the link of the last line: the root, once the end was read.
    pub(crate) fn root(&self) -> Digest {
        self.chain.root()
    }

    /// Reads the first line.
    pub(crate) fn header(&mut self) -> Result<ArchiveHeader, ImportError> {
        let mut text = self
            .next_text()?
            .ok_or(ImportError::Truncated { line: 0 })?;
        // The version first: the rest of the line may have another form in another version.
        if let Some(found) = version_of(&text).filter(|found| *found != VERSION) {
            let known = VERSION;
            return Err(ImportError::Version { found, known });
        }
        match self.chain.open(&mut text)? {
            ArchiveLine::Archive(header) if header.format == FORMAT => {
                if header.sessions.len() > MAX_SESSIONS {
                    let what = format!("it names more than {MAX_SESSIONS} sessions");
                    return Err(ImportError::at_line(1, what));
                }
                Ok(header)
            }
            _ => Err(ImportError::at_line(
                1,
                "it is not the header of an archive",
            )),
        }
    }

    /// Reads the next line; none after the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<ArchiveLine>, ImportError> {
        let line = self.line();
        let Some(mut text) = self.next_text()? else {
            return if self.ended {
                Ok(None)
            } else {
                Err(ImportError::Truncated { line })
            };
        };
        if self.ended {
            return Err(ImportError::at_line(line + 1, "it comes after the end"));
        }
        let found = self.chain.open(&mut text)?;
        if let ArchiveLine::End(end) = &found {
            if end.lines != line {
                return Err(ImportError::at_line(
                    line + 1,
                    "it has the wrong number of lines",
                ));
            }
            self.ended = true;
        }
        Ok(Some(found))
    }

    /// Reads the text of a line, without its line break.
    fn next_text(&mut self) -> Result<Option<Vec<u8>>, ImportError> {
        let mut text = Vec::new();
        let limit = MAX_LINE_BYTES as u64 + 1;
        self.input
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.pop() == Some(b'\n') {
            return Ok(Some(text));
        }
        let line = self.line();
        if text.len() + 1 > MAX_LINE_BYTES {
            return Err(ImportError::at_line(line + 1, "it is too long"));
        }
        Err(ImportError::Truncated { line })
    }
}

/// Returns the version in the first line, if the line looks like a header at all.
fn version_of(text: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct AnyHeader {
        archive: AnyVersion,
    }
    #[derive(serde::Deserialize)]
    struct AnyVersion {
        format: String,
        version: u32,
    }
    let header: AnyHeader = serde_json::from_slice(text).ok()?;
    (header.archive.format == FORMAT).then_some(header.archive.version)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::line::EndLine;

    /// Reads an archive without sessions whose links are right and whose end names this many lines.
    fn read_with_end(lines: u64) -> Result<Option<ArchiveLine>, ImportError> {
        let mut chain = LineChain::new();
        let header = ArchiveLine::Archive(ArchiveHeader::new(&[], false, &[]));
        let mut text = chain.seal(&header).expect("seals");
        let end = ArchiveLine::End(EndLine { lines });
        text.extend(chain.seal(&end).expect("seals"));
        let mut reader = ArchiveReader::new(Cursor::new(text));
        reader.header()?;
        reader.next_line()
    }

    #[test]
    fn an_end_that_names_another_number_of_lines_is_refused() {
        assert!(matches!(read_with_end(1), Ok(Some(ArchiveLine::End(_)))));
        for wrong in [0, 2, u64::MAX] {
            let error = read_with_end(wrong).expect_err("refused").to_string();
            assert!(error.contains("line 2") && error.contains("number of lines"));
        }
    }
}
