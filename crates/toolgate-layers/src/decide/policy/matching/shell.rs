//! Finds the commands that a shell text would run, as far as that is certain.
//!
//! This is not a shell. It understands plain words, quotes without expansions, and lists of
//! commands. Anything beyond that is "not certain", and is never covered by a rule that allows.

use std::collections::HashSet;

/// One command: its name and its arguments.
pub(crate) type CommandWords = Vec<String>;

/// Returns the commands that `text` runs, in order, or `None` if that is not certain.
pub(crate) fn parse_commands(text: &str) -> Option<Vec<CommandWords>> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    // Windows shells have other quotes and escapes.
    if cfg!(windows) && text.contains(['\'', '"', '%', '^']) {
        return None;
    }
    let mut reader = ShellReader {
        rest: text,
        commands: Vec::new(),
        words: Vec::new(),
    };
    while !reader.rest.is_empty() {
        reader.read_token()?;
    }
    reader.finish()
}

/// Returns the command that a list of words runs, or `None` if that is not certain: the tool may
/// join the words and pass them to a shell.
pub(crate) fn parse_argv(words: &[&str]) -> Option<CommandWords> {
    let plain = |word: &&str| {
        let special = |c: char| {
            SPECIAL_CHARS.contains(c) || c.is_control() || (c.is_whitespace() && c != ' ')
        };
        !word.is_empty() && !word.contains(special)
    };
    let owned: CommandWords = words.iter().map(|word| (*word).to_owned()).collect();
    (words.iter().all(plain) && is_plain_command(&owned)).then_some(owned)
}

/// Maximum length of a text that a rule may allow. An approver would not read a longer one
/// completely.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Characters that mean something to a shell outside quotes.
const SPECIAL_CHARS: &str = ";&|<>()$`\\\"'*?[]{}~!#\n";

struct ShellReader<'a> {
    rest: &'a str,
    commands: Vec<CommandWords>,
    words: CommandWords,
}

impl ShellReader<'_> {
    /// Reads one word or operator.
    fn read_token(&mut self) -> Option<()> {
        const OPERATORS: [&str; 5] = ["&&", "||", ";", "|", "\n"];
        // Redirections to `/dev/null` or to each other write no file. They count only as words of
        // their own.
        const HARMLESS: [&str; 5] = ["2>&1", "1>&2", ">/dev/null", "2>/dev/null", "1>/dev/null"];
        let trimmed = self.rest.trim_start_matches([' ', '\t']);
        if trimmed.len() < self.rest.len() || trimmed.is_empty() {
            self.rest = trimmed;
            return Some(());
        }
        if let Some(harmless) = HARMLESS.iter().find(|text| trimmed.starts_with(**text)) {
            let rest = &trimmed[harmless.len()..];
            self.rest = (rest.is_empty() || rest.starts_with([' ', '\t', '\n', ';', '|']))
                .then_some(rest)?;
            return Some(());
        }
        match OPERATORS.iter().find(|text| trimmed.starts_with(**text)) {
            Some(operator) => {
                self.rest = &trimmed[operator.len()..];
                self.end_command(operator)
            }
            None => self.read_word(),
        }
    }

    fn end_command(&mut self, operator: &str) -> Option<()> {
        let blank = self.words.is_empty();
        match operator {
            // An empty line, or the line end at the end of the text.
            "\n" if blank => return Some(()),
            // `|&`, `;;`, `&&&` and an operator with nothing in front are not plain lists.
            _ if blank || self.rest.starts_with(['&', '|', ';']) => return None,
            _ => self.commands.push(std::mem::take(&mut self.words)),
        }
        // After these operators there has to be another command.
        let wants_more = matches!(operator, "&&" | "||" | "|");
        if wants_more && self.rest.trim().is_empty() {
            None
        } else {
            Some(())
        }
    }

    fn read_word(&mut self) -> Option<()> {
        let mut word = String::new();
        let mut chars = self.rest.char_indices();
        let end = loop {
            let Some((at, c)) = chars.next() else {
                break self.rest.len();
            };
            match c {
                ' ' | '\t' | '\n' | ';' | '|' => break at,
                '&' if self.rest[at..].starts_with("&&") => break at,
                '\'' | '"' => read_quoted(c, &mut chars, &mut word)?,
                // A comment, the home directory, or an expansion of some shells.
                '#' | '~' | '^' if at == 0 => return None,
                '$' | '`' | '\\' | '<' | '>' | '(' | ')' | '{' | '}' | '!' | '&' => return None,
                // A glob may stand for other words, but never for the name of the command.
                '*' | '?' | '[' | ']' if self.words.is_empty() => return None,
                c if c.is_control() || c.is_whitespace() => return None,
                c => word.push(c),
            }
        };
        self.rest = &self.rest[end..];
        self.words.push(word);
        Some(())
    }

    fn finish(mut self) -> Option<Vec<CommandWords>> {
        if !self.words.is_empty() {
            self.commands.push(self.words);
        }
        let plain =
            !self.commands.is_empty() && self.commands.iter().all(|words| is_plain_command(words));
        plain.then_some(self.commands)
    }
}

/// Reads up to the closing quote. Returns `None` if there is none or if something inside is
/// expanded.
fn read_quoted(
    quote: char,
    chars: &mut std::str::CharIndices<'_>,
    word: &mut String,
) -> Option<()> {
    for (_, c) in chars {
        match c {
            c if c == quote => return Some(()),
            '$' | '`' | '\\' | '!' if quote == '"' => return None,
            c if c.is_control() && !matches!(c, '\n' | '\t') => return None,
            c => word.push(c),
        }
    }
    None
}

/// Checks whether the words name a program that runs no other program.
fn is_plain_command(words: &[String]) -> bool {
    let Some((first, arguments)) = words.split_first() else {
        return false;
    };
    let named = !first.is_empty()
        && first
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./+-".contains(c));
    // `X=1 git` has no plain name: the assignment changes what the command does.
    named && !first.starts_with('-') && !runs_others(&base_name(first), arguments)
}

/// Returns the name of a program without its directory.
pub(crate) fn base_name(word: &str) -> String {
    let name = word
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(word)
        .to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}

/// Shells, and words that a shell understands itself.
const SHELL_BUILTINS: &str = "sh bash zsh dash ksh mksh fish csh tcsh ash rbash busybox toybox pwsh powershell cmd eval exec \
    source . trap alias unalias builtin command enable hash set unset shopt export declare typeset readonly local let read \
    mapfile readarray getopts bind complete compgen jobs fc coproc wait if then else elif fi for while until do done case esac select \
    function in time [[";

/// Programs that start another one.
const STARTER_PROGRAMS: &str = "env xargs sudo doas su runuser nohup timeout gtimeout nice ionice chrt taskset setsid stdbuf strace \
    ltrace watch parallel flock chroot unshare nsenter systemd-run script entr ssh fakeroot proot firejail bwrap xvfb-run at \
    batch crontab caffeinate unbuffer setpriv prlimit numactl cgexec chpst daemonize tmux screen expect gdb start npx bunx uvx \
    pipx";

/// Programs whose arguments are a program.
const INTERPRETER_PROGRAMS: &str = "awk gawk mawk nawk sed gsed perl osascript ed ex vi vim vimdiff view rvim rview gvim nvim emacs less more man tclsh m4 dc";

/// Checks whether the words after the name are a command of their own: `sudo rm`.
pub(crate) fn starts_others(name: &str) -> bool {
    let name = base_name(name);
    [SHELL_BUILTINS, STARTER_PROGRAMS]
        .iter()
        .any(|list| list.split(' ').any(|known| known == name))
}

/// Checks whether a program runs its arguments, or changes what later commands do.
fn runs_others(name: &str, arguments: &[String]) -> bool {
    let any = |test: &dyn Fn(&str) -> bool| arguments.iter().any(|word| test(word));
    match name {
        name if [SHELL_BUILTINS, STARTER_PROGRAMS, INTERPRETER_PROGRAMS]
            .iter()
            .any(|list| list.split(' ').any(|known| known == name)) =>
        {
            true
        }
        "find" | "gfind" | "fd" | "fdfind" => {
            any(&|word| {
                word.starts_with("-exec") || word.starts_with("-ok") || word.starts_with("--exec")
            }) || any(&|word| {
                name.starts_with("fd") && (word.starts_with("-x") || word.starts_with("-X"))
            })
        }
        "git" => any(&|word| {
            let sets = word == "-c"
                || word == "-C"
                || word.starts_with("--config")
                || word.starts_with("--exec");
            let runs = matches!(word, "-x" | "run" | "foreach" | "filter-branch")
                || word.starts_with("--upload-pack");
            sets || runs
                || word.contains("ext::")
                || word.starts_with("-O")
                || word.starts_with("--open-files")
        }),
        "tar" | "gtar" | "rsync" | "zip" => any(&|word| {
            word.contains("command")
                || word.contains("checkpoint")
                || word.contains("program")
                || word.starts_with("-e")
                || word.starts_with("-I")
                || word.starts_with("--rsh")
                || word.starts_with("-T")
        }),
        "printf" => any(&|word| word.starts_with("-v")),
        "npm" | "pnpm" | "yarn" | "bun" => {
            any(&|word| matches!(word, "exec" | "x" | "dlx") || word.starts_with("-e"))
        }
        "docker" | "podman" | "kubectl" => any(&|word| matches!(word, "exec" | "run")),
        name if name.starts_with("python") || name.starts_with("pypy") => {
            any(&|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
        }
        name if ["node", "ruby", "php", "lua", "deno", "julia", "rscript"]
            .iter()
            .any(|n| name.starts_with(n)) =>
        {
            let inline = [
                "-e",
                "-E",
                "-r",
                "-p",
                "-B",
                "-R",
                "--eval",
                "--print",
                "--require",
                "--import",
                "eval",
            ];
            any(&|word| inline.iter().any(|flag| word.starts_with(flag)))
        }
        _ => false,
    }
}

/// Returns every run of words in a text that could be a command, in any position and quoting.
///
/// This is for what is forbidden, so the text is read in several ways: without quotes (`r'm'`),
/// with each quote as a separator (`sh -c"rm"`), without expansions (`r$@m`), with escapes decoded
/// (`$'r\\x6d'`), braces expanded (`r{m,}`) and pattern groups opened (`r+(m)`).
pub(crate) fn possible_runs(text: &str) -> Vec<CommandWords> {
    let joined = text
        .contains('\\')
        .then(|| text.replace("\\\n", "").replace("\\\r\n", ""));
    let text = joined.as_deref().unwrap_or(text);
    let unquoted = strip_quotes(text);
    let mut all = split_runs(&unquoted);
    let mut also = |reading: &str| {
        let more = split_runs(reading);
        all.extend(more);
    };
    if unquoted.len() < text.len() {
        also(&text.replace(['\'', '"', '\\'], "\n"));
    }
    if text.contains("$'") && text.contains('\\') {
        also(&strip_quotes(&decode_escapes(text).replace("$'", "")));
    }
    if unquoted.contains(['$', '`']) {
        also(&strip_expansions(&unquoted));
    }
    if ["?(", "*(", "+(", "@("]
        .iter()
        .any(|group| unquoted.contains(group))
    {
        let opened = ["?(", "*(", "+(", "@("]
            .iter()
            .fold(unquoted.clone(), |text, group| text.replace(group, ""));
        also(&opened.replace([')', '|'], ""));
    }
    if unquoted.contains('{') && unquoted.contains(',') {
        let is_braced = |word: &&str| word.contains('{') && word.len() <= MAX_BRACED_WORD_BYTES;
        let words = unquoted
            .split_whitespace()
            .filter(is_braced)
            .take(MAX_BRACED_WORDS);
        words.flat_map(expand_braces).for_each(|word| also(&word));
        let mut left = MAX_BRACED_WORDS;
        let expanded = unquoted.split_whitespace().map(|word| {
            let expands = left > 0 && is_braced(&word);
            left -= usize::from(expands);
            if expands {
                expand_braces(word).join(" ")
            } else {
                word.to_owned()
            }
        });
        also(&expanded.collect::<Vec<_>>().join(" "));
    }
    all
}

const MAX_BRACED_WORDS: usize = 64;
const MAX_BRACED_WORD_BYTES: usize = 512;

fn strip_quotes(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '\'' | '"' | '\\'))
        .collect()
}

/// Removes `$x`, `${x}`, `$@`, `$(…)` and text between backquotes: they may be empty.
fn strip_expansions(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('`', _) => drop(chars.by_ref().find(|c| *c == '`')),
            ('$', Some(open @ ('{' | '('))) => {
                let close = if open == '{' { '}' } else { ')' };
                let mut depth = 0_usize;
                for c in chars.by_ref() {
                    depth = if c == open {
                        depth + 1
                    } else {
                        depth - usize::from(c == close)
                    };
                    if depth == 0 {
                        break;
                    }
                }
            }
            ('$', Some(name)) if name.is_ascii_alphabetic() || name == '_' => {
                while chars
                    .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .is_some()
                {}
            }
            ('$', Some(_)) => drop(chars.next()),
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// Decodes `\\x65`, `\\145` and `\\u0065`.
fn decode_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let (radix, skip, most) = match after.bytes().next() {
            Some(b'x') => (16, 1, 2),
            Some(b'u') => (16, 1, 4),
            Some(b'U') => (16, 1, 8),
            _ => (8, 0, 3),
        };
        let digits = after.get(skip..).unwrap_or_default();
        let length = digits
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .count();
        match u32::from_str_radix(&digits[..length], radix)
            .ok()
            .and_then(char::from_u32)
        {
            Some(c) => {
                plain.push(c);
                rest = &digits[length..];
            }
            None => rest = after,
        }
    }
    plain + rest
}

/// Expands `a{b,c}d`, up to a limit.
fn expand_braces(word: &str) -> Vec<String> {
    const MAX_EXPANSIONS: usize = 64;
    let mut done = Vec::new();
    let mut open = vec![word.to_owned()];
    while let Some(word) = open.pop() {
        // The innermost pair first.
        let inner = word
            .find('}')
            .and_then(|end| Some((word[..end].rfind('{')?, end)));
        match inner.filter(|_| done.len() + open.len() < MAX_EXPANSIONS) {
            Some((start, end)) => {
                let head = &word[..start];
                let tail = &word[end + 1..];
                let choices = word[start + 1..end].split(',').take(MAX_EXPANSIONS);
                open.extend(choices.map(|choice| format!("{head}{choice}{tail}")));
            }
            None => done.push(word),
        }
    }
    done
}

/// Returns every word once, and its parts: `.env` in `--file=.env`, `@.env`, `host:.env` and
/// `-T.env`.
pub(crate) fn unique_words<'a>(runs: impl Iterator<Item = &'a CommandWords>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut words = Vec::new();
    for word in runs.flatten() {
        if !seen.insert(word.as_str()) {
            continue;
        }
        words.push(word.clone());
        let attached = word
            .strip_prefix('-')
            .filter(|rest| !rest.starts_with('-'))
            .and_then(|rest| {
                let mut rest = rest.chars();
                rest.next().map(|_| rest.as_str())
            });
        let parts = word
            .split(['=', ',', ':', '@'])
            .filter(|part| part.len() < word.len());
        for part in parts.chain(attached).filter(|part| !part.is_empty()) {
            if seen.insert(part) {
                words.push(part.to_owned());
            }
        }
    }
    words
}

/// Adds the directories that commands change to: `cd x`, `tar -C x`, `git --directory=x`.
pub(crate) fn add_directories<'a>(
    runs: impl Iterator<Item = &'a CommandWords>,
    dirs: &mut Vec<String>,
    most: usize,
) {
    for run in runs {
        for (at, word) in run.iter().enumerate() {
            let next = || run.get(at + 1).map(String::as_str);
            let goes = matches!(
                word.as_str(),
                "cd" | "pushd" | "chdir" | "-C" | "--directory" | "--cwd" | "--chdir"
            );
            let attached = ["--directory=", "--cwd=", "--chdir=", "-C"]
                .iter()
                .find_map(|flag| word.strip_prefix(flag));
            let Some(dir) = attached
                .filter(|dir| !dir.is_empty())
                .or_else(|| next().filter(|_| goes))
            else {
                continue;
            };
            let relative = !dir.starts_with(['/', '~']);
            let deeper: Vec<String> = dirs
                .iter()
                .filter(|_| relative)
                .map(|from| format!("{from}/{dir}"))
                .collect();
            let new = deeper
                .into_iter()
                .chain([dir.to_owned()])
                .filter(|dir| !dirs.contains(dir))
                .collect::<Vec<_>>();
            dirs.extend(new);
            if dirs.len() >= most {
                return dirs.truncate(most);
            }
        }
    }
}

fn split_runs(text: &str) -> Vec<CommandWords> {
    let ends = |c: char| ";&|<>()`{}\n\r".contains(c);
    let parts = |c: char| c.is_whitespace() || c == '$' || c.is_control();
    let run = |run: &str| {
        run.split(parts)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect::<CommandWords>()
    };
    text.split(ends)
        .map(run)
        .filter(|run| !run.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined_commands(text: &str) -> Option<Vec<String>> {
        parse_commands(text)
            .map(|commands| commands.into_iter().map(|words| words.join("·")).collect())
    }

    #[test]
    fn plain_lists_are_split_into_their_commands() {
        for (text, expected) in [
            ("git status", vec!["git·status"]),
            ("  ls -la\tsrc  ", vec!["ls·-la·src"]),
            (
                "a; b && c || d | e\nf\n\n",
                vec!["a", "b", "c", "d", "e", "f"],
            ),
            ("grep 'a;b|c' \"d e\" f''g", vec!["grep·a;b|c·d e·fg"]),
            ("cargo test 2>&1 | tail -5", vec!["cargo·test", "tail·-5"]),
            ("ls *.rs src/[ab]?.rs", vec!["ls·*.rs·src/[ab]?.rs"]),
            ("git diff HEAD^ a#b x=1", vec!["git·diff·HEAD^·a#b·x=1"]),
        ] {
            assert_eq!(
                joined_commands(text).as_deref(),
                Some(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
    }

    #[test]
    fn anything_beyond_plain_lists_is_not_certain() {
        for text in [
            "",
            "  ",
            "git $(x)",
            "git `x`",
            "git ${x}",
            "git $x",
            "git <(x)",
            "cat <<EOF\nx\nEOF",
            "cat < x",
            "ls > x",
            "ls >> x",
            "ls 2>x",
            "ls &> x",
            "ls 2>&1x",
            "ls &",
            "ls & x",
            "(ls)",
            "{ ls; }",
            "f() { ls; }",
            "git \"$(x)\"",
            "git \"`x`\"",
            "git 'x",
            "git \"x",
            "git x\\",
            "git \\\nx",
            "git status # x",
            "#ls",
            "!ls",
            "ls !!",
            "l? x",
            "* x",
            "[ x ]",
            "~/x",
            "FOO=bar ls",
            "PATH=. git status",
            "LD_PRELOAD=x ls",
            "'' x",
            "ls |& x",
            "ls ;; x",
            "; ls",
            "ls &&",
            "ls |",
            "ls &&& x",
            "ls\u{a0}x",
            "ls\rx",
            "ls\u{1b}x",
            "ls\0x",
            "if x; then y; fi",
            "for x in y; do z; done",
            "$'ls'",
            "-x",
            "{ls,x}",
        ] {
            assert_eq!(joined_commands(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_runs_another_one_is_not_certain() {
        for text in [
            "sh -c ls",
            "bash -lc ls",
            "/bin/sh x",
            "BASH x",
            "env ls",
            "env X=1 ls",
            "xargs rm",
            "ls | xargs rm",
            "sudo ls",
            "nohup ls",
            "timeout 5 ls",
            "find . -exec rm {} +",
            "find . -execdir x",
            "python -c x",
            "python3.12 -Ic x",
            "perl -e x",
            "node -e x",
            "node --eval=x",
            "awk x",
            "sed s/x/y/e f",
            "git -c alias.x=!sh x",
            "git --exec-path=/x status",
            "git rebase -x ls",
            "git bisect run ls",
            "eval ls",
            "exec ls",
            "source x",
            ". x",
            "alias ls=x",
            "export PATH=.",
            "command ls",
            "hash -p /x git",
            "printf -v PATH x",
            "tar --to-command=x -xf y",
            "npm exec x",
            "docker run x",
            "time ls",
        ] {
            assert_eq!(joined_commands(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_list_of_words_is_one_command_unless_a_shell_would_read_it_differently() {
        assert_eq!(
            parse_argv(&["git", "status"]),
            Some(vec!["git".to_owned(), "status".to_owned()])
        );
        assert_eq!(
            parse_argv(&["git", "commit", "-m", "two words"]).map(|words| words.len()),
            Some(4)
        );
        for words in [
            &["git", "; rm"][..],
            &["git", "$(x)"],
            &["sh", "-c", "ls"],
            &[],
            &["FOO=1", "ls"],
            &["git", "a\nb"],
        ] {
            assert_eq!(parse_argv(words), None, "{words:?}");
        }
    }

    #[test]
    fn braces_are_expanded_up_to_a_limit() {
        assert_eq!(expand_braces("a{b,c}d").len(), 2);
        assert!(expand_braces(&"{a,b}".repeat(100)).len() < 200);
        assert!(
            possible_runs(&"{a,b}".repeat(8_000))
                .iter()
                .map(Vec::len)
                .sum::<usize>()
                < 50_000
        );
    }

    #[test]
    fn a_word_is_found_in_any_disguise() {
        for text in [
            "rm x",
            "ls; rm x",
            "ls|rm",
            "$(rm x)",
            "`rm x`",
            "r'm' x",
            "r\\m x",
            "sh -c \"rm x\"",
            "sh -c\"rm x\"",
            "a\nrm",
            "a&&rm",
            "<(rm)",
            "rm$IFS-rf",
            "\"rm\"",
            "{ rm; }",
            "a\u{a0}rm",
            "r\\\nm x",
            "r$@m x",
            "r${x}m x",
            "r``m x",
            "r$()m x",
            "r{m,} x",
            "{r,}m x",
            "$'r\\x6d' x",
            "$'\\162m' x",
            "r+(m) x",
        ] {
            let found = possible_runs(text)
                .iter()
                .flatten()
                .any(|word| word == "rm");
            assert!(found, "{text:?}: {:?}", possible_runs(text));
        }
    }
}
