//! A reply that is still streaming: complete paragraphs are final, the last one is still open.

/// Splits a growing text into complete paragraphs and an open rest.
#[derive(Debug, Default, Clone)]
pub struct ReplyBlocks {
    text: String,
    /// The number of bytes that were returned as complete.
    done: usize,
}

impl ReplyBlocks {
    /// Appends a fragment.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Returns the paragraphs that are complete and were not returned yet.
    pub fn take_complete(&mut self) -> Option<String> {
        let end = self.done + last_block_break(&self.text[self.done..])?;
        let block = self.text[self.done..end].to_owned();
        self.done = end;
        Some(block).filter(|block| !block.trim().is_empty())
    }

    /// Returns the part that is still open.
    pub fn open_text(&self) -> &str {
        &self.text[self.done..]
    }

    /// Returns the rest of the reply, given the `whole` reply from the log.
    pub fn take_rest(&mut self, whole: &str) -> Option<String> {
        let before = std::mem::take(self);
        // The log differs from the streamed text if something was redacted. The streamed paragraphs
        // are on the screen already and must not be printed twice.
        let rest = match whole.get(..before.done) {
            Some(told) if told == &before.text[..before.done] => &whole[before.done..],
            _ => before.open_text(),
        };
        Some(rest.to_owned()).filter(|rest| !rest.trim().is_empty())
    }
}

/// Returns the position after the last empty line that is not inside a code block.
fn last_block_break(text: &str) -> Option<usize> {
    let mut at = 0;
    let mut found = None;
    let mut fence = None::<&str>;
    for line in text.split_inclusive('\n') {
        at += line.len();
        let trimmed = line.trim();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        // Cut inside a code block, its second half would be rendered as prose.
        if fence.is_none() && trimmed.is_empty() && line.ends_with('\n') {
            found = Some(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_printed_when_it_is_complete() {
        let mut blocks = ReplyBlocks::default();
        blocks.push("one\nstill one\n");
        assert_eq!(
            (blocks.take_complete(), blocks.open_text()),
            (None, "one\nstill one\n")
        );
        blocks.push("\ntwo");
        assert_eq!(
            (blocks.take_complete().as_deref(), blocks.open_text()),
            (Some("one\nstill one\n\n"), "two")
        );
        assert_eq!(
            blocks.take_rest("one\nstill one\n\ntwo.").as_deref(),
            Some("two.")
        );
        assert_eq!(blocks.open_text(), "");
    }

    #[test]
    fn a_code_block_is_printed_as_a_whole() {
        let mut blocks = ReplyBlocks::default();
        blocks.push("```\na\n\nb\n");
        assert_eq!(blocks.take_complete(), None);
        blocks.push("```\n\nend");
        assert_eq!(
            blocks.take_complete().as_deref(),
            Some("```\na\n\nb\n```\n\n")
        );
    }

    #[test]
    fn printed_text_is_not_printed_again_even_if_the_log_differs() {
        let mut blocks = ReplyBlocks::default();
        blocks.push("the key is 12345\n\nand more");
        blocks.take_complete();
        assert_eq!(
            blocks
                .take_rest("the key is [redacted]\n\nand more")
                .as_deref(),
            Some("and more")
        );
        assert_eq!(
            ReplyBlocks::default()
                .take_rest("never streamed")
                .as_deref(),
            Some("never streamed")
        );
    }
}
