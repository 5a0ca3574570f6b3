//! What search has in common on all databases: the expressions, the lists that a search by words
//! needs, and the vectors that a process holds in memory.

use std::{collections::BTreeSet, sync::Arc};

use toolgate_core::{
    MatchTerm, SearchCandidate, SearchDocument, SearchDocumentId, SearchFacet, SearchKind,
    SearchRequirement, SessionId, TermMatches, TextMatches, TextSearch, Timestamp, VectorIndex,
};

/// The number of documents with a term that are looked at for its frequency.
pub(crate) const FREQUENCY_MATCHES: usize = 1_000;

/// A term is very common if more than one in so many documents has it.
const VERY_COMMON_SHARE: u64 = 20;

/// How a database writes the parts of an expression. Words consist of letters and digits only, so
/// that no text of a user can become an operator.
pub(crate) trait ExpressionDialect {
    /// Returns the expression for a term.
    fn write_term(term: &MatchTerm) -> String;

    /// Returns the expression for one of several facts.
    fn write_facets(group: &[SearchFacet]) -> String;

    /// Combines parts that have to match and parts that must not.
    fn combine(wanted: &[String], excluded: &[String]) -> String;
}

/// Returns the expression for documents that have all terms and fulfil a requirement; none if no
/// document can.
pub(crate) fn match_expression<D: ExpressionDialect>(
    terms: &[&MatchTerm],
    required: &SearchRequirement,
) -> Option<String> {
    // A phrase of the query is a term and required; looking for it once is enough.
    let others = terms.iter().filter(|term| !required.phrases.contains(term));
    let mut wanted: Vec<String> = others.map(|term| D::write_term(term)).collect();
    wanted.extend(required.phrases.iter().map(D::write_term));
    for group in &required.facets {
        if group.is_empty() {
            return None;
        }
        wanted.push(D::write_facets(group));
    }
    if wanted.is_empty() {
        wanted.push(D::write_facets(&[SearchFacet::any()]));
    }
    let excluded: Vec<String> = required.excluded.iter().map(D::write_term).collect();
    Some(D::combine(&wanted, &excluded))
}

/// Where a document comes from.
pub(crate) struct DocumentPlace {
    pub(crate) id: SearchDocumentId,
    pub(crate) session: SessionId,
    pub(crate) sequence: u64,
    pub(crate) project: Option<Arc<str>>,
    pub(crate) at: Timestamp,
}

impl DocumentPlace {
    /// Returns a document without a text, in place of one whose event is missing or damaged. It is
    /// embedded like others; otherwise it would be asked for again and again.
    pub(crate) fn empty_document(&self) -> SearchDocument {
        SearchDocument {
            session: self.session,
            sequence: self.sequence,
            kind: SearchKind::Title,
            tool: None,
            status: None,
            agent: None,
            agent_id: None,
            model: None,
            provider: None,
            project: self.project.clone(),
            at: self.at,
            text: String::new(),
        }
    }
}

/// The newest documents that match.
#[derive(Default)]
pub(crate) struct NewestRows {
    pub(crate) ids: Vec<SearchDocumentId>,
    pub(crate) is_truncated: bool,
}

/// What is known about the frequency of a term.
pub(crate) enum TermFrequency {
    /// The number of documents that have it.
    Known(u64),
    /// So many documents have it, beginning with this one; how many there are in all since then has
    /// to be counted.
    Since(SearchDocumentId, usize),
}

impl NewestRows {
    /// Cuts a list of one more than the limit.
    pub(crate) fn cut(mut ids: Vec<SearchDocumentId>, limit: usize) -> Self {
        let is_truncated = ids.len() > limit;
        ids.truncate(limit);
        Self { ids, is_truncated }
    }

    /// Returns what the documents of a term say about its frequency.
    pub(crate) fn frequency(&self) -> TermFrequency {
        match self.ids.last() {
            Some(oldest) if self.is_truncated => TermFrequency::Since(*oldest, self.ids.len()),
            Some(_) | None => TermFrequency::Known(self.ids.len() as u64),
        }
    }
}

/// Checks whether a requirement leaves out documents that have a term: then they do not show how
/// frequent the term is.
pub(crate) fn limits_term(required: &SearchRequirement, term: &MatchTerm) -> bool {
    let SearchRequirement {
        phrases,
        excluded,
        facets,
        after,
        before,
    } = required;
    let is_limited_by = |phrase: &MatchTerm| phrase != term;
    phrases.iter().any(is_limited_by)
        || !excluded.is_empty()
        || !facets.is_empty()
        || after.is_some()
        || before.is_some()
}

/// The numbers of an index.
#[derive(Default)]
pub(crate) struct IndexNumbers {
    pub(crate) documents: u64,
    pub(crate) words: u64,
    pub(crate) is_behind: bool,
}

/// Collects the documents of a search by words.
pub(crate) struct TextCollector<'s> {
    search: &'s TextSearch,
    found: TextMatches,
    ids: BTreeSet<SearchDocumentId>,
    is_every_term_truncated: bool,
}

impl<'s> TextCollector<'s> {
    pub(crate) fn new(search: &'s TextSearch, index: &IndexNumbers) -> Self {
        Self {
            search,
            found: TextMatches {
                documents: index.documents,
                average_length: index.words as f32 / index.documents.max(1) as f32,
                is_behind: index.is_behind,
                ..TextMatches::default()
            },
            ids: BTreeSet::new(),
            is_every_term_truncated: true,
        }
    }

    /// Adds the newest documents of the next term.
    pub(crate) fn add_term(&mut self, list: NewestRows, frequency: u64) {
        self.ids.extend(&list.ids);
        self.is_every_term_truncated &= list.is_truncated;
        self.found.terms.push(TermMatches {
            ids: list.ids,
            frequency,
        });
    }

    /// Returns terms if the newest documents that have all of them have to be listed, too: they may be
    /// older than the newest ones of each.
    ///
    /// A term with few documents makes that unnecessary, since all of its documents are there already.
    /// Very common terms are left out beside others: their long lists would be read to the end, and
    /// leave out few documents.
    pub(crate) fn missing_terms(&mut self) -> Option<Vec<&'s MatchTerm>> {
        self.found.is_truncated = self.is_every_term_truncated;
        let documents = self.found.documents;
        let lists = self.search.terms.iter().zip(&self.found.terms);
        let telling = lists.filter(|(_, list)| list.frequency <= documents / VERY_COMMON_SHARE);
        let mut terms: Vec<&MatchTerm> = telling.map(|(term, _)| &**term).collect();
        if terms.is_empty() {
            terms = self.search.terms.iter().map(|term| &**term).collect();
        }
        // The documents of a single term are listed.
        (self.is_every_term_truncated && terms.len() != 1).then_some(terms)
    }

    /// Adds the newest documents that have all terms.
    pub(crate) fn add_all_terms(&mut self, list: NewestRows) {
        self.ids.extend(list.ids);
        self.found.is_truncated = list.is_truncated;
    }

    /// Returns the documents to rank, the oldest first.
    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = SearchDocumentId> + '_ {
        self.ids.iter().copied()
    }

    pub(crate) fn finish(self, candidates: Vec<SearchCandidate>) -> TextMatches {
        TextMatches {
            candidates,
            ..self.found
        }
    }
}

/// The vectors of one embedder in memory.
pub(crate) struct CachedVectors {
    pub(crate) embedder: i64,
    dimensions: usize,
    /// Counts erasures: after one, everything is loaded again.
    erasures: i64,
    /// The number of the last vector that is loaded.
    pub(crate) last: i64,
    pub(crate) index: VectorIndex,
}

/// The vectors of a database.
#[derive(Default)]
pub(crate) struct StoredVectors {
    /// The number of erasures so far.
    pub(crate) erasures: i64,
    /// The number of the newest vector.
    pub(crate) newest: i64,
}

impl CachedVectors {
    /// Keeps what is in memory if it is of this embedder and nothing was erased since.
    pub(crate) fn keep(
        cached: Option<Self>,
        embedder: i64,
        dimensions: usize,
        stored: &StoredVectors,
    ) -> Self {
        let is_current = |cached: &Self| {
            cached.embedder == embedder
                && cached.dimensions == dimensions
                && cached.erasures == stored.erasures
        };
        let expected = usize::try_from(stored.newest).unwrap_or(usize::MAX);
        cached.filter(is_current).unwrap_or_else(|| Self {
            embedder,
            dimensions,
            erasures: stored.erasures,
            last: 0,
            index: VectorIndex::new(dimensions, expected),
        })
    }

    /// Returns the table and column that new vectors are loaded from: signs are enough for many.
    pub(crate) fn source(&self) -> VectorSource {
        if self.index.is_coarse() {
            VectorSource::Signs
        } else {
            VectorSource::Vectors
        }
    }

    /// Adds a vector that was loaded.
    pub(crate) fn add(
        &mut self,
        source: VectorSource,
        number: i64,
        document: SearchDocumentId,
        bytes: &[u8],
    ) {
        match source {
            VectorSource::Signs => self.index.add_signs(document, bytes),
            VectorSource::Vectors => self.index.add_vector(document, bytes),
        }
        self.last = number;
    }
}

/// Where vectors are loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VectorSource {
    Signs,
    Vectors,
}

#[cfg(test)]
mod tests {
    use toolgate_core::SearchQuery;

    use super::*;

    /// Returns the words whose common documents are listed, given the frequency of each word and
    /// whether its list is cut.
    fn listed(terms: &[(&str, u64, bool)]) -> Option<Vec<String>> {
        let texts: Vec<&str> = terms.iter().map(|(text, ..)| *text).collect();
        let search = TextSearch {
            terms: SearchQuery::parse(&texts.join(" ")).terms,
            required: SearchRequirement::default(),
            most_per_term: 10,
        };
        let numbers = IndexNumbers {
            documents: 1_000,
            ..IndexNumbers::default()
        };
        let mut collector = TextCollector::new(&search, &numbers);
        for (_, frequency, is_truncated) in terms {
            let list = NewestRows {
                ids: Vec::new(),
                is_truncated: *is_truncated,
            };
            collector.add_term(list, *frequency);
        }
        let missing = collector.missing_terms()?;
        Some(missing.iter().map(|term| term.words.join(" ")).collect())
    }

    #[test]
    fn documents_with_all_words_are_listed_only_if_every_list_is_cut() {
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let cases = [
            (
                &[("gnu", 40, true), ("otter", 30, true)][..],
                words(&["gnu", "otter"]),
            ),
            (&[("gnu", 40, true), ("otter", 3, false)], None),
            (&[("gnu", 40, true)], None),
            (&[], words(&[])),
        ];
        for (terms, wanted) in cases {
            assert_eq!(listed(terms), wanted, "{terms:?}");
        }
    }

    #[test]
    fn very_common_words_do_not_narrow_the_list_of_documents_with_all_words() {
        let the = ("the", 900, true);
        let of = ("of", 800, true);
        let gnu = ("gnu", 40, true);
        let otter = ("otter", 30, true);
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(listed(&[the, gnu, otter]), words(&["gnu", "otter"]));
        assert_eq!(listed(&[the, of]), words(&["the", "of"]));
        // The documents of the only other word are listed already.
        assert_eq!(listed(&[the, gnu]), None);
    }
}
