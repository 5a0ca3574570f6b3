//! Checks of the database: that it opens, its schema version, its lock, its integrity.

use toolgate::store::{DatabaseError, IntegrityProblem, SqliteInspection, SqliteStore};

use super::DoctorFinding;
use crate::{CliError, CommandContext};

const CHECK: &str = "database";

pub(super) async fn check_database(cx: &CommandContext, deep: bool) -> Vec<DoctorFinding> {
    match sqlite_path(&cx.paths.db) {
        Some(path) => check_sqlite(path, deep)
            .unwrap_or_else(|error| vec![DoctorFinding::error(CHECK, &CliError::from(error))]),
        None => match cx.open_store().await {
            Ok(_) => {
                let answers = format!("{} answers", cx.paths.display_db());
                let mut findings = vec![DoctorFinding::fine(CHECK, answers)];
                if deep && cx.paths.db.starts_with("postgres") {
                    findings.extend(check_postgres(cx).await);
                }
                findings
            }
            Err(error) => vec![DoctorFinding::error(CHECK, &error)],
        },
    }
}

/// Reads a whole PostgreSQL database.
#[cfg(feature = "postgres")]
async fn check_postgres(cx: &CommandContext) -> Vec<DoctorFinding> {
    let checked = async {
        toolgate::store::PostgresStore::connect(&cx.paths.db)
            .await?
            .check()
            .await
    };
    match checked.await {
        Ok(problems) => integrity_findings(&problems),
        Err(error) => vec![DoctorFinding::error(CHECK, &CliError::from(error))],
    }
}

#[cfg(not(feature = "postgres"))]
async fn check_postgres(_: &CommandContext) -> Vec<DoctorFinding> {
    Vec::new()
}

/// Returns the path of the file if the address names one.
fn sqlite_path(address: &str) -> Option<&str> {
    match address.strip_prefix("sqlite:") {
        Some(path) => Some(path.strip_prefix("//").unwrap_or(path)),
        None => (!address.contains("://") && address != "memory:").then_some(address),
    }
}

fn check_sqlite(path: &str, deep: bool) -> Result<Vec<DoctorFinding>, DatabaseError> {
    let Some(look) = SqliteStore::inspect(path)? else {
        return Ok(vec![DoctorFinding::fine(
            CHECK,
            format!("{path}; it will be created"),
        )]);
    };
    let mut findings = vec![version_finding(path, &look)];
    findings.extend(look.problems.iter().map(damage_finding));
    // Opening a database may write to it (journal, migrations), so a damaged one is left alone.
    if deep && look.problems.is_empty() {
        let problems = SqliteStore::open(path)?.check()?;
        findings.extend(integrity_findings(&problems));
    }
    Ok(findings)
}

/// Returns a finding for each problem, or one that there is none.
fn integrity_findings(problems: &[IntegrityProblem]) -> Vec<DoctorFinding> {
    if problems.is_empty() {
        let text = "every row is readable and as it was written, and every chain is intact";
        return vec![DoctorFinding::fine(CHECK, text)];
    }
    problems.iter().map(damage_finding).collect()
}

fn version_finding(path: &str, look: &SqliteInspection) -> DoctorFinding {
    let size = format!("{path}, {} KiB", look.bytes.div_ceil(1024));
    if look.locked {
        return DoctorFinding::broken(
            CHECK,
            format!("{path} is locked: another process is writing and does not finish"),
            format!("`fuser {path}` names the process; wait for it or end it"),
        );
    }
    if look.version == look.newest {
        DoctorFinding::fine(CHECK, format!("{size}, version {}", look.version))
    } else {
        DoctorFinding::unusual(
            CHECK,
            format!("{size}, version {} of {}", look.version, look.newest),
            "the next command upgrades it; keep a copy if an older toolgate has to open it again",
        )
    }
}

fn damage_finding(problem: &IntegrityProblem) -> DoctorFinding {
    let advice = match problem {
        IntegrityProblem::Row {
            table: "search_documents",
            ..
        } => "`toolgate search reindex` builds the search index again from the logs",
        _ => "restore the newest backup, or move the file away to start with a new one",
    };
    DoctorFinding::broken(CHECK, problem.to_string(), advice)
}
