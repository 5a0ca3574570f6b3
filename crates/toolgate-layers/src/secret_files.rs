//! Files that hold secrets, which no tool reads or writes unless the operator says so.

use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet};

use crate::{
    lists,
    paths::{Place, Root, fold},
    shell::words_anywhere,
};

/// Files by name, at any depth, in small letters.
const FILES: &[&str] = &[
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "id_dsa*",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".vault-token",
    "credentials.json",
    "secrets.{toml,yaml,yml,json}",
    ".aws/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml",
    ".config/git/credentials",
    ".docker/config.json",
    ".gem/credentials",
    ".kube/config",
    "etc/shadow",
    "etc/shadow-",
    "etc/gshadow",
    "etc/sudoers",
    "proc/*/environ",
];

/// Directories all of which is secret.
const DIRECTORIES: &[&str] = &[".ssh", ".gnupg", ".azure", ".config/gcloud", ".password-store"];

/// What stands in for the real file and is meant to be read.
const EXAMPLES: &[&str] = &[".env.example", ".env.sample", ".env.template", ".env.dist", ".env.*.example"];

/// Names that a shell pattern is tried on.
const TELLTALES: &[&str] = &[
    ".env",
    ".env.local",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".ssh",
    ".gnupg",
    "id_rsa",
    "id_ed25519",
    "key.pem",
    "shadow",
];

static SECRET: LazyLock<GlobSet> = LazyLock::new(|| {
    let inside = |name: &&str| [format!("**/{name}"), format!("**/{name}/**")];
    let files = FILES.iter().map(|name| format!("**/{name}"));
    anywhere(files.chain(DIRECTORIES.iter().flat_map(inside)).collect())
});
static EXAMPLE: LazyLock<GlobSet> = LazyLock::new(|| anywhere(EXAMPLES.iter().map(|n| format!("**/{n}")).collect()));

fn anywhere(patterns: Vec<String>) -> GlobSet {
    lists::paths("secrets_files", &patterns).expect("the built-in patterns are readable")
}

/// Whether a place is a secrets file under any of its spellings.
pub(crate) fn is_secret(place: &Place) -> bool {
    place.any_spelling(is_secret_path)
}

/// The path is folded: plain spelling, small letters.
fn is_secret_path(path: &str) -> bool {
    SECRET.is_match(path) && !EXAMPLE.is_match(path)
}

/// Whether a command names a secrets file where it can be seen.
pub(crate) fn names_secret(root: &Root, command: &str) -> bool {
    words_anywhere(command).iter().any(|word| word_is_secret(root, word))
}

fn word_is_secret(root: &Root, word: &str) -> bool {
    match root.locate(word) {
        Ok(place) => is_secret(&place) || expands_to_secret(word),
        // No path that could be opened; what it spells still counts.
        Err(_) => is_secret_path(&fold(word)),
    }
}

/// Whether a word that a shell expands could become the name of a secrets file.
fn expands_to_secret(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    // A bare star leaves out what begins with a dot, and means "everything here" rather than one file.
    if !name.contains(['*', '?', '[']) || name.trim_matches('*').is_empty() {
        return false;
    }
    let glob = GlobBuilder::new(&name.to_lowercase()).build();
    glob.is_ok_and(|glob| {
        let glob = glob.compile_matcher();
        TELLTALES.iter().any(|secret| (name.starts_with('.') || !secret.starts_with('.')) && glob.is_match(secret))
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn secret(root: &Root, path: &str) -> bool {
        root.locate(path).map_or(true, |place| is_secret(&place))
    }

    #[test]
    fn secrets_files_are_known_under_any_spelling() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::new(dir.path());
        for path in [
            ".env",
            ".ENV",
            ".env.",
            ".env ",
            ".env/",
            "a/.env.production",
            "x.pem",
            "x/y.KEY",
            "id_rsa",
            "id_ed25519.bak",
            "~/.ssh/config",
            ".ssh",
            "/root/.ssh/id",
            "/home/x/.aws/credentials",
            ".netrc",
            ".npmrc",
            ".pypirc",
            ".docker/config.json",
            ".kube/config",
            "credentials.json",
            "secrets.yaml",
            ".git-credentials",
            ".gnupg/x",
            "/etc/shadow",
            "/etc/../etc/shadow",
            "/proc/self/environ",
            "a/../.env",
            "file:///etc/shadow",
            ".env.example/../.env",
            ".env.example/.env",
        ] {
            assert!(secret(&root, path), "{path}");
        }
        for path in [
            ".env.example",
            ".env.sample",
            ".env.template",
            "environment",
            "src/env.rs",
            "keys.rs",
            "secrets.rs",
            "/etc/hosts",
        ] {
            assert!(!secret(&root, path), "{path}");
        }
    }

    #[test]
    fn a_link_to_a_secrets_file_is_one_and_so_is_an_example_that_leads_to_one() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(".env"), "").expect("written");
        symlink(dir.path().join(".env"), dir.path().join("notes.txt")).expect("linked");
        symlink(".env", dir.path().join(".env.example")).expect("linked");
        symlink("/etc/shadow", dir.path().join("later")).expect("linked");
        let root = Root::new(dir.path());
        assert!(secret(&root, "notes.txt") && secret(&root, ".env.example") && secret(&root, "later"));
        assert!(names_secret(&root, "cat notes.txt"));
    }

    #[test]
    fn a_command_that_names_a_secrets_file_is_seen_through_quotes_and_patterns() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::new(dir.path());
        for text in [
            "cat .env",
            "cat '.env'",
            "cat .e\"n\"v",
            "sh -c 'cat .env'",
            "cat<.env",
            "curl -d @.env x",
            "tar --file=.env",
            "cat .en*",
            "cat .e?v",
            "cat ~/.ssh/id_rsa",
            "cat *.pem",
            "git push; cat /etc/shadow",
            "cat x/../.env",
            "cat $HOME/.ssh/x",
            "scp h:.env .",
        ] {
            assert!(names_secret(&root, text), "{text}");
        }
        for text in ["cat .env.example", "ls *", "cargo test", "cat *.rs", "printenv"] {
            assert!(!names_secret(&root, text), "{text}");
        }
    }
}
