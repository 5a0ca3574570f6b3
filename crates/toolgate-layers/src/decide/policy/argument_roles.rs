//! Roles of arguments, inferred from their names.

use std::borrow::Cow;

/// The role of an argument, inferred from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentRole {
    Path,
    /// A path in one tool and something else in another.
    PossiblePath,
    Patch,
    Command,
    /// A list holds several commands, not the words of one.
    Commands,
    Url,
    Host,
    Other,
}

/// Normalizes the name of an argument: lower case, letters and digits only.
pub(crate) fn normalize_name(key: &str) -> Cow<'_, str> {
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

/// Checks whether the argument can change what a command does: environment variables such as `PATH`
/// and `LD_PRELOAD`, or input that may be a program.
pub(crate) fn affects_commands(name: &str) -> bool {
    const ENVIRONMENT_NAMES: [&str; 10] = [
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
    ENVIRONMENT_NAMES.contains(&name)
        || ends("env")
        || ends("envs")
        || ends("environment")
        || name.starts_with("envvar")
        || ends("envvars")
        || ends("environmentvariables")
}

/// Checks whether relative paths of the call may start from the directory that the argument names.
pub(crate) fn is_directory_name(name: &str) -> bool {
    let ends = ["cwd", "pwd", "dir", "directory", "folder"];
    matches!(name, "root" | "basepath" | "rootpath" | "base")
        || ends.iter().any(|end| name.ends_with(end))
}

/// Returns the role of the argument with this normalized name.
pub(crate) fn classify_argument(key: &str) -> ArgumentRole {
    const PATH_NAMES: [&str; 13] = [
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
        "profile" => ArgumentRole::Other,
        "cwd" | "pwd" | "root" => ArgumentRole::Path,
        "source" | "sources" | "src" | "target" | "targets" | "dest" | "destination" | "from"
        | "to" | "input" | "output" | "location" | "old" | "new" => ArgumentRole::PossiblePath,
        "commandline" | "cmdline" | "commandstring" | "commandtext" | "argv" | "shell" | "bash"
        | "program" | "executable" | "run" | "exec" => ArgumentRole::Command,
        "script" | "scripts" => ArgumentRole::Commands,
        "endpoint" | "href" | "link" | "links" | "origin" => ArgumentRole::Url,
        "server" | "proxy" | "remote" | "upstream" => ArgumentRole::Host,
        _ if ends(&["patch", "patches", "diff", "diffs"]) => ArgumentRole::Patch,
        _ if ends(&["command", "cmd"]) => ArgumentRole::Command,
        _ if ends(&["commands", "cmds"]) => ArgumentRole::Commands,
        _ if ends(&["url", "urls", "uri", "uris"]) => ArgumentRole::Url,
        _ if ends(&["host", "hostname", "domain"]) => ArgumentRole::Host,
        _ if ends(&PATH_NAMES) => ArgumentRole::Path,
        _ => ArgumentRole::Other,
    }
}
