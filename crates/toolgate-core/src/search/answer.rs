//! Requests and answers of search, and the cursor between two pages.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{
    Digest, RankedDocument, SearchDocumentId, SearchFilter, SearchKind, SearchQuery, SearchSnippet,
    SessionId, Status, StoreError, Timestamp, ToolName, search::rank::RANK_DEPTH,
};

/// The maximum number of hits of one page.
const MAX_LIMIT: usize = 100;

/// A search.
///
/// ```
/// use toolgate_core::{SearchMode, SearchRequest};
/// let request = SearchRequest::new("deploy tool:shell").mode(SearchMode::Text).limit(5);
/// assert_eq!(request.query.filter.tools, ["shell"]);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SearchRequest {
    /// The query.
    pub query: SearchQuery,
    /// The way to search.
    pub mode: SearchMode,
    /// Filters beside those in the query.
    pub filter: SearchFilter,
    /// The maximum number of hits; at most 100.
    pub limit: usize,
    /// The end of the page before this one.
    pub cursor: Option<SearchCursor>,
    /// The digest of the text, by which a cursor knows its search.
    text: Digest,
}

impl SearchRequest {
    /// Creates a hybrid search for the ten best hits.
    pub fn new(text: &str) -> Self {
        Self {
            query: SearchQuery::parse(text),
            mode: SearchMode::Hybrid,
            filter: SearchFilter::default(),
            limit: 10,
            cursor: None,
            text: Digest::of_bytes(text.as_bytes()),
        }
    }

    /// Chooses the way to search.
    #[must_use]
    pub fn mode(mut self, mode: SearchMode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds filters beside those in the query.
    #[must_use]
    pub fn filter(mut self, filter: SearchFilter) -> Self {
        self.filter.merge(&filter);
        self
    }

    /// Limits the number of hits; at least 1 and at most 100.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.clamp(1, MAX_LIMIT);
        self
    }

    /// Continues after the page that returned the cursor.
    #[must_use]
    pub fn after_cursor(mut self, cursor: SearchCursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Returns the number by which a cursor knows its search.
    pub(crate) fn fingerprint(&self) -> u64 {
        let told = format!(
            "{:?} {:?} {:?}",
            self.text.as_bytes(),
            self.mode,
            self.filter
        );
        let digest = Digest::of_bytes(told.as_bytes());
        let first = digest
            .as_bytes()
            .first_chunk::<8>()
            .expect("a digest has 32 bytes");
        u64::from_le_bytes(*first)
    }
}

/// The way to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// By words.
    Text,
    /// By meaning.
    Semantic,
    /// Both, combined by reciprocal rank fusion.
    #[default]
    Hybrid,
}

impl SearchMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Text, Self::Semantic, Self::Hybrid];

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Semantic => "semantic",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for SearchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A page of hits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SearchAnswer {
    /// The hits, best first.
    pub hits: Vec<SearchHit>,
    /// The way that was searched, if it is another one than was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched: Option<SearchMode>,
    /// The place where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<SearchCursor>,
    /// What the user can do to find more.
    pub hints: Vec<String>,
    /// What limits this answer: an index that is behind, or a very common word.
    pub notices: Vec<String>,
}

/// A document that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SearchHit {
    /// The session.
    pub session: SessionId,
    /// The number of the event; 0 for the title of the session.
    pub sequence: u64,
    /// The kind of document.
    pub kind: SearchKind,
    /// The tool of a call or result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// The status of a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The directory that the session works in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<Arc<str>>,
    /// The time of the event.
    pub at: Timestamp,
    /// The score, at most 1; comparable with the other hits of this search.
    pub score: f32,
    /// The part of the text around the matches.
    pub snippet: SearchSnippet,
}

/// The hits of a search that were not returned yet, in their order.
///
/// It holds their ids, so that pages of one search have every hit once, whatever is written
/// meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchCursor {
    fingerprint: u64,
    /// The ids, with the score in steps of 1/65535.
    rest: Vec<(SearchDocumentId, u16)>,
}

impl SearchCursor {
    pub(crate) fn new(fingerprint: u64, rest: &[RankedDocument]) -> Option<Self> {
        let step = |score: f32| (score.clamp(0.0, 1.0) * 65_535.0).round() as u16;
        let rest: Vec<_> = rest.iter().map(|hit| (hit.id, step(hit.score))).collect();
        (!rest.is_empty()).then_some(Self { fingerprint, rest })
    }

    /// Returns the hits, if the cursor belongs to this search.
    pub(crate) fn hits_of(&self, fingerprint: u64) -> Option<Vec<RankedDocument>> {
        let hit = |(id, score): &(SearchDocumentId, u16)| RankedDocument {
            id: *id,
            score: f32::from(*score) / 65_535.0,
        };
        (self.fingerprint == fingerprint).then(|| self.rest.iter().map(hit).collect())
    }
}

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.fingerprint.to_le_bytes().to_vec();
        let mut last = 0;
        for (id, score) in &self.rest {
            // Differences to the one before, with the sign in the lowest bit, in groups of 7 bits.
            let difference = id.get().wrapping_sub(last);
            let mut number = (difference.cast_unsigned() << 1) ^ (difference >> 63).cast_unsigned();
            while number >= 0x80 {
                bytes.push((number as u8 & 0x7f) | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes.extend(score.to_le_bytes());
            last = id.get();
        }
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The error for a text that is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a cursor of a search")]
pub struct InvalidSearchCursor;

impl FromStr for SearchCursor {
    type Err = InvalidSearchCursor;

    fn from_str(text: &str) -> Result<Self, InvalidSearchCursor> {
        let longest = (8 + RANK_DEPTH * 12) * 2;
        if text.len() > longest {
            return Err(InvalidSearchCursor);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| InvalidSearchCursor)?;
        let (fingerprint, mut rest) = bytes.split_first_chunk::<8>().ok_or(InvalidSearchCursor)?;
        let mut hits = Vec::new();
        let mut last = 0_i64;
        while !rest.is_empty() {
            let number = take_number(&mut rest).ok_or(InvalidSearchCursor)?;
            let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
            last = last.wrapping_add(difference);
            let (score, after) = rest.split_first_chunk::<2>().ok_or(InvalidSearchCursor)?;
            hits.push((SearchDocumentId::new(last), u16::from_le_bytes(*score)));
            rest = after;
        }
        if hits.is_empty() || hits.len() > RANK_DEPTH {
            return Err(InvalidSearchCursor);
        }
        Ok(Self {
            fingerprint: u64::from_le_bytes(*fingerprint),
            rest: hits,
        })
    }
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

crate::value::text::serde_as_text!(SearchCursor);

/// The reason why a search has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The cursor belongs to another search.
    #[error("the cursor belongs to another search")]
    OtherSearch,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The texts could not be embedded.
    #[error(transparent)]
    Embed(#[from] crate::EmbedError),
}

impl SearchError {
    /// Returns what the user can do, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OtherSearch => {
                Some("repeat the query, the mode and the filters of the first page")
            }
            Self::Embed(_) => {
                Some("use the mode text, or check the section [search] of the configuration")
            }
            Self::Store(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_survives_being_written(ids in prop::collection::vec((any::<i64>(), 0.0_f32..1.0), 1..200), fingerprint in any::<u64>()) {
            let hits: Vec<_> = ids.iter().map(|(id, score)| RankedDocument { id: SearchDocumentId::new(*id), score: *score }).collect();
            let cursor = SearchCursor::new(fingerprint, &hits).expect("there are hits");
            prop_assert_eq!(cursor.to_string().parse::<SearchCursor>(), Ok(cursor));
        }

        #[test]
        fn any_text_as_a_cursor_is_an_error_or_a_cursor(text in "[A-Za-z0-9_-]{0,80}") {
            if let Ok(cursor) = text.parse::<SearchCursor>() {
                prop_assert_eq!(cursor.to_string().parse::<SearchCursor>(), Ok(cursor));
            }
        }
    }

    #[test]
    fn a_cursor_belongs_to_one_search() {
        let hits = [RankedDocument {
            id: SearchDocumentId::new(1),
            score: 0.5,
        }];
        let request = SearchRequest::new("a b");
        let cursor = SearchCursor::new(request.fingerprint(), &hits).expect("there is a hit");
        assert!(cursor.hits_of(request.fingerprint()).is_some());
        assert!(
            cursor
                .hits_of(SearchRequest::new("a c").fingerprint())
                .is_none()
        );
        assert!(
            cursor
                .hits_of(request.mode(SearchMode::Text).fingerprint())
                .is_none()
        );
    }
}
