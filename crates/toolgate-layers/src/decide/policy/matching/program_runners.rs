//! Finds out whether a command runs other programs than it names.

use crate::decide::policy::matching::{
    programs::{
        AMBIGUOUS_NAMES, CHECKER_MODULES, INTERPRETER_PROGRAMS, PASSING_PROGRAMS, PROGRAMS,
        Program, RUNNER_PROGRAMS, SCRIPT_PROGRAMS, SHELL_BUILTINS, SHELL_PROGRAMS, SQL_PROGRAMS,
        STARTER_PROGRAMS, Subcommand,
    },
    shell::{ShellWord, base_name},
};

pub(crate) fn lists(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Checks whether the words after the name are a command of their own: `sudo rm`.
pub(crate) fn starts_others(name: &str) -> bool {
    let name = base_name(name);
    lists_program(SHELL_BUILTINS, &name) || starts_programs(&name)
}

/// Checks for a shell, or a program that starts another one.
fn starts_programs(name: &str) -> bool {
    // `bash-static`, `busybox.nosuid`
    let stem = name.split(['-', '.', '_']).next().unwrap_or(name);
    lists_program(SHELL_PROGRAMS, name)
        || lists_program(SHELL_PROGRAMS, stem)
        || lists_program(STARTER_PROGRAMS, name)
        || name.starts_with("ld-")
}

fn lists_program(list: &str, name: &str) -> bool {
    lists(list, name) || lists(list, strip_version(name))
}

/// Checks whether a program may run its operands, or give them other names, for all that is known.
pub(crate) fn may_pass_on(name: &str) -> bool {
    let name = base_name(name);
    let is_known = find_program(&name).is_some() || lists_program(INTERPRETER_PROGRAMS, &name);
    !is_known || lists(PASSING_PROGRAMS, &name)
}

/// Returns a name without its version: `python3.12`, `gcc-12`.
fn strip_version(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || ".-".contains(c))
}

/// Checks whether no option of the program does more than its operands.
pub(crate) fn takes_any_option(name: &str) -> bool {
    find_program(&base_name(name)).is_some_and(|program| program.flags == "*")
}

pub(super) fn find_program(name: &str) -> Option<&'static Program> {
    let find = |name: &str| PROGRAMS.iter().find(|program| lists(program.names, name));
    find(name).or_else(|| find(strip_version(name)))
}

/// A part of a command because of which it may run another program than it names, or change what
/// later commands do.
pub(crate) enum Runner {
    /// The program itself: a shell, or a program that starts others.
    Program(String),
    /// A word that a rule can name: `git -c`, `find -exec`.
    Word(String),
}

/// Returns the part because of which a command may run another program than its first word; `None`
/// if it runs no other.
pub(crate) fn find_runner(words: &[ShellWord]) -> Option<Runner> {
    let (first, arguments) = words.split_first()?;
    let name = base_name(&first.text);
    let whole = || Some(Runner::Program(first.text.clone()));
    if starts_others(&name) {
        return whole();
    }
    if lists_program(INTERPRETER_PROGRAMS, &name) {
        let harmless = match &*name {
            "sed" | "gsed" => is_harmless_sed(arguments),
            "man" | "less" | "more" => has_only_operands(arguments),
            _ => false,
        };
        return if harmless { None } else { whole() };
    }
    let piece = |word: &str| Some(Runner::Word(format!("{} {word}", first.text)));
    if lists(RUNNER_PROGRAMS, &name)
        && let Some(word) = arguments.iter().find(|word| may_start(word))
    {
        return piece(&word.text);
    }
    let Some(program) = find_program(&name) else {
        let starts = |word: &&ShellWord| names_starter(&word.text);
        return arguments
            .iter()
            .find(starts)
            .and_then(|word| piece(&word.text));
    };
    let after = match skip_globals(program, arguments) {
        Ok(after) => after,
        Err(word) => return piece(&word.text),
    };
    if lists(SCRIPT_PROGRAMS, first_of(program.names)) {
        return match find_script(program, after) {
            Script::Named => None,
            Script::Input => whole(),
            Script::Unclear(word) => piece(&word.text),
        };
    }
    let risky = RiskyWords::for_command(program, after.first().map_or("", |word| &word.text));
    // An expansion could become any of the options.
    let runs = |(at, word): &(usize, &ShellWord)| {
        risky.contain(*at, &word.text) || (!word.certain && !program.runs.is_empty())
    };
    if let Some((_, word)) = after.iter().enumerate().find(runs) {
        return piece(&word.text);
    }
    if lists(SQL_PROGRAMS, first_of(program.names)) {
        let mut operands = after.iter().filter(|word| !word.text.starts_with('-'));
        return match operands.nth(program.max_operands) {
            Some(statement) => piece(&statement.text),
            // Later it could be the value of another option.
            None if after
                .first()
                .is_some_and(|word| needs_no_input(&name, word)) =>
            {
                None
            }
            None => whole(),
        };
    }
    None
}

/// Checks whether a word makes a program such as `uv` start another one.
fn may_start(word: &ShellWord) -> bool {
    !word.certain || lists("run exec x shell develop", &word.text) || names_starter(&word.text)
}

/// Checks whether an argument is the name of a program that runs others or code.
fn names_starter(word: &str) -> bool {
    let name = base_name(word);
    let runs = starts_programs(&name)
        || lists_program(INTERPRETER_PROGRAMS, &name)
        || find_program(&name).is_some_and(|it| lists(SCRIPT_PROGRAMS, first_of(it.names)));
    // Without a directory these are more often words: `frob start`.
    runs && !lists(AMBIGUOUS_NAMES, word)
}

/// Checks for arguments that are neither options nor commands of a pager: `less +x`.
fn has_only_operands(arguments: &[ShellWord]) -> bool {
    let plain = |word: &ShellWord| word.certain && !word.text.starts_with(['-', '+']);
    arguments.iter().all(plain)
}

/// The code that an interpreter runs.
enum Script<'w> {
    /// A file.
    Named,
    /// Its standard input.
    Input,
    /// A word of the command line, or anything because of this word.
    Unclear(&'w ShellWord),
}

/// Finds the script of an interpreter. Options that are not known may have a value, which would
/// look like the script.
fn find_script<'w>(program: &Program, words: &'w [ShellWord]) -> Script<'w> {
    for (at, word) in words.iter().enumerate() {
        let module = words.get(at + 1).map_or("", |next| &next.text);
        let is_option = word.text.starts_with('-');
        if !word.certain || names_input(&word.text) {
            return Script::Unclear(word);
        }
        if word.text == "-m" && first_of(program.names) == "python" {
            let checks = lists(CHECKER_MODULES, module);
            return if checks {
                Script::Named
            } else {
                Script::Unclear(word)
            };
        }
        if is_option && !is_known_option(program, &word.text) {
            return Script::Unclear(word);
        }
        if !is_option {
            // What follows are the options of the script.
            return Script::Named;
        }
    }
    let shows = |word: &ShellWord| lists("-V -v -h --version --help --test", &word.text);
    let shows = words.iter().any(shows);
    if shows { Script::Named } else { Script::Input }
}

/// Checks for a flag, a cluster of flags, or a harmless option with its value in the same word.
fn is_known_option(program: &Program, option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or_default();
    let mut letters = letters.chars();
    let value = option.split_once('=');
    lists(program.flags, option)
        || value.is_some_and(|(name, _)| lists(program.values, name))
        || (!option.starts_with("--")
            && letters.all(|letter| lists(program.flags, &format!("-{letter}"))))
}

/// Checks whether a word is, or ends in, a name of the standard input or of an open file.
fn names_input(word: &str) -> bool {
    let value = word.rsplit('=').next().unwrap_or(word);
    let has = |part: &str| value.split('/').any(|other| other == part);
    let is_device = has("stdin") || has("fd") || value.ends_with("/tty");
    value == "-"
        || (word.starts_with('-') && word != "--" && word.ends_with('-'))
        || (is_device && (value.contains("dev/") || value.contains("proc/")))
}

/// Checks for an option with which a shell for SQL reads no statements from its input.
fn needs_no_input(name: &str, word: &ShellWord) -> bool {
    let is_psql = strip_version(name) == "psql";
    lists("-V -? -help --help -version --version", &word.text)
        || (is_psql && lists("-l --list -f --file", &word.text))
}

/// Returns the first of several names.
pub(super) fn first_of(names: &str) -> &str {
    names.split(' ').next().unwrap_or(names)
}

/// Returns the words from the subcommand on, or the first option before it that is not known.
fn skip_globals<'w>(
    program: &Program,
    mut words: &'w [ShellWord],
) -> Result<&'w [ShellWord], &'w ShellWord> {
    if program.globals.is_empty() {
        return Ok(words);
    }
    while let Some((word, rest)) = words.split_first() {
        let name = word.text.split('=').next().unwrap_or_default();
        words = match &*word.text {
            text if !text.starts_with('-') => break,
            _ if !word.certain => return Err(word),
            text if lists(program.globals, text) => rest,
            text if lists(program.global_values, text) => rest.get(1..).unwrap_or_default(),
            _ if name.starts_with("--") && lists(program.global_values, name) => rest,
            // An option that is also one of every subcommand.
            text if lists(program.flags, text) => rest,
            _ => return Err(word),
        };
    }
    Ok(words)
}

/// The words that make one command run code.
pub(super) struct RiskyWords {
    pub(super) program: &'static Program,
    pub(super) subcommand: Option<&'static Subcommand>,
    /// True if the first word is a cluster of options without a dash: `tar xf`.
    pub(super) dashless: bool,
}

impl RiskyWords {
    pub(super) fn for_command(program: &'static Program, verb: &str) -> Self {
        let known = |subcommand: &&Subcommand| lists(subcommand.names, verb);
        Self {
            program,
            subcommand: program.subcommands.iter().find(known),
            dashless: lists(program.names, "tar"),
        }
    }

    /// Checks whether the word at a position after the name runs code, also as an abbreviation or
    /// in a cluster of letters.
    pub(super) fn contain(&self, at: usize, word: &str) -> bool {
        if self.dashless && at == 0 && !word.starts_with('-') {
            return self.contain(1, &format!("-{word}"));
        }
        let program = self.program.runs.split_ascii_whitespace();
        let subcommand = self.subcommand.map_or("", |subcommand| subcommand.runs);
        program
            .chain(subcommand.split_ascii_whitespace())
            .any(|risky| self.is_match(risky, at, word))
    }

    fn is_match(&self, risky: &str, at: usize, word: &str) -> bool {
        let long = word.split('=').next().unwrap_or(word);
        if risky.starts_with("--") {
            // Most programs accept the beginning of a long option.
            let is_other = || risky != long && self.option_lists().any(|list| lists(list, long));
            return long.len() > 2 && risky.starts_with(long) && !is_other();
        }
        match risky.strip_prefix('-') {
            // `-exec` is the beginning of `-execdir`, and `--exec` the same as `-exec`.
            Some(name) if name.len() > 1 => {
                word.starts_with(risky)
                    || word
                        .strip_prefix('-')
                        .is_some_and(|it| it.starts_with(risky))
            }
            Some("") => names_input(word),
            // `-Hx` and `-xrm` contain the letter, unless the program has no clusters.
            Some(letter) => word.strip_prefix('-').is_some_and(|cluster| {
                if self.has_clusters() {
                    !cluster.starts_with('-') && cluster.contains(letter)
                } else {
                    cluster.starts_with(letter)
                }
            }),
            None if risky == "=" => !word.starts_with('-') && word.contains('='),
            None if risky.starts_with(':') || risky.ends_with("::") => word.contains(risky),
            None if risky.ends_with(['=', '@', '.', ':']) => word.starts_with(risky),
            // A subcommand. Without a list of global options it can stand behind any of them.
            None => word == risky && (at == 0 || self.program.globals.is_empty()),
        }
    }

    fn option_lists(&self) -> impl Iterator<Item = &'static str> {
        let subcommand = self.subcommand.map(|it| [it.flags, it.values]);
        [self.program.flags, self.program.values]
            .into_iter()
            .chain(subcommand.into_iter().flatten())
    }

    /// Checks whether `-ab` means `-a -b`: not for programs with options such as `-exec`.
    pub(super) fn has_clusters(&self) -> bool {
        let word =
            |risky: &str| risky.len() > 2 && risky.starts_with('-') && !risky.starts_with("--");
        !self.program.runs.split_ascii_whitespace().any(word)
    }
}

/// Checks for scripts that print lines or replace text and do nothing else.
fn is_harmless_sed(arguments: &[ShellWord]) -> bool {
    let mut operands = arguments.iter().filter(|word| !word.text.starts_with('-'));
    let options = |word: &ShellWord| {
        !word.text.starts_with('-') || lists("-n -E -r -s -u -z --quiet --silent", &word.text)
    };
    arguments.iter().all(|word| word.certain && options(word))
        && operands
            .next()
            .is_some_and(|script| is_harmless_script(&script.text))
}

fn is_harmless_script(script: &str) -> bool {
    let lines = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_digit() || "$,;p ".contains(c))
    };
    let replaces = |text: &str| {
        let Some(delimiter) = text.chars().next().filter(|c| "/|#,:".contains(*c)) else {
            return false;
        };
        let parts: Vec<&str> = text.split(delimiter).collect();
        // Exactly three delimiters, so that the flags are the flags.
        matches!(parts[..], ["", _, _, flags] if flags.chars().all(|c| c.is_ascii_digit() || "gpI".contains(c)))
            && !text.contains(['\\', '\n', ';', '}'])
    };
    lines(script) || script.strip_prefix('s').is_some_and(replaces)
}
