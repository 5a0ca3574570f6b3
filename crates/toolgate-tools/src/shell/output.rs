//! Collects the beginning and the end of an output of any length, in bounded memory.

use std::collections::VecDeque;

/// The beginning and the end of an output.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The capacity of each, in bytes.
    half: usize,
    total: u64,
}

/// An output as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputText {
    /// The beginning and the end, with a line between them that counts the omitted bytes.
    pub(crate) text: String,
    /// The number of omitted bytes.
    pub(crate) omitted: u64,
    /// True if all of it was UTF-8.
    pub(crate) is_utf8: bool,
}

impl OutputBuffer {
    /// Creates a buffer of about `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: (most / 2).max(1),
            total: 0,
        }
    }

    /// Adds the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Returns the number of bytes that were printed.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Returns the last line that is not empty, truncated for a screen and without control
    /// characters.
    pub(crate) fn last_line(&self) -> String {
        const MOST: usize = 512;
        let from = |bytes: &[u8]| bytes[bytes.len().saturating_sub(MOST)..].to_vec();
        let end: Vec<u8> = if self.tail.is_empty() {
            from(&self.head)
        } else {
            self.tail
                .iter()
                .skip(self.tail.len().saturating_sub(MOST))
                .copied()
                .collect()
        };
        let text = String::from_utf8_lossy(&end);
        let line = text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        line.chars()
            .filter(|c| !c.is_control())
            .take(120)
            .collect::<String>()
            .trim()
            .to_owned()
    }

    /// Returns the collected output as text.
    pub(crate) fn into_text(self) -> OutputText {
        let head = self.head;
        let tail = Vec::from(self.tail);
        let omitted = self.total - (head.len() + tail.len()) as u64;
        if omitted == 0 {
            let whole = [head, tail].concat();
            let is_utf8 = std::str::from_utf8(&whole).is_ok();
            return OutputText {
                text: String::from_utf8_lossy(&whole).into_owned(),
                omitted,
                is_utf8,
            };
        }
        // A cut may split a character; the rest of that character counts as omitted.
        let (head, cut) = trim_incomplete_char(&head);
        let tail_start = tail
            .iter()
            .take(3)
            .take_while(|byte| is_continuation(**byte))
            .count();
        let tail = &tail[tail_start..];
        let omitted = omitted + (cut + tail_start) as u64;
        let is_utf8 = std::str::from_utf8(head).is_ok() && std::str::from_utf8(tail).is_ok();
        let head = String::from_utf8_lossy(head);
        let tail = String::from_utf8_lossy(tail);
        let text = format!("{head}\n[… {omitted} bytes omitted …]\n{tail}");
        OutputText {
            text,
            omitted,
            is_utf8,
        }
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Removes an incomplete character at the end, and returns its length.
fn trim_incomplete_char(bytes: &[u8]) -> (&[u8], usize) {
    let tail = bytes
        .iter()
        .rev()
        .take(3)
        .take_while(|byte| is_continuation(**byte))
        .count();
    let Some(lead) = bytes.len().checked_sub(tail + 1) else {
        return (bytes, 0);
    };
    let needs = match bytes[lead] {
        0b1100_0000..=0b1101_1111 => 1,
        0b1110_0000..=0b1110_1111 => 2,
        0b1111_0000..=0b1111_0111 => 3,
        _ => 0,
    };
    if needs > tail {
        (&bytes[..lead], bytes.len() - lead)
    } else {
        (bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect_output(most: usize, pieces: &[&[u8]]) -> OutputText {
        let mut kept = OutputBuffer::new(most);
        pieces.iter().for_each(|piece| kept.push(piece));
        kept.into_text()
    }

    #[test]
    fn a_short_output_is_returned_in_full() {
        let expected = OutputText {
            text: "hello world".into(),
            omitted: 0,
            is_utf8: true,
        };
        assert_eq!(collect_output(20, &[b"hello ", b"world"]), expected);
    }

    #[test]
    fn a_long_output_keeps_both_ends_and_counts_the_rest() {
        let shown = collect_output(8, &[b"abcd", b"efghij", b"klmnop"]);
        assert_eq!(shown.text, "abcd\n[… 8 bytes omitted …]\nmnop");
        assert_eq!(shown.omitted, 8);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_and_reported() {
        let shown = collect_output(20, &[b"a\xffb"]);
        assert_eq!((shown.text.as_str(), shown.is_utf8), ("a\u{fffd}b", false));
    }

    #[test]
    fn the_last_line_has_no_control_characters() {
        let mut kept = OutputBuffer::new(100);
        kept.push(b"first\n\x1b[31mred\x07 line\n\n");
        assert_eq!(kept.last_line(), "[31mred line");
    }

    proptest! {
        #[test]
        fn text_stays_text_wherever_it_is_cut(text in "\\PC{0,60}", most in 2_usize..40, cut in 1_usize..7) {
            let mut kept = OutputBuffer::new(most);
            text.as_bytes().chunks(cut).for_each(|chunk| kept.push(chunk));
            prop_assert_eq!(kept.total_bytes(), text.len() as u64);
            let shown = kept.into_text();
            prop_assert!(shown.is_utf8, "{:?}", shown.text);
            let marker = format!("\n[… {} bytes omitted …]\n", shown.omitted);
            match shown.omitted {
                0 => prop_assert_eq!(shown.text, text),
                omitted => prop_assert_eq!(shown.text.len() as u64 - marker.len() as u64 + omitted, text.len() as u64),
            }
        }
    }
}
