//! The versions of the schema, and the migrations that bring a database to the newest one.

use std::{fmt::Write as _, time::SystemTime};

use toolgate_core::Digest;

use crate::DatabaseError;

/// One migration from a schema version to the next. A released migration is never changed.
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// A migration that a database records as applied.
pub(crate) struct AppliedMigration {
    pub(crate) version: i64,
    pub(crate) checksum: String,
}

/// The migrations for SQLite.
#[cfg(feature = "sqlite")]
pub(crate) const SQLITE: &[Migration] = &[
    Migration {
        version: 1,
        name: "first",
        sql: include_str!("../migrations/sqlite/0001_first.sql"),
    },
    Migration {
        version: 2,
        name: "budgets",
        sql: include_str!("../migrations/sqlite/0002_budgets.sql"),
    },
    Migration {
        version: 3,
        name: "hidden",
        sql: include_str!("../migrations/sqlite/0003_hidden.sql"),
    },
    Migration {
        version: 4,
        name: "parent",
        sql: include_str!("../migrations/sqlite/0004_parent.sql"),
    },
    Migration {
        version: 5,
        name: "last_run",
        sql: include_str!("../migrations/sqlite/0005_last_run.sql"),
    },
    Migration {
        version: 6,
        name: "checked",
        sql: include_str!("../migrations/sqlite/0006_checked.sql"),
    },
    Migration {
        version: 7,
        name: "titles",
        sql: include_str!("../migrations/sqlite/0007_titles.sql"),
    },
    Migration {
        version: 8,
        name: "checked_rows",
        sql: include_str!("../migrations/sqlite/0008_checked_rows.sql"),
    },
    Migration {
        version: 9,
        name: "search",
        sql: include_str!("../migrations/sqlite/0009_search.sql"),
    },
    Migration {
        version: 10,
        name: "memories",
        sql: include_str!("../migrations/sqlite/0010_memories.sql"),
    },
    Migration {
        version: 11,
        name: "session_totals",
        sql: include_str!("../migrations/sqlite/0011_session_totals.sql"),
    },
    Migration {
        version: 12,
        name: "short_texts",
        sql: include_str!("../migrations/sqlite/0012_short_texts.sql"),
    },
    Migration {
        version: 13,
        name: "append_order",
        sql: include_str!("../migrations/sqlite/0013_append_order.sql"),
    },
    Migration {
        version: 14,
        name: "model_providers",
        sql: include_str!("../migrations/sqlite/0014_model_providers.sql"),
    },
    Migration {
        version: 15,
        name: "entry_order",
        sql: include_str!("../migrations/sqlite/0015_entry_order.sql"),
    },
];

/// The migrations for PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &[Migration] = &[
    Migration {
        version: 1,
        name: "first",
        sql: include_str!("../migrations/postgres/0001_first.sql"),
    },
    Migration {
        version: 2,
        name: "budgets",
        sql: include_str!("../migrations/postgres/0002_budgets.sql"),
    },
    Migration {
        version: 3,
        name: "hidden",
        sql: include_str!("../migrations/postgres/0003_hidden.sql"),
    },
    Migration {
        version: 4,
        name: "parent",
        sql: include_str!("../migrations/postgres/0004_parent.sql"),
    },
    Migration {
        version: 5,
        name: "last_run",
        sql: include_str!("../migrations/postgres/0005_last_run.sql"),
    },
    Migration {
        version: 6,
        name: "checked",
        sql: include_str!("../migrations/postgres/0006_checked.sql"),
    },
    Migration {
        version: 7,
        name: "titles",
        sql: include_str!("../migrations/postgres/0007_titles.sql"),
    },
    Migration {
        version: 8,
        name: "checked_rows",
        sql: include_str!("../migrations/postgres/0008_checked_rows.sql"),
    },
    Migration {
        version: 9,
        name: "search",
        sql: include_str!("../migrations/postgres/0009_search.sql"),
    },
    Migration {
        version: 10,
        name: "memories",
        sql: include_str!("../migrations/postgres/0010_memories.sql"),
    },
    Migration {
        version: 11,
        name: "session_totals",
        sql: include_str!("../migrations/postgres/0011_session_totals.sql"),
    },
    Migration {
        version: 12,
        name: "short_texts",
        sql: include_str!("../migrations/postgres/0012_short_texts.sql"),
    },
    Migration {
        version: 13,
        name: "append_order",
        sql: include_str!("../migrations/postgres/0013_append_order.sql"),
    },
    Migration {
        version: 14,
        name: "model_providers",
        sql: include_str!("../migrations/postgres/0014_model_providers.sql"),
    },
    Migration {
        version: 15,
        name: "entry_order",
        sql: include_str!("../migrations/postgres/0015_entry_order.sql"),
    },
];

impl Migration {
    /// Returns the SHA-256 of the SQL, by which a changed migration is detected.
    pub(crate) fn checksum(&self) -> String {
        Digest::of_bytes(self.sql.as_bytes())
            .as_bytes()
            .iter()
            .fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
                hex
            })
    }
}

/// Returns the migrations that `database` still needs. Fails if it was migrated by a newer or
/// different program.
pub(crate) fn missing_migrations<'a>(
    known: &'a [Migration],
    applied: &[AppliedMigration],
    database: &str,
) -> Result<&'a [Migration], DatabaseError> {
    let newest = applied.iter().map(|step| step.version).max().unwrap_or(0);
    check_version(known, newest, || database.to_owned())?;
    // A changed checksum means that the tables may differ from what this program's SQL expects.
    for (step, known) in applied.iter().zip(known) {
        if step.version != known.version || step.checksum != known.checksum() {
            return Err(DatabaseError::ChangedMigration {
                database: database.to_owned(),
                version: known.version,
            });
        }
    }
    Ok(&known[applied.len().min(known.len())..])
}

/// Fails if a database has a newer schema version than this program knows.
pub(crate) fn check_version(
    known: &[Migration],
    found: i64,
    database: impl FnOnce() -> String,
) -> Result<(), DatabaseError> {
    let known = known.last().map_or(0, |step| step.version);
    if found > known {
        let database = database();
        return Err(DatabaseError::NewerSchema {
            database,
            found,
            known,
        });
    }
    Ok(())
}

/// Returns the time at which a migration is recorded as applied.
pub(crate) fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] = &[
        Migration {
            version: 1,
            name: "a",
            sql: "A",
        },
        Migration {
            version: 2,
            name: "b",
            sql: "B",
        },
    ];

    fn applied_migrations(count: usize) -> Vec<AppliedMigration> {
        KNOWN[..count]
            .iter()
            .map(|step| AppliedMigration {
                version: step.version,
                checksum: step.checksum(),
            })
            .collect()
    }

    #[test]
    fn only_missing_migrations_are_applied() {
        for done in 0..=2 {
            assert_eq!(
                missing_migrations(KNOWN, &applied_migrations(done), "db")
                    .expect("known steps")
                    .len(),
                2 - done
            );
        }
    }

    #[test]
    fn a_newer_schema_is_rejected() {
        let mut newer = applied_migrations(2);
        newer.push(AppliedMigration {
            version: 3,
            checksum: String::new(),
        });
        assert!(matches!(
            missing_migrations(KNOWN, &newer, "db"),
            Err(DatabaseError::NewerSchema {
                found: 3,
                known: 2,
                ..
            })
        ));
    }

    #[test]
    fn a_changed_migration_is_rejected() {
        let mut changed = applied_migrations(2);
        changed[0].checksum = "0".into();
        assert!(matches!(
            missing_migrations(KNOWN, &changed, "db"),
            Err(DatabaseError::ChangedMigration { version: 1, .. })
        ));
    }
}
