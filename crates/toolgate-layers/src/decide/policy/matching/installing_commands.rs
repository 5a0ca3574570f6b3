//! Commands that install a hook, or a setting that runs a program, without naming the file they
//! write: it acts later, like a change of `.git/hooks`.

use crate::decide::policy::{
    features::CallFeatures,
    matching::{
        program_runners::lists,
        programs::RUNNER_PROGRAMS,
        shell::{MAX_SCRIPT_COMMANDS, ScriptCommand, ShellWord, base_name},
    },
};

/// One kind of command that installs something.
struct InstallingCommand {
    programs: &'static str,
    /// The operands that it begins with, each one of a list.
    operands: &'static [&'static str],
    /// If not empty, one of these options has to be given.
    options: &'static str,
    /// If not empty, a word has to contain this.
    telling: &'static str,
}

const fn installing(
    programs: &'static str,
    operands: &'static [&'static str],
) -> InstallingCommand {
    InstallingCommand {
        programs,
        operands,
        options: "",
        telling: "",
    }
}

const INSTALLING_COMMANDS: &[InstallingCommand] = &[
    InstallingCommand {
        options: "--template --separate-git-dir",
        ..installing("git", &["init init-db clone"])
    },
    // A remote helper runs a program: `ext::sh -c …`.
    InstallingCommand {
        telling: "::",
        ..installing("git", &["remote", "add set-url"])
    },
    installing(
        "git",
        &[
            "submodule",
            "add update init set-url sync foreach absorbgitdirs",
        ],
    ),
    installing("git", &["worktree", "add repair"]),
    installing("git", &["lfs", "install update"]),
    installing("git", &["hook"]),
    installing("git", &["maintenance", "start register"]),
    installing("git", &["annex crypt flow", "init enableremote unlock"]),
    installing("git-lfs", &["install update"]),
    installing("git-crypt git-annex", &["init enableremote unlock"]),
    installing("scalar", &["clone register reconfigure"]),
    installing(
        "pre-commit pre_commit prek",
        &["install install-hooks init-templatedir autoupdate"],
    ),
    installing("husky husky-init simple-git-hooks yorkie", &[]),
    installing("lefthook captainhook", &["install add"]),
    InstallingCommand {
        options: "--install -i --sign -s",
        ..installing("overcommit", &[])
    },
    InstallingCommand {
        telling: "scripts",
        ..installing("npm pnpm yarn bun", &["pkg", "set"])
    },
    installing("npm", &["set-script set"]),
    installing("npm pnpm yarn", &["config c", "set edit"]),
    installing("pip pip3", &["config", "set edit"]),
    installing("bundle", &["config", "set"]),
    InstallingCommand {
        telling: "script",
        ..installing("composer", &["config"])
    },
    InstallingCommand {
        options: "-w",
        ..installing("go", &["env"])
    },
    installing("direnv", &["allow permit grant edit"]),
    installing("mise rtx", &["trust"]),
    installing("gh glab", &["alias", "set import"]),
    installing("gh", &["extension ext", "install create"]),
    installing("systemctl", &["enable link edit"]),
    installing("launchctl", &["load bootstrap enable submit"]),
    InstallingCommand {
        options: "--install-extension",
        ..installing("code codium cursor", &[])
    },
    installing("claude codex gemini", &["mcp", "add add-json"]),
];

/// Checks whether a command of the call may install something that acts later.
pub(crate) fn may_install(facts: &CallFeatures<'_>) -> bool {
    let mut scripts = facts.commands.iter().map(|command| command.script());
    scripts.any(|script| script.len() > MAX_SCRIPT_COMMANDS || script.iter().any(installs))
}

fn installs(command: &ScriptCommand) -> bool {
    if command.program().is_some_and(|name| name == "crontab") {
        return !command.words.iter().any(|word| word.text == "-l");
    }
    let is_known = |name: &str| { INSTALLING_COMMANDS.iter() }.any(|it| lists(it.programs, name));
    let direct = command.find_program(is_known);
    let words = direct.into_iter().chain(words_behind_runner(command));
    words.into_iter().any(|words| {
        let name = base_name(&words[0].text);
        let mut known = INSTALLING_COMMANDS.iter();
        known.any(|it| lists(it.programs, &name) && it.matches(&words[1..]))
    })
}

/// Returns the words from a tool for hooks on that a package manager or Python runs.
fn words_behind_runner(command: &ScriptCommand) -> Option<&[ShellWord]> {
    const HOOK_TOOLS: &str =
        "husky husky-init simple-git-hooks yorkie lefthook pre-commit pre_commit prek overcommit";
    let first = command.program()?;
    let runs = lists(
        "npm pnpm yarn bun deno pipx python python3 composer",
        &first,
    ) || lists(RUNNER_PROGRAMS, &first);
    let is_tool = |word: &ShellWord| lists(HOOK_TOOLS, &base_name(&word.text));
    let at = command.words.iter().position(is_tool).filter(|_| runs)?;
    let adds = |word: &ShellWord| lists("add install i remove uninstall", &word.text);
    // To install the package is not to install hooks.
    (!command.words[..at].iter().any(adds)).then(|| &command.words[at..])
}

impl InstallingCommand {
    fn matches(&self, arguments: &[ShellWord]) -> bool {
        let operands = operands_of(arguments);
        // A word that a shell expands may be any.
        let fits =
            |(wanted, word): (&&str, &&ShellWord)| !word.certain || lists(wanted, &word.text);
        let given = |word: &ShellWord| {
            let name = word.text.split('=').next().unwrap_or_default();
            let is_short =
                |it: &str| it.starts_with("--") && it.starts_with(name) && name.len() > 3;
            lists(self.options, name) || self.options.split(' ').any(is_short)
        };
        let tells = |word: &ShellWord| !word.certain || word.text.contains(self.telling);
        operands.len() >= self.operands.len()
            && self.operands.iter().zip(&operands).all(fits)
            && (self.options.is_empty() || arguments.iter().any(given))
            && (self.telling.is_empty() || arguments.iter().any(tells))
    }
}

/// Returns the words that are neither options nor values of options in front of a subcommand.
fn operands_of(words: &[ShellWord]) -> Vec<&ShellWord> {
    const WITH_VALUE: &str =
        "-C -c --git-dir --work-tree --namespace --prefix --dir --cwd --filter -w --workspace";
    let mut found = Vec::new();
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        is_value = lists(WITH_VALUE, &word.text);
        if !word.text.starts_with('-') {
            found.push(word);
        }
    }
    found
}
