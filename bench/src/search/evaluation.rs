//! The evaluation set: messages and calls, and queries with the documents that answer them.

use std::collections::HashMap;

use super::{Fallible, log::LogLine};

const CORPUS: &str = include_str!("../../search/corpus.txt");
const QUERIES: &str = include_str!("../../search/queries.txt");

/// A session of the set. Its documents are numbered from 1, as its events are.
pub(super) struct EvaluationSession {
    pub(super) name: String,
    pub(super) lines: Vec<LogLine>,
}

/// The half of the queries that a query belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryHalf {
    /// Settings may be chosen by these.
    Tune,
    /// Never used to choose anything.
    Held,
}

/// A query with the documents that answer it, such as `tls/4`.
pub(super) struct JudgedQuery {
    pub(super) half: QueryHalf,
    pub(super) text: String,
    pub(super) relevant: Vec<(String, u64)>,
}

/// Reads the sessions.
pub(super) fn sessions() -> Fallible<Vec<EvaluationSession>> {
    let mut sessions: Vec<EvaluationSession> = Vec::new();
    for line in content_lines(CORPUS) {
        if let Some(head) = line.strip_prefix("== ") {
            let (name, _) = head.split_once(": ").ok_or("a session without a title")?;
            sessions.push(EvaluationSession {
                name: name.to_owned(),
                lines: Vec::new(),
            });
            continue;
        }
        let session = sessions.last_mut().ok_or("a document without a session")?;
        session.lines.push(parse_document(line)?);
    }
    Ok(sessions)
}

fn parse_document(line: &str) -> Fallible<LogLine> {
    let (head, text) = line.split_once("| ").ok_or("a document without a text")?;
    let text = text.to_owned();
    let (kind, tool) = head.split_once(' ').unwrap_or((head, ""));
    let tool = tool.to_owned();
    Ok(match kind {
        "user" => LogLine::User { text },
        "assistant" => LogLine::Assistant { text },
        "call" => LogLine::Call {
            tool,
            arguments: text,
        },
        "ok" => LogLine::Succeeded { tool, text },
        "failed" => LogLine::Failed { tool, text },
        other => return Err(format!("a document of the kind {other:?}").into()),
    })
}

/// Reads the queries, and checks that their documents exist.
pub(super) fn queries(sessions: &[EvaluationSession]) -> Fallible<Vec<JudgedQuery>> {
    let counts: HashMap<&str, usize> = sessions
        .iter()
        .map(|session| (session.name.as_str(), session.lines.len()))
        .collect();
    let document = |word: &str| -> Fallible<(String, u64)> {
        let (session, number) = word.split_once('/').ok_or("a document without a number")?;
        let number: usize = number.parse()?;
        let known = counts
            .get(session)
            .is_some_and(|count| (1..=*count).contains(&number));
        if !known {
            return Err(format!("there is no document {word}").into());
        }
        Ok((session.to_owned(), number as u64))
    };
    let query = |line: &str| -> Fallible<JudgedQuery> {
        let mut parts = line.splitn(3, "| ");
        let mut part = || parts.next().ok_or("a query of fewer than three parts");
        let half = match part()? {
            "tune" => QueryHalf::Tune,
            "held" => QueryHalf::Held,
            other => return Err(format!("a half named {other:?}").into()),
        };
        Ok(JudgedQuery {
            half,
            text: part()?.to_owned(),
            relevant: part()?
                .split_whitespace()
                .map(document)
                .collect::<Fallible<_>>()?,
        })
    };
    content_lines(QUERIES).map(query).collect()
}

fn content_lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_as_large_as_promised_and_every_judgement_names_a_document() {
        let sessions = sessions().expect("the corpus is valid");
        let documents: usize = sessions.iter().map(|session| session.lines.len()).sum();
        assert!(documents >= 300, "{documents}");
        let queries = queries(&sessions).expect("the queries are valid");
        assert!(queries.len() >= 60, "{}", queries.len());
        assert!(queries.iter().all(|query| !query.relevant.is_empty()));
        let held = queries.iter().filter(|query| query.half == QueryHalf::Held);
        let held = held.count();
        assert!(held.abs_diff(queries.len() - held) <= 1, "halves");
    }
}
