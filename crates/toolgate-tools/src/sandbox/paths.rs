//! What a command may read beside the workspace: the system and the toolchains, not the rest of the home.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Programs and what they need to run. Nobody keeps secrets there.
const SYSTEM: &[&str] = &[
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

/// The parts of `/etc` that programs need; there are also keys and passwords in it, so it is not given as a whole.
const ETC: &[&str] = &[
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
    "maven",
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

/// Devices that hold nothing.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Directories of a home that hold nothing but a toolchain, so that what is beside its `bin` may be read, too.
const TOOLCHAINS: &[&str] = &[
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

/// Cargo's home without the file with the tokens.
const CARGO: &[&str] = &["bin", "registry", "git", "config.toml", "config", "env"];

/// The devices a command may use.
pub(super) fn devices() -> Vec<PathBuf> {
    DEVICES
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect()
}

/// All that a command may read and run beside the workspace.
pub(super) fn readable() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    paths.extend(ETC.iter().map(|name| Path::new("/etc").join(name)));
    let home = home();
    if let Some(path) = env::var_os("PATH") {
        let dirs = env::split_paths(&path).filter(|dir| dir.is_absolute());
        dirs.for_each(|dir| paths.extend(toolchain_of(&dir, home.as_deref())));
    }
    let cargo = cargo_home();
    paths.extend(
        cargo
            .iter()
            .flat_map(|dir| CARGO.iter().map(|name| dir.join(name))),
    );
    paths.extend(rustup_home());
    real(paths)
}

/// A directory of programs, and the toolchain around it if that holds nothing else.
fn toolchain_of(dir: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Ok(real) = fs::canonicalize(dir) else {
        return Vec::new();
    };
    // A home, or what is above one, is no directory of programs.
    if home.is_some_and(|home| home.starts_with(&real)) || real.parent().is_none() {
        return Vec::new();
    }
    let is_toolchain = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| TOOLCHAINS.contains(&name))
    };
    let around = real.ancestors().find(is_toolchain).map(Path::to_owned);
    [Some(real), around].into_iter().flatten().collect()
}

pub(super) fn home() -> Option<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
        .and_then(|home| home.canonicalize().ok())
}

/// Where cargo keeps its things, if there is such a place.
pub(super) fn cargo_home() -> Option<PathBuf> {
    place_of("CARGO_HOME", ".cargo")
}

/// Where rustup keeps its things, if there is such a place.
pub(super) fn rustup_home() -> Option<PathBuf> {
    place_of("RUSTUP_HOME", ".rustup")
}

fn place_of(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = env::var_os(variable).map(PathBuf::from);
    given
        .or_else(|| Some(home()?.join(below_home)))
        .filter(|dir| dir.is_dir())
}

/// The paths that there are, resolved, each once.
fn real(paths: Vec<PathBuf>) -> Vec<PathBuf> {
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
    fn a_home_on_the_path_is_not_given_away() {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().canonicalize().expect("there");
        for dir in ["bin", ".pyenv/shims", ".local/bin"] {
            fs::create_dir_all(root.join(dir)).expect("made");
        }
        let given = |dir: &str| toolchain_of(&root.join(dir), Some(&root));
        assert_eq!(given(""), Vec::<PathBuf>::new());
        assert_eq!(given("bin"), [root.join("bin")]);
        assert_eq!(
            given(".local/bin"),
            [root.join(".local/bin")],
            "what is beside it may be a key ring"
        );
        assert_eq!(
            given(".pyenv/shims"),
            [root.join(".pyenv/shims"), root.join(".pyenv")]
        );
        assert_eq!(
            toolchain_of(Path::new("/"), Some(&root)),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn nothing_readable_holds_the_passwords_of_the_system() {
        let secret = |path: &PathBuf| {
            Path::new("/etc/shadow").starts_with(path) || Path::new("/root/.ssh").starts_with(path)
        };
        assert!(!readable().iter().any(secret), "{:?}", readable());
    }
}
