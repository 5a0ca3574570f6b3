//! Removes the middle of a text without breaking characters or terminal escape sequences.

use std::ops::Range;

/// Maximum length of a recognised escape sequence; a longer one is cut like any text.
const MAX_ESCAPE_BYTES: usize = 4096;

/// Returns the range to remove so that at most `kept` bytes remain, about the share `head` of them
/// at the beginning.
///
/// The text has to be longer than `kept`.
pub(crate) fn middle_range(text: &str, kept: usize, head: f64) -> Range<usize> {
    let at_head = (kept as f64 * head) as usize;
    let start = head_end(text, at_head.min(kept));
    let end = tail_start(text, text.len() - (kept - at_head.min(kept)));
    start..end.max(start)
}

/// Returns the last position up to `most` that breaks neither a character nor an escape sequence.
fn head_end(text: &str, most: usize) -> usize {
    let mut end = text.floor_char_boundary(most);
    let bytes = text.as_bytes();
    // A cut between the two bytes that end a sequence leaves a lone escape; the sequence itself
    // begins before it.
    while let Some(escape) = last_escape(bytes, end) {
        if escape_length(&bytes[escape..end]).is_some() {
            break;
        }
        end = escape;
    }
    end
}

/// Returns the first position from `least` on that breaks neither a character nor an escape
/// sequence.
fn tail_start(text: &str, least: usize) -> usize {
    let start = text.ceil_char_boundary(least);
    let bytes = text.as_bytes();
    let Some(escape) = last_escape(bytes, start) else {
        return start;
    };
    match escape_length(&bytes[escape..]) {
        Some(length) => start.max(escape + length),
        None => start,
    }
}

fn last_escape(bytes: &[u8], before: usize) -> Option<usize> {
    let from = before.saturating_sub(MAX_ESCAPE_BYTES);
    bytes[from..before]
        .iter()
        .rposition(|byte| *byte == 0x1b)
        .map(|at| from + at)
}

/// Returns the length of the escape sequence that `bytes` begins with, unless it is incomplete.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(MAX_ESCAPE_BYTES)];
    match bytes.get(1)? {
        // Control sequence: parameters, then one byte that ends it.
        b'[' => {
            let end = bytes
                .iter()
                .skip(2)
                .position(|byte| !(0x20..=0x3f).contains(byte))?
                + 2;
            Some(if (0x40..=0x7e).contains(&bytes[end]) {
                end + 1
            } else {
                end
            })
        }
        // Strings such as titles and links: up to a bell or `ESC \`.
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let end = bytes
                .iter()
                .skip(2)
                .position(|byte| matches!(byte, 0x07 | 0x1b))?
                + 2;
            match (bytes[end], bytes.get(end + 1)) {
                (0x07, _) => Some(end + 1),
                (_, Some(b'\\')) => Some(end + 2),
                (_, Some(_)) => Some(end),
                (_, None) => None,
            }
        }
        // Character sets: one byte more.
        0x20..=0x2f => bytes.get(2).map(|byte| if byte.is_ascii() { 3 } else { 2 }),
        0x30..=0x7e => Some(2),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_head_gets_its_share() {
        assert_eq!(middle_range(&"x".repeat(100), 10, 0.7), 7..97);
        assert_eq!(middle_range(&"x".repeat(100), 10, 0.0), 0..90);
        assert_eq!(middle_range(&"x".repeat(100), 10, 1.0), 10..100);
    }

    #[test]
    fn a_cut_never_falls_into_an_escape_sequence() {
        let sequences = [
            "\u{1b}[1;31m",
            "\u{1b}[?25l",
            "\u{1b}]8;;https://x.y/z\u{1b}\\",
            "\u{1b}]0;title\u{7}",
            "\u{1b}(B",
            "\u{1b}M",
        ];
        for sequence in sequences {
            let text = format!("aaaa{sequence}bbbb");
            for at in 4..=4 + sequence.len() {
                let head = head_end(&text, at);
                let tail = tail_start(&text, at);
                let whole = at == 4 + sequence.len();
                assert_eq!(head, if whole { at } else { 4 }, "{sequence:?} {at}");
                assert_eq!(
                    tail,
                    if at == 4 { 4 } else { 4 + sequence.len() },
                    "{sequence:?} {at}"
                );
            }
        }
    }

    #[test]
    fn an_endless_sequence_costs_a_bounded_part_of_the_text() {
        let text = "\u{1b}]".to_owned() + &"x".repeat(100_000);
        assert_eq!(head_end(&text, 50_000), 50_000);
        assert_eq!(tail_start(&text, 1000), 1000);
        assert_eq!(
            tail_start(&("\u{1b}[".to_owned() + &"1".repeat(100_000)), 1000),
            1000
        );
        let escapes = "\u{1b}".repeat(10_000);
        assert!(head_end(&escapes, 9000) <= 9000);
    }

    proptest! {
        #[test]
        fn the_rest_is_never_longer_than_the_limit(
            text in "(\u{1b}|\\[|\\]|m|;|\u{7}|\\\\|é|漢|🦀|[ -~]){1,80}", kept in 0_usize..80, head in 0.0..=1.0,
        ) {
            prop_assume!(text.len() > kept);
            let gap = middle_range(&text, kept, head);
            prop_assert!(text[..gap.start].len() + text[gap.end..].len() <= kept);
        }
    }
}
