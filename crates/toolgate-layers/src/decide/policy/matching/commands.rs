//! Patterns for commands: `git status`, `cargo test *`, `rm -rf`.
//!
//! A pattern is a list of words and matches every command that begins with them; a `*` inside a
//! word stands for any text. Rules that allow match strictly, rules that forbid loosely. Strictly
//! means: further words are covered only if they are operands, or options that are known to be
//! harmless.

use crate::{
    BadOption,
    config::lists,
    decide::policy::matching::{
        program_options::find_uncovered,
        program_runners::{find_runner, may_pass_on, starts_others},
        shell::{CommandWords, ShellWord, base_name, possible_runs},
    },
};

/// One pattern, word by word.
#[derive(Debug, Clone)]
pub(crate) struct CommandPattern(Vec<String>);

impl CommandPattern {
    pub(crate) fn new(text: &str) -> Result<Self, BadOption> {
        let bad = |problem: &str| {
            Err(BadOption::new(
                "rules",
                format!("the command pattern {text:?} {problem}"),
            ))
        };
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if text.contains([';', '&', '|', '<', '>', '`', '$', '\'', '"', '\\', '\n']) {
            return bad("must be one command of plain words");
        }
        if words.is_empty() {
            return bad("names no command; write `*` for any");
        }
        // Further words are covered anyway.
        if words.last().is_some_and(|word| word == "*") {
            words.pop();
        }
        if words.iter().any(|word| word == "*") {
            return bad("may have `*` only inside a word or at the end");
        }
        Ok(Self(words))
    }

    /// Checks whether the command begins exactly with these words, followed by operands and harmless
    /// options. The pattern `*` covers every command that runs no other one.
    pub(crate) fn covers(&self, words: &[String]) -> bool {
        if self.0.is_empty() {
            let literal = |word: &String| ShellWord::literal(word);
            let words: Vec<ShellWord> = words.iter().map(literal).collect();
            return find_runner(&words).is_none();
        }
        self.further_words(words).is_some() && find_uncovered(words, self.0.len()).is_none()
    }

    /// Returns the word of a command because of which the pattern, with which it begins, does not
    /// cover it, and the narrowest pattern that would accept the word.
    pub(crate) fn uncovered_word<'w>(
        &self,
        words: &'w [String],
    ) -> Option<(&'w str, Option<String>)> {
        self.further_words(words).filter(|_| !self.0.is_empty())?;
        let word = find_uncovered(words, self.0.len())?;
        let at = words
            .iter()
            .skip(self.0.len())
            .position(|other| std::ptr::eq(&**other, word))?;
        let shown = word.split_once('=').filter(|_| word.starts_with('-'));
        let last = shown.map_or_else(|| word.to_owned(), |(option, _)| format!("{option}=*"));
        let named = words[..self.0.len() + at].iter().cloned().chain([last]);
        let wider = named.collect::<Vec<_>>().join(" ");
        // Words with blanks or signs of a shell cannot be part of a pattern.
        let fits = |pattern: Self| {
            find_uncovered(words, pattern.0.len()) != Some(word)
                && pattern.further_words(words).is_some()
        };
        let wider = Some(wider).filter(|wider| Self::new(wider).is_ok_and(fits));
        Some((shown.map_or(word, |(option, _)| option), wider))
    }

    /// Returns how many words of the command the pattern names, if it covers the command.
    pub(crate) fn matched_words(&self, words: &[String]) -> Option<usize> {
        self.covers(words).then_some(self.0.len())
    }

    /// Returns the words after those of the pattern, if the command begins with them.
    pub(crate) fn further_words<'w>(&self, words: &'w [String]) -> Option<&'w [String]> {
        let fits = |(pattern, word): (&String, &String)| {
            if !pattern.contains('*') {
                return pattern == word;
            }
            // A star in a path must not match a way out of it.
            !word.split('/').any(|part| part == "..") && wildcard_matches(pattern, word)
        };
        let begins = words.len() >= self.0.len() && self.0.iter().zip(words).all(fits);
        // The name of the program is not a further word, even if the pattern is `*`.
        begins.then(|| &words[self.0.len().max(1).min(words.len())..])
    }

    /// Checks whether one of these commands, of which it is certain that they run, is such a command.
    pub(crate) fn begins_any(&self, runs: &[CommandWords]) -> bool {
        let begins = |run: &CommandWords| self.matches_at(run, 0);
        let joined = |run: &CommandWords| split_git_program(run).is_some_and(|run| begins(&run));
        self.0.is_empty() || runs.iter().any(|run| begins(run) || joined(run))
    }

    /// Checks whether a text that cannot be read, with these runs of words, may run such a command.
    /// If the pattern is one word, it is enough that the text contains it. With more words in the
    /// pattern, most texts that name the program are about something else: they are asked about.
    pub(crate) fn may_run(&self, runs: &[CommandWords]) -> bool {
        let joined = |run| split_git_program(run).is_some_and(|run| self.matches_run(&run));
        let matches = |run| self.matches_run(run) || joined(run);
        if self.0.is_empty() || runs.iter().any(matches) {
            return true;
        }
        // The name may also be part of a word: `--exec=rm`, `X=rm`.
        self.0.len() == 1
            && runs
                .iter()
                .flatten()
                .flat_map(|word| word.split(['=', ',', ':']))
                .any(|part| self.matches_name(part))
    }

    /// Checks whether a command that a shell expands may be one of these.
    pub(crate) fn may_expand_to(&self, words: &[ShellWord]) -> bool {
        let Some((first, arguments)) = words.split_first() else {
            return false;
        };
        let Some(unknown) = arguments.iter().position(|word| !word.certain) else {
            return false;
        };
        // Options can be anywhere; other words of the pattern come in order, so those before the
        // expansion can rule it out.
        let names = self.0[1.min(self.0.len())..]
            .iter()
            .filter(|word| !word.starts_with('-'));
        let known: Vec<&ShellWord> = arguments[..unknown].iter().collect();
        let ruled_out = names
            .zip(known)
            .any(|(name, word)| !word.text.starts_with('-') && !word_matches(name, &word.text));
        self.matches_name(&first.text) && !ruled_out
    }

    /// Returns the word of a command that names such a command as an operand, if the program is not
    /// known to leave it alone: it may run it (`frob rm`) or give it another name (`ln -s /bin/rm x`).
    pub(crate) fn find_mention<'w>(&self, words: &'w [ShellWord]) -> Option<&'w str> {
        let (first, arguments) = words.split_first()?;
        let passes_on = may_pass_on(&first.text);
        let names = |word: &&ShellWord| {
            let runs = possible_runs(&word.text);
            let words = runs.iter().flatten();
            let mut parts = words.flat_map(|word| word.split(['=', ',', ':']));
            parts.any(|part| (passes_on || part.contains('/')) && self.matches_name(part))
        };
        arguments.iter().find(names).map(|word| &*word.text)
    }

    /// Checks whether a word is the program of the pattern.
    pub(crate) fn matches_name(&self, word: &str) -> bool {
        let Some(name) = self.0.first() else {
            return true;
        };
        wildcard_matches(&name.to_lowercase(), &word.to_lowercase())
            || wildcard_matches(&base_name(name), &base_name(word))
    }

    /// Checks whether the pattern begins at any word of the run.
    fn matches_run(&self, run: &CommandWords) -> bool {
        // An option may follow anywhere after the name, so the first match sees all of them.
        (0..run.len())
            .find(|at| self.names_match_at(run, *at))
            .is_some_and(|at| self.options_match_after(run, at))
    }

    /// Checks whether the pattern begins at this word of the run.
    fn matches_at(&self, run: &CommandWords, at: usize) -> bool {
        self.names_match_at(run, at) && self.options_match_after(run, at)
    }

    fn names_match_at(&self, run: &CommandWords, at: usize) -> bool {
        let is_name = |word: &&String| !word.starts_with('-');
        let names = || self.0[1..].iter().filter(is_name).collect::<Vec<_>>();
        self.matches_program(run, at) && names_follow(&names(), &run[at + 1..])
    }

    fn options_match_after(&self, run: &CommandWords, at: usize) -> bool {
        let mut options = self.0[1..].iter().filter(|word| word.starts_with('-'));
        options.all(|option| has_option(option, &run[at + 1..]))
    }

    /// Checks whether the word at a position may be the program of the pattern.
    fn matches_program(&self, run: &CommandWords, at: usize) -> bool {
        let Some(word) = run.get(at) else {
            return false;
        };
        let starter = || run.first().is_some_and(|first| starts_others(first));
        // A glob counts as a program only in the position of one: `/bin/r?`, not `ls r*`.
        let is_program = || at == 0 || word.contains("bin/") || starter();
        self.matches_name(word) || (self.may_expand_to_name(word) && is_program())
    }

    fn may_expand_to_name(&self, word: &str) -> bool {
        let bare = word.chars().all(|c| matches!(c, '*' | '?'));
        let name = self
            .0
            .first()
            .filter(|_| word.contains(['*', '?', '[']) && !bare);
        name.is_some_and(|name| lists::may_expand_to(&base_name(word), &base_name(name)))
    }
}

/// Returns the run with the first program such as `git-push`, as git installs them, in two words.
fn split_git_program(run: &CommandWords) -> Option<CommandWords> {
    // Most words are told apart without a copy.
    let may_be = |word: &str| {
        let mut parts = word.as_bytes().windows("git-".len());
        parts.any(|part| part.eq_ignore_ascii_case(b"git-"))
    };
    let command = |word: &String| {
        let name = may_be(word).then(|| base_name(word))?;
        name.strip_prefix("git-").map(str::to_owned)
    };
    let (at, command) =
        { run.iter().enumerate() }.find_map(|(at, word)| Some((at, command(word)?)))?;
    let words = run[..at].iter().cloned().chain(["git".to_owned(), command]);
    Some(words.chain(run[at + 1..].iter().cloned()).collect())
}

/// Checks whether the words of a pattern come next, with options in between (`git --no-pager push`,
/// `git -C x push`).
fn names_follow(names: &[&String], words: &[String]) -> bool {
    // After more options than a real command has, anything counts as a match.
    const MAX_WORDS: usize = 64;
    let mut at = 0;
    for name in names {
        loop {
            let Some(word) = words.get(at) else {
                return false;
            };
            let behind_option = at > 0 && words[at - 1].starts_with('-');
            at += 1;
            if word_matches(name, word) || at > MAX_WORDS {
                break;
            }
            if !word.starts_with('-') && !behind_option {
                return false;
            }
        }
    }
    true
}

/// Checks whether an option of a pattern is among the words: `-rf` in `rm x -fr`.
fn has_option(option: &str, words: &[String]) -> bool {
    let given = |word: &String| word_matches(option, word) || is_abbreviation(option, word);
    words.iter().any(given) || has_letters(option, words)
}

/// Checks for the beginning of a long option, which most programs accept: `--har` for `--hard`.
fn is_abbreviation(option: &str, word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let (option, wanted) = option.split_once('=').unwrap_or((option, "*"));
    name.len() > 2
        && name.starts_with("--")
        && option.to_lowercase().starts_with(&name.to_lowercase())
        && wildcard_matches(&wanted.to_lowercase(), &value.to_lowercase())
}

/// Checks whether a word matches a word of a pattern, also after expansion by a shell.
fn word_matches(pattern: &str, word: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let word = word.to_lowercase();
    let expands = || {
        let said = word.contains(|c: char| c.is_alphanumeric()) && word.contains(['*', '?', '[']);
        said && pattern.len() > 2 && lists::may_expand_to(&word, &pattern)
    };
    wildcard_matches(&pattern, &word) || expands()
}

/// Checks whether all letters of a cluster such as `-rf` are given, in any order and however they
/// are split.
fn has_letters(cluster: &str, words: &[String]) -> bool {
    let letters = |word: &str| {
        let letters = word
            .strip_prefix('-')
            .filter(|rest| !rest.is_empty() && rest.chars().all(char::is_alphanumeric));
        letters.map(str::to_lowercase)
    };
    let Some(wanted) = letters(cluster) else {
        return false;
    };
    let given: String = words.iter().filter_map(|word| letters(word)).collect();
    wanted.chars().all(|letter| given.contains(letter))
}

/// Checks whether `text` matches `pattern`, in which `*` stands for any text.
fn wildcard_matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = match rest.rsplit_once('*') {
        Some((middle, tail)) => (middle, tail),
        None => ("", rest),
    };
    // Matching each piece as early as possible leaves the most for the others.
    for piece in middle.split('*') {
        let Some(at) = text.find(piece) else {
            return false;
        };
        text = &text[at + piece.len()..];
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::policy::matching::shell::read_commands;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::new(text).expect("a valid pattern")
    }

    fn covers(allowed: &str, text: &str) -> bool {
        read_commands(text)
            .plain_commands()
            .is_some_and(|all| all.iter().all(|words| pattern(allowed).covers(words)))
    }

    fn denies(denied: &str, text: &str) -> bool {
        let reading = read_commands(text);
        let texts = |words: &Vec<ShellWord>| words.iter().map(|word| word.text.clone()).collect();
        let certain: Vec<CommandWords> = reading.commands.iter().map(texts).collect();
        match reading.unread {
            Some(_) => pattern(denied).may_run(&possible_runs(text)),
            None => pattern(denied).begins_any(&certain),
        }
    }

    #[test]
    fn a_pattern_covers_commands_that_begin_with_its_words() {
        for text in [
            "git status",
            "git status --short",
            "git 'status'",
            "git status; git status -s",
        ] {
            assert!(covers("git status", text), "{text}");
        }
        for text in [
            "git",
            "git stat",
            "git statusx",
            "gitx status",
            "git push",
            "/tmp/git status",
            "./git status",
            "git\" \"status",
            "git -p status",
        ] {
            assert!(!covers("git status", text), "{text}");
        }
        assert!(
            covers("git status*", "git status")
                && covers("git status *", "git status -s")
                && covers("*", "ls")
        );
        assert!(covers("rm build/*", "rm build/x") && !covers("rm build/*", "rm build/../x"));
    }

    #[test]
    fn further_words_that_run_or_write_something_else_are_not_covered() {
        for (allowed, text) in [
            ("make test", "make test '--eval=x'"),
            ("make test", "make test SHELL=/tmp/x"),
            ("make test", "make test -f x.mk"),
            ("rg", "rg --pre x y"),
            ("go test", "go test -exec x ./..."),
            ("go vet", "go vet -vettool=x"),
            ("git push", "git push --receive-pack=x origin"),
            ("git fetch", "git fetch --upload-pac x origin"),
            ("git clone", "git clone -u x y"),
            ("git diff", "git diff --output x"),
            ("git diff", "git diff --ext-diff"),
            ("git rebase", "git rebase -x/tmp/x HEAD^"),
            ("sort", "sort -o x y"),
            ("find", "find / -delete"),
            ("rsync", "rsync -ave x a b:c"),
            ("tar", "tar cfI a.tar x y"),
            ("tar", "tar xf a.tar --to-com x"),
            ("fd", "fd -Hx rm"),
            ("ruby", "ruby -ne x"),
            ("scp", "scp -oProxyCommand=x a b:c"),
            ("curl", "curl -o x https://y"),
            ("npm test", "npm test --script-shell=x"),
            ("cargo test", "cargo test --config x"),
            ("uv", "uv run rm"),
        ] {
            assert!(!covers(allowed, text), "{text}");
        }
        for (allowed, text) in [
            ("git log", "git log --oneline -5 --all src/a.rs HEAD~2"),
            (
                "cargo test",
                "cargo test --workspace --lib -- --nocapture x",
            ),
            ("git commit", "git commit -am 'fix: a = b'"),
            ("tar", "tar xzf a.tar"),
            ("uv run pytest", "uv run pytest -x tests"),
            ("make SHELL=/bin/x", "make SHELL=/bin/x all"),
            ("git log --format=*", "git log --format=oneline x"),
            ("rg", "rg -n --files x"),
            ("*", "make all"),
        ] {
            assert!(covers(allowed, text), "{text}");
        }
    }

    #[test]
    fn nothing_that_hides_a_second_command_is_covered() {
        for text in [
            "git status; rm -rf x",
            "git status && rm x",
            "git status || rm x",
            "git status | rm x",
            "git status\nrm x",
            "git status & rm x",
            "git status $(rm x)",
            "git status `rm x`",
            "git status \"$(rm x)\"",
            "git status <(rm x)",
            "git status > x",
            "git status # \nrm x",
            "git status 'x",
            "git status \\\n; rm x",
            "X=1 git status",
            "sh -c 'git status'",
            "sh -c 'git status; rm x'",
            "env git status",
            "git -c core.pager=x status",
        ] {
            assert!(!covers("git status", text), "{text:?}");
        }
    }

    #[test]
    fn a_denied_command_is_found_in_any_position() {
        for text in [
            "git push",
            "ls; git push",
            "git --no-pager push",
            "git -C /x push origin",
            "sh -c 'git push'",
            "/usr/bin/git push",
            "GIT PUSH",
            "g\"it\" push",
            "$(git push)",
            "x | xargs git push",
            "git p?sh",
            "git pu\\\nsh",
            "/usr/bin/gi? push",
        ] {
            assert!(denies("git push", text), "{text:?}");
        }
        for text in [
            "rm -rf x",
            "rm -fr x",
            "rm -r -f x",
            "rm x -rf",
            "rm -v -rf x",
            "/bin/rm -rfv x",
            "sudo rm -rf x",
            "sh -c\"rm -fr x\"",
        ] {
            assert!(denies("rm -rf", text), "{text:?}");
        }
        for text in ["sudo rm x", "sh -c\"rm x\"", "X=rm; $X y"] {
            assert!(denies("rm", text), "{text:?}");
            assert!(!denies("rm -rf", text), "{text:?}");
        }
    }

    #[test]
    fn a_certain_text_without_the_denied_command_is_not_denied() {
        for text in [
            "git status",
            "git commit -m 'fix push'",
            "git log push",
            "pushd x",
            "ls g* push",
        ] {
            assert!(!denies("git push", text), "{text:?}");
        }
        for text in ["rm x", "rm -r x", "rmdir x", "echo farm"] {
            assert!(!denies("rm -rf", text), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_of_more_than_one_command_is_rejected() {
        for bad in [
            "", " ", "a; b", "a | b", "a && b", "a $x", "a 'b'", "a * b", "a > b",
        ] {
            assert!(CommandPattern::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, fits) in [
            ("a*", "a", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("*", "", true),
            ("a*c", "ab", false),
            ("a*a", "a", false),
            ("a*b*c", "acb", false),
            ("ab*bc", "abc", false),
            ("a", "ab", false),
        ] {
            assert_eq!(wildcard_matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
