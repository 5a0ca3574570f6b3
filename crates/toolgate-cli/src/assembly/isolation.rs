//! Checks that the keys and the database lie outside the workspace, where no tool can reach them.

use std::path::{Path, PathBuf};

use crate::{CliError, env::paths::CliPaths};

/// Rejects a workspace that contains the keys, the list of trusted configurations or the database.
pub(super) fn reject_exposed_secrets(paths: &CliPaths) -> Result<(), CliError> {
    // A file tool that could reach them could sign its own approvals or trust its own
    // configuration.
    let database = paths
        .db
        .strip_prefix("sqlite:")
        .map(|path| PathBuf::from(path.trim_start_matches("//")));
    let kept = [
        ("the keys of the gate are in", Some(paths.home.clone())),
        ("the database is", database),
    ];
    for (what, path) in kept
        .into_iter()
        .filter_map(|(what, path)| Some((what, path?)))
    {
        let path = std::path::absolute(&path)
            .and_then(|path| resolve_links(&path))
            .unwrap_or(path);
        if path.starts_with(&paths.workspace) {
            let problem = format!(
                "{what} {}, which lies in the workspace: the agent could reach it",
                path.display()
            );
            let hint = "work in the directory of a project (-C), or name another place with TOOLGATE_HOME or --db";
            return Err(CliError::usage(problem).with_hint(hint));
        }
    }
    Ok(())
}

/// Resolves symbolic links, also in a path that does not exist yet.
fn resolve_links(path: &Path) -> std::io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), ..) => Ok(path),
        (Err(_), Some(parent), Some(name)) => Ok(resolve_links(parent)?.join(name)),
        (Err(error), ..) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_with_the_keys_or_the_database_is_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("the directory exists");
        std::os::unix::fs::symlink(&root, root.join("link")).expect("made");
        let reached = |workspace: &str, home: &str, db: &str| {
            let workspace = root.join(workspace);
            let home = root.join(home);
            let db = format!("sqlite:{}", root.join(db).display());
            reject_exposed_secrets(&CliPaths {
                workspace,
                home,
                named: None,
                user: None,
                user_config: None,
                db,
            })
            .is_err()
        };
        assert!(!reached("work", "home", "home/t.db"));
        assert!(
            reached("", "home", "/elsewhere/t.db"),
            "keys below the workspace"
        );
        assert!(
            reached("work", "link/work/home", "home/t.db"),
            "through a link"
        );
        assert!(reached("work", "home", "work/t.db"), "the database");
    }
}
