//! Files that act later: what is written into them runs, or is obeyed, outside the gate.
//!
//! A git hook runs at the user's next commit, a workflow at the next push, an `AGENTS.md` steers the
//! next agent. Policies ask before a call changes such a file, and the sandbox of commands makes
//! them read-only. Source code, build scripts among it, is not in the list: to change it is the
//! work of an agent, and it runs only when a build or a test does.

/// Names of files, at any depth, in lower case. A `*` may stand at the beginning.
const ACTING_FILES: &[&str] = &[
    // Git and its helpers.
    ".gitattributes",
    ".gitconfig",
    ".gitmodules",
    ".lefthook.yaml",
    ".lefthook.yml",
    ".lfsconfig",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".pre-commit-hooks.yaml",
    // With `objects` and `refs` beside it, a directory of any name is a repository.
    "head",
    "lefthook.yaml",
    "lefthook.yml",
    // Directories that a shell enters.
    ".autoenv",
    ".autoenv.zsh",
    ".envrc",
    ".mise.toml",
    ".tool-versions",
    "mise.toml",
    // Agents.
    ".aider.conf.yaml",
    ".aider.conf.yml",
    ".clinerules",
    ".cursorrules",
    ".mcp.json",
    ".roorules",
    ".rules",
    ".windsurfrules",
    "agent.md",
    "agents.md",
    "agents.override.md",
    "claude.local.md",
    "claude.md",
    "copilot-instructions.md",
    "gemini.md",
    "mcp.json",
    "opencode.json",
    "opencode.jsonc",
    "qwen.md",
    "skill.md",
    "toolgate.toml",
    "warp.md",
    // Servers that build.
    ".appveyor.yml",
    ".cirrus.yml",
    ".drone.yaml",
    ".drone.yml",
    ".gitlab-ci.yaml",
    ".gitlab-ci.yml",
    ".travis.yml",
    ".woodpecker.yml",
    "appveyor.yml",
    "azure-pipelines.yaml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "cloudbuild.yaml",
    "jenkinsfile",
    // Package managers: registries, scripts, hooks.
    ".bunfig.toml",
    ".condarc",
    ".curlrc",
    ".gemrc",
    ".npmrc",
    ".pnpmfile.cjs",
    ".pypirc",
    ".wgetrc",
    ".yarnrc",
    ".yarnrc.yml",
    "bunfig.toml",
    "pip.conf",
    // It can name a directory, whose programs run in place of cargo and the compiler.
    "rust-toolchain",
    "rust-toolchain.toml",
    // Start-up files of shells, sessions and interpreters.
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cshrc",
    ".inputrc",
    ".irbrc",
    ".kshrc",
    ".login",
    ".logout",
    ".pam_environment",
    ".profile",
    ".pryrc",
    ".pythonrc",
    ".pythonrc.py",
    ".rprofile",
    ".screenrc",
    ".tcshrc",
    ".tmux.conf",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "crontab",
    "sitecustomize.py",
    "usercustomize.py",
    // Editors and debuggers.
    "*.code-workspace",
    ".devcontainer.json",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".emacs",
    ".exrc",
    ".gdbinit",
    ".gvimrc",
    ".ideavimrc",
    ".lldbinit",
    ".lvimrc",
    ".nvim.lua",
    ".nvimrc",
    ".spacemacs",
    ".vimrc",
];

/// Directories whose whole content acts later, at any depth, in lower case.
const ACTING_DIRECTORIES: &[&str] = &[
    ".git",
    // The short name of `.git` on file systems of Windows.
    "git~1",
    ".githooks",
    ".hg",
    ".husky",
    // Servers that build, and what else they obey.
    ".buildkite",
    ".circleci",
    ".forgejo",
    ".gitea",
    ".github",
    ".gitlab",
    ".woodpecker",
    // Editors.
    ".devcontainer",
    ".emacs.d",
    ".fleet",
    ".helix",
    ".idea",
    ".theia",
    ".vim",
    ".vscode",
    ".zed",
    // Agents, this one among them.
    ".agents",
    ".amazonq",
    ".claude",
    ".codex",
    ".continue",
    ".cursor",
    ".gemini",
    ".junie",
    ".kiro",
    ".opencode",
    ".qwen",
    ".roo",
    ".toolgate",
    ".windsurf",
    // Package managers.
    ".bundle",
    ".cargo",
    ".yarn/plugins",
    ".yarn/releases",
    // The account of the user.
    ".config/autostart",
    ".config/environment.d",
    ".config/fish",
    ".config/git",
    ".config/mise",
    ".mise",
    ".config/nvim",
    ".config/systemd",
    ".config/toolgate",
    ".local/bin",
    ".local/share/systemd",
    ".ssh",
    "library/launchagents",
    "library/launchdaemons",
    // The system.
    "etc/cron.d",
    "etc/cron.daily",
    "etc/cron.hourly",
    "etc/cron.monthly",
    "etc/cron.weekly",
    "etc/profile.d",
    "etc/systemd",
    "etc/xdg/autostart",
    "var/spool/cron",
];

/// Returns the entry of the list of files that act later which covers `path`, such as `.git` for
/// `a/.git/hooks/pre-push`.
///
/// The path is compared as it is written: with slashes, in lower case, without `.` and `..`.
///
/// ```
/// # use toolgate_core::acting_file;
/// assert_eq!(acting_file("crates/a/.git/config"), Some(".git"));
/// assert_eq!(acting_file("docs/agents.md"), Some("agents.md"));
/// assert_eq!(acting_file("src/main.rs"), None);
/// ```
pub fn acting_file(path: &str) -> Option<&'static str> {
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    let mut name = path;
    for at in starts {
        name = &path[at..];
        let is_whole = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let is_inside = |known: &&&str| name.strip_prefix(**known).is_some_and(is_whole);
        if let Some(known) = ACTING_DIRECTORIES.iter().find(is_inside) {
            return Some(known);
        }
    }
    let is_file = |known: &&&str| match known.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name == **known,
    };
    ACTING_FILES.iter().find(is_file).copied()
}

/// Returns the names in the list of files that act later: files, and directories with their
/// content. A `*` at the beginning of a name stands for any text.
pub fn acting_file_names() -> impl Iterator<Item = &'static str> {
    ACTING_DIRECTORIES.iter().chain(ACTING_FILES).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_act_later_are_found_at_any_depth() {
        for (path, entry) in [
            (".git/config", ".git"),
            (".git", ".git"),
            ("a/b/.git/modules/x/hooks/post-checkout", ".git"),
            ("git~1/config", "git~1"),
            ("x/.envrc", ".envrc"),
            ("a.code-workspace", "*.code-workspace"),
            (".github/workflows/ci.yml", ".github"),
            (
                "/home/ann/.config/systemd/user/x.service",
                ".config/systemd",
            ),
            ("/etc/cron.d/x", "etc/cron.d"),
            (".cargo/config", ".cargo"),
            ("skills/x/skill.md", "skill.md"),
        ] {
            assert_eq!(acting_file(path), Some(entry), "{path}");
        }
        for path in [
            "",
            "src/main.rs",
            "build.rs",
            ".gitignore",
            "git/config",
            "x.git/config",
            ".github.md",
            "agents.md.txt",
            ".config/other",
            "my.envrc",
        ] {
            assert_eq!(acting_file(path), None, "{path}");
        }
    }

    #[test]
    fn every_name_in_the_list_finds_itself_and_is_in_lower_case() {
        for name in acting_file_names() {
            assert_eq!(name, name.to_lowercase());
            assert!(acting_file(&name.replace('*', "x")).is_some(), "{name}");
        }
    }
}
