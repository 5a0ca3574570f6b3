//! Colours in code, by a few rules per language: comments, texts in quotes, keywords. It is no parser:
//! a text over several lines is coloured only where the language marks it, and code in an unknown
//! language stays as it is.

use anstyle::{AnsiColor, Style};

/// The kind of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeToken {
    /// Anything else.
    Plain,
    /// A comment.
    Comment,
    /// A text in quotes.
    Quoted,
    /// A word of the language.
    Keyword,
}

impl CodeToken {
    /// Returns the style in code. These colours can be read on light and on dark backgrounds.
    pub(crate) fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Comment => Style::new().dimmed(),
            Self::Quoted => AnsiColor::Green.on_default(),
            Self::Keyword => AnsiColor::Magenta.on_default(),
        }
    }

    /// Returns the style in a line that a diff colours: the colour says what changes.
    pub(crate) fn style_over(self, base: Style) -> Style {
        match self {
            Self::Plain | Self::Quoted => base,
            Self::Comment => base.dimmed(),
            Self::Keyword => base.bold(),
        }
    }
}

/// The rules of a language.
#[derive(Debug, PartialEq, Eq)]
struct CodeLanguage {
    /// Its names in Markdown, and the extensions of its files.
    names: &'static [&'static str],
    line_comment: &'static str,
    /// What may reach over several lines, with its ends.
    blocks: &'static [(&'static str, &'static str, CodeToken)],
    /// The quotes of texts that end on their line.
    quotes: &'static str,
    keywords: &'static str,
}

const C_COMMENT: (&str, &str, CodeToken) = ("/*", "*/", CodeToken::Comment);

const LANGUAGES: &[CodeLanguage] = &[
    CodeLanguage {
        names: &["rust", "rs"],
        line_comment: "//",
        blocks: &[C_COMMENT],
        quotes: "\"",
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop \
             match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    },
    CodeLanguage {
        names: &["python", "py"],
        line_comment: "#",
        blocks: &[
            ("\"\"\"", "\"\"\"", CodeToken::Quoted),
            ("'''", "'''", CodeToken::Quoted),
        ],
        quotes: "\"'",
        keywords: "and as assert async await break class continue def del elif else except False finally for from \
             global if import in is lambda None nonlocal not or pass raise return True try while with yield match case",
    },
    CodeLanguage {
        names: &["javascript", "typescript", "js", "ts", "jsx", "tsx", "mjs"],
        line_comment: "//",
        blocks: &[C_COMMENT, ("`", "`", CodeToken::Quoted)],
        quotes: "\"'",
        keywords: "as async await break case catch class const continue default delete do else enum export extends \
             false finally for from function if implements import in instanceof interface let new null of return \
             static super switch this throw true try type typeof undefined var void while yield",
    },
    CodeLanguage {
        names: &["go"],
        line_comment: "//",
        blocks: &[C_COMMENT, ("`", "`", CodeToken::Quoted)],
        quotes: "\"'",
        keywords: "break case chan const continue default defer else fallthrough false for func go goto if import \
             interface map nil package range return select struct switch true type var",
    },
    CodeLanguage {
        names: &[
            "c", "h", "cpp", "hpp", "cc", "c++", "java", "kt", "kotlin", "cs", "swift",
        ],
        line_comment: "//",
        blocks: &[C_COMMENT],
        quotes: "\"'",
        keywords: "abstract auto bool boolean break case catch char class const continue default delete do double else \
             enum extends extern false final float for func if implements import int interface let long namespace new \
             null nullptr override package private protected public return short signed sizeof static struct super \
             switch template this throw true try typedef union unsigned using val var virtual void volatile while",
    },
    CodeLanguage {
        names: &["sh", "bash", "shell", "zsh", "console"],
        line_comment: "#",
        blocks: &[],
        quotes: "\"'",
        keywords: "case do done elif else esac exit export fi for function if in local return then until while",
    },
    CodeLanguage {
        names: &["toml", "yaml", "yml", "ini", "dockerfile", "makefile"],
        line_comment: "#",
        blocks: &[],
        quotes: "\"'",
        keywords: "true false null yes no",
    },
    CodeLanguage {
        names: &["json", "jsonc"],
        line_comment: "//",
        blocks: &[],
        quotes: "\"",
        keywords: "true false null",
    },
    CodeLanguage {
        names: &["sql"],
        line_comment: "--",
        blocks: &[C_COMMENT],
        quotes: "'\"",
        keywords: "select from where and or not in is null insert into values update set delete create table index \
             drop alter join left right inner outer on as order by group having limit primary key references unique",
    },
];

/// Splits the lines of one piece of code, from the first on.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodeHighlighter {
    language: Option<&'static CodeLanguage>,
    /// The end of the block that is open, and its kind.
    open: Option<(&'static str, CodeToken)>,
}

impl CodeHighlighter {
    /// Creates one for a language by its name, as after the fence of a code block.
    pub(crate) fn for_language(name: &str) -> Self {
        let first = name.split([' ', ',', '{']).next().unwrap_or_default();
        let first = first.to_ascii_lowercase();
        let language = LANGUAGES
            .iter()
            .find(|language| language.names.contains(&first.as_str()));
        Self {
            language,
            open: None,
        }
    }

    /// Creates one for a file.
    pub(crate) fn for_path(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        Self::for_language(name.rsplit('.').next().unwrap_or(name))
    }

    /// Checks whether the language is known.
    pub(crate) fn is_known(&self) -> bool {
        self.language.is_some()
    }

    /// Splits a line into its pieces. Together they are the line.
    pub(crate) fn split_line<'a>(&mut self, line: &'a str) -> Vec<(CodeToken, &'a str)> {
        let Some(language) = self.language else {
            return vec![(CodeToken::Plain, line)];
        };
        let mut pieces = Vec::new();
        let mut plain = 0;
        let mut at = 0;
        while at < line.len() {
            let (kind, length) = self.next_piece(language, &line[..at], &line[at..]);
            if kind != CodeToken::Plain {
                pieces.extend((plain < at).then(|| (CodeToken::Plain, &line[plain..at])));
                pieces.push((kind, &line[at..at + length]));
                plain = at + length;
            }
            at += length;
        }
        pieces.extend((plain < at).then(|| (CodeToken::Plain, &line[plain..])));
        pieces
    }

    /// Returns the kind and the length of what `rest` begins with; never 0.
    fn next_piece(
        &mut self,
        language: &'static CodeLanguage,
        before: &str,
        rest: &str,
    ) -> (CodeToken, usize) {
        if let Some((end, kind)) = self.open {
            return self.close_block(end, kind, rest, 0);
        }
        // `#` inside a word, as in `$#` or `a#b`, begins no comment.
        let begins_word = before.is_empty() || before.ends_with(char::is_whitespace);
        if rest.starts_with(language.line_comment) && (language.line_comment != "#" || begins_word)
        {
            return (CodeToken::Comment, rest.len());
        }
        let begun = |block: &&(&str, &str, CodeToken)| rest.starts_with(block.0);
        if let Some((start, end, kind)) = language.blocks.iter().find(begun) {
            self.open = Some((end, *kind));
            return self.close_block(end, *kind, rest, start.len());
        }
        let first = rest.chars().next().unwrap_or_default();
        if language.quotes.contains(first) {
            return (CodeToken::Quoted, quoted_length(rest, first));
        }
        let word = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if language
            .keywords
            .split_whitespace()
            .any(|known| known == &rest[..word])
        {
            return (CodeToken::Keyword, word);
        }
        (CodeToken::Plain, word.max(first.len_utf8()))
    }

    /// Returns the length of an open block, and closes it if it ends on this line.
    fn close_block(
        &mut self,
        end: &str,
        kind: CodeToken,
        rest: &str,
        from: usize,
    ) -> (CodeToken, usize) {
        match rest[from..].find(end) {
            Some(place) => {
                self.open = None;
                (kind, from + place + end.len())
            }
            None => (kind, rest.len()),
        }
    }
}

/// Returns the length of a text in quotes; without an end it is the rest of the line.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (place, letter) in rest.char_indices().skip(1) {
        if letter == quote && !escaped {
            return place + letter.len_utf8();
        }
        escaped = letter == '\\' && !escaped;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::CodeToken::{Comment, Keyword, Plain, Quoted};
    use super::*;

    fn split<'a>(name: &str, lines: &[&'a str]) -> Vec<Vec<(CodeToken, &'a str)>> {
        let mut code = CodeHighlighter::for_language(name);
        lines.iter().map(|line| code.split_line(line)).collect()
    }

    #[test]
    fn keywords_texts_and_comments_are_told_apart() {
        let lines = [
            "let s = \"a \\\" // b\"; // c",
            "/* one",
            "two */ fn letter()",
        ];
        assert_eq!(
            split("rust,ignore", &lines),
            [
                vec![
                    (Keyword, "let"),
                    (Plain, " s = "),
                    (Quoted, "\"a \\\" // b\""),
                    (Plain, "; "),
                    (Comment, "// c")
                ],
                vec![(Comment, "/* one")],
                vec![
                    (Comment, "two */"),
                    (Plain, " "),
                    (Keyword, "fn"),
                    (Plain, " letter()")
                ],
            ]
        );
        assert_eq!(
            split("sh", &["echo $# # all"])[0].last(),
            Some(&(Comment, "# all"))
        );
        assert_eq!(split("brainfuck", &["fn x"]), [vec![(Plain, "fn x")]]);
    }

    #[test]
    fn nothing_of_a_line_is_lost() {
        let lines = [
            "'",
            "\"open",
            "日本 = '語' # é",
            "",
            "a\\",
            "`x",
            "x` /*/ */",
        ];
        for language in LANGUAGES {
            for line in lines {
                let mut code = CodeHighlighter::for_language(language.names[0]);
                let pieces = code.split_line(line);
                let joined: String = pieces.iter().map(|(_, text)| *text).collect();
                assert_eq!(joined, line, "{:?}", language.names);
            }
        }
    }

    #[test]
    fn a_file_is_known_by_its_extension() {
        for path in ["src/lib.rs", "a/b.PY", "Dockerfile", "x.yaml"] {
            assert!(CodeHighlighter::for_path(path).is_known(), "{path}");
        }
        assert!(!CodeHighlighter::for_path("notes.txt").is_known());
    }
}
