//! What an index stores of a document: its words, its names, its facts, and how often each word
//! occurs.

use std::{collections::BTreeMap, fmt};

use crate::{SearchDocument, SearchFacet, joined_names, split_words};

/// A document as an index stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexEntry {
    /// The document.
    pub document: SearchDocument,
    /// Its words in order, separated by blanks.
    pub words: String,
    /// Its names in one piece, separated by blanks.
    pub names: String,
    /// Its facts as tokens, separated by blanks.
    pub facets: String,
    /// How often each word and name occurs.
    pub counts: WordCounts,
}

impl IndexEntry {
    /// Creates the entry of a document. The same document always gives the same entry, so that it can
    /// be deleted from an index that does not store the text.
    pub fn new(document: SearchDocument) -> Self {
        let words = split_words(&document.text);
        let names = joined_names(&words);
        let counts = WordCounts::count(
            words.iter().map(|word| word.text.as_str()),
            names.iter().map(String::as_str),
        );
        let facets = SearchFacet::of_document(&document);
        let facets: Vec<&str> = facets.iter().map(SearchFacet::token).collect();
        let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        Self {
            words: words.join(" "),
            names: names.join(" "),
            facets: facets.join(" "),
            counts,
            document,
        }
    }
}

/// How often each word of a document occurs, by hash; enough for ranking without reading the text.
///
/// It holds the bytes of the store as they are: of the hundreds of documents that a search ranks, only
/// a few counts are looked at.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WordCounts {
    /// The number of words in 4 bytes, then a row for each word, sorted.
    bytes: Vec<u8>,
}

/// The bytes of a row: the hash of a word, and how often it occurs.
const COUNT_ROW: usize = 5;

impl WordCounts {
    fn count<'a>(
        words: impl Iterator<Item = &'a str>,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut length = 0_u32;
        let mut counts = BTreeMap::<u32, u8>::new();
        let words = words.inspect(|_| length += 1).map(hash_word);
        let mut add = |hash| {
            let count = counts.entry(hash).or_default();
            *count = count.saturating_add(1);
        };
        words.for_each(&mut add);
        names.map(hash_name).for_each(&mut add);
        let mut bytes = Vec::with_capacity(4 + counts.len() * COUNT_ROW);
        bytes.extend(length.to_le_bytes());
        for (hash, count) in &counts {
            bytes.extend(hash.to_le_bytes());
            bytes.push(*count);
        }
        Self { bytes }
    }

    /// Returns the number of words of the document.
    pub fn length(&self) -> u32 {
        let length = self.bytes.first_chunk::<4>();
        length.map_or(0, |length| u32::from_le_bytes(*length))
    }

    /// Returns how often a word occurs.
    pub fn of_word(&self, word: &str) -> u8 {
        self.find(hash_word(word))
    }

    /// Returns how often a name in one piece occurs.
    pub fn of_name(&self, name: &str) -> u8 {
        self.find(hash_name(name))
    }

    /// Returns the bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// Reads the bytes of a store. Damaged bytes give fewer counts: they only affect the order of
    /// hits.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
        }
    }

    fn find(&self, hash: u32) -> u8 {
        let rows = self.bytes.get(4..).unwrap_or_default();
        let (rows, _) = rows.as_chunks::<COUNT_ROW>();
        let hash_of = |row: &[u8; COUNT_ROW]| u32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        let found = rows.binary_search_by_key(&hash, hash_of);
        found.map_or(0, |at| rows[at][4])
    }
}

impl fmt::Debug for WordCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let different = self.bytes.len().saturating_sub(4) / COUNT_ROW;
        write!(f, "WordCounts({different} of {})", self.length())
    }
}

fn hash_word(word: &str) -> u32 {
    hash_bytes(0x811c_9dc5, word)
}

/// Names have hashes of their own: `getuserid` as a name is not the word `getuserid`.
fn hash_name(name: &str) -> u32 {
    hash_bytes(0x2f0b_4a27, name)
}

/// FNV-1a: it is stored, so it must be the same in every version and process.
fn hash_bytes(start: u32, text: &str) -> u32 {
    text.bytes().fold(start, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_being_stored() {
        let counts = WordCounts::count(["a", "b", "a"].into_iter(), ["ab"].into_iter());
        let read = WordCounts::from_bytes(&counts.to_bytes());
        assert_eq!(read, counts);
        assert_eq!(
            (
                read.length(),
                read.of_word("a"),
                read.of_word("c"),
                read.of_name("ab")
            ),
            (3, 2, 0, 1)
        );
        assert_eq!(read.of_word("ab"), 0, "a name is not a word");
    }

    #[test]
    fn damaged_counts_are_read_as_fewer() {
        for bytes in [&[][..], &[1, 2], &[1, 0, 0, 0, 9, 9]] {
            assert_eq!(WordCounts::from_bytes(bytes).of_word("a"), 0);
        }
    }
}
