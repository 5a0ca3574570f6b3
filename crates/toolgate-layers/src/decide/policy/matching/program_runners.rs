//! Finds out whether a command runs other programs than it names.

use crate::decide::policy::matching::{
    programs::{
        INTERPRETER_PROGRAMS, PROGRAMS, Program, SHELL_BUILTINS, STARTER_PROGRAMS, Subcommand,
    },
    shell::{ShellWord, base_name},
};

pub(super) fn lists(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Checks whether the words after the name are a command of their own: `sudo rm`.
pub(crate) fn starts_others(name: &str) -> bool {
    let name = base_name(name);
    [&*name, strip_version(&name)]
        .iter()
        .any(|name| lists(SHELL_BUILTINS, name) || lists(STARTER_PROGRAMS, name))
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
    if lists(INTERPRETER_PROGRAMS, &name) || lists(INTERPRETER_PROGRAMS, strip_version(&name)) {
        let harmless = matches!(&*name, "sed" | "gsed") && is_harmless_sed(arguments);
        return if harmless { None } else { whole() };
    }
    let program = find_program(&name)?;
    let piece = |word: &str| Some(Runner::Word(format!("{} {word}", first.text)));
    let after = match skip_globals(program, arguments) {
        Ok(after) => after,
        Err(word) => return piece(&word.text),
    };
    let is_interpreter = lists(SCRIPT_PROGRAMS, first_of(program.names));
    let own = match after.iter().position(|word| !word.text.starts_with('-')) {
        // What follows a script are the options of the script.
        Some(script) if is_interpreter => &after[..script],
        _ => after,
    };
    let risky = RiskyWords::for_command(program, after.first().map_or("", |word| &word.text));
    // An expansion could become any of the options.
    let runs = |(at, word): &(usize, &ShellWord)| {
        risky.contain(*at, &word.text) || (!word.certain && !program.runs.is_empty())
    };
    if let Some((_, word)) = own.iter().enumerate().find(runs) {
        return piece(&word.text);
    }
    // Without a script these read a program from their input.
    let reads_input = is_interpreter
        && own.len() == after.len()
        && !own
            .iter()
            .any(|word| lists("-V -v -h --version --help", &word.text));
    if reads_input { whole() } else { None }
}

/// Returns the first of several names.
pub(super) fn first_of(names: &str) -> &str {
    names.split(' ').next().unwrap_or(names)
}

/// The first names of programs that run a script.
const SCRIPT_PROGRAMS: &str = "python node ruby";

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
            return long.len() > 3 && risky.starts_with(long);
        }
        match risky.strip_prefix('-') {
            // `-exec` is the beginning of `-execdir`.
            Some(name) if name.len() > 1 => word.starts_with(risky),
            Some("") => word == risky,
            // `-Hx` and `-xrm` contain the letter, unless the program has no clusters.
            Some(letter) => word.strip_prefix('-').is_some_and(|cluster| {
                if self.has_clusters() {
                    !cluster.starts_with('-') && cluster.contains(letter)
                } else {
                    cluster.starts_with(letter)
                }
            }),
            None if risky.ends_with("::") => word.contains(risky),
            None if risky.ends_with(['=', '@', '.']) => word.starts_with(risky),
            // A subcommand. Without a list of global options it can stand behind any of them.
            None => word == risky && (at == 0 || self.program.globals.is_empty()),
        }
    }

    /// Checks whether `-ab` means `-a -b`: not for programs with options such as `-exec`.
    fn has_clusters(&self) -> bool {
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
