//! The YAML between the `---` lines at the top of a file, with the line of every value.

use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};
use serde_json::{Map, Value};

/// A value and its line in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// A problem and its line in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontMatterError {
    pub(crate) line: usize,
    pub(crate) problem: String,
}

/// Keys and values in order.
pub(crate) type FrontMatterEntries = Vec<(String, YamlNode)>;

/// Returns the entries of the front matter in order, and the text after it.
///
/// Every plain value is text as it was written: nothing is converted to a number, a date or a
/// boolean. Only the top level keeps its lines.
pub(crate) fn split_front_matter(
    text: &str,
) -> Result<(FrontMatterEntries, &str), FrontMatterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != "---" {
        return Err(FrontMatterError {
            line: 1,
            problem: "the file has to begin with a line of three hyphens".into(),
        });
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok((parse_entries(&rest[..end])?, &rest[end + line.len()..]));
        }
        end += line.len();
    }
    Err(FrontMatterError {
        line: 1,
        problem: "the front matter is not closed by a line of three hyphens".into(),
    })
}

fn parse_entries(yaml: &str) -> Result<FrontMatterEntries, FrontMatterError> {
    let mut reader = YamlReader {
        parser: Parser::new_from_str(yaml),
        nodes: 0,
    };
    loop {
        match reader.next_event()? {
            (Event::MappingStart(..), _) => return reader.top_level(),
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (_, line) => {
                return Err(FrontMatterError {
                    line,
                    problem: "the front matter has to be a list of `key: value`".into(),
                });
            }
        }
    }
}

struct YamlReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
}

impl<'a> YamlReader<'a> {
    /// Limits against malicious files: no real front matter is this deep or has this many values.
    const DEEPEST: usize = 16;
    const MOST: usize = 2000;

    fn next_event(&mut self) -> Result<(Event<'a>, usize), FrontMatterError> {
        // The front matter begins in the second line of the file.
        let place = |(event, span): (Event<'a>, Span)| (event, span.start.line() + 1);
        let broken = |error: ScanError| FrontMatterError {
            line: error.marker().line() + 1,
            problem: format!(
                "{}; a value with `: ` or ` #` in it has to be quoted",
                error.info()
            ),
        };
        self.parser
            .next_event()
            .unwrap_or(Ok((Event::StreamEnd, Span::default())))
            .map(place)
            .map_err(broken)
    }

    fn top_level(&mut self) -> Result<FrontMatterEntries, FrontMatterError> {
        let mut entries = FrontMatterEntries::new();
        while let Some((key, line)) = self.next_key()? {
            let (event, at) = self.next_event()?;
            let value = self.parse_value(event, at, 1)?;
            if entries.iter().any(|(known, _)| *known == key) {
                return Err(FrontMatterError {
                    line,
                    problem: format!("`{key}` is defined twice"),
                });
            }
            entries.push((key, YamlNode { line, value }));
        }
        loop {
            match self.next_event()? {
                (Event::StreamEnd, _) => return Ok(entries),
                (Event::DocumentEnd, _) => {}
                (_, line) => {
                    return Err(FrontMatterError {
                        line,
                        problem: "the front matter continues after its end".into(),
                    });
                }
            }
        }
    }

    /// Returns the next key of a mapping; nothing at its end.
    fn next_key(&mut self) -> Result<Option<(String, usize)>, FrontMatterError> {
        match self.next_event()? {
            (Event::MappingEnd, _) => Ok(None),
            (Event::Scalar(key, ..), line) => Ok(Some((key.into_owned(), line))),
            (_, line) => Err(FrontMatterError {
                line,
                problem: "a key has to be plain text".into(),
            }),
        }
    }

    fn parse_value(
        &mut self,
        event: Event<'a>,
        line: usize,
        depth: usize,
    ) -> Result<Value, FrontMatterError> {
        self.nodes += 1;
        if depth > Self::DEEPEST || self.nodes > Self::MOST {
            return Err(FrontMatterError {
                line,
                problem: "the front matter is nested too deeply or too long".into(),
            });
        }
        match event {
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => self.parse_list(depth),
            Event::MappingStart(..) => self.parse_map(depth),
            Event::Alias(_) => Err(FrontMatterError {
                line,
                problem: "a value cannot be an alias of another one".into(),
            }),
            _ => Err(FrontMatterError {
                line,
                problem: "a value is missing".into(),
            }),
        }
    }

    fn parse_list(&mut self, depth: usize) -> Result<Value, FrontMatterError> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, line) => items.push(self.parse_value(event, line, depth + 1)?),
            }
        }
    }

    fn parse_map(&mut self, depth: usize) -> Result<Value, FrontMatterError> {
        let mut map = Map::new();
        while let Some((key, line)) = self.next_key()? {
            let (event, at) = self.next_event()?;
            let value = self.parse_value(event, at, depth + 1)?;
            if map.insert(key.clone(), value).is_some() {
                return Err(FrontMatterError {
                    line,
                    problem: format!("`{key}` is defined twice"),
                });
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(text: &str) -> (usize, String) {
        let error = split_front_matter(text).expect_err(text);
        (error.line, error.problem)
    }

    #[test]
    fn values_keep_their_lines_and_stay_text() {
        let text = "---\n# note\nname: pdf\nversion: 1.10\nyes: no\nfolded: >\n  a\n  b\nlist: [x, 2]\nmap:\n  k: 'v: w'\n---\nBody\n";
        let (entries, body) = split_front_matter(text).expect("fine");
        let found: Vec<_> = entries
            .iter()
            .map(|(key, node)| (key.as_str(), node.line, node.value.clone()))
            .collect();
        let expected = [
            ("name", 3, json!("pdf")),
            ("version", 4, json!("1.10")),
            ("yes", 5, json!("no")),
            ("folded", 6, json!("a b\n")),
            ("list", 9, json!(["x", "2"])),
            ("map", 10, json!({ "k": "v: w" })),
        ];
        assert_eq!(found, expected);
        assert_eq!(body, "Body\n");
    }

    #[test]
    fn carriage_returns_and_a_byte_order_mark_do_no_harm() {
        let (entries, body) =
            split_front_matter("\u{feff}---\r\nname: a\r\n---\r\nx\r\n").expect("fine");
        assert_eq!((entries[0].1.value.as_str(), body), (Some("a"), "x\r\n"));
    }

    #[test]
    fn malformed_front_matter_is_named_with_its_line() {
        assert_eq!(problem("# Title\n").0, 1);
        assert_eq!(problem("").0, 1);
        assert!(problem("---\nname: a\n").1.contains("not closed"));
        assert_eq!(problem("---\n- a\n---\n").0, 2);
        assert_eq!(
            problem("---\n---\n").1,
            "the front matter has to be a list of `key: value`"
        );
        assert_eq!(
            problem("---\na: 1\nb: 2\na: 3\n---\n"),
            (4, "`a` is defined twice".into())
        );
        assert_eq!(
            problem("---\na: &x 1\nb: *x\n---\n"),
            (3, "a value cannot be an alias of another one".into())
        );
        let (line, words) = problem("---\nname: a\ndescription: reads: writes\n---\n");
        assert_eq!(line, 3);
        assert!(words.contains("quoted"), "{words}");
        assert!(
            split_front_matter(&format!(
                "---\na: {}1{}\n---\n",
                "[".repeat(40),
                "]".repeat(40)
            ))
            .is_err()
        );
        assert!(split_front_matter("---\na: [1\n---\n").is_err());
        assert!(split_front_matter("---\na: 1\n...\nb: 2\n---\n").is_err());
    }
}
