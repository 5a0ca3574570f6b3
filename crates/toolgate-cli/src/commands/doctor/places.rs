//! Where things are kept: the home, the disk under it, the keys in it, and the clock that dates them.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{Access, access, statvfs};
use toolgate::{KeyFile, KeyFileError};

use super::Finding;
use crate::Cx;

const ELSEWHERE: &str = "set TOOLGATE_HOME to a directory that you can write to";

pub(super) fn home(cx: &Cx) -> Finding {
    let (check, home) = ("home", &cx.paths.home);
    let shown = home.display();
    match home.metadata() {
        Ok(found) if !found.is_dir() => {
            Finding::broken(check, format!("{shown} is not a directory"), ELSEWHERE)
        }
        Ok(found) if access(home, Access::WRITE_OK | Access::EXEC_OK).is_ok() => {
            match found.permissions().mode() & 0o077 {
                0 => Finding::fine(check, shown.to_string()),
                _ => Finding::unusual(
                    check,
                    format!("others can look into {shown}"),
                    format!("chmod 700 {shown}"),
                ),
            }
        }
        Ok(_) => Finding::broken(check, format!("{shown} cannot be written"), ELSEWHERE),
        Err(_) => match existing(home) {
            Some(above) if above.is_dir() && access(&above, Access::WRITE_OK).is_ok() => {
                Finding::fine(check, format!("{shown}; it will be made"))
            }
            _ => Finding::broken(check, format!("{shown} cannot be made"), ELSEWHERE),
        },
    }
}

/// The nearest part of a path that is there.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|above| above.exists())
        .map(Path::to_owned)
}

/// Less than this and the next run may not be kept.
const TOO_LITTLE: u64 = 50 << 20;
/// Less than this and it may not last long.
const LITTLE: u64 = 1 << 30;

pub(super) fn disk(cx: &Cx) -> Finding {
    let check = "disk";
    let space = existing(&cx.paths.home).and_then(|place| statvfs(&place).ok());
    let Some(space) = space else {
        return Finding::unusual(
            check,
            "how much room there is cannot be told",
            "look with `df`",
        );
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let detail = format!("{} MiB are free where things are kept", free >> 20);
    let fix = "make room, or set TOOLGATE_HOME to another disk";
    match free {
        free if free < TOO_LITTLE => Finding::broken(check, detail, fix),
        free if free < LITTLE => Finding::unusual(check, detail, fix),
        _ => Finding::fine(check, detail),
    }
}

/// The start of 2025 and of 2100, in seconds since 1970: no clock that goes right shows anything outside.
const SANE: std::ops::Range<u64> = 1_735_689_600..4_102_444_800;

pub(super) fn clock(cx: &Cx) -> Finding {
    let (check, now) = ("clock", SystemTime::now());
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let fix = "set the clock; approvals expire and receipts are dated by it";
    if !SANE.contains(&seconds) {
        return Finding::broken(check, "the clock is years off", fix);
    }
    let written = cx
        .paths
        .home
        .join("toolgate.db")
        .metadata()
        .and_then(|file| file.modified());
    match written.map(|written| written.duration_since(now)) {
        Ok(Ok(ahead)) if ahead > Duration::from_secs(300) => {
            Finding::broken(check, "the database was last written in the future", fix)
        }
        _ => Finding::fine(
            check,
            jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
        ),
    }
}

pub(super) fn keys(cx: &Cx) -> Finding {
    let (check, path) = ("keys", cx.paths.home.join("keys"));
    let shown = path.display();
    match KeyFile::load(&path) {
        Ok(keys) => Finding::fine(
            check,
            format!(
                "{shown}: {} to sign and verify approvals",
                keys.list().len()
            ),
        ),
        Err(KeyFileError::Io { .. }) if !path.exists() => {
            Finding::fine(check, format!("{shown}; one will be made"))
        }
        Err(KeyFileError::TooOpen { .. }) => Finding::broken(
            check,
            format!("others can read {shown}"),
            format!("chmod 600 {shown}"),
        ),
        Err(error) => Finding::broken(
            check,
            error.to_string(),
            format!(
                "move {shown} away; a new one is made, and open approvals have to be decided again"
            ),
        ),
    }
}
