//! Copies a ledger to a file that is only appended to.

use std::{
    fs::File,
    io::{self, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use toolgate_core::{LedgerHead, LedgerName, LedgerVerification, SealedEntry};

use crate::{
    Ledger, LedgerError,
    record::{
        ledger::export::{ExportLine, LineReader},
        receipts::jsonl::{open_for_append, run_blocking},
    },
};

/// A file that follows a ledger, one line per record, readable by the owner only.
///
/// [`catch_up`](Self::catch_up) appends new records and forces them to disk. A line that was torn
/// by a crash is written again. A file that is not a prefix of the ledger, or a ledger that no
/// longer has what the file has, is an error that names the record. Only one process at a time can
/// have the file open. [`verify_export`](crate::verify_export) verifies the file without the store.
///
/// ```
/// use toolgate_layers::{Ledger, LedgerMirror, Receipts, verify_export};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("main.jsonl");
/// let call = call("echo");
/// echo_under(Receipts::to_store()).run(call.clone()).await;
/// let mut mirror = LedgerMirror::open(Ledger::main(call.env().store().clone()), &path).await?;
/// assert_eq!(mirror.catch_up().await?, 1);
/// let file = std::io::BufReader::new(std::fs::File::open(&path)?);
/// assert_eq!(verify_export(file, &[], None)?.chain.counter, 1);
/// # Ok::<(), toolgate_layers::LedgerError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct LedgerMirror {
    ledger: Ledger,
    path: PathBuf,
    /// `None` during a write; if that fails, the file has to be opened and verified again.
    open: Option<OpenMirror>,
}

/// A locked file whose content up to `head` is verified.
#[derive(Debug)]
struct OpenMirror {
    file: File,
    head: LedgerHead,
}

impl LedgerMirror {
    /// Opens or creates a mirror and verifies its content.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, if another process has locked it, or if its content does
    /// not verify.
    pub async fn open(ledger: Ledger, path: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        let path = path.into();
        let open = OpenMirror::open_async(ledger.name().clone(), path.clone()).await?;
        Ok(Self {
            ledger,
            path,
            open: Some(open),
        })
    }

    /// Appends the records that the file does not have yet, and returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the ledger does not continue the file, or if the store or the file fails.
    ///
    /// # Cancel safety
    ///
    /// A write that has begun continues on its thread after a drop, and the next call fails while
    /// it holds the file's lock. After that, the next call opens and verifies the file again.
    pub async fn catch_up(&mut self) -> Result<u64, LedgerError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenMirror::open_async(self.ledger.name().clone(), self.path.clone()).await?,
        };
        // The ledger must still contain the last record of the file, or the file would mix two
        // histories.
        if open.head.counter > 0 {
            self.ledger.check_head(&open.head).await?;
        }
        let mut added = 0;
        loop {
            let entries = self.ledger.read_entries(open.head.counter).await?;
            if entries.is_empty() {
                self.open = Some(open);
                return Ok(added);
            }
            added += entries.len() as u64;
            open = run_ledger_work(move || open.append_entries(&entries)).await?;
        }
    }

    /// Returns the last record in the file; `None` if the last write failed.
    pub fn head(&self) -> Option<&LedgerHead> {
        self.open.as_ref().map(|open| &open.head)
    }
}

impl OpenMirror {
    /// Opens the file on a blocking thread.
    async fn open_async(ledger: LedgerName, path: PathBuf) -> Result<Self, LedgerError> {
        run_ledger_work(move || Self::open_file(ledger, &path)).await
    }

    /// Opens and locks the file, and verifies its content.
    fn open_file(ledger: LedgerName, path: &Path) -> Result<Self, LedgerError> {
        let file = open_for_append(path)?;
        // Two writers would interleave their records and break the chain in the file.
        file.try_lock().map_err(io::Error::from)?;
        let mut open = Self {
            file,
            head: LedgerHead::start_of(ledger),
        };
        open.verify_content()?;
        Ok(open)
    }

    /// Verifies the content of the file and removes an incomplete last line.
    fn verify_content(&mut self) -> Result<(), LedgerError> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut lines = LineReader {
            reader: BufReader::new(&self.file),
            number: 0,
        };
        let mut check = LedgerVerification::from_start(self.head.ledger.clone());
        let mut whole = 0;
        let header = ExportLine::header(self.head.ledger.clone(), true);
        while let Some(bytes) = lines.next_line()?.filter(|bytes| bytes.ends_with(b"\n")) {
            whole += bytes.len() as u64;
            match ExportLine::parse(&bytes) {
                Some(line) if lines.number == 1 && line == header => {}
                _ if lines.number == 1 => {
                    return Err(
                        lines.error_at_line("it is not the header of a mirror of this ledger")
                    );
                }
                Some(ExportLine::Entry(entry)) => check.verify_entry(&entry)?,
                _ => return Err(check.unreadable_entry().into()),
            }
        }
        let began = lines.number > 1 && whole > 0;
        self.head = check.head().clone();
        // Everything up to here was verified; what follows is a line that a crash left incomplete.
        self.file.set_len(whole)?;
        if !began {
            self.file.write_all(header.to_text().as_bytes())?;
        }
        Ok(self.file.sync_all()?)
    }

    /// Appends records that continue the file, and forces them to disk.
    fn append_entries(mut self, entries: &[SealedEntry]) -> Result<Self, LedgerError> {
        let mut check = LedgerVerification::after_head(self.head.clone());
        let mut text = String::new();
        for entry in entries {
            // Verified before it is written: the mirror must never contain a record that breaks the
            // chain.
            check.verify_entry(entry)?;
            text.push_str(&ExportLine::Entry(entry.clone()).to_text());
        }
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        Ok(Self {
            head: check.head().clone(),
            ..self
        })
    }
}

/// Runs blocking work off the async threads.
async fn run_ledger_work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    let stopped = || Err(io::Error::other("the work was cancelled").into());
    run_blocking(work).await.unwrap_or_else(stopped)
}
