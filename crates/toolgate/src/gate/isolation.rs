//! Checks that the keys and the database lie where neither a tool nor a command can reach them.

use std::path::{Path, PathBuf};

use toolgate_layers::Config;

use crate::{
    Error, Result,
    gate::{RunSection, StateDir},
};

/// The directories that the tools of an agent can read, each with the reason.
pub(super) struct AgentReach(Vec<(PathBuf, &'static str)>);

impl AgentReach {
    /// Lists what the tools of a gate can read: the workspace, the skills and, with the built-in
    /// tools, what the sandbox lets commands read.
    pub(super) fn new(workspace: Option<&Path>, config: &Config, commands: bool) -> Result<Self> {
        let mut places = Vec::new();
        places.extend(workspace.map(|path| (path.to_owned(), "lies in the workspace")));
        let skills = RunSection::of(config)?.skills;
        let base = workspace.unwrap_or(Path::new("."));
        places.extend({ skills.iter() }.filter_map(|path| {
            let real = resolve_links(&base.join(path)).ok()?;
            Some((real, "lies in a directory of skills (`skills` under [run])"))
        }));
        if let Some(workspace) = workspace.filter(|_| commands) {
            places.extend(list_command_paths(workspace, config)?);
        }
        Ok(Self(places))
    }

    fn find(&self, path: &Path) -> Option<&'static str> {
        let inside =
            |(place, why): &(PathBuf, &'static str)| path.starts_with(place).then_some(*why);
        self.0.iter().find_map(inside)
    }
}

/// Lists what the sandbox lets commands read.
#[cfg(feature = "tools")]
fn list_command_paths(workspace: &Path, config: &Config) -> Result<Vec<(PathBuf, &'static str)>> {
    let options = crate::gate::ToolsSection::of(config)?.shell;
    // Without a sandbox a command reads whatever the user can, which the operator has chosen.
    if options.sandbox == toolgate_tools::SandboxMode::Off {
        return Ok(Vec::new());
    }
    let sandbox = toolgate_tools::Sandbox::new(workspace, &options).map_err(Error::from_source)?;
    let why = "can be read by commands (the system, `PATH`, toolchains, `read` and `write` under [tools.shell])";
    Ok({ sandbox.readable_paths() }
        .map(|path| (path.to_owned(), why))
        .collect())
}

#[cfg(not(feature = "tools"))]
fn list_command_paths(_: &Path, _: &Config) -> Result<Vec<(PathBuf, &'static str)>> {
    Ok(Vec::new())
}

/// Rejects a gate whose keys, list of trusted configurations or database its agent can reach.
pub(super) fn reject_exposed_secrets(
    reach: &AgentReach,
    state: Option<&StateDir>,
    address: Option<&str>,
) -> Result<()> {
    // A tool that could read them could sign its own approvals or trust its own configuration.
    let keys = state.into_iter().flat_map(|state| {
        let dir = state.path().to_owned();
        // Each may be a link of its own.
        let files = ["keys", "trusted.json"].map(|name| dir.join(name));
        let text = "the keys of the gate are in";
        std::iter::once(dir)
            .chain(files)
            .map(move |path| (text, path))
    });
    let database = address
        .and_then(database_path)
        .map(|path| ("the database is", path));
    for (what, path) in keys.chain(database) {
        let path = std::path::absolute(&path)
            .and_then(|path| resolve_links(&path))
            .unwrap_or(path);
        if let Some(why) = reach.find(&path) {
            let problem = format!(
                "{what} {}, which {why}: the agent could reach it",
                path.display()
            );
            return Err(Error::configuration(problem).with_hint(
                "work in the directory of a project, and keep TOOLGATE_HOME and the database outside of it and of what commands can read",
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
pub(super) fn resolve_links(path: &Path) -> std::io::Result<PathBuf> {
    // The limit of the Linux kernel.
    const MAX_LINKS: u32 = 40;
    resolve_some_links(path, MAX_LINKS)
}

fn resolve_some_links(path: &Path, left: u32) -> std::io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), ..) => Ok(path),
        (Err(_), Some(parent), Some(name)) => match (path.read_link(), left.checked_sub(1)) {
            // A link whose target does not exist yet leads there all the same.
            (Ok(target), Some(left)) => resolve_some_links(&parent.join(target), left),
            (Ok(_), None) => Err(std::io::Error::other("too many symbolic links")),
            (Err(_), _) => Ok(resolve_some_links(parent, left)?.join(name)),
        },
        (Err(error), ..) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::gate_catalog;

    fn config(text: &str) -> Config {
        Config::parse_with_catalog("toolgate.toml", text, gate_catalog()).expect("valid")
    }

    #[test]
    fn a_workspace_with_the_keys_or_the_database_is_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("the directory exists");
        std::os::unix::fs::symlink(&root, root.join("link")).expect("made");
        let reached = |workspace: &str, home: &str, db: &str| {
            let state = StateDir::new(root.join(home)).expect("absolute");
            let path = root.join(db);
            let workspace = root.join(workspace);
            let reach = AgentReach::new(Some(&workspace), &config(""), false).expect("listed");
            ["sqlite:", "sqlite://", ""].iter().any(|scheme| {
                let address = format!("{scheme}{}", path.display());
                reject_exposed_secrets(&reach, Some(&state), Some(&address)).is_err()
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

    #[cfg(feature = "tools")]
    #[test]
    fn keys_and_database_where_commands_can_read_are_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("the directory exists");
        for name in ["work", "home", "shared/deep", "skills", "linked"] {
            std::fs::create_dir_all(root.join(name)).expect("made");
        }
        // The key file of `linked` is a link, and its target does not exist yet.
        std::os::unix::fs::symlink("../shared/keys", root.join("linked/keys")).expect("made");
        let text = |access: &str| {
            format!(
                "[run]\nskills = ['{0}/skills']\n[tools.shell]\n{access} = ['{0}/shared']",
                root.display()
            )
        };
        let rejected = |config: &Config, home: PathBuf, db: PathBuf| {
            let reach = AgentReach::new(Some(&root.join("work")), config, true).expect("listed");
            let state = StateDir::new(home).expect("absolute");
            let address = format!("sqlite:{}", db.display());
            reject_exposed_secrets(&reach, Some(&state), Some(&address))
                .err()
                .map(|error| error.to_string())
        };
        let fine = root.join("home");
        for access in ["read", "write"] {
            let config = config(&text(access));
            let check = |home: PathBuf, db: PathBuf| rejected(&config, home, db);
            assert_eq!(check(fine.clone(), fine.join("t.db")), None);
            for (home, db) in [
                (root.join("shared"), fine.join("t.db")),
                (root.join("shared/deep/new"), fine.join("t.db")),
                (root.join("linked"), fine.join("t.db")),
                (fine.clone(), root.join("shared/t.db")),
                (root.join("skills/keys"), fine.join("t.db")),
                (PathBuf::from("/opt/toolgate"), fine.join("t.db")),
                (PathBuf::from("/usr/bin/toolgate"), fine.join("t.db")),
                (fine.clone(), PathBuf::from("/usr/local/t.db")),
            ] {
                let said = check(home.clone(), db.clone());
                let said = said.unwrap_or_else(|| panic!("{home:?} {db:?}"));
                assert!(said.contains("the agent could reach it"), "{said}");
            }
        }
        let off = config("[tools.shell]\nsandbox = 'off'");
        assert_eq!(
            rejected(&off, "/opt/toolgate".into(), fine.join("t.db")),
            None
        );
    }
}
