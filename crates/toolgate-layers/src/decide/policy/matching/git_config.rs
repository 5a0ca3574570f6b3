//! Settings of git that name a program, or a file with more settings: to write one of them acts
//! later, like a change of `.git/config`.

use crate::decide::policy::{
    features::{CallCommand, CallFeatures},
    matching::shell::{CommandWords, base_name},
};

/// Settings that git runs or obeys, in lower case. A `*` stands for any part in between.
const ACTING_KEYS: &[&str] = &[
    "browser.*.cmd",
    "browser.*.path",
    "core.alternaterefscommand",
    "core.askpass",
    "core.attributesfile",
    "core.editor",
    "core.fsmonitor",
    "core.gitproxy",
    "core.hookspath",
    "core.pager",
    "core.sshcommand",
    "core.worktree",
    "credential.*.helper",
    "credential.helper",
    "diff.*.command",
    "diff.*.textconv",
    "diff.external",
    "difftool.*.cmd",
    "difftool.*.path",
    "filter.*.clean",
    "filter.*.process",
    "filter.*.smudge",
    "gpg.*.defaultkeycommand",
    "gpg.*.program",
    "gpg.program",
    "guitool.*.cmd",
    "hook.*.command",
    "imap.tunnel",
    "include.path",
    "includeif.*.path",
    "init.templatedir",
    "instaweb.httpd",
    "interactive.difffilter",
    "lfs.customtransfer.*.path",
    "man.*.cmd",
    "man.*.path",
    "merge.*.driver",
    "mergetool.*.cmd",
    "mergetool.*.path",
    "pager.*",
    "protocol.*.allow",
    "remote.*.pushurl",
    "remote.*.receivepack",
    "remote.*.uploadpack",
    "remote.*.vcs",
    "sendemail.cccmd",
    "sendemail.headercmd",
    "sendemail.sendmailcmd",
    "sendemail.smtpserver",
    "sendemail.tocmd",
    "sendemail.*.smtpserver",
    "sequence.editor",
    "submodule.*.update",
    "tar.*.command",
    "trailer.*.cmd",
    "trailer.*.command",
    "uploadpack.packobjectshook",
    "url.*.insteadof",
    "url.*.pushinsteadof",
];

/// Commands of git that store settings.
const STORING_COMMANDS: [&str; 2] = ["config", "clone"];

/// Checks whether a command of the call may store a setting of git that acts later.
pub(crate) fn may_write_acting_config(facts: &CallFeatures<'_>) -> bool {
    facts.commands.iter().any(may_write)
}

fn may_write(command: &CallCommand) -> bool {
    match &command.runs {
        // What is certain is read word by word; a reading `git config KEY` is then known as one.
        Some(runs) => runs
            .iter()
            .any(|run| storing_words(run).is_some_and(writes)),
        // Otherwise the name of the setting may come out of an expansion.
        None => { command.possible_runs().iter() }
            .any(|run| storing_words(run).is_some() || names_acting_key(run)),
    }
}

/// Checks whether git gets the name of a setting that acts later, whatever its command is.
fn names_acting_key(run: &CommandWords) -> bool {
    let is_git = run.iter().any(|word| base_name(word) == "git");
    is_git && run.iter().any(|word| is_acting_key(&word.to_lowercase()))
}

/// Returns the words after the command of git that stores settings.
fn storing_words(run: &CommandWords) -> Option<&[String]> {
    let git = run.iter().position(|word| base_name(word) == "git")?;
    let is_storing = |word: &String| STORING_COMMANDS.contains(&word.to_lowercase().as_str());
    let at = git + 1 + run[git + 1..].iter().position(is_storing)?;
    Some(&run[at..])
}

/// Checks whether `config …` or `clone …` stores a setting that acts later.
fn writes(words: &[String]) -> bool {
    // To rename a section gives its settings another meaning.
    let edits = |word: &String| {
        ["-e", "edit", "rename-section"].contains(&word.as_str())
            || word.starts_with("--ed")
            || word.starts_with("--ren")
    };
    if words[0] == "config" && words.iter().any(edits) {
        return true;
    }
    // An alias of several words may have options that run a program.
    let is_more_than_a_name = |word: &String| word.contains(['!', ' ', '\t', '\n']);
    let has_command = words.iter().any(is_more_than_a_name);
    // A pattern may become any name.
    let acts = |part: &str| {
        let key = part.strip_prefix("-c").unwrap_or(part).to_lowercase();
        let is_alias = key.starts_with("alias.") && has_command;
        is_acting_key(&key) || is_alias || key.contains(['*', '?', '['])
    };
    // `clone -c KEY=VALUE` and `--config=KEY=VALUE` too.
    let names_setting = words.iter().any(|word| word.split('=').any(acts));
    names_setting && !(words[0] == "config" && only_reads_settings(&words[1..]))
}

/// Checks whether the words after `git config` read: with an option that says so, or with nothing
/// after the name of the setting.
fn only_reads_settings(words: &[String]) -> bool {
    const READING: [&str; 10] = [
        "--get",
        "--get-all",
        "--get-regexp",
        "--get-urlmatch",
        "--list",
        "-l",
        "get",
        "list",
        "--get-color",
        "--get-colorbool",
    ];
    const PLACES: [&str; 4] = ["--global", "--local", "--system", "--worktree"];
    let mut rest = words.iter().filter(|word| !PLACES.contains(&word.as_str()));
    match rest.next() {
        Some(first) if READING.contains(&first.as_str()) => true,
        Some(first) => !first.starts_with('-') && first.contains('.') && rest.next().is_none(),
        None => true,
    }
}

/// Checks a name in lower case against the list.
fn is_acting_key(key: &str) -> bool {
    let matches = |known: &&&str| match known.split_once('*') {
        Some((start, end)) => {
            let rest = key
                .strip_prefix(start)
                .and_then(|rest| rest.strip_suffix(end));
            rest.is_some_and(|part| !part.is_empty())
        }
        None => key == **known,
    };
    ACTING_KEYS.iter().any(|known| matches(&known))
}
