//! Static embedding models: a false file is rejected, a text becomes words, and a vector has the length 1 or 0.
//!
//! An input is three parts between bytes 0x1C: the vocabulary, the bytes that scales and vectors are made from, and a
//! text. The checksum is always true, since no mutation would ever reach the rest otherwise.

use toolgate_models::__fuzz::{embed_with, embedded_words};

use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new("embeddings", run, WORDS);

const WORDS: &[&str] = &[
    "\u{1c}",
    "\n",
    "##",
    "un",
    "##happy",
    "camelCase",
    "HTTPServer",
    "snake_case",
    "é",
    "e\u{301}",
    "İ",
    "東京",
    "🎉",
    "\0",
    "\u{10ffff}",
];

/// The largest text whose words are compared: beyond the limit of the tokenizer, the end is not read.
const MAX_COMPARED: usize = 16 * 1024;

fn run(data: &[u8]) -> InputTrace {
    let mut parts = data.splitn(3, |byte| *byte == 0x1c);
    let vocabulary = parts.next().unwrap_or_default();
    let numbers = parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let words = check_words(&text);
    match embed(vocabulary, numbers, &text) {
        Err(problem) => InputTrace::of_message(&problem),
        Ok(length) => {
            assert!(
                length == 0.0 || (length - 1.0).abs() < 1e-3,
                "a vector of length {length}"
            );
            InputTrace::of((words.min(8), length > 0.0))
        }
    }
}

/// Embeds a text with a model of a few tokens. Odd numbers of bytes make headers that are not true.
fn embed(vocabulary: &[u8], numbers: &[u8], text: &str) -> Result<f32, String> {
    let count = |bytes: usize| u32::try_from(bytes).expect("inputs are small");
    let tokens = vocabulary.split(|byte| *byte == b'\n').count() - 1;
    let dimensions = 1 + numbers.first().map_or(0, |byte| usize::from(byte % 5));
    let mut body = vocabulary.to_vec();
    let mut cycle = numbers.iter().copied().cycle();
    for _ in 0..tokens {
        let scale = f32::from(cycle.next().unwrap_or(16)) / 16.0;
        body.extend(scale.to_le_bytes());
    }
    body.extend((0..tokens * dimensions).map(|_| cycle.next().unwrap_or(1)));
    if numbers.len() % 7 == 3 {
        body.extend_from_slice(numbers);
    }
    let header = [count(dimensions), count(tokens), count(vocabulary.len())];
    embed_with(header, &body, text)
}

/// Checks the words of a text, and returns their number.
fn check_words(text: &str) -> usize {
    let words = embedded_words(text);
    for word in &words {
        assert!(!word.is_empty(), "an empty word");
        assert!(
            !word
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || c.is_ascii_punctuation()),
            "{word:?} has a separator"
        );
    }
    let middle = text.floor_char_boundary(text.len() / 2);
    if text.len() <= MAX_COMPARED {
        let (first, second) = text.split_at(middle);
        let mut apart = embedded_words(first);
        apart.extend(embedded_words(second));
        let together = embedded_words(&format!("{first} {second}"));
        assert_eq!(apart, together, "words depend on the text beside them");
    }
    words.len()
}
