//! What a query asks of a document: words, phrases, prefixes and facts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    AgentId, Digest, SearchDocument, SearchDocumentId, SearchKind, SearchWord, SessionId,
    Timestamp, search::words::join_name,
};

/// Words in a row, such as a single word, the parts of a name, or a phrase.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatchTerm {
    /// The words, folded; never empty.
    pub words: Vec<String>,
    /// True if the last word is the beginning of a word.
    pub is_prefix: bool,
    /// The words in one piece, if they can be a name that is written differently.
    pub joined: Option<String>,
}

impl MatchTerm {
    /// Creates a term from the words of a text, if it has any.
    pub fn from_words(words: &[SearchWord], is_prefix: bool) -> Option<Self> {
        let is_one_name = words.first()?.name == words.last()?.name;
        let joined = match words {
            [only] => Some(only.text.clone()),
            _ if is_one_name => join_name(words),
            _ => None,
        };
        Some(Self {
            words: words.iter().map(|word| word.text.clone()).collect(),
            is_prefix,
            joined,
        })
    }

    /// Checks whether the words of a document contain the term.
    pub fn matches(&self, words: &[&str], names: &[&str]) -> bool {
        let is_joined = |name: &&str| match &self.joined {
            Some(joined) if self.is_prefix => name.starts_with(joined.as_str()),
            Some(joined) => *name == joined.as_str(),
            None => false,
        };
        let mut rows = words.windows(self.words.len());
        rows.any(|row| self.matches_row(row)) || names.iter().any(is_joined)
    }

    fn matches_row(&self, row: &[&str]) -> bool {
        let last = self.words.len() - 1;
        row.iter()
            .zip(&self.words)
            .enumerate()
            .all(|(at, (found, wanted))| {
                if at == last && self.is_prefix {
                    found.starts_with(wanted.as_str())
                } else {
                    *found == wanted.as_str()
                }
            })
    }
}

/// A fact about a document that a query can ask for, as a token of the index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SearchFacet {
    token: String,
    is_prefix: bool,
}

impl SearchFacet {
    /// Returns the fact that every document has.
    pub fn any() -> Self {
        Self::exact("d".into())
    }

    /// Returns the fact that a document is of a kind.
    pub fn kind(kind: SearchKind) -> Self {
        Self::exact(format!("k{}", kind.as_str()))
    }

    /// Returns the fact that a document belongs to a session.
    pub fn session(session: SessionId) -> Self {
        Self::exact(format!("s{}", session.uuid().simple()))
    }

    /// Returns the fact that the id of the session of a document begins with these characters.
    pub fn session_prefix(prefix: &str) -> Self {
        let digits = prefix.chars().filter(char::is_ascii_hexdigit);
        Self {
            token: format!("s{}", digits.collect::<String>().to_ascii_lowercase()),
            is_prefix: true,
        }
    }

    /// Returns the fact that the id of the session of a document ends with these characters: people
    /// see the end of an id, because ids of the same minute begin alike.
    pub fn session_suffix(suffix: &str) -> Self {
        let digits = suffix.chars().rev().filter(char::is_ascii_hexdigit);
        Self {
            token: format!("e{}", digits.collect::<String>().to_ascii_lowercase()),
            is_prefix: true,
        }
    }

    /// Returns the fact that a call or result is of a tool.
    pub fn tool(tool: &str) -> Self {
        Self::hashed('t', tool)
    }

    /// Returns the fact that a call settled with a status.
    pub fn status(status: &str) -> Self {
        Self::hashed('r', status)
    }

    /// Returns the fact that a document comes from an agent with this name or id.
    pub fn agent(agent: &str) -> Self {
        Self::hashed('a', agent)
    }

    /// Returns the fact that a document comes from a turn of a model, written as `provider:name` or only
    /// the name.
    pub fn model(model: &str) -> Self {
        Self::hashed('m', model)
    }

    /// Returns the fact that the session of a document works in a directory.
    pub fn project(directory: &str) -> Self {
        Self::hashed('p', directory)
    }

    /// Returns the facts about a document.
    pub fn of_document(document: &SearchDocument) -> Vec<Self> {
        let model = document.model.as_deref();
        let provider = document.provider.as_deref();
        let full_model = model.zip(provider);
        let full_model = full_model.map(|(model, provider)| format!("{provider}:{model}"));
        let agent = document.agent.as_deref();
        let agent_id = document.agent_id.as_ref().map(AgentId::as_str);
        let named = [
            document.tool.as_ref().map(|tool| Self::tool(tool.as_str())),
            document.status.map(|status| Self::status(status.as_str())),
            agent.map(Self::agent),
            agent_id.filter(|id| Some(*id) != agent).map(Self::agent),
            model.map(Self::model),
            full_model.as_deref().map(Self::model),
            document.project.as_deref().map(Self::project),
        ];
        let always = [
            Self::any(),
            Self::kind(document.kind),
            Self::session(document.session),
            Self::exact(Self::session_suffix(&document.session.to_string()).token),
        ];
        always
            .into_iter()
            .chain(named.into_iter().flatten())
            .collect()
    }

    /// Returns the token: small ASCII letters and digits.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Checks whether the token is the beginning of the wanted ones.
    pub fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// Checks whether a token of a document is wanted.
    pub fn matches(&self, token: &str) -> bool {
        if self.is_prefix {
            token.starts_with(&self.token)
        } else {
            token == self.token
        }
    }

    fn exact(token: String) -> Self {
        Self {
            token,
            is_prefix: false,
        }
    }

    /// Names may hold any character, so their tokens are digests.
    fn hashed(letter: char, name: &str) -> Self {
        let digest = Digest::of_bytes(name.to_lowercase().as_bytes());
        let hex = digest.as_bytes()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"));
        Self::exact(format!("{letter}{}", hex.collect::<String>()))
    }
}

/// What every hit has to fulfil.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchRequirement {
    /// Phrases that it contains.
    pub phrases: Vec<MatchTerm>,
    /// Words and phrases that it does not contain.
    pub excluded: Vec<MatchTerm>,
    /// Groups of facts; one of each group holds.
    pub facets: Vec<Vec<SearchFacet>>,
    /// It is not older than this.
    pub after: Option<Timestamp>,
    /// It is older than this.
    pub before: Option<Timestamp>,
}

impl SearchRequirement {
    /// Checks whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the ids that documents of this time have: from the first to before the second.
    pub fn id_range(&self) -> (i64, i64) {
        let first = self.after.map_or(0, SearchDocumentId::first_at);
        // Documents of a busy second get the ids of the next ones, so the range ends later; the time
        // itself is checked, too.
        let last = self.before.map_or(i64::MAX, |before| {
            SearchDocumentId::first_at(before).saturating_add(3_600 << 8)
        });
        (first, last)
    }

    /// Checks whether a time is in the range.
    pub fn includes_time(&self, at: Timestamp) -> bool {
        self.after.is_none_or(|after| at >= after) && self.before.is_none_or(|before| at < before)
    }
}

/// A search for words in a store.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSearch {
    /// The words, of which a hit has at least one. Without any, the newest documents are found.
    pub terms: Vec<Arc<MatchTerm>>,
    /// What every hit has to fulfil.
    pub required: SearchRequirement,
    /// The maximum number of documents per term: the newest ones.
    pub most_per_term: usize,
}
