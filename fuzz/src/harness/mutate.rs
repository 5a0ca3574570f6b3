//! Makes inputs from others: flips, cuts, splices, repeats, and words that the target knows.

use fastrand::Rng;

/// A source of inputs. The same seed and the same choices give the same inputs.
pub(super) struct Mutator {
    rng: Rng,
    words: &'static [&'static str],
    max_bytes: usize,
}

/// Bytes and numbers at which parsers change their minds.
const EDGE_TEXTS: [&str; 20] = [
    "0",
    "-1",
    "1e309",
    "9007199254740993",
    "18446744073709551616",
    "4294967296",
    "\0",
    "\r\n",
    "\u{feff}",
    "\u{200b}",
    "\u{202e}",
    "\u{ff0e}",
    "é",
    "\u{1f600}",
    "%2e",
    "../",
    "\\",
    "\"",
    "'",
    "\t",
];

impl Mutator {
    pub(super) fn new(seed: u64, words: &'static [&'static str], max_bytes: usize) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            words,
            max_bytes,
        }
    }

    /// Chooses one of `length` things, the later ones more often: they are the newer finds.
    pub(super) fn choose_recent(&mut self, length: usize) -> usize {
        self.rng.usize(..length).max(self.rng.usize(..length))
    }

    /// Returns a new input made from `base` and parts of `other`.
    pub(super) fn make_input(&mut self, base: &[u8], other: &[u8]) -> Vec<u8> {
        let mut input = if self.rng.u8(..) < 24 {
            self.write_words()
        } else {
            base.to_vec()
        };
        // Most often one change: many at once rarely leave anything that parses.
        let changes = 1 + (self.rng.u32(..) | 1 << 6).trailing_zeros();
        for _ in 0..changes {
            self.change(&mut input, other);
        }
        input.truncate(self.max_bytes);
        input
    }

    /// Returns a text of some words of the target.
    fn write_words(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..self.rng.usize(1..16) {
            text.extend_from_slice(self.choose_word().as_bytes());
            match self.rng.u8(..8) {
                0 => text.push(b' '),
                1 => text.push(b'\n'),
                _ => {}
            }
        }
        text
    }

    fn choose_word(&mut self) -> &'static str {
        let all = self.words.len() + EDGE_TEXTS.len();
        let at = self.rng.usize(..all);
        self.words
            .get(at)
            .copied()
            .unwrap_or_else(|| EDGE_TEXTS[at - self.words.len()])
    }

    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.rng.usize(..=input.len());
        let range = at..(at + self.rng.usize(..32)).min(input.len());
        match self.rng.u8(..12) {
            0 if at < input.len() => input[at] ^= 1 << self.rng.u8(..8),
            1 if at < input.len() => input[at] = self.rng.u8(..),
            2 | 3 => insert(input, at, self.choose_word().as_bytes()),
            4 => drop(input.splice(range, self.choose_word().bytes())),
            5 => drop(input.drain(range)),
            6 => input.truncate(at),
            7 => {
                let part = self.cut(other).to_vec();
                insert(input, at, &part);
            }
            8 => {
                let part = self.cut(other).to_vec();
                drop(input.splice(range, part));
            }
            9 => {
                let part = input[range].to_vec();
                insert(input, at, &part);
            }
            10 => self.repeat(input, range),
            _ => insert(input, at, &[self.rng.u8(0x20..0x7f)]),
        }
    }

    /// Repeats a part until the input is long, rarely: what grows faster than its input shows then.
    fn repeat(&mut self, input: &mut Vec<u8>, range: std::ops::Range<usize>) {
        let times = if self.rng.u8(..) < 8 { 4096 } else { 4 };
        let at = range.end;
        let part = input[range].to_vec();
        let room = self.max_bytes.saturating_sub(input.len()) / part.len().max(1);
        insert(input, at, &part.repeat(times.min(room)));
    }

    fn cut<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let from = self.rng.usize(..=text.len());
        &text[from..(from + self.rng.usize(..64)).min(text.len())]
    }
}

fn insert(input: &mut Vec<u8>, at: usize, part: &[u8]) {
    drop(input.splice(at..at, part.iter().copied()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(seed: u64) -> Vec<Vec<u8>> {
        let mut mutator = Mutator::new(seed, &["word"], 100);
        (0..500)
            .map(|_| mutator.make_input(b"one base", b"another"))
            .collect()
    }

    #[test]
    fn a_seed_gives_the_same_inputs_again_and_another_seed_gives_others() {
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }

    #[test]
    fn inputs_are_within_the_limit_and_vary() {
        let inputs = inputs(1);
        assert!(inputs.iter().all(|input| input.len() <= 100));
        let different: std::collections::BTreeSet<_> = inputs.iter().collect();
        assert!(different.len() > 300, "{}", different.len());
    }
}
