//! Patterns for commands: `git status`, `cargo test *`, `rm -rf`.
//!
//! A pattern is a list of words and stands for every command that begins with them; a `*` inside a word stands for any
//! text. A rule that allows takes this strictly, one that forbids generously.

use crate::{
    BadOption,
    shell::{Words, base_name, runs_anywhere},
};

/// One pattern, word by word.
#[derive(Debug, Clone)]
pub(crate) struct CommandPattern(Vec<String>);

impl CommandPattern {
    pub(crate) fn new(text: &str) -> Result<Self, BadOption> {
        let bad = |problem: &str| Err(BadOption::new("rules", format!("the command pattern {text:?} {problem}")));
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if text.contains([';', '&', '|', '<', '>', '`', '$', '\'', '"', '\\', '\n']) {
            return bad("has to be one command of plain words");
        }
        if words.is_empty() {
            return bad("names no command; write `*` for any");
        }
        // Further words are covered anyway.
        if words.last().is_some_and(|word| word == "*") {
            words.pop();
        }
        if words.iter().any(|word| word == "*") {
            return bad("may have `*` inside a word or at the end");
        }
        Ok(Self(words))
    }

    /// Whether the command begins with these words, exactly.
    pub(crate) fn covers(&self, words: &[String]) -> bool {
        let fits = |(pattern, word): (&String, &String)| match pattern.contains('*') {
            // A star in a path does not lead out of it.
            true => !word.split('/').any(|part| part == "..") && wildcard(pattern, word),
            false => pattern == word,
        };
        words.len() >= self.0.len() && self.0.iter().zip(words).all(fits)
    }

    /// Whether a text may run such a command. If nobody can say what the text runs (`certain` is false), the name of
    /// the command anywhere in it is enough.
    pub(crate) fn may_run(&self, text: &str, certain: bool) -> bool {
        let runs = runs_anywhere(text);
        if self.0.is_empty() || runs.iter().any(|run| self.runs_in(run)) {
            return true;
        }
        // Also as a part of a word: `--exec=rm`, `X=rm`.
        let parts = |word: &String| word.split(['=', ',', ':']).map(str::to_owned).collect::<Vec<_>>();
        !certain && runs.iter().flatten().flat_map(parts).any(|part| self.names(&part))
    }

    fn names(&self, word: &str) -> bool {
        let Some(name) = self.0.first().map(|name| name.to_lowercase()) else { return true };
        wildcard(&name, &word.to_lowercase()) || wildcard(&base_name(&name), &base_name(word))
    }

    /// Whether the pattern begins at any word of the run.
    fn runs_in(&self, run: &Words) -> bool {
        (0..run.len()).any(|at| self.names(&run[at]) && follows(&self.0[1..], &run[at + 1..]))
    }
}

/// Whether the words of a pattern come next, with options in between (`git --no-pager push`, `git -C x push`).
/// An option that the pattern names may stand anywhere behind the name (`rm x -fr` for `rm -rf`).
fn follows(pattern: &[String], words: &[String]) -> bool {
    let (options, names): (Vec<_>, Vec<_>) = pattern.iter().partition(|word| word.starts_with('-'));
    let fits = |pattern: &str, word: &str| wildcard(&pattern.to_lowercase(), &word.to_lowercase());
    let given = |option: &&String| words.iter().any(|word| fits(option, word)) || has_letters(option, words);
    let mut at = 0;
    for name in names {
        loop {
            let Some(word) = words.get(at) else { return false };
            let behind_option = at > 0 && words[at - 1].starts_with('-');
            at += 1;
            if fits(name, word) {
                break;
            }
            if !word.starts_with('-') && !behind_option {
                return false;
            }
        }
    }
    options.iter().all(given)
}

/// Whether the letters of a cluster such as `-rf` are all given, in any order and however they are split.
fn has_letters(cluster: &str, words: &[String]) -> bool {
    let letters = |word: &str| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.is_empty() && rest.chars().all(char::is_alphanumeric));
        letters.map(str::to_lowercase)
    };
    let Some(wanted) = letters(cluster) else { return false };
    let given: String = words.iter().filter_map(|word| letters(word)).collect();
    wanted.chars().all(|letter| given.contains(letter))
}

/// Whether `text` fits `pattern`, in which `*` stands for any text.
fn wildcard(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = match rest.rsplit_once('*') {
        Some((middle, tail)) => (middle, tail),
        None => ("", rest),
    };
    // Each piece as early as possible leaves the most for the others.
    for piece in middle.split('*') {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::commands;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::new(text).expect("readable")
    }

    fn covers(allowed: &str, text: &str) -> bool {
        commands(text).is_some_and(|all| all.iter().all(|words| pattern(allowed).covers(words)))
    }

    fn denies(denied: &str, text: &str) -> bool {
        pattern(denied).may_run(text, commands(text).is_some())
    }

    #[test]
    fn a_pattern_covers_what_begins_with_its_words() {
        for text in ["git status", "git status --short", "git 'status'", "git status; git status -s"] {
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
        assert!(covers("git status*", "git status") && covers("git status *", "git status -s") && covers("*", "ls"));
        assert!(covers("rm build/*", "rm build/x") && !covers("rm build/*", "rm build/../x"));
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
    fn a_denied_command_is_found_wherever_it_stands() {
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
            "eval git; push",
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
            "sudo rm x",
            "sh -c\"rm x\"",
            "X=rm; $X y",
        ] {
            assert!(denies("rm -rf", text), "{text:?}");
        }
    }

    #[test]
    fn a_certain_text_without_the_denied_command_is_left_alone() {
        for text in ["git status", "git commit -m 'fix push'", "git log push", "pushd x"] {
            assert!(!denies("git push", text), "{text:?}");
        }
        for text in ["rm x", "rm -r x", "rmdir x", "echo farm"] {
            assert!(!denies("rm -rf", text), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_more_than_one_command_is_refused() {
        for bad in ["", " ", "a; b", "a | b", "a && b", "a $x", "a 'b'", "a * b", "a > b"] {
            assert!(CommandPattern::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
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
            assert_eq!(wildcard(pattern, text), fits, "{pattern} {text}");
        }
    }
}
