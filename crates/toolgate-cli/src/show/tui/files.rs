//! Files of the workspace for the completion of `@`: those that the model may read, or that it may
//! read after an approval.

use std::path::Path;

use serde_json::json;
use toolgate::{Gate, layers::CallVerdict};
use toolgate_tools::{ReadFile, Workspace};

use super::completion::MAX_CHOICES;
use crate::CliError;

/// The most entries of the workspace that are looked at.
const MAX_VISITED: usize = 20_000;
/// The most files that the policy is asked about for one completion.
const MAX_JUDGED: usize = 4 * MAX_CHOICES;

/// Finds the files whose paths fit `part`, best first.
///
/// # Errors
///
/// Fails if the workspace cannot be read.
pub(super) async fn find_files(
    gate: &Gate,
    workspace: &Path,
    part: &str,
) -> Result<Vec<String>, CliError> {
    let root = workspace.to_owned();
    let listed = tokio::task::spawn_blocking(move || {
        let workspace = Workspace::open(&root).map_err(|error| CliError::from_error(&error))?;
        let files = workspace.list_files(MAX_VISITED);
        files.map_err(|error| CliError::new(error.model))
    });
    let listed = listed
        .await
        .map_err(|error| CliError::from_error(&error))??;
    let mut found = Vec::new();
    for path in rank_paths(part, listed).into_iter().take(MAX_JUDGED) {
        if is_readable(gate, &path).await? {
            found.push(path);
        }
        if found.len() == MAX_CHOICES {
            break;
        }
    }
    Ok(found)
}

/// Checks whether a call that reads the file would run, at least after an approval.
async fn is_readable(gate: &Gate, path: &str) -> Result<bool, CliError> {
    let arguments = json!({ "path": path });
    let explained = gate.explain(ReadFile::NAME, arguments).await?;
    Ok(match explained.verdict {
        CallVerdict::Runs | CallVerdict::Asks => true,
        CallVerdict::Settles(_) | CallVerdict::Fails(_) => false,
    })
}

/// Returns the paths that contain the letters of `part` in this order, best match first.
fn rank_paths(part: &str, paths: Vec<String>) -> Vec<String> {
    let part = part.to_lowercase();
    let mut ranked: Vec<(usize, usize, String)> = paths
        .into_iter()
        .filter_map(|path| Some((rank_path(&part, &path)?, path.matches('/').count(), path)))
        .collect();
    ranked.sort();
    ranked.into_iter().map(|(.., path)| path).collect()
}

/// Returns how well a path fits: 0 is best.
fn rank_path(part: &str, path: &str) -> Option<usize> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    if name.starts_with(part) || path.starts_with(part) {
        return Some(0);
    }
    if name.contains(part) {
        return Some(1);
    }
    if path.contains(part) {
        return Some(2);
    }
    let mut letters = path.chars();
    part.chars()
        .all(|wanted| letters.any(|letter| letter == wanted))
        .then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_paths_and_near_files_before_deep_ones() {
        let paths = [
            "docs/lib.md",
            "src/a/lib.rs",
            "src/lib.rs",
            "glib/x.rs",
            "later-in-b.rs",
        ];
        let ranked = rank_paths("LIB", paths.map(str::to_owned).to_vec());
        assert_eq!(
            ranked,
            [
                "docs/lib.md",
                "src/lib.rs",
                "src/a/lib.rs",
                "glib/x.rs",
                "later-in-b.rs"
            ]
        );
        assert_eq!(rank_paths("zz", vec!["a".to_owned()]), Vec::<String>::new());
    }
}
