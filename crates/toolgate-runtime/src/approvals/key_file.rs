//! The file with the signing keys: created once, readable by its owner only, never in the store.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use toolgate_core::{KeyId, KeyKind, Keyring, LedgerKey, LedgerVerifier, SecretKey};
use zeroize::Zeroizing;

/// The keys of a server as they are stored on disk.
///
/// The file belongs to the user who runs the program, and only this user can read it. A file that
/// others can read, that belongs to another user or is a link is rejected, because its keys may be
/// known. It is replaced as a whole, so that a lost process leaves the old one or the new one. Two
/// processes that create or change it at once end up with the same keys.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("keys");
/// use toolgate_runtime::KeyFile;
/// let mut keys = KeyFile::load_or_create(&path)?;
/// let first = keys.keyring().active_key_id().clone();
/// let second = keys.rotate()?;
/// assert_eq!(*KeyFile::load(&path)?.keyring().active_key_id(), second);
/// keys.retire_key(&first)?;
/// assert_eq!(keys.list_keys().len(), 1);
/// # Ok::<(), toolgate_runtime::KeyFileError>(())
/// ```
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// The active one first.
    keys: Vec<SecretKey>,
}

/// One key of a file, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key's name.
    pub id: KeyId,
    /// The signature algorithm.
    pub kind: KeyKind,
    /// True if new tokens are signed with it.
    pub active: bool,
}

/// Reason why the keys could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file system failed; `source()` has the cause.
    #[error("the key file {path} could not be {doing}: {source}")]
    Io {
        /// The key file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Others can read the file, so its keys may be known.
    #[error(
        "others can read the key file {path} (mode {mode:03o}); make it 600, and rotate the keys if they may be known"
    )]
    TooOpen {
        /// The key file.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// It is a link, a directory or something else that is not a plain file.
    #[error("{path} is not a plain file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("the key file {path} belongs to another user")]
    NotOurs {
        /// The key file.
        path: PathBuf,
    },
    /// The content is not that of a key file.
    #[error("line {line} of {path} is not valid in a key file")]
    Malformed {
        /// The key file.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
    },
    /// There is no such key.
    #[error("there is no key {0} in the key file")]
    UnknownKey(KeyId),
    /// The active key cannot be removed.
    #[error("{0} is the active key; rotate first")]
    StillActive(KeyId),
    /// The system has no randomness to create a key from.
    #[error("no key could be created: the system has no randomness")]
    NoRandomness,
}

impl KeyFile {
    const FIRST_LINE: &'static str = "toolgate keys 1";
    const MOST_BYTES: u64 = 64 * 1024;

    /// Loads the keys, or creates a file with one new key if there is none.
    pub fn load_or_create(path: impl Into<PathBuf>) -> Result<Self, KeyFileError> {
        let path = path.into();
        match Self::load(&path) {
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::create_file(path)
            }
            loaded => loaded,
        }
    }

    /// Loads the keys of a file that has to exist.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, KeyFileError> {
        let path = path.into();
        let text = read_private(&path)?;
        let keys = parse_keys(&text).map_err(|line| KeyFileError::Malformed {
            path: path.clone(),
            line,
        })?;
        Ok(Self { path, keys })
    }

    /// Returns the keys, ready to sign and verify.
    pub fn keyring(&self) -> Keyring {
        let (active, older) = self
            .keys
            .split_first()
            .expect("a key file has an active key");
        older
            .iter()
            .cloned()
            .fold(Keyring::new(active.clone()), Keyring::verifying)
    }

    /// Returns the key that signs ledger checkpoints now.
    pub fn ledger_key(&self) -> LedgerKey {
        self.keyring().ledger_key()
    }

    /// Returns a verifier that accepts checkpoints signed with any of the keys.
    pub fn ledger_verifier(&self) -> LedgerVerifier {
        self.keyring().ledger_verifier()
    }

    /// Returns the keys without their secrets, the active one first.
    pub fn list_keys(&self) -> Vec<KeyInfo> {
        let listed = |(at, key): (usize, &SecretKey)| KeyInfo {
            id: key.id().clone(),
            kind: key.kind(),
            active: at == 0,
        };
        self.keys.iter().enumerate().map(listed).collect()
    }

    /// Signs with a new key from now on. Signatures of the old keys stay valid.
    pub fn rotate(&mut self) -> Result<KeyId, KeyFileError> {
        self.rotate_to(KeyKind::HmacSha256)
    }

    /// Rotates like [`KeyFile::rotate`], to a key of another kind.
    pub fn rotate_to(&mut self, kind: KeyKind) -> Result<KeyId, KeyFileError> {
        let key = new_key(kind)?;
        let id = key.id().clone();
        self.change_keys(|keys| {
            keys.insert(0, key);
            Ok(())
        })?;
        Ok(id)
    }

    /// Removes a key. Its signatures are not valid any more.
    pub fn retire_key(&mut self, id: &KeyId) -> Result<(), KeyFileError> {
        self.change_keys(|keys| {
            let at = keys.iter().position(|key| key.id() == id);
            match at.ok_or_else(|| KeyFileError::UnknownKey(id.clone()))? {
                0 => Err(KeyFileError::StillActive(id.clone())),
                at => {
                    keys.remove(at);
                    Ok(())
                }
            }
        })
    }

    fn create_file(path: PathBuf) -> Result<Self, KeyFileError> {
        let keys = vec![new_key(KeyKind::HmacSha256)?];
        let draft = write_temporary(&path, &keys)?;
        // A hard link is created only if the name is free: of two processes that create the file,
        // one wins.
        let made = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        match made {
            Ok(()) => sync_directory(&path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Self::load(path),
            Err(source) => {
                return Err(KeyFileError::Io {
                    path,
                    doing: "created",
                    source,
                });
            }
        }
        Ok(Self { path, keys })
    }

    /// Loads the file again, changes it and replaces it, under a lock.
    fn change_keys(
        &mut self,
        change: impl FnOnce(&mut Vec<SecretKey>) -> Result<(), KeyFileError>,
    ) -> Result<(), KeyFileError> {
        let _alone = lock_file(&self.path)?;
        // Loaded again under the lock: another process may have rotated since.
        let mut keys = Self::load(&self.path)?.keys;
        change(&mut keys)?;
        let draft = write_temporary(&self.path, &keys)?;
        fs::rename(&draft, &self.path).map_err(io_error(&self.path, "replaced"))?;
        sync_directory(&self.path)?;
        self.keys = keys;
        Ok(())
    }
}

/// Creates a keyring with one new key, which is stored nowhere.
///
/// # Errors
///
/// Fails if the system has no randomness.
pub fn random_keyring() -> Result<Keyring, KeyFileError> {
    Ok(Keyring::new(new_key(KeyKind::HmacSha256)?))
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Io {
        path,
        doing,
        source,
    }
}

/// Reads a file that only its owner can read.
fn read_private(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    // Only for a clear error; the open below does not follow links.
    let found = fs::symlink_metadata(path).map_err(io_error(path, "read"))?;
    if !found.is_file() {
        return Err(KeyFileError::NotAFile {
            path: path.to_owned(),
        });
    }
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_follow)
        .open(path)
        .map_err(io_error(path, "read"))?;
    // Checks the opened file, not the path that was looked at before: it may have been replaced in
    // between.
    let meta = file.metadata().map_err(io_error(path, "read"))?;
    if !meta.is_file() {
        return Err(KeyFileError::NotAFile {
            path: path.to_owned(),
        });
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(KeyFileError::NotOurs {
            path: path.to_owned(),
        });
    }
    if meta.mode() & 0o077 != 0 {
        return Err(KeyFileError::TooOpen {
            path: path.to_owned(),
            mode: meta.mode() & 0o777,
        });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(KeyFile::MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(io_error(path, "read"))?;
    Ok(text)
}

/// Parses the keys, or returns the line that is wrong.
fn parse_keys(text: &str) -> Result<Vec<SecretKey>, usize> {
    let mut lines = text.lines().zip(1_usize..);
    if lines
        .next()
        .is_none_or(|(line, _)| line != KeyFile::FIRST_LINE)
    {
        return Err(1);
    }
    let mut keys: Vec<SecretKey> = Vec::new();
    for (line, number) in lines {
        let key = parse_key(line).filter(|key| keys.iter().all(|other| other.id() != key.id()));
        keys.push(key.ok_or(number)?);
    }
    // Without its last line end the file may be truncated.
    if keys.is_empty() || !text.ends_with('\n') {
        Err(text.lines().count().max(1))
    } else {
        Ok(keys)
    }
}

fn parse_key(line: &str) -> Option<SecretKey> {
    let mut words = line.split(' ');
    let id = words.next()?;
    let kind = words.next()?;
    let secret = words.next()?;
    if words.next().is_some() || secret.len() != 64 || !secret.is_ascii() {
        return None;
    }
    let mut bytes = Zeroizing::new([0; 32]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(SecretKey::new(
        id.parse().ok()?,
        KeyKind::from_word(kind)?,
        *bytes,
    ))
}

fn new_key(kind: KeyKind) -> Result<SecretKey, KeyFileError> {
    let mut secret = Zeroizing::new([0; 32]);
    let mut name = [0; 6];
    getrandom::fill(&mut *secret).map_err(|_| KeyFileError::NoRandomness)?;
    getrandom::fill(&mut name).map_err(|_| KeyFileError::NoRandomness)?;
    let id = format!("k{}", to_hex(&name))
        .parse()
        .expect("hex digits name a key");
    Ok(SecretKey::new(id, kind, *secret))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Writes the keys to a temporary file beside the key file, durably.
fn write_temporary(path: &Path, keys: &[SecretKey]) -> Result<PathBuf, KeyFileError> {
    let mut text = Zeroizing::new(format!("{}\n", KeyFile::FIRST_LINE));
    for key in keys {
        let secret = Zeroizing::new(to_hex(key.expose_secret()));
        let _ = writeln!(text, "{} {} {}", key.id(), key.kind().as_str(), *secret);
    }
    let mut tail = [0; 6];
    getrandom::fill(&mut tail).map_err(|_| KeyFileError::NoRandomness)?;
    let draft = sibling_path(path, &format!(".{}", to_hex(&tail)));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .map_err(io_error(path, "written"))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(source) = written {
        let _ = fs::remove_file(&draft);
        return Err(KeyFileError::Io {
            path: path.to_owned(),
            doing: "written",
            source,
        });
    }
    Ok(draft)
}

fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Keeps other processes from changing the file until the guard is dropped.
fn lock_file(path: &Path) -> Result<File, KeyFileError> {
    let lock = sibling_path(path, ".lock");
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(&lock)
        .map_err(io_error(path, "locked"))?;
    file.lock().map_err(io_error(path, "locked"))?;
    Ok(file)
}

/// Makes the name durable, not only the content of the file.
fn sync_directory(path: &Path) -> Result<(), KeyFileError> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(io_error(path, "made durable"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("keys");
        (dir, path)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_new_file_is_for_its_owner_only_and_reads_back_the_same() {
        let (_dir, path) = place();
        let made = KeyFile::load_or_create(&path).expect("made");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(
            KeyFile::load_or_create(&path).expect("read").list_keys(),
            made.list_keys()
        );
        assert_eq!(
            fs::read_dir(path.parent().expect("a parent"))
                .expect("listed")
                .count(),
            1,
            "no temporary files are left"
        );
    }

    #[test]
    fn a_file_that_others_can_read_is_rejected() {
        let (_dir, path) = place();
        KeyFile::load_or_create(&path).expect("made");
        for mode in [0o640, 0o604, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert!(
                matches!(KeyFile::load(&path), Err(KeyFileError::TooOpen { .. })),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn a_link_or_a_directory_is_rejected() {
        let (dir, path) = place();
        let real = dir.path().join("real");
        KeyFile::load_or_create(&real).expect("made");
        symlink(&real, &path).expect("linked");
        assert!(matches!(
            KeyFile::load_or_create(&path),
            Err(KeyFileError::NotAFile { .. })
        ));
        assert!(matches!(
            KeyFile::load_or_create(dir.path()),
            Err(KeyFileError::NotAFile { .. })
        ));
        let dangling = dir.path().join("dangling");
        symlink(dir.path().join("nothing"), &dangling).expect("linked");
        assert!(matches!(
            KeyFile::load_or_create(&dangling),
            Err(KeyFileError::NotAFile { .. })
        ));
    }

    #[test]
    fn a_malformed_key_file_is_rejected_by_line_and_never_quoted() {
        let (_dir, path) = place();
        let good = format!("k1 hmac-sha256 {}", "ab".repeat(32));
        let first = KeyFile::FIRST_LINE;
        for (text, line) in [
            (String::new(), 1),
            ("\n".to_owned(), 1),
            (format!("{first}\n"), 1),
            (format!("toolgate keys 2\n{good}\n"), 1),
            (format!("{first}\n{good}"), 2),
            (format!("{first}\n{good}\n{good}\n"), 3),
            (format!("{first}\n{good} more\n"), 2),
            (format!("{first}\nk1 rsa {}\n", "ab".repeat(32)), 2),
            (format!("{first}\nk1 ed25519 {}\n", "ab".repeat(31)), 2),
            (format!("{first}\nk1 ed25519 {}\n", "zz".repeat(32)), 2),
        ] {
            write(&path, &text, 0o600);
            let error = KeyFile::load(&path).expect_err(&text);
            assert!(
                matches!(error, KeyFileError::Malformed { line: found, .. } if found == line),
                "{text:?}: {error}"
            );
            assert!(!format!("{error:?} {error}").contains("abab"), "{error}");
        }
        write(&path, &format!("{first}\n{good}\n"), 0o600);
        KeyFile::load(&path).expect("reads");
    }

    #[test]
    fn a_rotated_key_still_verifies_until_it_is_retired() {
        use toolgate_core::{ApprovalRequest, Arguments, Call, TokenError};
        let (_dir, path) = place();
        let mut file = KeyFile::load_or_create(&path).expect("made");
        let request = ApprovalRequest::for_call(&Call::detached("pay", Arguments::empty()));
        let first = file.keyring().active_key_id().clone();
        let token = file.keyring().ask_token(&request);
        let second = file.rotate_to(KeyKind::Ed25519).expect("rotates");
        assert_eq!(
            (file.keyring().active_key_id(), mode(&path)),
            (&second, 0o600)
        );
        assert!(file.keyring().verify_ask_token(&token).is_ok());
        assert!(matches!(
            file.retire_key(&second),
            Err(KeyFileError::StillActive(_))
        ));
        file.retire_key(&first).expect("retires");
        assert_eq!(
            KeyFile::load(&path)
                .expect("reads")
                .keyring()
                .verify_ask_token(&token),
            Err(TokenError::KeyGone)
        );
        assert!(matches!(
            file.retire_key(&first),
            Err(KeyFileError::UnknownKey(_))
        ));
    }

    #[test]
    fn concurrent_creators_end_up_with_the_same_keys() {
        let (_dir, path) = place();
        let start = std::sync::Barrier::new(8);
        let made = std::thread::scope(|scope| {
            let make = || {
                start.wait();
                KeyFile::load_or_create(&path).expect("made").list_keys()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        assert!(made.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn concurrent_rotations_lose_no_key() {
        let (_dir, path) = place();
        KeyFile::load_or_create(&path).expect("made");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    KeyFile::load(&path)
                        .and_then(|mut file| file.rotate())
                        .expect("rotates")
                });
            }
        });
        assert_eq!(KeyFile::load(&path).expect("reads").list_keys().len(), 9);
    }

    #[test]
    fn secrets_are_not_shown() {
        let (_dir, path) = place();
        write(
            &path,
            &format!("{}\nk1 ed25519 {}\n", KeyFile::FIRST_LINE, "ab".repeat(32)),
            0o600,
        );
        let shown = format!("{:?}", KeyFile::load(&path).expect("reads"));
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }
}
