//! Files that hold secrets, which no tool may read or write unless the operator allows it.

use std::sync::LazyLock;

use crate::{config::lists, decide::policy::matching::paths::ResolvedPath};

/// Files by name, at any depth, in lower case.
const SECRET_FILES: &[&str] = &[
    ".envrc",
    // Keys and certificates with keys.
    "*.pem",
    "*.key",
    "*.p8",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "*.agekey",
    "*.ovpn",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "id_dsa*",
    // Accounts of programs and services.
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".htpasswd",
    ".git-credentials",
    ".vault-token",
    ".dockercfg",
    ".dockerconfigjson",
    ".s3cfg",
    ".boto",
    ".terraformrc",
    "*.tfstate",
    "*.tfstate.*.backup",
    "*.tfvars",
    "*.tfvars.json",
    "credentials.json",
    "credentials.csv",
    "credentials.tfrc.json",
    "*service-account*.json",
    "*service_account*.json",
    "*serviceaccount*.json",
    "*firebase-adminsdk*.json",
    "*client_secret*.json",
    "application_default_credentials.json",
    "rootkey.csv",
    "*accesskeys.csv",
    "kubeconfig",
    "*.kubeconfig",
    "secrets.{toml,yaml,yml,json}",
    ".aws/credentials",
    ".aws/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/doctl/config.yaml",
    ".config/gh/hosts.yml",
    ".config/git/credentials",
    ".config/glab-cli/config.yml",
    ".config/pip/pip.conf",
    ".config/rclone/rclone.conf",
    ".docker/config.json",
    ".fly/config.yml",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".kube/config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".pip/pip.conf",
    // Agents.
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".config/github-copilot/{apps.json,hosts.json}",
    ".gemini/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".qwen/oauth_creds.json",
    // What was typed, and what a browser stores.
    ".*_history",
    "cookies.sqlite",
    "key4.db",
    "logins.json",
    // The system.
    "etc/shadow",
    "etc/shadow-",
    "etc/gshadow",
    "etc/sudoers",
];

/// Endings that programs and people append to the name of a copy.
const COPY_ENDINGS: &[&str] = &[
    "~", "#", ".backup", ".bak", ".bk", ".bkp", ".bz2", ".copy", ".gz", ".last", ".new", ".old",
    ".orig", ".prev", ".rej", ".save", ".swo", ".swp", ".tmp", ".xz", ".zip", ".zst",
];

/// Environment files by name; some of them may be examples.
const ENVIRONMENT_FILES: &[&str] = &[".env", ".env.*", ".env-*", ".env_*", ".env~", "*.env"];

/// Directories whose whole content is secret.
const SECRET_DIRECTORIES: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".azure",
    ".aws/cli/cache",
    ".aws/sso",
    ".config/gcloud",
    ".local/share/keyrings",
    ".password-store",
];

/// Example files that replace the real one and are meant to be read.
const EXAMPLE_FILES: &[&str] = &[
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env.*.example",
    ".env-example",
    ".env-sample",
    "example.env",
    "sample.env",
    // Code that users search for.
    "process.env",
    "import.meta.env",
    "deno.env",
    "bun.env",
];

/// Names that the patterns above match; shell patterns are tried on them.
const EXPANSION_SAMPLES: &[&str] = &[
    ".env",
    ".env.local",
    ".env.production",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    "secrets.toml",
    "secrets.yaml",
    "secrets.json",
    "service-account.json",
    "terraform.tfstate",
    "terraform.tfvars",
    "proc/self/environ",
];

/// Checks whether a place is a secrets file in any of its spellings.
pub(crate) fn is_secret(place: &ResolvedPath) -> bool {
    place.matches_any_spelling(is_secret_path)
}

/// The parsed names of files, environments and examples.
// Compared by hand: building sets of globs takes longer than most programs spend on paths.
static PARSED_NAMES: LazyLock<[Vec<SecretFileName>; 3]> = LazyLock::new(|| {
    [SECRET_FILES, ENVIRONMENT_FILES, EXAMPLE_FILES].map(|names| {
        names
            .iter()
            .flat_map(|name| SecretFileName::parse_pattern(name))
            .collect()
    })
});

/// A name with stars, and the directories that it has to be in.
struct SecretFileName {
    above: &'static str,
    /// The texts between the stars, in order; any text may be between two of them.
    pieces: Vec<&'static str>,
    end: &'static str,
}

impl SecretFileName {
    /// Parses a pattern: one name, or one for each ending of `name.{toml,json}`.
    fn parse_pattern(pattern: &'static str) -> impl Iterator<Item = Self> {
        let (above, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let (begin, ends) = name.split_once('{').unwrap_or((name, ""));
        ends.trim_end_matches('}').split(',').map(move |end| Self {
            above,
            pieces: begin.split('*').collect(),
            end,
        })
    }

    fn matches_path(&self, above: &str, name: &str) -> bool {
        let whole = |rest: &str| rest.is_empty() || rest.ends_with('/');
        let is_inside = || above.strip_suffix(self.above).is_some_and(whole);
        self.matches_name(name) && (self.above.is_empty() || is_inside())
    }

    fn matches_name(&self, name: &str) -> bool {
        let (begin, later) = self.pieces.split_first().expect("a split has a first part");
        let Some(mut rest) = name
            .strip_prefix(begin)
            .and_then(|rest| rest.strip_suffix(self.end))
        else {
            return false;
        };
        let Some((last, middle)) = later.split_last() else {
            return rest.is_empty();
        };
        // The first place where a text fits leaves the most room for the ones behind it.
        for piece in middle {
            match rest.split_once(piece) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// Checks a folded path: plain spelling, lower case.
fn is_secret_path(path: &str) -> bool {
    if is_secret_name(path) {
        return true;
    }
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut copied = name;
    while let Some(original) = original_name(copied) {
        copied = original;
        // Editors put a dot or a hash in front of the name of a copy.
        let bare = copied.trim_start_matches(['.', '#']);
        if [copied, bare]
            .iter()
            .any(|name| is_secret_name(&format!("{above}/{name}")))
        {
            return true;
        }
    }
    false
}

/// Returns the name of the file that a file is a copy of, by its ending.
fn original_name(name: &str) -> Option<&str> {
    let by_ending = { COPY_ENDINGS.iter() }.find_map(|ending| name.strip_suffix(ending));
    // `.1`, `.2024-05-01`: copies are numbered and dated.
    let by_number = || {
        let (original, number) = name.rsplit_once('.')?;
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '_');
        (!number.is_empty() && number.chars().all(is_number)).then_some(original)
    };
    by_ending
        .or_else(by_number)
        .filter(|original| !original.is_empty())
}

fn is_secret_name(path: &str) -> bool {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let [file, environment, example] = PARSED_NAMES
        .each_ref()
        .map(|names| || names.iter().any(|known| known.matches_path(above, name)));
    file()
        || has_part(path, SECRET_DIRECTORIES)
        || name == "environ" && has_part(above, &["proc"])
        || environment() && !example()
}

/// Checks whether one or several whole parts of a path are one of `names`.
fn has_part(path: &str, names: &[&str]) -> bool {
    let mut begins = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    let whole = |rest: &str| rest.is_empty() || rest.starts_with('/');
    begins.any(|at| {
        names
            .iter()
            .any(|name| path[at..].strip_prefix(name).is_some_and(whole))
    })
}

/// Checks whether a text that a shell or a tool expands could become the name of a secrets file.
pub(crate) fn expands_to_secret(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let parts: Vec<&str> = text.split('/').collect();
    let Some(last) = parts.last().filter(|_| text.len() <= 512) else {
        return false;
    };
    // `*.ke?`; but `*.*` means "everything here" rather than one kind of file.
    let kind = |name: &&str| {
        let wanted = name.strip_prefix("*.").filter(|kind| !kind.contains('*'));
        let given = last
            .rsplit_once('.')
            .map(|(_, kind)| kind)
            .filter(|kind| count_literals(kind) > 0);
        wanted
            .zip(given)
            .is_some_and(|(wanted, given)| lists::may_expand_to(given, wanted))
    };
    let file = |name: &&str| !name.contains('*') && may_end_with(&parts, name);
    let directory = |name: &&str| (1..=parts.len()).any(|end| may_end_with(&parts[..end], name));
    SECRET_FILES
        .iter()
        .chain(ENVIRONMENT_FILES)
        .any(|name| kind(name) || file(name))
        || EXPANSION_SAMPLES.iter().any(file)
        || SECRET_DIRECTORIES.iter().any(directory)
}

/// Checks whether the last parts of a path may stand for `name`, with enough letters to mean it.
pub(crate) fn may_end_with(parts: &[&str], name: &str) -> bool {
    let names: Vec<&str> = name.split('/').collect();
    let Some(parts) = parts
        .len()
        .checked_sub(names.len())
        .map(|from| &parts[from..])
    else {
        return false;
    };
    // A star does not match names that begin with a dot.
    let fits = |(part, name): (&&str, &&str)| {
        !(part.starts_with('*') && name.starts_with('.')) && lists::may_expand_to(part, name)
    };
    // `*.json` names a kind of file, not a particular one.
    let stem = |part: &str| {
        part.rsplit_once('.')
            .map(|(stem, _)| stem.to_owned())
            .filter(|stem| stem.contains('*'))
    };
    let said: usize = parts
        .iter()
        .map(|part| count_literals(&stem(part).unwrap_or_else(|| (*part).to_owned())))
        .sum();
    let enough = said >= 3 || parts[0].starts_with('.');
    enough && parts.iter().zip(&names).all(fits)
}

/// Counts the characters of a pattern that stand for themselves.
fn count_literals(pattern: &str) -> usize {
    pattern
        .chars()
        .filter(|c| !matches!(c, '*' | '?' | '[' | ']'))
        .count()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::decide::policy::matching::{
        paths::PathRoot,
        shell::{possible_runs, unique_words},
    };
    use globset::GlobSet;
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::symlink};

    fn names_secret(root: &PathRoot, command: &str) -> bool {
        let is_glob = |word: &String| word.contains(['*', '?', '[']);
        unique_words(possible_runs(command).iter())
            .iter()
            .any(|word| is_secret_at(root, word) || (is_glob(word) && expands_to_secret(word)))
    }

    fn is_secret_at(root: &PathRoot, path: &str) -> bool {
        root.resolve_path(path)
            .map_or(true, |place| is_secret(&place))
    }

    #[test]
    fn secrets_files_are_recognised_in_any_spelling() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = PathRoot::new(dir.path());
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
            ".ssh/.env.example",
            "/proc/self/task/1/environ",
            ".envrc",
            "prod.env",
            ".env~",
            ".env-prod",
            "server.ppk",
            ".aws/config",
            "prod:server.key",
        ] {
            assert!(is_secret_at(&root, path), "{path}");
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
            assert!(!is_secret_at(&root, path), "{path}");
        }
    }

    #[test]
    fn a_copy_of_a_secrets_file_is_one_by_its_ending() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = PathRoot::new(dir.path());
        for path in [
            "server.pem.bak",
            "server.key.old",
            "server.key.1",
            "server.key.2024-05-01",
            "id_rsa~",
            ".id_rsa.swp",
            "#server.pem#",
            "terraform.tfstate.backup",
            "terraform.tfstate.1714550400.backup",
            "prod.tfvars.orig.gz",
            ".netrc.save",
            ".env.local~",
            ".docker/config.json.bak",
            "/etc/shadow.old",
            "credentials.json.copy.zip",
        ] {
            assert!(is_secret_at(&root, path), "{path}");
        }
        for path in [
            "main.rs.bak",
            "notes~",
            "v1.2",
            "archive.tar.gz",
            "key.rs.old",
            ".1",
        ] {
            assert!(!is_secret_at(&root, path), "{path}");
        }
    }

    #[test]
    fn credentials_of_tools_services_and_agents_are_secrets_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = PathRoot::new(dir.path());
        for path in [
            "infra/terraform.tfstate",
            "prod.auto.tfvars",
            "prod.tfvars.json",
            "my-service-account-key.json",
            "service_account.json",
            "shop-firebase-adminsdk-x1-2.json",
            ".dockercfg",
            ".yarnrc.yml",
            "/home/x/.my.cnf",
            "/home/x/.aws/sso/cache/a.json",
            "/home/x/.claude/.credentials.json",
            "/home/x/.codex/auth.json",
            "/home/x/.gemini/oauth_creds.json",
            "/home/x/.config/github-copilot/hosts.json",
            "/home/x/.m2/settings.xml",
            "/home/x/.bash_history",
        ] {
            assert!(is_secret_at(&root, path), "{path}");
        }
        for path in [
            "service.json",
            "settings.xml",
            "history",
            "auth.json",
            "tfstate.md",
        ] {
            assert!(!is_secret_at(&root, path), "{path}");
        }
    }

    #[test]
    fn a_link_to_a_secrets_file_is_one_and_so_is_an_example_that_leads_to_one() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(".env"), "").expect("written");
        symlink(dir.path().join(".env"), dir.path().join("notes.txt")).expect("linked");
        symlink(".env", dir.path().join(".env.example")).expect("linked");
        symlink("/etc/shadow", dir.path().join("later")).expect("linked");
        let root = PathRoot::new(dir.path());
        assert!(
            is_secret_at(&root, "notes.txt")
                && is_secret_at(&root, ".env.example")
                && is_secret_at(&root, "later")
        );
        assert!(names_secret(&root, "cat notes.txt"));
    }

    #[test]
    fn a_command_that_names_a_secrets_file_is_seen_through_quotes_and_patterns() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = PathRoot::new(dir.path());
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
            "curl -T.env x",
            "cat .en{v,}",
            "cat .e${x}nv",
            "cat ~/.aws/cred*",
            "cat ~/.aws/*",
            "cat ~/.ss?/config",
            "cat /et?/shadow",
            "cat *.ke?",
            "cat x.pe[m]",
            "cat [.]env",
            "cat .kube/conf*",
        ] {
            assert!(names_secret(&root, text), "{text}");
        }
        for text in [
            "cat .env.example",
            "ls *",
            "cargo test",
            "cat *.rs",
            "printenv",
            "ls *.*",
            "ls s*",
            "cat *.js*",
            "cat *.json",
            "ls */*",
            "grep process.env x",
        ] {
            assert!(!names_secret(&root, text), "{text}");
        }
    }

    /// Generates pieces of secret paths with other text around them.
    fn any_path() -> impl Strategy<Value = String> {
        let names = SECRET_FILES
            .iter()
            .chain(ENVIRONMENT_FILES)
            .chain(SECRET_DIRECTORIES)
            .chain(EXAMPLE_FILES)
            .chain(EXPANSION_SAMPLES);
        let known: Vec<String> = names
            .flat_map(|name| ["", "x", ".e"].map(|text| name.replace('*', text)))
            .chain(
                ["secrets.toml", "secrets.yml", "secrets.", "proc", "environ"].map(str::to_owned),
            )
            .collect();
        let piece = prop_oneof![4 => prop::sample::select(known), 2 => Just("/".to_owned()), 1 => "[a-z./*é\n]{0,2}"];
        let glue = prop::sample::select(vec!["/", "/", "/", "", "."]);
        prop::collection::vec((piece, glue), 1..5)
            .prop_map(|parts| {
                parts
                    .into_iter()
                    .flat_map(|(piece, glue)| [piece, glue.to_owned()])
                    .collect::<String>()
            })
            .prop_map(|path| path.strip_suffix('/').map(str::to_owned).unwrap_or(path))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn patterns_mean_the_same_as_globs(path in any_path()) {
            static GLOBS: LazyLock<[GlobSet; 3]> = LazyLock::new(|| {
                let globs = |patterns: Vec<String>| lists::compile_path_globs("secrets_files", &patterns).expect("valid patterns");
                let by_name = |names: &[&str]| names.iter().map(|name| format!("**/{name}")).collect::<Vec<_>>();
                let inside = SECRET_DIRECTORIES.iter().map(|name| format!("**/{name}/**"));
                let mut secret = [by_name(SECRET_FILES), by_name(SECRET_DIRECTORIES), by_name(&["proc/**/environ"])].concat();
                secret.extend(inside);
                [secret, by_name(ENVIRONMENT_FILES), by_name(EXAMPLE_FILES)].map(globs)
            });
            let [secret, environment, example] = GLOBS.each_ref().map(|globs| globs.is_match(&path));
            let secret = secret || environment && !example;
            prop_assert_eq!(is_secret_name(&path), secret, "{:?}", path);
        }
    }
}
