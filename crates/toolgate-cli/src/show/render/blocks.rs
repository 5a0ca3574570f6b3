//! Replies that are still streaming: complete paragraphs are printed for good, the last one is still
//! open.

use std::collections::BTreeMap;

/// What was printed of the replies whose end was not seen yet.
///
/// Replies are told apart by the number of an event, as in
/// [`StreamPiece::after`](toolgate::event::StreamPiece::after): the first words of a reply may arrive before the
/// end of the reply before it.
#[derive(Debug, Default, Clone)]
pub struct ReplyBlocks {
    printed: BTreeMap<u64, String>,
}

impl ReplyBlocks {
    /// Returns the paragraphs of a reply that are complete and were not returned yet, given its text
    /// so far.
    pub fn take_complete(&mut self, reply: u64, text: &str) -> Option<String> {
        let open = self.open_text(reply, text);
        let block = open[..last_block_break(open)?].to_owned();
        self.printed.entry(reply).or_default().push_str(&block);
        Some(block).filter(|block| !block.trim().is_empty())
    }

    /// Returns the part of a reply that is still open, as if it were complete.
    pub fn take_open(&mut self, reply: u64, text: &str) -> Option<String> {
        let open = self.open_text(reply, text).to_owned();
        self.printed.entry(reply).or_default().push_str(&open);
        Some(open).filter(|open| !open.trim().is_empty())
    }

    /// Returns the part of a reply that is still open, given its text so far.
    pub fn open_text<'a>(&self, reply: u64, text: &'a str) -> &'a str {
        let printed = self.printed.get(&reply).map_or(0, String::len);
        text.get(printed..).unwrap_or_default()
    }

    /// Returns the rest of the reply that ended with event `end`, given the `whole` reply from the log.
    pub fn take_rest(&mut self, end: u64, whole: &str) -> Option<String> {
        let later = self.printed.split_off(&end);
        let before = std::mem::replace(&mut self.printed, later);
        let printed = before.into_values().next_back().unwrap_or_default();
        let rest = &whole[shared_blocks(&printed, whole)..];
        Some(rest.to_owned()).filter(|rest| !rest.trim().is_empty())
    }
}

/// Returns the length of the paragraphs at the beginning of `whole` that were printed. They differ if
/// pieces were missed: then it is better to print a paragraph twice than to leave a part of it out.
fn shared_blocks(printed: &str, whole: &str) -> usize {
    if whole.starts_with(printed) {
        return printed.len();
    }
    let same = printed.bytes().zip(whole.bytes());
    let mut same = same.take_while(|(a, b)| a == b).count();
    while !printed.is_char_boundary(same) {
        same -= 1;
    }
    last_block_break(&printed[..same]).unwrap_or(0)
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
        let text = "one\nstill one\n";
        assert_eq!(blocks.take_complete(1, text), None);
        assert_eq!(blocks.open_text(1, text), text);
        let text = "one\nstill one\n\ntwo";
        let complete = blocks.take_complete(1, text);
        assert_eq!(complete.as_deref(), Some("one\nstill one\n\n"));
        assert_eq!(blocks.open_text(1, text), "two");
        let rest = blocks.take_rest(2, "one\nstill one\n\ntwo.");
        assert_eq!(rest.as_deref(), Some("two."));
        assert_eq!(blocks.open_text(2, ""), "");
    }

    #[test]
    fn a_code_block_is_printed_as_a_whole() {
        let mut blocks = ReplyBlocks::default();
        assert_eq!(blocks.take_complete(1, "```\na\n\nb\n"), None);
        assert_eq!(
            blocks
                .take_complete(1, "```\na\n\nb\n```\n\nend")
                .as_deref(),
            Some("```\na\n\nb\n```\n\n")
        );
    }

    #[test]
    fn a_paragraph_that_arrived_with_a_gap_is_printed_again() {
        let mut blocks = ReplyBlocks::default();
        blocks.take_complete(1, "one\n\nthe key is\n\nand more");
        let rest = blocks.take_rest(2, "one\n\nthe key is here\n\nand more");
        assert_eq!(rest.as_deref(), Some("the key is here\n\nand more"));
        let rest = ReplyBlocks::default().take_rest(2, "never streamed");
        assert_eq!(rest.as_deref(), Some("never streamed"));
    }

    #[test]
    fn the_next_reply_may_begin_before_the_end_of_the_last_one_is_known() {
        let mut blocks = ReplyBlocks::default();
        blocks.take_complete(1, "one\n\ntwo");
        blocks.take_complete(5, "three\n\n");
        assert_eq!(blocks.take_rest(3, "one\n\ntwo.").as_deref(), Some("two."));
        assert_eq!(
            blocks.take_rest(8, "three\n\nfour").as_deref(),
            Some("four")
        );
    }
}
