//! A generated corpus: messages, calls and results whose words are as unevenly frequent as those of real texts.
//!
//! The most frequent words are those of the evaluation set, in their order; the rest are made of syllables. Word number r
//! is drawn with a probability of about 1 / (r + 2.7)^1.07 (Zipf and Mandelbrot), so a few words are everywhere and most
//! words are rare. The same seed makes the same corpus.

use std::{collections::HashMap, time::Duration};

use toolgate::value::{Clock, SystemClock, Timestamp};

use super::{
    Fallible, evaluation,
    log::{LogLine, SessionLog},
};
use toolgate::store::StoreHandle;

/// The least number of messages: each rare word needs its places.
pub(super) const LEAST_MESSAGES: usize = 2_000;
/// The number of words that are each in a few messages only.
pub(super) const RARE_WORDS: usize = 200;
/// The number of messages that a rare word is in.
const RARE_PLACES: usize = 3;
/// The number of different words.
const VOCABULARY: usize = 200_000;
const MESSAGES_PER_SESSION: usize = 500;
const SEED: u64 = 20_261_118;
const TOOLS: [&str; 8] = [
    "shell",
    "read_file",
    "write_file",
    "apply_patch",
    "search_text",
    "sql_query",
    "fetch",
    "list_dir",
];
const MODELS: [&str; 2] = ["claude-sonnet-4-5", "gpt-5"];

/// The source of all messages.
#[derive(Clone)]
pub(super) struct GeneratedCorpus {
    words: Vec<String>,
    /// The probability of a word or one before it.
    cumulative: Vec<f64>,
    random: fastrand::Rng,
    messages: usize,
    made: usize,
    /// Pairs of words that stand side by side in a message.
    phrases: Vec<String>,
}

impl GeneratedCorpus {
    pub(super) fn new(messages: usize) -> Fallible<Self> {
        let mut words = evaluation_words()?;
        let mut random = fastrand::Rng::with_seed(SEED);
        while words.len() < VOCABULARY {
            words.push(made_up_word(words.len(), &mut random));
        }
        let mut sum = 0.0;
        let mut cumulative = Vec::with_capacity(words.len());
        for rank in 0..words.len() {
            sum += (rank as f64 + 2.7).powf(-1.07);
            cumulative.push(sum);
        }
        cumulative.iter_mut().for_each(|value| *value /= sum);
        Ok(Self {
            words,
            cumulative,
            random,
            messages,
            made: 0,
            phrases: Vec::new(),
        })
    }

    /// Returns the word of a rank, from 0.
    pub(super) fn word(&self, rank: usize) -> &str {
        &self.words[rank]
    }

    /// Returns pairs of words that stand side by side in some message.
    pub(super) fn phrases(&self) -> &[String] {
        &self.phrases
    }

    /// Writes all messages to a store, in sessions over the last year.
    pub(super) async fn write(&mut self, store: &StoreHandle) -> Fallible<()> {
        let sessions = self.messages.div_ceil(MESSAGES_PER_SESSION);
        let year = Duration::from_secs(365 * 86_400).as_micros() as i64;
        let begin = SystemClock::new().now().as_micros() - year;
        for session in 0..sessions {
            let first = begin + year / sessions as i64 * session as i64;
            let model = MODELS[session % MODELS.len()];
            let mut log = SessionLog::new(session as u64, Timestamp::from_micros(first), model);
            while self.made < self.messages.min((session + 1) * MESSAGES_PER_SESSION) {
                let line = self.next_line();
                log.push(store, &line).await?;
            }
            log.flush(store).await?;
            if session % 100 == 99 {
                eprintln!("  {} of {} messages are written", self.made, self.messages);
            }
        }
        Ok(())
    }

    /// Makes all messages and shows each to `visit`, for a database that has them or another one.
    pub(super) fn visit_all(
        &mut self,
        mut visit: impl FnMut(&LogLine) -> Fallible<()>,
    ) -> Fallible<()> {
        while self.made < self.messages {
            let line = self.next_line();
            visit(&line)?;
        }
        Ok(())
    }

    fn next_line(&mut self) -> LogLine {
        let number = self.made;
        self.made += 1;
        let tool = TOOLS[self.random.usize(..TOOLS.len())].to_owned();
        match self.random.u32(..20) {
            0..3 => LogLine::User {
                text: self.text(4, 24, number),
            },
            3..8 => LogLine::Assistant {
                text: self.text(8, 72, number),
            },
            8..14 => {
                let text = self.text(3, 15, number);
                LogLine::Call {
                    tool,
                    arguments: serde_json::json!({ "input": text }).to_string(),
                }
            }
            14..19 => LogLine::Succeeded {
                tool,
                text: self.text(5, 75, number),
            },
            _ => LogLine::Failed {
                tool,
                text: self.text(4, 30, number),
            },
        }
    }

    fn text(&mut self, least: usize, most: usize, number: usize) -> String {
        let count = self.random.usize(least..=most);
        let mut text = String::with_capacity(count * 7);
        for place in 0..count {
            let rank = self.draw();
            if place > 0 {
                text.push(' ');
            }
            text.push_str(&self.words[rank]);
        }
        // Every so often the first two words are remembered as a phrase.
        if number.is_multiple_of(1_009) {
            let pair: Vec<&str> = text.split(' ').take(2).collect();
            self.phrases.push(pair.join(" "));
        }
        if let Some(rare) = self.rare_word_at(number) {
            text.push(' ');
            text.push_str(&rare);
        }
        text
    }

    /// Draws the rank of a word.
    fn draw(&mut self) -> usize {
        let drawn = self.random.f64();
        let rank = self.cumulative.partition_point(|value| *value < drawn);
        rank.min(self.words.len() - 1)
    }

    /// Returns the rare word that a message has to contain. Their places are evenly spread.
    fn rare_word_at(&self, number: usize) -> Option<String> {
        let step = self.messages / (RARE_WORDS * RARE_PLACES);
        let place = number.checked_div(step)?;
        let is_place = number.is_multiple_of(step) && place < RARE_WORDS * RARE_PLACES;
        is_place.then(|| rare_word(place % RARE_WORDS))
    }
}

/// Returns one of the rare words.
pub(super) fn rare_word(number: usize) -> String {
    let letters = |n: usize| char::from(b'a' + (n % 26) as u8);
    format!("zyx{}{}qov", letters(number), letters(number / 26))
}

/// Returns the words of the evaluation set, the most frequent first.
fn evaluation_words() -> Fallible<Vec<String>> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for session in evaluation::sessions()? {
        for line in session.lines {
            let text = line.text().to_lowercase();
            for word in text.split(|character: char| !character.is_ascii_alphabetic()) {
                if word.len() > 1 {
                    *counts.entry(word.to_owned()).or_default() += 1;
                }
            }
        }
    }
    let mut words: Vec<(String, usize)> = counts.into_iter().collect();
    words.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(words.into_iter().map(|(word, _)| word).collect())
}

/// Returns a word of syllables that no other rank has.
fn made_up_word(rank: usize, random: &mut fastrand::Rng) -> String {
    const ONSETS: [&str; 16] = [
        "b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "ch",
    ];
    const VOWELS: [&str; 6] = ["a", "e", "i", "o", "u", "ou"];
    let mut word = String::new();
    let mut left = rank;
    // The digits of the rank in syllables, so that no word is there twice, and one for variety.
    while left > 0 {
        word.push_str(ONSETS[left % ONSETS.len()]);
        left /= ONSETS.len();
        word.push_str(VOWELS[left % VOWELS.len()]);
        left /= VOWELS.len();
    }
    word.push_str(["", "n", "ng", "s"][random.usize(..4)]);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_corpus_and_each_rare_word_is_in_three_messages() {
        let lines = || {
            let mut corpus = GeneratedCorpus::new(LEAST_MESSAGES).expect("a corpus");
            let lines: Vec<String> = (0..LEAST_MESSAGES)
                .map(|_| corpus.next_line().text())
                .collect();
            lines
        };
        let first = lines();
        assert_eq!(first, lines());
        for number in [0, 1, RARE_WORDS - 1] {
            let word = rare_word(number);
            let found = first.iter().filter(|text| text.contains(&word)).count();
            assert_eq!(found, RARE_PLACES, "{word}");
        }
        let common = GeneratedCorpus::new(LEAST_MESSAGES).expect("a corpus");
        let common = common.word(0);
        let with = first.iter().filter(|text| text.contains(common)).count();
        assert!(with > LEAST_MESSAGES / 4, "{common} is in {with}");
    }
}
