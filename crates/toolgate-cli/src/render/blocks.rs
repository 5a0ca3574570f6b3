//! A reply while it is still coming: whole paragraphs are done with, the last one is still open.

/// Cuts a growing text into what is complete and what is still coming.
#[derive(Debug, Default, Clone)]
pub struct Blocks {
    text: String,
    /// How much of the text was given out.
    done: usize,
}

impl Blocks {
    /// Adds what came.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// The paragraphs that are complete and were not given out yet.
    pub fn complete(&mut self) -> Option<String> {
        let end = self.done + last_break(&self.text[self.done..])?;
        let block = self.text[self.done..end].to_owned();
        self.done = end;
        Some(block).filter(|block| !block.trim().is_empty())
    }

    /// What is still open.
    pub fn open(&self) -> &str {
        &self.text[self.done..]
    }

    /// The rest of the reply, which is `whole` as the log has it. What the log has differs from what came if something
    /// was taken out of it; then what came is not told again.
    pub fn finish(&mut self, whole: &str) -> Option<String> {
        let before = std::mem::take(self);
        let rest = match whole.get(..before.done) {
            Some(told) if told == &before.text[..before.done] => &whole[before.done..],
            _ => before.open(),
        };
        Some(rest.to_owned()).filter(|rest| !rest.trim().is_empty())
    }
}

/// Behind the last empty line that is not inside of a block of code.
fn last_break(text: &str) -> Option<usize> {
    let (mut at, mut found, mut fence) = (0, None, None::<&str>);
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
    fn a_paragraph_is_told_when_it_is_complete() {
        let mut blocks = Blocks::default();
        blocks.push("one\nstill one\n");
        assert_eq!(
            (blocks.complete(), blocks.open()),
            (None, "one\nstill one\n")
        );
        blocks.push("\ntwo");
        assert_eq!(
            (blocks.complete().as_deref(), blocks.open()),
            (Some("one\nstill one\n\n"), "two")
        );
        assert_eq!(
            blocks.finish("one\nstill one\n\ntwo.").as_deref(),
            Some("two.")
        );
        assert_eq!(blocks.open(), "");
    }

    #[test]
    fn code_is_told_as_a_whole() {
        let mut blocks = Blocks::default();
        blocks.push("```\na\n\nb\n");
        assert_eq!(blocks.complete(), None);
        blocks.push("```\n\nend");
        assert_eq!(blocks.complete().as_deref(), Some("```\na\n\nb\n```\n\n"));
    }

    #[test]
    fn what_was_told_is_not_told_again_even_if_the_log_says_it_differently() {
        let mut blocks = Blocks::default();
        blocks.push("the key is 12345\n\nand more");
        blocks.complete();
        assert_eq!(
            blocks
                .finish("the key is [redacted]\n\nand more")
                .as_deref(),
            Some("and more")
        );
        assert_eq!(
            Blocks::default().finish("never streamed").as_deref(),
            Some("never streamed")
        );
    }
}
