//! The marks that make our Markdown readable by programs: comments that no text of a session can
//! imitate.
//!
//! A document has a key, which stands in its marks and nowhere else. Each part begins with a mark that has the
//! key, so a message that contains such a mark cannot begin a part of its own.

use serde::{Deserialize, Serialize};
use toolgate_core::{Digest, SessionId, Timestamp};

/// The word at the beginning of a mark.
const WORD: &str = "toolgate";

/// The version of the format.
pub(crate) const MARKDOWN_VERSION: u32 = 1;

/// A mark: what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(crate) enum MarkdownMark {
    /// A session with its title.
    Session {
        version: u32,
        session: SessionId,
        redacted: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        created_at: Option<Timestamp>,
    },
    /// Instructions.
    System,
    /// A message of the user.
    User { at: Timestamp },
    /// A message of the model.
    Assistant {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// A call: its arguments.
    Call { label: String, tool: String },
    /// The result of the last call.
    Result {
        label: String,
        tool: String,
        is_error: bool,
    },
    /// Text for people that is not part of the conversation.
    Note,
    /// The end of the document.
    End,
}

/// The key of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkdownKey(String);

impl MarkdownKey {
    /// Returns the keys that a document of this session can have, the preferred one first.
    pub(crate) fn candidates(session: SessionId) -> impl Iterator<Item = Self> {
        (0_u64..).map(move |number| {
            let digest = Digest::of_bytes(format!("{session}/{number}").as_bytes()).to_string();
            Self(digest.chars().skip("sha256:".len()).take(12).collect())
        })
    }

    /// Returns the number of times that the key stands in a text.
    pub(crate) fn count_in(&self, text: &str) -> usize {
        text.matches(&self.0).count()
    }

    /// Returns the mark as a comment.
    pub(crate) fn write(&self, mark: &MarkdownMark) -> String {
        let json = serde_json::to_string(mark).unwrap_or_default();
        // Neither may occur in a comment.
        let json = json.replace("--", "\\u002d\\u002d").replace('>', "\\u003e");
        format!("<!-- {WORD}:{} {json} -->", self.0)
    }

    /// Reads the key of the first mark of a document.
    pub(crate) fn find(first_line: &str) -> Option<Self> {
        let rest = first_line
            .strip_prefix("<!-- ")?
            .strip_prefix(WORD)?
            .strip_prefix(':')?;
        let (key, _) = rest.split_once(' ')?;
        let is_key = key.len() == 12 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| Self(key.to_owned()))
    }

    /// Returns the text with which each mark of the document begins.
    pub(crate) fn start(&self) -> String {
        format!("<!-- {WORD}:{} ", self.0)
    }

    /// Reads a mark from its line; none if the line is something else.
    pub(crate) fn read(&self, line: &str) -> Option<MarkdownMark> {
        let json = line.strip_prefix(&self.start())?.strip_suffix(" -->")?;
        serde_json::from_str(json).ok()
    }
}

/// Returns a fence of backticks that is longer than any in the text.
pub(crate) fn fence_for(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for letter in text.chars() {
        run = if letter == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    "`".repeat(3.max(longest + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn any_key() -> MarkdownKey {
        let session = SessionId::new(Uuid::from_u128(1));
        MarkdownKey::candidates(session).next().expect("a key")
    }

    #[test]
    fn the_keys_of_a_session_differ() {
        let session = SessionId::new(Uuid::from_u128(1));
        let keys: Vec<_> = MarkdownKey::candidates(session).take(3).collect();
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        let forged = format!("a\n{}", keys[0].write(&MarkdownMark::System));
        assert_eq!(keys[0].count_in(&forged), 1);
        assert_eq!(keys[1].read(&forged), None);
    }

    #[test]
    fn a_mark_with_any_text_is_one_comment() {
        let key = any_key();
        for tool in ["a--b", "-->", "<!--", "x\ny", "\"", "--->", "---"] {
            let mark = MarkdownMark::Call {
                label: String::new(),
                tool: tool.to_owned(),
            };
            let line = key.write(&mark);
            assert_eq!(line.matches("--").count(), 2, "{line}");
            assert_eq!(line.lines().count(), 1);
            assert_eq!(key.read(&line), Some(mark));
        }
    }

    #[test]
    fn a_fence_is_longer_than_those_in_the_text() {
        assert_eq!(fence_for(""), "```");
        assert_eq!(fence_for("a ``` b ````"), "`````");
    }
}
