//! What arguments mean, going by what they are called.

use std::borrow::Cow;

/// What an argument means, going by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    Path,
    /// A path in one tool and something else in another.
    PerhapsPath,
    Patch,
    Command,
    /// A list holds commands, not the words of one.
    Commands,
    Url,
    Host,
    Other,
}

/// The name of an argument without what only spells it differently.
pub(crate) fn plain_name(key: &str) -> Cow<'_, str> {
    if key
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return Cow::Borrowed(key);
    }
    let mut name = String::with_capacity(key.len());
    name.extend(
        key.bytes()
            .filter(u8::is_ascii_alphanumeric)
            .map(|byte| char::from(byte.to_ascii_lowercase())),
    );
    Cow::Owned(name)
}

/// `PATH` and `LD_PRELOAD` decide what a command means, and what it reads may be a program.
pub(crate) fn changes_commands(name: &str) -> bool {
    const SURROUNDINGS: [&str; 10] = [
        "env",
        "envs",
        "environment",
        "environ",
        "variables",
        "vars",
        "stdin",
        "input",
        "interpreter",
        "environments",
    ];
    let ends = |end: &str| name.ends_with(end);
    SURROUNDINGS.contains(&name)
        || ends("env")
        || ends("envs")
        || ends("environment")
        || name.starts_with("envvar")
        || ends("envvars")
        || ends("environmentvariables")
}

/// Whether relative paths of the call may start from what the argument names.
pub(crate) fn names_directory(name: &str) -> bool {
    let ends = ["cwd", "pwd", "dir", "directory", "folder"];
    matches!(name, "root" | "basepath" | "rootpath" | "base")
        || ends.iter().any(|end| name.ends_with(end))
}

/// What the argument of this plain name means.
pub(crate) fn means(key: &str) -> Means {
    const PATHS: [&str; 13] = [
        "path",
        "paths",
        "pathname",
        "file",
        "files",
        "filename",
        "filenames",
        "dir",
        "dirs",
        "directory",
        "directories",
        "folder",
        "folders",
    ];
    // `path1`, `file_2`.
    let key = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let ends = |ends: &[&str]| ends.iter().any(|end| key.ends_with(end));
    match key {
        "profile" => Means::Other,
        "cwd" | "pwd" | "root" => Means::Path,
        "source" | "sources" | "src" | "target" | "targets" | "dest" | "destination" | "from"
        | "to" | "input" | "output" | "location" | "old" | "new" => Means::PerhapsPath,
        "commandline" | "cmdline" | "commandstring" | "commandtext" | "argv" | "shell" | "bash"
        | "program" | "executable" | "run" | "exec" => Means::Command,
        "script" | "scripts" => Means::Commands,
        "endpoint" | "href" | "link" | "links" | "origin" => Means::Url,
        "server" | "proxy" | "remote" | "upstream" => Means::Host,
        _ if ends(&["patch", "patches", "diff", "diffs"]) => Means::Patch,
        _ if ends(&["command", "cmd"]) => Means::Command,
        _ if ends(&["commands", "cmds"]) => Means::Commands,
        _ if ends(&["url", "urls", "uri", "uris"]) => Means::Url,
        _ if ends(&["host", "hostname", "domain"]) => Means::Host,
        _ if ends(&PATHS) => Means::Path,
        _ => Means::Other,
    }
}
