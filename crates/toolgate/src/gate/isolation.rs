//! Checks that the keys and the database lie outside the workspace, where no tool can reach them.

use std::path::{Path, PathBuf};

use crate::{Error, Result, gate::StateDir};

/// Rejects a workspace that contains the keys, the list of trusted configurations or the database.
pub(super) fn reject_exposed_secrets(
    workspace: &Path,
    state: Option<&StateDir>,
    address: Option<&str>,
) -> Result<()> {
    // A file tool that could reach them could sign its own approvals or trust its own
    // configuration.
    let keys = state.map(|state| ("the keys of the gate are in", state.path().to_owned()));
    let database = address
        .and_then(database_path)
        .map(|path| ("the database is", path));
    for (what, path) in keys.into_iter().chain(database) {
        let path = std::path::absolute(&path)
            .and_then(|path| resolve_links(&path))
            .unwrap_or(path);
        if path.starts_with(workspace) {
            let problem = format!(
                "{what} {}, which lies in the workspace: the agent could reach it",
                path.display()
            );
            return Err(Error::configuration(problem).with_hint(
                "work in the directory of a project, and keep TOOLGATE_HOME and the database outside of it",
            ));
        }
    }
    Ok(())
}

/// Returns the file of a SQLite address.
fn database_path(address: &str) -> Option<PathBuf> {
    match address.split_once(':') {
        Some(("sqlite", path)) => Some(path.strip_prefix("//").unwrap_or(path).into()),
        Some(_) => None,
        None => Some(address.into()),
    }
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
            let state = StateDir::new(root.join(home)).expect("absolute");
            let path = root.join(db);
            ["sqlite:", "sqlite://", ""].iter().any(|scheme| {
                let address = format!("{scheme}{}", path.display());
                reject_exposed_secrets(&root.join(workspace), Some(&state), Some(&address)).is_err()
            })
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
