//! Finds the words of a command that a pattern does not cover: options that may do more than change
//! what is shown.

use crate::decide::policy::matching::{
    program_runners::{RiskyWords, find_program, first_of, lists},
    programs::{Program, RUNNER_PROGRAMS},
    shell::base_name,
};

/// Returns the first word from `covered` on that is neither a plain operand nor a harmless option.
pub(crate) fn find_uncovered(words: &[String], covered: usize) -> Option<&str> {
    let own = program_words(words, covered);
    let name = own.first().map(|name| base_name(name)).unwrap_or_default();
    let mut options = HarmlessOptions::for_command(&name, own);
    // Options of the pattern count, too: a value may follow the last of them.
    for (at, word) in words.iter().enumerate().skip(words.len() - own.len() + 1) {
        let plain = options.accept(word);
        if !plain && at >= covered {
            return Some(word);
        }
    }
    None
}

/// Returns the words from the program on whose options count: `pytest -x` of
/// `uv run pytest -x` and of `python -m pytest -x`, if the pattern names that program.
fn program_words(words: &[String], covered: usize) -> &[String] {
    if covered < 3 {
        return words;
    }
    match words {
        [runner, verb, inner, ..]
            if lists(RUNNER_PROGRAMS, &base_name(runner))
                && matches!(&**verb, "run" | "exec")
                && !inner.starts_with('-') =>
        {
            &words[2..]
        }
        [python, module, inner, ..]
            if base_name(python).starts_with("python")
                && module == "-m"
                && !inner.starts_with('-') =>
        {
            &words[2..]
        }
        _ => words,
    }
}

/// The options of one command that are covered without being named, and what was read so far.
struct HarmlessOptions {
    risky: Option<RiskyWords>,
    is_runner: bool,
    /// Number of words so far, after the name.
    words: usize,
    operands: usize,
    value_follows: bool,
    after_dashes: bool,
}

impl HarmlessOptions {
    fn for_command(name: &str, words: &[String]) -> Self {
        let verb = words.iter().skip(1).find(|word| !word.starts_with('-'));
        let verb = verb.map_or("", String::as_str);
        Self {
            risky: find_program(name).map(|program| RiskyWords::for_command(program, verb)),
            is_runner: lists(RUNNER_PROGRAMS, name),
            words: 0,
            operands: 0,
            value_follows: false,
            after_dashes: false,
        }
    }

    fn program(&self) -> Option<&'static Program> {
        self.risky.as_ref().map(|risky| risky.program)
    }

    /// Reads the next word. Returns false if it is neither a plain operand nor a harmless option.
    fn accept(&mut self, word: &str) -> bool {
        let at = self.words;
        self.words += 1;
        if std::mem::take(&mut self.value_follows) {
            // Whether an option takes a value at all may depend on the word itself. So it has to be
            // a plain operand as well, or a number.
            let number = word.strip_prefix('-').is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit())
                    && rest.chars().all(|c| c.is_ascii_alphanumeric())
            });
            return number || (!word.starts_with('-') && self.is_plain_operand(word));
        }
        if self
            .risky
            .as_ref()
            .is_some_and(|risky| risky.contain(at, word))
        {
            return false;
        }
        if self.after_dashes {
            return self.accept_passed(word);
        }
        let dashless = at == 0 && self.risky.as_ref().is_some_and(|risky| risky.dashless);
        match word.strip_prefix('-') {
            _ if word == "--" => {
                self.after_dashes = true;
                true
            }
            None if dashless => self.accept_letters(word),
            None | Some("") => self.accept_operand(word),
            Some(_) if self.is_flag(word) => true,
            Some(_) if self.is_value(word) => {
                self.value_follows = true;
                true
            }
            Some(long) if long.starts_with('-') || word.contains('=') => {
                word.split_once('=').is_some_and(|(option, value)| {
                    self.is_value(option) && self.is_plain_operand(value)
                })
            }
            // `-pgo` of `go` is not `-p go`.
            Some(_) if !self.has_clusters() => false,
            Some(letters) => self.accept_letters(letters),
        }
    }

    fn is_flag(&self, option: &str) -> bool {
        let number = option[1..].chars().all(|c| c.is_ascii_digit());
        let has = |list: &str| lists(list, option) || list == "*" || (number && lists(list, "-#"));
        self.option_lists().any(|(flags, _)| has(flags))
    }

    fn is_value(&self, option: &str) -> bool {
        self.option_lists().any(|(_, values)| lists(values, option))
    }

    /// Returns the flags and the options with values of the program and of the subcommand.
    fn option_lists(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let program = self
            .program()
            .map(|program| (program.flags, program.values));
        let subcommand = self.risky.as_ref().and_then(|risky| risky.subcommand);
        let subcommand = subcommand.map(|subcommand| (subcommand.flags, subcommand.values));
        program.into_iter().chain(subcommand)
    }

    fn has_clusters(&self) -> bool {
        self.risky.as_ref().is_none_or(RiskyWords::has_clusters)
    }

    /// Reads a cluster such as `-la` or `-n5`, letter by letter.
    fn accept_letters(&mut self, letters: &str) -> bool {
        let letters = letters.trim_start_matches('-');
        for (at, letter) in letters.char_indices() {
            let option = format!("-{letter}");
            if self.is_flag(&option) && !letter.is_ascii_digit() {
                continue;
            }
            let value = &letters[at + letter.len_utf8()..];
            let takes_value = self.is_value(&option);
            self.value_follows = takes_value && value.is_empty();
            return takes_value && self.is_plain_operand(value);
        }
        true
    }

    fn accept_operand(&mut self, word: &str) -> bool {
        self.operands += 1;
        let most = self
            .program()
            .map_or(usize::MAX, |program| program.max_operands);
        let subcommand = self.risky.as_ref().and_then(|risky| risky.subcommand);
        let changes = subcommand.is_some_and(|subcommand| lists(subcommand.changes, word));
        self.operands <= most && !changes && self.is_plain_operand(word)
    }

    fn is_plain_operand(&self, word: &str) -> bool {
        let signs = self.program().map_or("", |program| program.operand_signs);
        // `@file` holds further options, `+x` is a command of editors and pagers.
        let special = |sign: char| word.starts_with(sign) && !signs.contains(sign);
        let runs = self.is_runner && matches!(word, "run" | "exec" | "shell" | "develop");
        let remote_helper =
            word.contains("::") && self.program().is_some_and(|program| program.names == "git");
        !special('@')
            && !special('+')
            // `X=y`, and also `X:=y`, `X+=y` and `X!=y`.
            && (!word.contains('=') || signs.contains('='))
            && !runs
            && !remote_helper
            && !word.contains("\\!")
    }

    /// Reads a word after `--`.
    fn accept_passed(&mut self, word: &str) -> bool {
        if !word.starts_with('-') {
            return self.accept_operand(word);
        }
        let program = self.program();
        let passed = program
            .and_then(|program| program.passes)
            .unwrap_or_default();
        let option = word.split('=').next().unwrap_or(word);
        // Some programs, such as `find`, read options after `--` too.
        let ends_options =
            |program: &Program| lists("git grep rg rm cp mkdir sort diff", first_of(program.names));
        lists(passed, word) || lists(passed, option) || program.is_some_and(ends_options)
    }
}
