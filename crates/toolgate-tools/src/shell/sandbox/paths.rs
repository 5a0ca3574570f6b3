//! The paths that a command may read in addition to the workspace: the system and the toolchains,
//! but not the rest of the home directory.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Programs and the files they need to run. These directories hold no secrets.
const SYSTEM_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];

/// The parts of `/etc` that programs need. It also holds keys and passwords, so it is not readable as
/// a whole.
const ETC_ENTRIES: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "gitattributes",
    "gitconfig",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "java",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "manpath.config",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "R",
    "resolv.conf",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "static",
    "terminfo",
    "timezone",
    "xattr.conf",
];

/// Devices that hold no data.
const DEVICE_PATHS: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Directories of a home that hold only a toolchain, so that more than their `bin` is readable.
const TOOLCHAIN_DIRS: &[&str] = &[
    ".asdf",
    ".bun",
    ".deno",
    ".fnm",
    ".ghcup",
    ".juliaup",
    ".nvm",
    ".nodenv",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rye",
    ".sdkman",
    ".swiftly",
    ".volta",
    "anaconda3",
    "miniconda3",
    "miniforge3",
];

/// The entries of Cargo's home, without the files that may hold tokens.
const CARGO_ENTRIES: &[&str] = &["bin", "registry", "git", "env"];

/// The configuration of Cargo, which may hold tokens of registries.
const CARGO_CONFIGS: &[&str] = &["config.toml", "config"];

/// Returns the devices that a command may use.
pub(super) fn device_paths() -> Vec<PathBuf> {
    DEVICE_PATHS
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect()
}

/// Returns all paths that a command may read and run in addition to the workspace.
pub(super) fn readable_paths() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM_PATHS.iter().map(PathBuf::from).collect();
    paths.extend(ETC_ENTRIES.iter().map(|name| Path::new("/etc").join(name)));
    let home = home_dir();
    if let Some(path) = env::var_os("PATH") {
        // A relative entry would make a directory readable that depends on where we were started.
        let dirs = env::split_paths(&path).filter(|dir| dir.is_absolute());
        dirs.for_each(|dir| paths.extend(toolchain_paths(&dir, home.as_deref())));
    }
    let cargo = cargo_home();
    paths.extend(
        cargo
            .iter()
            .flat_map(|dir| CARGO_ENTRIES.iter().map(|name| dir.join(name))),
    );
    paths.extend(rustup_home());
    resolve_existing(paths)
}

/// Returns the files that are empty for a command: programs that find them, and cannot read them,
/// would fail. A file that the operator makes readable is not among them.
pub(super) fn blanked_paths(readable: &[PathBuf]) -> Vec<PathBuf> {
    let configs = cargo_home()
        .into_iter()
        .flat_map(|home| CARGO_CONFIGS.iter().map(move |name| home.join(name)));
    let is_given = |path: &PathBuf| readable.iter().any(|given| path.starts_with(given));
    let mut paths = resolve_existing(configs.collect());
    paths.retain(|path| path.is_file() && !is_given(path));
    paths
}

/// Returns a directory of programs, and the toolchain around it if there is one.
fn toolchain_paths(dir: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Ok(real) = fs::canonicalize(dir) else {
        return Vec::new();
    };
    // A `PATH` that contains the home directory, or a parent of it, must not make it readable.
    if home.is_some_and(|home| home.starts_with(&real)) || real.parent().is_none() {
        return Vec::new();
    }
    let is_toolchain = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| TOOLCHAIN_DIRS.contains(&name))
    };
    let around = real.ancestors().find(is_toolchain).map(Path::to_owned);
    [Some(real), around].into_iter().flatten().collect()
}

pub(super) fn home_dir() -> Option<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
        .and_then(|home| home.canonicalize().ok())
}

/// Returns the home directory of Cargo, if it exists.
pub(super) fn cargo_home() -> Option<PathBuf> {
    toolchain_home("CARGO_HOME", ".cargo")
}

/// Returns the home directory of rustup, if it exists.
pub(super) fn rustup_home() -> Option<PathBuf> {
    toolchain_home("RUSTUP_HOME", ".rustup")
}

fn toolchain_home(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = env::var_os(variable).map(PathBuf::from);
    given
        .or_else(|| Some(home_dir()?.join(below_home)))
        .filter(|dir| dir.is_dir())
}

/// Resolves the paths that exist and removes duplicates.
fn resolve_existing(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut real: Vec<PathBuf> = paths
        .iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    real.sort();
    real.dedup();
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_directory_in_path_does_not_become_readable() {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().canonicalize().expect("it exists");
        for dir in ["bin", ".pyenv/shims", ".local/bin"] {
            fs::create_dir_all(root.join(dir)).expect("created");
        }
        let given = |dir: &str| toolchain_paths(&root.join(dir), Some(&root));
        assert_eq!(given(""), Vec::<PathBuf>::new());
        assert_eq!(given("bin"), [root.join("bin")]);
        assert_eq!(
            given(".local/bin"),
            [root.join(".local/bin")],
            "other files there may be keys"
        );
        assert_eq!(
            given(".pyenv/shims"),
            [root.join(".pyenv/shims"), root.join(".pyenv")]
        );
        assert_eq!(
            toolchain_paths(Path::new("/"), Some(&root)),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn no_readable_path_contains_the_passwords_of_the_system() {
        let secret = |path: &PathBuf| {
            Path::new("/etc/shadow").starts_with(path) || Path::new("/root/.ssh").starts_with(path)
        };
        assert!(
            !readable_paths().iter().any(secret),
            "{:?}",
            readable_paths()
        );
    }
}
