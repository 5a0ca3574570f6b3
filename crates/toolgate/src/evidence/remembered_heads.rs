//! The file that remembers the last signed head of each ledger, beside the keys.
//!
//! Who can write to a database can remove receipts together with the checkpoints in it. The head in
//! this file is out of their reach, so the loss is noticed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use toolgate_core::Checkpoint;
use uuid::Uuid;

use crate::gate::StateDir;

/// The most ledgers that are remembered. Beyond it, the one that was signed longest ago is dropped.
const MAX_LEDGERS: usize = 1_000;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The last signed head of one ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RememberedHead {
    /// The id of the ledger. Another database has another one.
    pub id: Uuid,
    /// The address of the database, without its password, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The signed head.
    pub checkpoint: Checkpoint,
}

/// The file with the last signed head of each ledger. It is replaced as a whole, under a lock, and
/// only its owner can read it.
#[derive(Debug, Clone)]
pub(super) struct HeadFile {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadList {
    ledgers: Vec<RememberedHead>,
}

impl HeadFile {
    pub(super) fn new(state: &StateDir) -> Self {
        Self {
            path: state.path().join("ledger-heads.json"),
        }
    }

    /// Loads the heads; none if there is no file.
    pub(super) fn load(&self) -> io::Result<Vec<RememberedHead>> {
        let Some(text) = self.read_private()? else {
            return Ok(Vec::new());
        };
        let list: HeadList = serde_json::from_str(&text)
            .map_err(|error| self.error(io::ErrorKind::InvalidData, &error.to_string()))?;
        Ok(list.ledgers)
    }

    /// Remembers a head, unless a later one of the ledger is remembered: another process may have
    /// signed in the meantime.
    pub(super) fn remember(&self, mut head: RememberedHead) -> io::Result<()> {
        self.change(|heads| {
            let before = heads.iter().find(|other| other.is_of_ledger(&head));
            let address = before.and_then(|before| before.address.clone());
            head.address = head.address.or(address);
            let later = heads.iter().any(|other| {
                other.is_of_ledger(&head) && other.checkpoint.counter > head.checkpoint.counter
            });
            if !later {
                heads.retain(|other| !other.is_of_ledger(&head));
                heads.push(head);
            }
        })
    }

    /// Replaces a head that is lost by the one that was accepted instead.
    pub(super) fn replace(&self, lost: &RememberedHead, head: RememberedHead) -> io::Result<()> {
        self.change(|heads| {
            heads.retain(|other| !other.is_of_ledger(lost) && !other.is_of_ledger(&head));
            heads.push(head);
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RememberedHead>)) -> io::Result<()> {
        let _alone = self.lock()?;
        let mut ledgers = self.load()?;
        change(&mut ledgers);
        ledgers.sort_by_key(|head| head.checkpoint.at);
        ledgers.drain(..ledgers.len().saturating_sub(MAX_LEDGERS));
        let text = serde_json::to_vec_pretty(&HeadList { ledgers })?;
        let directory = self.path.parent().expect("the file is in a directory");
        // Only its owner can read a temporary file, and it replaces the old one as a whole.
        let mut new = tempfile::NamedTempFile::new_in(directory)?;
        new.write_all(&text)?;
        new.as_file().sync_all()?;
        new.persist(&self.path).map_err(|error| error.error)?;
        // The name has to be durable too, not only the content.
        File::open(directory)?.sync_all()
    }

    /// Keeps other processes from changing the file until the guard is dropped.
    fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(self.path.with_extension("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn read_private(&self) -> io::Result<Option<String>> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(no_follow())
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.error(error.kind(), &error.to_string())),
        };
        let meta = file.metadata()?;
        let private = meta.is_file()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & 0o077 == 0;
        if !private {
            let problem = "it must be a plain file of this user that others cannot read";
            return Err(self.error(io::ErrorKind::PermissionDenied, problem));
        }
        let mut text = String::new();
        if file.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
            return Err(self.error(io::ErrorKind::InvalidData, "it is too large"));
        }
        Ok(Some(text))
    }

    fn error(&self, kind: io::ErrorKind, problem: &str) -> io::Error {
        io::Error::new(kind, format!("{}: {problem}", self.path.display()))
    }
}

impl RememberedHead {
    /// Checks whether both are heads of one ledger.
    fn is_of_ledger(&self, other: &Self) -> bool {
        self.id == other.id && self.checkpoint.ledger == other.checkpoint.ledger
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

/// Returns the address under which a database is remembered: absolute, and without a password.
pub(super) fn remembered_address(address: &str) -> String {
    let is_url = address.contains("://");
    let path = address.strip_prefix("sqlite:").unwrap_or(address);
    // A link or a relative path names the same file.
    match fs::canonicalize(path) {
        Ok(path) if !is_url => format!("sqlite:{}", path.display()),
        _ => crate::gate::display_address(address),
    }
}

#[cfg(test)]
mod tests;
