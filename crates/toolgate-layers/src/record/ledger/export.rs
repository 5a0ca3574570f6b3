//! A ledger as a file that can be verified anywhere: one line per record, then its checkpoints.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Checkpoint, CheckpointError, Digest, EntryOutline, LedgerHead, LedgerName, LedgerVerification,
    LedgerVerifier, SealedEntry, TamperKind, TamperedLedger, UncheckedCheckpoint, VerifiedLedger,
    canonical_text,
};

use crate::{Ledger, LedgerError, ReceiptFilter};

/// The version of the format.
const EXPORT_VERSION: u32 = 1;

/// The longest line that is read. The size of a receipt is limited far below that.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// One line of a file, in canonical JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ExportLine {
    /// The first line.
    Header(ExportHeader),
    /// A record.
    Entry(SealedEntry),
    /// A record that the filter excludes, with just enough to verify the chain across it.
    Outline(EntryOutline),
    /// A signed checkpoint.
    Checkpoint(Checkpoint),
    /// The last line.
    End(ExportEnd),
}

/// The description of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportHeader {
    pub(crate) ledger: LedgerName,
    /// True if the file grows with the ledger and so has no last line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) mirror: bool,
    pub(crate) version: u32,
}

/// The expected content before the last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportEnd {
    checkpoints: u64,
    /// The digest of the lines of the checkpoints. Those of unknown keys cannot be verified, and a
    /// changed byte in one is noticed all the same. Files of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoints_digest: Option<Digest>,
    counter: u64,
}

/// The result of verifying a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedExport {
    /// The verified chain.
    pub chain: VerifiedLedger,
    /// The number of records that are outlines only. Their contents are not in the file.
    pub outlines: u64,
}

impl ExportLine {
    /// Returns the header line of a file.
    pub(crate) fn header(ledger: LedgerName, mirror: bool) -> Self {
        Self::Header(ExportHeader {
            ledger,
            mirror,
            version: EXPORT_VERSION,
        })
    }

    /// Formats the line, with its line break.
    pub(crate) fn to_text(&self) -> String {
        canonical_text(self).expect("a line is plain data") + "\n"
    }

    /// Parses a line, and rejects it unless it is byte for byte as it was written.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(bytes).ok()?;
        // The same bytes, not just the same meaning: otherwise white space could be changed without
        // notice.
        (line.to_text().as_bytes() == bytes).then_some(line)
    }
}

impl Ledger {
    /// Writes the ledger as lines of JSON and returns the number of receipts in it.
    ///
    /// Receipts that `filter` excludes are written as outlines, so that the chain can still be
    /// verified. The filter's `after` and `limit` are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the store or the writer fails.
    pub async fn export(
        &self,
        mut writer: impl Write,
        filter: &ReceiptFilter,
    ) -> Result<u64, LedgerError> {
        let everything = ReceiptFilter {
            after: filter.after,
            limit: filter.limit,
            ..ReceiptFilter::default()
        };
        let all = *filter == everything;
        let mut put = |line: ExportLine| writer.write_all(line.to_text().as_bytes());
        put(ExportLine::header(self.name().clone(), false))?;
        let mut counter = 0;
        let mut written = 0;
        loop {
            let entries = self.read_entries(counter).await?;
            if entries.is_empty() {
                break;
            }
            counter += entries.len() as u64;
            for entry in entries {
                // A full export includes entries that cannot be parsed, so that the verifier sees
                // them.
                if all
                    || self
                        .parse_receipt(&entry)
                        .is_ok_and(|sealed| filter.matches(&sealed.receipt))
                {
                    written += 1;
                    put(ExportLine::Entry(entry))?;
                } else {
                    put(ExportLine::Outline(entry.outline()))?;
                }
            }
        }
        // A checkpoint signed after the last page was read is about a record that is not in the
        // file.
        let checkpoints: Vec<_> = self
            .checkpoints()
            .await?
            .into_iter()
            .filter(|c| c.counter <= counter)
            .collect();
        let number = checkpoints.len() as u64;
        let lines = checkpoints.into_iter().map(ExportLine::Checkpoint);
        let lines: String = lines.map(|line| line.to_text()).collect();
        writer.write_all(lines.as_bytes())?;
        let end = ExportLine::End(ExportEnd {
            checkpoints: number,
            checkpoints_digest: Some(Digest::of_bytes(lines.as_bytes())),
            counter,
        });
        writer.write_all(end.to_text().as_bytes())?;
        writer.flush()?;
        Ok(written)
    }
}

/// Verifies a file that [`Ledger::export`] or a [`LedgerMirror`](crate::LedgerMirror) has written,
/// without any store.
///
/// With a verifier, the chain is compared with the checkpoints in the file and with those that were
/// stored elsewhere. Only the latter reveal that the file was truncated and its end rewritten. Any
/// change of a single byte is detected.
///
/// # Errors
///
/// Fails with the first record or line that is not as it was written, or if the file cannot be
/// read.
pub fn verify_export(
    reader: impl BufRead,
    elsewhere: &[Checkpoint],
    verifier: Option<&LedgerVerifier>,
) -> Result<VerifiedExport, LedgerError> {
    let mut lines = LineReader { reader, number: 0 };
    let header = match lines.next_line()?.as_deref().and_then(ExportLine::parse) {
        Some(ExportLine::Header(header)) if header.version == EXPORT_VERSION => header,
        _ => {
            return Err(
                lines.error_at_line("it is not the header of an exported ledger of this version")
            );
        }
    };
    let mut file = ExportCheck::new(header.ledger, elsewhere, verifier)?;
    let mut end = None;
    while let Some(bytes) = lines.next_line()? {
        match ExportLine::parse(&bytes) {
            _ if end.is_some() => return Err(lines.error_at_line("it comes after the end")),
            Some(ExportLine::Entry(entry)) if file.checkpoints == 0 => file.check_entry(&entry)?,
            Some(ExportLine::Outline(outline)) if file.checkpoints == 0 => {
                file.check_outline(&outline)?
            }
            Some(ExportLine::Checkpoint(checkpoint)) if !header.mirror => {
                file.check_checkpoint(&checkpoint)?;
                file.checkpoint_lines.extend(&bytes);
            }
            Some(ExportLine::End(last)) if !header.mirror => end = Some(last),
            // Before the first checkpoint only a record may follow, so this is a damaged record.
            _ if file.checkpoints == 0 => return Err(file.chain.unreadable_entry().into()),
            _ => return Err(lines.error_at_line("it is neither a checkpoint nor the end")),
        }
    }
    file.finish(end, header.mirror, &lines)
}

/// The state of the verification of a file.
struct ExportCheck<'a> {
    chain: LedgerVerification,
    verifier: Option<&'a LedgerVerifier>,
    /// The hash of each record, because the checkpoints come after all of them.
    hashes: Vec<Digest>,
    outlines: u64,
    checkpoints: u64,
    /// The lines of the checkpoints.
    checkpoint_lines: Vec<u8>,
    /// The record that the last checkpoint signs.
    signed: Option<u64>,
    /// The last checkpoint that counted: its record and its key.
    last: Option<(u64, Digest)>,
    /// The checkpoints of keys that are not trusted.
    not_checked: Vec<UncheckedCheckpoint>,
}

impl<'a> ExportCheck<'a> {
    /// Starts the verification of a file.
    fn new(
        ledger: LedgerName,
        elsewhere: &[Checkpoint],
        verifier: Option<&'a LedgerVerifier>,
    ) -> Result<Self, LedgerError> {
        let chain = match verifier {
            Some(verifier) => LedgerVerification::with_checkpoints(ledger, elsewhere, verifier)?,
            None => LedgerVerification::from_start(ledger),
        };
        Ok(Self {
            chain,
            verifier,
            hashes: Vec::new(),
            outlines: 0,
            checkpoints: 0,
            checkpoint_lines: Vec::new(),
            signed: None,
            last: None,
            not_checked: Vec::new(),
        })
    }

    /// Checks a record against the chain.
    fn check_entry(&mut self, entry: &SealedEntry) -> Result<(), LedgerError> {
        self.chain.verify_entry(entry)?;
        self.hashes.push(entry.hash);
        Ok(())
    }

    /// Checks an outline against the chain.
    fn check_outline(&mut self, outline: &EntryOutline) -> Result<(), LedgerError> {
        self.chain.verify_outline(outline)?;
        self.hashes.push(outline.hash);
        self.outlines += 1;
        Ok(())
    }

    /// Checks a checkpoint against the records before it.
    fn check_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), LedgerError> {
        let LedgerHead {
            ledger, counter, ..
        } = self.chain.head();
        let there = match checkpoint.counter.checked_sub(1) {
            None => Some(LedgerHead::start_of(ledger.clone()).hash),
            Some(at) => usize::try_from(at)
                .ok()
                .and_then(|at| self.hashes.get(at).copied()),
        };
        let doubt = self
            .verifier
            .and_then(|verifier| verifier.verify(checkpoint).err());
        // The order matters: a forged checkpoint proves nothing, so its claims are not compared
        // with the records.
        let (at, what) = match (there, doubt) {
            _ if checkpoint.ledger != *ledger => (
                checkpoint.counter,
                TamperKind::WrongLedger(checkpoint.ledger.clone()),
            ),
            // Listed, so that the reader knows what was not checked; it proves nothing.
            (_, Some(CheckpointError::UnknownKey(key))) => {
                self.checkpoints += 1;
                let counter = checkpoint.counter;
                self.not_checked.push(UncheckedCheckpoint { counter, key });
                return Ok(());
            }
            (_, Some(doubt @ CheckpointError::Forged)) => {
                (checkpoint.counter, TamperKind::Checkpoint(doubt))
            }
            (None, None) => (counter + 1, TamperKind::Truncated(checkpoint.counter)),
            // Two keys may have signed one record.
            (Some(_), None)
                if self.signed > Some(checkpoint.counter)
                    || self.last == Some((checkpoint.counter, checkpoint.key)) =>
            {
                (checkpoint.counter, TamperKind::Repeated(checkpoint.counter))
            }
            (Some(hash), None) if hash != checkpoint.hash => (
                checkpoint.counter,
                TamperKind::SignatureMismatch {
                    since: self.signed.unwrap_or(0),
                },
            ),
            (Some(_), None) => {
                self.checkpoints += 1;
                self.signed = Some(checkpoint.counter);
                self.last = Some((checkpoint.counter, checkpoint.key));
                return Ok(());
            }
        };
        Err(Box::new(TamperedLedger {
            ledger: ledger.clone(),
            counter: at,
            what,
        })
        .into())
    }

    /// Checks the end of the file and returns the result.
    fn finish<R>(
        self,
        end: Option<ExportEnd>,
        mirror: bool,
        lines: &LineReader<R>,
    ) -> Result<VerifiedExport, LedgerError> {
        let mut chain = self.chain.finish()?;
        match end {
            Some(end) if end.counter != chain.counter => {
                let ledger = chain.ledger;
                let counter = chain.counter + 1;
                return Err(Box::new(TamperedLedger {
                    ledger,
                    counter,
                    what: TamperKind::Truncated(end.counter),
                })
                .into());
            }
            Some(end)
                if end.checkpoints != self.checkpoints
                    || end.checkpoints_digest.is_some_and(|expected| {
                        expected != Digest::of_bytes(&self.checkpoint_lines)
                    }) =>
            {
                return Err(lines.error_at_line("there were other checkpoints before it"));
            }
            None if !mirror => {
                return Err(lines.error_at_line("it is not the last one: the file was truncated"));
            }
            _ => {}
        }
        if self.verifier.is_some() {
            // Without a verifier the signatures in the file are unchecked and must not count as
            // signed.
            chain.signed = chain.signed.max(self.signed);
        }
        chain.not_checked.extend(self.not_checked);
        Ok(VerifiedExport {
            chain,
            outlines: self.outlines,
        })
    }
}

/// The lines of a file, with their line breaks.
pub(crate) struct LineReader<R> {
    pub(crate) reader: R,
    pub(crate) number: u64,
}

impl<R: BufRead> LineReader<R> {
    /// Returns the next line; the last one may have no line break.
    pub(crate) fn next_line(&mut self) -> Result<Option<Vec<u8>>, LedgerError> {
        let mut line = Vec::new();
        let read = (&mut self.reader)
            // A file without line breaks must not fill the memory.
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        self.number += 1;
        Ok((read > 0).then_some(line))
    }
}

impl<R> LineReader<R> {
    /// Creates an error about the current line.
    pub(crate) fn error_at_line(&self, what: &'static str) -> LedgerError {
        LedgerError::Line {
            line: self.number,
            what,
        }
    }
}
