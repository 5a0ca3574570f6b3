//! The lines of an archive, and the chain that links each line to all lines before it.

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Checkpoint, Digest, EntryOutline, Event, Json, LedgerHead, SealedEntry, SessionId, StoreRecord,
    Timestamp,
};

use crate::ImportError;

/// The word in the first line.
pub(crate) const FORMAT: &str = "toolgate-archive";

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// The longest line. A message with images may have megabytes.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// The largest spilled output or file version.
pub(crate) const MAX_BLOB_BYTES: u64 = 256 * 1024 * 1024;

/// The number of bytes of a blob in one line.
pub(crate) const BLOB_LINE_BYTES: u64 = 1024 * 1024;

/// The most sessions in one archive.
pub(crate) const MAX_SESSIONS: usize = 10_000;

/// One line of an archive, without its link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArchiveLine {
    /// The first line.
    Archive(ArchiveHeader),
    /// The beginning of a session.
    Session(SessionLine),
    /// An event of the session.
    Event(Box<Event>),
    /// A record of the session, its turns and calls.
    Record(RecordLine),
    /// A part of bytes that records of the session name.
    Blob(BlobLine),
    /// The beginning of the receipts of one ledger: the position before the first.
    Ledger(LedgerHead),
    /// A receipt.
    Entry(SealedEntry),
    /// A receipt of another session, with just enough to verify the chain across it.
    Outline(EntryOutline),
    /// The signed position of the receipt before it.
    Checkpoint(Box<Checkpoint>),
    /// An event of a redacted archive. It is for reading.
    RedactedEvent(Json),
    /// A message of a redacted archive.
    RedactedMessage(Json),
    /// Instructions in a redacted archive.
    RedactedInstructions(Json),
    /// The last line.
    End(EndLine),
}

/// The description of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveHeader {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// The version of the program.
    pub(crate) program: String,
    /// True if secrets were redacted. Such a file cannot be imported.
    pub(crate) redacted: bool,
    /// The sessions that were asked for. Those of their agents follow each of them.
    pub(crate) sessions: Vec<SessionId>,
    /// The kinds of lines that may occur.
    pub(crate) contains: Vec<String>,
}

/// The facts about a session that no event has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionLine {
    pub(crate) id: SessionId,
    /// The number of its events.
    pub(crate) events: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hidden_at: Option<Timestamp>,
}

/// A record with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordLine {
    pub(crate) name: String,
    pub(crate) record: StoreRecord,
}

/// A part of a blob, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlobLine {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) at: u64,
    pub(crate) data: String,
}

/// The closing line: its link is the root of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    /// The number of lines before it.
    pub(crate) lines: u64,
}

/// The state of the chain: the link of the line before.
#[derive(Debug, Clone)]
pub(crate) struct LineChain {
    link: Digest,
    pub(crate) lines: u64,
}

/// The text before the link in a line, and the text between link and content.
const BEFORE_LINK: &[u8] = b"{\"link\":\"";
const AFTER_LINK: &[u8] = b"\",";

/// The length of `sha256:` and 64 digits.
const LINK_BYTES: usize = 71;

impl LineChain {
    pub(crate) fn new() -> Self {
        // The name separates these links from all other digests.
        Self {
            link: Digest::of_bytes(b"toolgate archive\0"),
            lines: 0,
        }
    }

    /// Returns the link of the last line.
    pub(crate) fn root(&self) -> Digest {
        self.link
    }

    /// Returns the next line, with its line break.
    pub(crate) fn seal(&mut self, line: &ArchiveLine) -> Result<Vec<u8>, serde_json::Error> {
        let content = serde_json::to_vec(line)?;
        // The content is an object: its brace is replaced by the link.
        let content = &content[1..];
        let link = self.next_link(content);
        let mut text = Vec::with_capacity(content.len() + LINK_BYTES + 12);
        text.extend_from_slice(BEFORE_LINK);
        text.extend_from_slice(link.to_string().as_bytes());
        text.extend_from_slice(AFTER_LINK);
        text.extend_from_slice(content);
        text.push(b'\n');
        self.link = link;
        self.lines += 1;
        Ok(text)
    }

    /// Checks that `text`, without its line break, is the next line, and parses it.
    pub(crate) fn open(&mut self, text: &mut [u8]) -> Result<ArchiveLine, ImportError> {
        let number = self.lines + 1;
        let start = BEFORE_LINK.len() + LINK_BYTES + AFTER_LINK.len();
        let is_line = text.len() > start
            && text.starts_with(BEFORE_LINK)
            && text[BEFORE_LINK.len() + LINK_BYTES..].starts_with(AFTER_LINK);
        if !is_line {
            let what = "it is not a line of an archive";
            return Err(ImportError::at_line(number, what));
        }
        let link = self.next_link(&text[start..]);
        // The link as text, so that not even its letter case can change.
        if text[BEFORE_LINK.len()..BEFORE_LINK.len() + LINK_BYTES] != *link.to_string().as_bytes() {
            let what = "it was changed, or a line before it is missing or out of order";
            return Err(ImportError::at_line(number, what));
        }
        text[start - 1] = b'{';
        let line = serde_json::from_slice(&text[start - 1..]).map_err(|error| {
            ImportError::at_line(number, format!("its content cannot be read: {error}"))
        })?;
        self.link = link;
        self.lines = number;
        Ok(line)
    }

    fn next_link(&self, content: &[u8]) -> Digest {
        let content = Digest::of_bytes(content);
        Digest::of_bytes(&[&self.link.as_bytes()[..], content.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Vec<Vec<u8>> {
        let mut chain = LineChain::new();
        let lines = (0..3).map(|lines| ArchiveLine::End(EndLine { lines }));
        lines
            .map(|line| chain.seal(&line).expect("writes"))
            .collect()
    }

    fn open_all(lines: &[Vec<u8>]) -> Result<u64, ImportError> {
        let mut chain = LineChain::new();
        for line in lines {
            let mut text = line.strip_suffix(b"\n").unwrap_or(line).to_vec();
            chain.open(&mut text)?;
        }
        Ok(chain.lines)
    }

    #[test]
    fn a_line_opens_only_after_the_lines_before_it() {
        let lines = sealed();
        assert_eq!(open_all(&lines).expect("opens"), 3);
        let swapped = [lines[1].clone(), lines[0].clone()];
        assert!(matches!(
            open_all(&swapped),
            Err(ImportError::Line { line: 1, .. })
        ));
        let skipped = [lines[0].clone(), lines[2].clone()];
        assert!(matches!(
            open_all(&skipped),
            Err(ImportError::Line { line: 2, .. })
        ));
    }

    #[test]
    fn no_byte_of_a_line_can_change() {
        let lines = sealed();
        for at in 0..lines[1].len() - 1 {
            let mut changed = lines.clone();
            changed[1][at] ^= 0x20;
            let found = open_all(&changed);
            assert!(
                matches!(found, Err(ImportError::Line { line: 2, .. })),
                "{at}"
            );
        }
    }
}
