//! The database: whether it opens, how old it is, whether somebody holds it, whether it is sound.

use toolgate::store::{DatabaseError, Look, Problem, SqliteStore};

use super::Finding;
use crate::{CliError, Cx};

const CHECK: &str = "database";

pub(super) async fn look(cx: &Cx, deep: bool) -> Vec<Finding> {
    match sqlite_path(&cx.paths.db) {
        Some(path) => sqlite(path, deep)
            .unwrap_or_else(|error| vec![Finding::error(CHECK, &CliError::from(error))]),
        None => match cx.store().await {
            Ok(_) => vec![Finding::fine(
                CHECK,
                format!("{} answers", cx.paths.shown_db()),
            )],
            Err(error) => vec![Finding::error(CHECK, &error)],
        },
    }
}

/// The file that an address names, if it is one.
fn sqlite_path(address: &str) -> Option<&str> {
    match address.strip_prefix("sqlite:") {
        Some(path) => Some(path.strip_prefix("//").unwrap_or(path)),
        None => (!address.contains("://") && address != "memory:").then_some(address),
    }
}

fn sqlite(path: &str, deep: bool) -> Result<Vec<Finding>, DatabaseError> {
    let Some(look) = SqliteStore::look(path)? else {
        return Ok(vec![Finding::fine(
            CHECK,
            format!("{path}; it will be made"),
        )]);
    };
    let mut findings = vec![stands(path, &look)];
    findings.extend(look.problems.iter().map(damaged));
    if deep && look.problems.is_empty() {
        let problems = SqliteStore::open(path)?.check()?;
        findings.extend(problems.iter().map(damaged));
        if problems.is_empty() {
            findings.push(Finding::fine(
                CHECK,
                "every event, record and receipt reads, and every chain is whole",
            ));
        }
    }
    Ok(findings)
}

fn stands(path: &str, look: &Look) -> Finding {
    let size = format!("{path}, {} KiB", look.bytes.div_ceil(1024));
    if look.locked {
        return Finding::broken(
            CHECK,
            format!("{path} is locked: another process writes, and does not stop"),
            format!("`fuser {path}` names the process; wait for it or end it"),
        );
    }
    match look.version == look.newest {
        true => Finding::fine(CHECK, format!("{size}, version {}", look.version)),
        false => Finding::unusual(
            CHECK,
            format!("{size}, version {} of {}", look.version, look.newest),
            "the next command brings it up to date; keep a copy if an older toolgate has to open it again",
        ),
    }
}

fn damaged(problem: &Problem) -> Finding {
    Finding::broken(
        CHECK,
        problem.to_string(),
        "restore the newest backup, or move the file away to begin with a new one",
    )
}
