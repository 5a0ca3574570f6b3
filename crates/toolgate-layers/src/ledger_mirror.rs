//! Keeps a copy of a ledger in a file that only ever grows.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use toolgate_core::{LedgerCheck, LedgerHead, LedgerName, SealedEntry};

use crate::{
    Ledger, LedgerError,
    ledger_export::{Line, Lines},
    receipt_file::off_thread,
};

/// A file that follows a ledger, one line per record, readable by the owner only.
///
/// [`catch_up`](Self::catch_up) appends what is new and forces it to disk. A line that a crash tore is written again; a
/// file that is not a beginning of the ledger, or a ledger that no longer has what the file has, is an error that names
/// the record. One process at a time can have the file open. [`verify_export`](crate::verify_export) verifies it without
/// the store.
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
    /// Nothing while something is being written; if that fails, the file has to be opened again.
    open: Option<OpenMirror>,
}

#[derive(Debug)]
struct OpenMirror {
    file: File,
    head: LedgerHead,
}

impl LedgerMirror {
    /// Opens a mirror, or begins one, and verifies what is there.
    pub async fn open(ledger: Ledger, path: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        let path = path.into();
        let open = OpenMirror::at(ledger.name().clone(), path.clone()).await?;
        Ok(Self {
            ledger,
            path,
            open: Some(open),
        })
    }

    /// Appends what the ledger has and the file has not, and returns how many records that were.
    pub async fn catch_up(&mut self) -> Result<u64, LedgerError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenMirror::at(self.ledger.name().clone(), self.path.clone()).await?,
        };
        if open.head.counter > 0 {
            self.ledger.stands_at(&open.head).await?;
        }
        let mut added = 0;
        loop {
            let entries = self.ledger.entries(open.head.counter).await?;
            if entries.is_empty() {
                self.open = Some(open);
                return Ok(added);
            }
            added += entries.len() as u64;
            open = blocking(move || open.append(&entries)).await?;
        }
    }

    /// Where the file stands.
    pub fn head(&self) -> Option<&LedgerHead> {
        self.open.as_ref().map(|open| &open.head)
    }
}

impl OpenMirror {
    async fn at(ledger: LedgerName, path: PathBuf) -> Result<Self, LedgerError> {
        blocking(move || Self::open(ledger, &path)).await
    }

    fn open(ledger: LedgerName, path: &Path) -> Result<Self, LedgerError> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(no_follow)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file").into());
        }
        file.try_lock().map_err(io::Error::from)?;
        let mut open = Self {
            file,
            head: LedgerHead::start(ledger),
        };
        open.read_back()?;
        Ok(open)
    }

    /// Verifies what is in the file and takes off a torn end.
    fn read_back(&mut self) -> Result<(), LedgerError> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut lines = Lines {
            reader: BufReader::new(&self.file),
            number: 0,
        };
        let (mut check, mut whole) = (LedgerCheck::of(self.head.ledger.clone()), 0);
        let header = Line::header(self.head.ledger.clone(), true);
        while let Some(bytes) = lines.next()?.filter(|bytes| bytes.ends_with(b"\n")) {
            whole += bytes.len() as u64;
            match Line::read(&bytes) {
                Some(line) if lines.number == 1 && line == header => {}
                _ if lines.number == 1 => {
                    return Err(lines.bad("it is not the header of a mirror of this ledger"));
                }
                Some(Line::Entry(entry)) => check.feed(&entry)?,
                _ => return Err(check.unreadable().into()),
            }
        }
        let began = lines.number > 1 && whole > 0;
        self.head = check.head().clone();
        self.file.set_len(whole)?;
        if !began {
            self.file.write_all(header.to_text().as_bytes())?;
        }
        Ok(self.file.sync_all()?)
    }

    /// Appends records that continue the file, and forces them to disk.
    fn append(mut self, entries: &[SealedEntry]) -> Result<Self, LedgerError> {
        let mut check = LedgerCheck::behind(self.head.clone());
        let mut text = String::new();
        for entry in entries {
            check.feed(entry)?;
            text.push_str(&Line::Entry(entry.clone()).to_text());
        }
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        Ok(Self {
            head: check.head().clone(),
            ..self
        })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    let stopped = || Err(io::Error::other("the work was stopped").into());
    off_thread(work).await.unwrap_or_else(stopped)
}
