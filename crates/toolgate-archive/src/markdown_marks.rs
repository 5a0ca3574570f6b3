//! The marks that make our Markdown readable by programs: comments that no text of a session can
//! imitate.
//!
//! A document has a key, which occurs in none of its texts. Each part begins with a mark that has the
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
    /// Finds a key that occurs in none of the texts.
    pub(crate) fn for_texts(session: SessionId, texts: &[&str]) -> Self {
        let key = |n: u32| {
            let digest = Digest::of_bytes(format!("{session}/{n}").as_bytes()).to_string();
            Self(digest.chars().skip("sha256:".len()).take(12).collect())
        };
        let free = |key: &Self| !texts.iter().any(|text| text.contains(&key.0));
        let mut keys = (0..u32::MAX).map(key).filter(free);
        keys.next()
            .expect("a text of bounded length does not contain all keys")
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

    #[test]
    fn a_key_occurs_in_no_text() {
        let session = SessionId::new(Uuid::from_u128(1));
        let first = MarkdownKey::for_texts(session, &[]);
        let evil = format!("a\n{}", first.write(&MarkdownMark::System));
        let second = MarkdownKey::for_texts(session, &[&evil]);
        assert_ne!(first, second);
        assert_eq!(second.read(&evil), None);
    }

    #[test]
    fn a_mark_with_any_text_is_one_comment() {
        let key = MarkdownKey::for_texts(SessionId::new(Uuid::from_u128(1)), &[]);
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
