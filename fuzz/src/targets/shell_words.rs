//! A second reader of shell texts, after the POSIX grammar and without a look at the first one.
//!
//! It finds the commands that a shell is certain to see in a text. Where the text expands
//! something, it says so instead of guessing.

/// The commands in a text.
#[derive(Debug, Default)]
pub(super) struct ShellReading {
    /// The words of each command; `None` for a word that the shell would expand.
    pub(super) commands: Vec<Vec<Option<String>>>,
    /// True if the text is more than plain commands: expansions, groups, files written, keywords.
    pub(super) is_complex: bool,
}

struct WordReader<'a> {
    rest: &'a str,
    reading: ShellReading,
    words: Vec<Option<String>>,
}

/// Words that a command may follow.
const BEFORE_COMMANDS: [&str; 11] = [
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "fi",
];
/// Words whose arguments are not commands, or that end a group.
const STOP_WORDS: [&str; 8] = [
    "for", "case", "select", "function", "done", "esac", "}", "[[",
];

/// Reads a text as far as it is certain.
pub(super) fn read_shell(text: &str) -> ShellReading {
    let mut reader = WordReader {
        rest: text,
        reading: ShellReading::default(),
        words: Vec::new(),
    };
    while !reader.rest.is_empty() {
        if reader.read_token().is_none() {
            // Beyond this point another grammar applies, so the command is not certain either.
            reader.reading.is_complex = true;
            reader.words.clear();
            break;
        }
    }
    reader.end_command();
    reader.reading
}

impl WordReader<'_> {
    fn read_token(&mut self) -> Option<()> {
        if let Some(rest) = self.rest.strip_prefix("\\\n") {
            self.rest = rest;
            return Some(());
        }
        let first = self.rest.chars().next()?;
        match first {
            ' ' | '\t' => self.skip(1),
            '\n' | ';' => {
                self.end_command();
                self.skip(1);
            }
            '&' | '|' | '(' | ')' => self.read_operator(first),
            '#' => self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..],
            '<' | '>' => return self.read_redirection(),
            _ => {
                let word = self.read_word()?;
                let descriptor = word.as_ref().is_some_and(|word| {
                    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
                });
                // `2>` is one operator, and `2 >` a word and an operator.
                if !(descriptor && self.rest.starts_with(['<', '>'])) {
                    self.words.push(word);
                }
            }
        }
        Some(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn read_operator(&mut self, first: char) {
        let plain = self.rest.starts_with("&&") || self.rest.starts_with("||");
        self.reading.is_complex |= !plain && first != '|';
        self.end_command();
        self.skip(if plain { 2 } else { 1 });
    }

    /// Reads a redirection and its target, which is not a word of the command.
    fn read_redirection(&mut self) -> Option<()> {
        if self.rest.starts_with("<<") || self.rest[1..].starts_with('(') {
            return None;
        }
        let operator = [">>", ">&", "<&", ">|", "<>", ">", "<"]
            .into_iter()
            .find(|operator| self.rest.starts_with(operator))?;
        self.skip(operator.len());
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let target = self.read_word()?;
        let harmless = matches!(target.as_deref(), Some("/dev/null"))
            || (operator == ">&" && matches!(target.as_deref(), Some("1" | "2")));
        self.reading.is_complex |= !harmless;
        Some(())
    }

    /// Reads a word. `None` if what follows is not certain.
    fn read_word(&mut self) -> Option<Option<String>> {
        let mut word = String::new();
        let mut known = true;
        let mut chars = self.rest.char_indices();
        let end = loop {
            let Some((at, c)) = chars.next() else {
                break self.rest.len();
            };
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break at,
                '\'' => loop {
                    match chars.next()?.1 {
                        '\'' => break,
                        c => word.push(c),
                    }
                },
                '"' => read_double_quoted(&mut chars, &mut word)?,
                '\\' => match chars.next()?.1 {
                    '\n' => {}
                    c => word.push(c),
                },
                '$' | '`' => return None,
                '*' | '?' | '[' | '{' | '~' => {
                    known = false;
                    word.push(c);
                }
                c => word.push(c),
            }
        };
        self.rest = &self.rest[end..];
        Some(known.then_some(word))
    }

    fn end_command(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        while let Some(Some(first)) = words.first() {
            if BEFORE_COMMANDS.contains(&first.as_str()) || is_assignment(first) {
                self.reading.is_complex = true;
                words.remove(0);
            } else if STOP_WORDS.contains(&first.as_str()) {
                self.reading.is_complex = true;
                return;
            } else {
                break;
            }
        }
        if !words.is_empty() {
            self.reading.is_complex |= words[0].is_none();
            self.reading.commands.push(words);
        }
    }
}

fn read_double_quoted(chars: &mut std::str::CharIndices<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()?.1 {
            '"' => return Some(()),
            '$' | '`' => return None,
            '\\' => match chars.next()?.1 {
                '\n' => {}
                c @ ('$' | '`' | '"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let shown = |words: &Vec<Option<String>>| {
            let words: Vec<&str> = words
                .iter()
                .map(|word| word.as_deref().unwrap_or("?"))
                .collect();
            words.join(" ")
        };
        read_shell(text).commands.iter().map(shown).collect()
    }

    #[test]
    fn commands_are_read_as_a_shell_reads_them() {
        for (text, expected) in [
            ("git status; r\\m -rf x", &["git status", "rm -rf x"][..]),
            ("'r'\"m\" a|X=1 rm b", &["rm a", "rm b"]),
            ("ls # rm\nrm", &["ls", "rm"]),
            ("if true; then rm x; fi", &["true", "rm x"]),
            ("(rm x)& ls 2>/dev/null", &["rm x", "ls"]),
            ("r\\\nm x > out", &["rm x"]),
            ("ls *.rs; echo $(rm)", &["ls ?"]),
            ("echo 2 > f", &["echo 2"]),
        ] {
            assert_eq!(commands(text), expected, "{text}");
        }
    }

    #[test]
    fn only_plain_commands_are_not_complex() {
        for plain in ["ls", "ls -a && git status | cat", "ls 2>&1 >/dev/null; ls"] {
            assert!(!read_shell(plain).is_complex, "{plain}");
        }
        for complex in [
            "ls > x",
            "ls &",
            "$X",
            "X=1 ls",
            "(ls)",
            "ls <<E",
            "l* x",
            "for x in y",
            "ls '",
        ] {
            assert!(read_shell(complex).is_complex, "{complex}");
        }
    }
}
