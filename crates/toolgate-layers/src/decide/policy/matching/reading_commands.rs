//! Commands that only read the files they name, so that they are not asked about.
//!
//! What is not in these lists may write: programs gain options, and git accepts the beginning of
//! one for the whole.

use crate::decide::policy::matching::shell::CommandWords;

/// Programs that only read the files they name, whatever their options are.
const READING_PROGRAMS: &[&str] = &[
    "basename", "cat", "cmp", "dirname", "du", "echo", "grep", "head", "ls", "pwd", "readlink",
    "realpath", "stat", "tail", "test", "true", "wc",
];

/// Options of `sed` that change nothing but what is printed.
const SED_OPTIONS: &[&str] = &[
    "-n",
    "-E",
    "-r",
    "-ne",
    "-nE",
    "-nr",
    "-e",
    "--quiet",
    "--silent",
    "--regexp-extended",
];

/// Options and tests of `find` that select and print.
const FIND_OPTIONS: &[&str] = &[
    "-H",
    "-L",
    "-P",
    "-a",
    "-and",
    "-empty",
    "-ilname",
    "-iname",
    "-ipath",
    "-iregex",
    "-ls",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mount",
    "-mtime",
    "-name",
    "-newer",
    "-not",
    "-o",
    "-or",
    "-path",
    "-print",
    "-print0",
    "-prune",
    "-regex",
    "-size",
    "-type",
    "-wholename",
    "-xdev",
];

/// Commands of git that read, and `add` and `commit`, which change no file of the workspace.
const GIT_COMMANDS: &[&str] = &[
    "blame",
    "cat-file",
    "check-ignore",
    "commit",
    "diff",
    "log",
    "ls-files",
    "ls-tree",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "status",
];

/// Options of these commands, each as it has to be written.
const GIT_OPTIONS: &[&str] = &[
    "--",
    "--all",
    "--amend",
    "--cached",
    "--decorate",
    "--follow",
    "--graph",
    "--merges",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-edit",
    "--no-ext-diff",
    "--no-merges",
    "--no-textconv",
    "--numstat",
    "--oneline",
    "--patch",
    "--porcelain",
    "--quiet",
    "--reverse",
    "--short",
    "--shortstat",
    "--signoff",
    "--staged",
    "--stat",
    "--summary",
    "--word-diff",
    "-M",
    "-a",
    "-am",
    "-b",
    "-m",
    "-n",
    "-p",
    "-q",
    "-s",
    "-sm",
    "-t",
    "-u",
    "-v",
    "-w",
];

/// Beginnings of options of these commands that have a value.
const GIT_VALUES: &[&str] = &[
    "--after=",
    "--author=",
    "--before=",
    "--date=",
    "--diff-filter=",
    "--format=",
    "--grep=",
    "--max-count=",
    "--message=",
    "--pretty=",
    "--since=",
    "--unified=",
    "--until=",
];

/// Checks whether a command that is certain only reads the files that it names. Redirections are not
/// part of it; a text that has one is not certain.
pub(crate) fn only_reads_files(words: &CommandWords) -> bool {
    let Some((program, rest)) = words.split_first() else {
        return false;
    };
    match program.as_str() {
        "sed" => sed_reads(rest),
        "find" => options_of(rest).all(|option| FIND_OPTIONS.contains(&option)),
        "git" => git_reads(rest),
        program => READING_PROGRAMS.contains(&program),
    }
}

/// Returns the words that begin like an option. Programs look for these behind operands too.
fn options_of(words: &[String]) -> impl Iterator<Item = &str> {
    let words = words.iter().map(String::as_str);
    words.filter(|word| word.len() > 1 && word.starts_with('-'))
}

/// Checks whether `sed` prints lines by their numbers. In other scripts a letter may write a file or
/// run a program.
fn sed_reads(words: &[String]) -> bool {
    let is_script = |script: &String| {
        let is_plain = |c: char| c.is_ascii_digit() || "$,;=pq ".contains(c);
        script.chars().all(is_plain)
    };
    let knows_options = options_of(words).all(|option| SED_OPTIONS.contains(&option));
    let takes_script = |word: &String| word == "-e" || word == "-ne";
    let mut scripts: Vec<&String> = { words.windows(2) }
        .filter(|pair| takes_script(&pair[0]))
        .map(|pair| &pair[1])
        .collect();
    if !words.iter().any(takes_script) {
        // Without an option for it, the first operand is the script.
        scripts.extend(words.iter().find(|word| !word.starts_with('-')));
    }
    knows_options && !scripts.is_empty() && scripts.into_iter().all(is_script)
}

fn git_reads(words: &[String]) -> bool {
    let words = match words {
        [first, rest @ ..] if first == "--no-pager" => rest,
        words => words,
    };
    let Some((command, rest)) = words.split_first() else {
        return false;
    };
    if command == "add" {
        return true;
    }
    let is_count = |option: &str| {
        let digits = option.trim_start_matches("-U").trim_start_matches('-');
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    GIT_COMMANDS.contains(&command.as_str())
        && options_of(rest).all(|option| {
            GIT_OPTIONS.contains(&option)
                || GIT_VALUES.iter().any(|start| option.starts_with(start))
                || is_count(option)
        })
}
