//! Checks of the home directory, its disk, the keys in it, and the clock.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{Access, access, statvfs};
use toolgate::approval::{KeyFile, KeyFileError};

use super::DoctorFinding;
use crate::CommandContext;

const HOME_HINT: &str = "set TOOLGATE_HOME to a directory that you can write to";

pub(super) fn check_home(cx: &CommandContext) -> DoctorFinding {
    let check = "home";
    let home = cx.paths.home.path();
    let shown = home.display();
    match home.metadata() {
        Ok(found) if !found.is_dir() => {
            DoctorFinding::broken(check, format!("{shown} is not a directory"), HOME_HINT)
        }
        Ok(found) if access(home, Access::WRITE_OK | Access::EXEC_OK).is_ok() => {
            match found.permissions().mode() & 0o077 {
                0 => DoctorFinding::fine(check, shown.to_string()),
                _ => DoctorFinding::unusual(
                    check,
                    format!("other users can read {shown}"),
                    format!("chmod 700 {shown}"),
                ),
            }
        }
        Ok(_) => DoctorFinding::broken(check, format!("{shown} cannot be written"), HOME_HINT),
        Err(_) => match existing_ancestor(home) {
            Some(above) if above.is_dir() && access(&above, Access::WRITE_OK).is_ok() => {
                DoctorFinding::fine(check, format!("{shown}; it will be created"))
            }
            _ => DoctorFinding::broken(check, format!("{shown} cannot be created"), HOME_HINT),
        },
    }
}

/// Returns the nearest ancestor of a path that exists.
fn existing_ancestor(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|above| above.exists())
        .map(Path::to_owned)
}

/// With less free space than this, the next run may not be stored.
const MIN_FREE_BYTES: u64 = 50 << 20;
/// With less free space than this, the disk may be full soon.
const LOW_FREE_BYTES: u64 = 1 << 30;

pub(super) fn check_disk(cx: &CommandContext) -> DoctorFinding {
    let check = "disk";
    let space = existing_ancestor(cx.paths.home.path()).and_then(|place| statvfs(&place).ok());
    let Some(space) = space else {
        return DoctorFinding::unusual(
            check,
            "the free space cannot be determined",
            "check it with `df`",
        );
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let detail = format!("{} MiB free in the home directory", free >> 20);
    let fix = "free some space, or set TOOLGATE_HOME to another disk";
    match free {
        free if free < MIN_FREE_BYTES => DoctorFinding::broken(check, detail, fix),
        free if free < LOW_FREE_BYTES => DoctorFinding::unusual(check, detail, fix),
        _ => DoctorFinding::fine(check, detail),
    }
}

/// The start of 2025 and of 2100, in seconds since 1970. A clock outside this range is wrong.
const PLAUSIBLE_SECONDS: std::ops::Range<u64> = 1_735_689_600..4_102_444_800;

pub(super) fn check_clock(cx: &CommandContext) -> DoctorFinding {
    let check = "clock";
    let now = SystemTime::now();
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let fix = "set the clock; approvals expire and receipts are dated by it";
    if !PLAUSIBLE_SECONDS.contains(&seconds) {
        return DoctorFinding::broken(check, "the clock is years off", fix);
    }
    let written = cx
        .paths
        .home
        .path()
        .join("toolgate.db")
        .metadata()
        .and_then(|file| file.modified());
    // A file from the future means that the clock was set back since.
    match written.map(|written| written.duration_since(now)) {
        Ok(Ok(ahead)) if ahead > Duration::from_secs(300) => {
            DoctorFinding::broken(check, "the database was last written in the future", fix)
        }
        _ => DoctorFinding::fine(
            check,
            jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
        ),
    }
}

pub(super) fn check_keys(cx: &CommandContext) -> DoctorFinding {
    let check = "keys";
    let path = cx.paths.home.path().join("keys");
    let shown = path.display();
    match KeyFile::load(&path) {
        Ok(keys) => DoctorFinding::fine(
            check,
            format!(
                "{shown}: {} to sign and verify approvals",
                keys.list_keys().len()
            ),
        ),
        Err(KeyFileError::Io { .. }) if !path.exists() => {
            DoctorFinding::fine(check, format!("{shown}; it will be created"))
        }
        Err(KeyFileError::TooOpen { .. }) => DoctorFinding::broken(
            check,
            format!("other users can read {shown}"),
            format!("chmod 600 {shown}"),
        ),
        Err(error) => DoctorFinding::broken(
            check,
            error.to_string(),
            format!(
                "move {shown} away; a new one is created, and open approvals have to be decided again"
            ),
        ),
    }
}
