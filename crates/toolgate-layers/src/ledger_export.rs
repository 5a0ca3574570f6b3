//! A ledger as a file that can be verified anywhere: one line per record, then what was signed about it.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Checkpoint, Digest, EntryOutline, LedgerCheck, LedgerHead, LedgerName, LedgerVerifier,
    SealedEntry, Tampered, Tampering, Verified, canonical_json,
};

use crate::{Ledger, LedgerError, ReceiptFilter};

/// The version of the format.
const VERSION: u32 = 1;

/// The longest line that is read. A receipt is bounded far below that.
const MOST_LINE: u64 = 16 * 1024 * 1024;

/// One line of a file, in canonical JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// The first one.
    Header(Header),
    /// A record.
    Entry(SealedEntry),
    /// A record that was not wanted: what it takes to follow the chain past it.
    Outline(EntryOutline),
    /// What was signed.
    Checkpoint(Checkpoint),
    /// The last one.
    End(End),
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) ledger: LedgerName,
    /// Whether the file goes on for as long as the ledger does, and so has no last line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) mirror: bool,
    pub(crate) version: u32,
}

/// What there should be in front of the last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    checkpoints: u64,
    counter: u64,
}

/// What is known about a file that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedExport {
    /// The chain.
    pub chain: Verified,
    /// How many records are only there in outline. Their contents are not in the file.
    pub outlines: u64,
}

impl Line {
    pub(crate) fn header(ledger: LedgerName, mirror: bool) -> Self {
        Self::Header(Header {
            ledger,
            mirror,
            version: VERSION,
        })
    }

    /// The line, its end included.
    pub(crate) fn to_text(&self) -> String {
        canonical_json(&serde_json::to_value(self).expect("a line is plain data")) + "\n"
    }

    /// Reads a line that is exactly as it was written.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(bytes).ok()?;
        (line.to_text().as_bytes() == bytes).then_some(line)
    }
}

impl Ledger {
    /// Writes the ledger as lines of JSON and returns how many receipts are in it.
    ///
    /// Receipts that `filter` does not want are there in outline only, so that the chain can be verified all the same.
    /// The filter's place and number count for nothing here.
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
        let mut put = |line: Line| writer.write_all(line.to_text().as_bytes());
        put(Line::header(self.name().clone(), false))?;
        let (mut counter, mut written) = (0, 0);
        loop {
            let entries = self.entries(counter).await?;
            if entries.is_empty() {
                break;
            }
            counter += entries.len() as u64;
            for entry in entries {
                // Everything is exported as it is, also what cannot be read: whoever verifies it shall see it.
                if all
                    || self
                        .read(&entry)
                        .is_ok_and(|sealed| filter.wants(&sealed.receipt))
                {
                    written += 1;
                    put(Line::Entry(entry))?;
                } else {
                    put(Line::Outline(entry.outline()))?;
                }
            }
        }
        // Signed after the last record was read, a checkpoint would speak about one that is not here.
        let checkpoints: Vec<_> = self
            .checkpoints()
            .await?
            .into_iter()
            .filter(|c| c.counter <= counter)
            .collect();
        let end = Line::End(End {
            checkpoints: checkpoints.len() as u64,
            counter,
        });
        checkpoints
            .into_iter()
            .try_for_each(|checkpoint| put(Line::Checkpoint(checkpoint)))?;
        put(end)?;
        writer.flush()?;
        Ok(written)
    }
}

/// Verifies a file that [`Ledger::export`] or a [`LedgerMirror`](crate::LedgerMirror) has written, without any store.
///
/// With a verifier the chain is held against the checkpoints in the file and those that were kept elsewhere; only the
/// latter show that the file was cut off and its end written anew. Any change of a single byte is found.
pub fn verify_export(
    reader: impl BufRead,
    elsewhere: &[Checkpoint],
    verifier: Option<&LedgerVerifier>,
) -> Result<VerifiedExport, LedgerError> {
    let mut lines = Lines { reader, number: 0 };
    let header = match lines.next()?.as_deref().and_then(Line::read) {
        Some(Line::Header(header)) if header.version == VERSION => header,
        _ => return Err(lines.bad("it is not the header of an exported ledger of this version")),
    };
    let mut file = FileCheck::new(header.ledger, elsewhere, verifier)?;
    let mut end = None;
    while let Some(bytes) = lines.next()? {
        match Line::read(&bytes) {
            _ if end.is_some() => return Err(lines.bad("it comes behind the end")),
            Some(Line::Entry(entry)) if file.checkpoints == 0 => file.entry(&entry)?,
            Some(Line::Outline(outline)) if file.checkpoints == 0 => file.outline(&outline)?,
            Some(Line::Checkpoint(checkpoint)) if !header.mirror => file.checkpoint(&checkpoint)?,
            Some(Line::End(last)) if !header.mirror => end = Some(last),
            // Neither what it should be nor anything else that could stand here.
            _ if file.checkpoints == 0 => return Err(file.chain.unreadable().into()),
            _ => return Err(lines.bad("it is neither a checkpoint nor the end")),
        }
    }
    file.finish(end, header.mirror, &lines)
}

/// What was found in a file so far.
struct FileCheck<'a> {
    chain: LedgerCheck,
    verifier: Option<&'a LedgerVerifier>,
    /// The hash of each record, since checkpoints come behind all of them.
    hashes: Vec<Digest>,
    outlines: u64,
    checkpoints: u64,
    /// The record that the last checkpoint is about.
    signed: Option<u64>,
}

impl<'a> FileCheck<'a> {
    fn new(
        ledger: LedgerName,
        elsewhere: &[Checkpoint],
        verifier: Option<&'a LedgerVerifier>,
    ) -> Result<Self, LedgerError> {
        let chain = match verifier {
            Some(verifier) => LedgerCheck::against(ledger, elsewhere, verifier)?,
            None => LedgerCheck::of(ledger),
        };
        Ok(Self {
            chain,
            verifier,
            hashes: Vec::new(),
            outlines: 0,
            checkpoints: 0,
            signed: None,
        })
    }

    fn entry(&mut self, entry: &SealedEntry) -> Result<(), LedgerError> {
        self.chain.feed(entry)?;
        self.hashes.push(entry.hash);
        Ok(())
    }

    fn outline(&mut self, outline: &EntryOutline) -> Result<(), LedgerError> {
        self.chain.pass(outline)?;
        self.hashes.push(outline.hash);
        self.outlines += 1;
        Ok(())
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), LedgerError> {
        let LedgerHead {
            ledger, counter, ..
        } = self.chain.head();
        let there = match checkpoint.counter.checked_sub(1) {
            None => Some(LedgerHead::start(ledger.clone()).hash),
            Some(at) => usize::try_from(at)
                .ok()
                .and_then(|at| self.hashes.get(at).copied()),
        };
        let doubt = self
            .verifier
            .and_then(|verifier| verifier.verify(checkpoint).err());
        let (at, what) = match (there, doubt) {
            _ if checkpoint.ledger != *ledger => (
                checkpoint.counter,
                Tampering::WrongLedger(checkpoint.ledger.clone()),
            ),
            (_, Some(doubt)) => (checkpoint.counter, Tampering::Checkpoint(doubt)),
            (None, None) => (counter + 1, Tampering::Truncated(checkpoint.counter)),
            (Some(_), None) if self.signed >= Some(checkpoint.counter) => {
                (checkpoint.counter, Tampering::Repeated(checkpoint.counter))
            }
            (Some(hash), None) if hash != checkpoint.hash => (
                checkpoint.counter,
                Tampering::NotAsSigned {
                    since: self.signed.unwrap_or(0),
                },
            ),
            (Some(_), None) => {
                self.checkpoints += 1;
                self.signed = Some(checkpoint.counter);
                return Ok(());
            }
        };
        Err(Box::new(Tampered {
            ledger: ledger.clone(),
            counter: at,
            what,
        })
        .into())
    }

    fn finish<R>(
        self,
        end: Option<End>,
        mirror: bool,
        lines: &Lines<R>,
    ) -> Result<VerifiedExport, LedgerError> {
        let mut chain = self.chain.finish()?;
        match end {
            Some(end) if end.counter != chain.counter => {
                let (ledger, counter) = (chain.ledger, chain.counter + 1);
                return Err(Box::new(Tampered {
                    ledger,
                    counter,
                    what: Tampering::Truncated(end.counter),
                })
                .into());
            }
            Some(end) if end.checkpoints != self.checkpoints => {
                return Err(lines.bad("there were other checkpoints before it"));
            }
            None if !mirror => {
                return Err(lines.bad("it is not the last one: the file was cut off"));
            }
            _ => {}
        }
        if self.verifier.is_some() {
            chain.signed = chain.signed.max(self.signed);
        }
        Ok(VerifiedExport {
            chain,
            outlines: self.outlines,
        })
    }
}

/// The lines of a file, their ends included.
pub(crate) struct Lines<R> {
    pub(crate) reader: R,
    pub(crate) number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line; the last one may have no end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, LedgerError> {
        let mut line = Vec::new();
        let read = (&mut self.reader)
            .take(MOST_LINE)
            .read_until(b'\n', &mut line)?;
        self.number += 1;
        Ok((read > 0).then_some(line))
    }
}

impl<R> Lines<R> {
    pub(crate) fn bad(&self, what: &'static str) -> LedgerError {
        LedgerError::Line {
            line: self.number,
            what,
        }
    }
}
