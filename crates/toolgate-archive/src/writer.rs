//! Writes the lines of an archive.

use std::io::Write;

use toolgate_core::Digest;

use crate::{
    ExportError,
    line::{ArchiveLine, EndLine, LineChain, MAX_LINE_BYTES},
};

/// Writes lines, each linked to those before it.
pub(crate) struct ArchiveWriter<W> {
    out: W,
    chain: LineChain,
}

impl<W: Write> ArchiveWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            chain: LineChain::new(),
        }
    }

    pub(crate) fn put(&mut self, line: &ArchiveLine) -> Result<(), ExportError> {
        // Read back before it is written: a store in memory may have an optional null, which JSON
        // cannot tell from nothing, and an archive has to be the same after an import.
        let text = serde_json::to_vec(line).map_err(std::io::Error::from)?;
        let line: ArchiveLine = serde_json::from_slice(&text).map_err(std::io::Error::from)?;
        let text = self.chain.seal(&line).map_err(std::io::Error::from)?;
        if text.len() > MAX_LINE_BYTES {
            return Err(ExportError::TooLarge {
                what: format!("line {}", self.chain.lines),
                limit: MAX_LINE_BYTES as u64,
            });
        }
        Ok(self.out.write_all(&text)?)
    }

    /// Writes the last line and returns the number of lines and the root.
    pub(crate) fn finish(mut self) -> Result<(u64, Digest), ExportError> {
        let lines = self.chain.lines;
        self.put(&ArchiveLine::End(EndLine { lines }))?;
        self.out.flush()?;
        Ok((self.chain.lines, self.chain.root()))
    }
}
