//! The versions of the schema, and what has to be done to a database to bring it to the newest one.

use std::fmt::Write as _;

use toolgate_core::Digest;

use crate::DatabaseError;

/// One step from a version of the schema to the next. A step that was released is never changed again.
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// A step that a database says it has gone through.
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) checksum: String,
}

/// The steps for SQLite.
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
];

/// The steps for PostgreSQL.
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
];

impl Migration {
    /// The SHA-256 of the text, by which a database can tell whether it went through the same step.
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

/// The steps that `database` still has to go through, unless it went through others than we know.
pub(crate) fn missing<'a>(
    known: &'a [Migration],
    applied: &[Applied],
    database: &str,
) -> Result<&'a [Migration], DatabaseError> {
    let newest = known.last().map_or(0, |step| step.version);
    if let Some(newer) = applied
        .iter()
        .map(|step| step.version)
        .filter(|version| *version > newest)
        .max()
    {
        return Err(DatabaseError::Newer {
            database: database.to_owned(),
            found: newer,
            known: newest,
        });
    }
    for (step, known) in applied.iter().zip(known) {
        if step.version != known.version || step.checksum != known.checksum() {
            return Err(DatabaseError::Changed {
                database: database.to_owned(),
                version: known.version,
            });
        }
    }
    Ok(&known[applied.len().min(known.len())..])
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

    fn applied(count: usize) -> Vec<Applied> {
        KNOWN[..count]
            .iter()
            .map(|step| Applied {
                version: step.version,
                checksum: step.checksum(),
            })
            .collect()
    }

    #[test]
    fn only_the_steps_that_are_missing_are_taken() {
        for done in 0..=2 {
            assert_eq!(
                missing(KNOWN, &applied(done), "db")
                    .expect("known steps")
                    .len(),
                2 - done
            );
        }
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let mut newer = applied(2);
        newer.push(Applied {
            version: 3,
            checksum: String::new(),
        });
        assert!(matches!(
            missing(KNOWN, &newer, "db"),
            Err(DatabaseError::Newer {
                found: 3,
                known: 2,
                ..
            })
        ));
    }

    #[test]
    fn a_step_that_was_another_one_is_refused() {
        let mut changed = applied(2);
        changed[0].checksum = "0".into();
        assert!(matches!(
            missing(KNOWN, &changed, "db"),
            Err(DatabaseError::Changed { version: 1, .. })
        ));
    }
}
