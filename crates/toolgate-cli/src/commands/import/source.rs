//! The content of a file to import, and the files that were imported before.

use std::{
    fs::{self, File},
    io::{Read, Seek},
    path::Path,
    time::UNIX_EPOCH,
};

use serde_json::json;
use toolgate::{
    archive::{ForeignFormat, ForeignSession, ImportError, ImportResult, MAX_FILE_BYTES},
    store::{RecordKey, StoreHandle},
    value::{Digest, Json, SessionId},
};

use super::opencode;
use crate::CliError;

/// The beginning of an archive, and of an SQLite file.
const ARCHIVE_START: &[u8] = b"{\"link\":\"sha256:";
const SQLITE_START: &[u8] = b"SQLite format 3\0";

/// What a file has.
pub(super) enum ImportSource {
    /// An archive of our own.
    Archive(File),
    /// Sessions of another program.
    Foreign(ForeignFormat, Vec<ForeignSession>),
}

impl ImportSource {
    /// Reads a file of the program `from`, or finds out what it is.
    pub(super) fn open(path: &Path, from: Option<ForeignFormat>) -> Result<Self, CliError> {
        let mut file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(CliError::usage("it is not a file")
                .with_hint("--from PROGRAM --path DIR looks for files in a directory"));
        }
        let mut start = Vec::new();
        file.by_ref().take(16).read_to_end(&mut start)?;
        file.rewind()?;
        if from.is_none() && start.starts_with(ARCHIVE_START) {
            return Ok(Self::Archive(file));
        }
        if start.starts_with(SQLITE_START) {
            check_size(file.metadata()?.len())?;
            let sessions = opencode::read_database(path)?;
            return Ok(Self::Foreign(ForeignFormat::Opencode, sessions));
        }
        let text = read_text(file)?;
        let detected = from.or_else(|| ForeignFormat::detect(&text));
        let format = detected.ok_or(ImportError::UnknownFormat)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".messages").unwrap_or(&name);
        Ok(Self::Foreign(format, format.read(&text, name)?))
    }
}

fn check_size(bytes: u64) -> Result<(), CliError> {
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "it is larger than {MAX_FILE_BYTES} bytes, the largest file that is imported"
    )))
}

/// Reads a file of bounded size as text. Bytes that are not UTF-8 are replaced.
fn read_text(file: File) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    check_size(bytes.len() as u64)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// A file in the state in which it is: by its path, its size and its time.
pub(super) struct KnownFile(String);

impl KnownFile {
    pub(super) fn new(format: ForeignFormat, path: &Path) -> Result<Self, CliError> {
        let path = fs::canonicalize(path)?;
        let meta = fs::metadata(&path)?;
        let changed = meta
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let digest = Digest::of_bytes(path.as_os_str().as_encoded_bytes());
        let nanos = changed.as_nanos();
        Ok(Self(format!(
            "import-file/{format}/{digest}/{}-{nanos}",
            meta.len()
        )))
    }

    /// Returns the number of sessions of the file, if it was imported in this state and they are
    /// still there.
    pub(super) async fn load(&self, store: &StoreHandle) -> Result<Option<u64>, CliError> {
        let key = RecordKey::Other(self.0.as_str().into());
        let Some(found) = store.load_json(&key).await? else {
            return Ok(None);
        };
        let sessions = found.get("sessions").and_then(|list| list.as_array());
        let sessions = sessions
            .into_iter()
            .flatten()
            .filter_map(|id| id.as_str()?.parse().ok());
        let sessions: Vec<SessionId> = sessions.collect();
        for session in &sessions {
            // One that was erased is imported again.
            if store.revision(*session).await? == 0 {
                return Ok(None);
            }
        }
        Ok(Some(sessions.len() as u64))
    }

    pub(super) async fn store(
        &self,
        store: &StoreHandle,
        results: &[(&'static str, ImportResult)],
    ) -> Result<(), CliError> {
        let sessions: Vec<_> = results.iter().map(|(_, result)| result.session).collect();
        let value = Json::new(json!({ "sessions": sessions }))
            .map_err(|error| CliError::new(error.to_string()))?;
        let key = RecordKey::Other(self.0.as_str().into());
        store.put_json_once(key, value).await?;
        Ok(())
    }
}
