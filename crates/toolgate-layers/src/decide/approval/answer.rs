//! Decisions about a call, and the time when each was first seen.

use serde_json::json;
use toolgate_core::{
    ApprovalAnswer, Call, ConsentNote, Json, Next, Outcome, Principal, StoreError, Timestamp,
    decision_claim_key, note_keys,
};

use crate::{RuleEffect, StandingRule, decide::approval::verify::token_id};

/// Returns the answer to this layer's request about the call as it is now.
pub(crate) fn find_answer(call: &Call, next: &Next) -> Option<ApprovalAnswer> {
    let answers = &call.resume_state().answers;
    if answers.is_empty() {
        return None;
    }
    let decision = next.decision_on(call)?;
    answers
        .iter()
        .find(|answer| std::ptr::eq(&answer.decision, decision))
        .cloned()
}

/// The time of the first occurrence, and whether it is this one.
pub(crate) struct FirstOccurrence {
    pub(crate) at: Timestamp,
    pub(crate) is_new: bool,
}

impl FirstOccurrence {
    /// Returns the current time without a record that this is the first occurrence.
    pub(crate) fn now_unrecorded(call: &Call) -> Self {
        Self {
            at: call.env().clock().now(),
            is_new: false,
        }
    }

    /// Records when this answer was first seen, or returns the recorded time. The time of the
    /// decision itself is used if it is known.
    pub(crate) async fn record_answer(next: &Next, call: &Call, answer: &ApprovalAnswer) -> Self {
        if call.is_rehearsal() {
            return Self::now_unrecorded(call);
        }
        // A call comes back more than once. Only the first time counts, so that its answer does not
        // get younger.
        let key = decision_claim_key(&answer.decision.verdict, answer.generation);
        let first = record_first(next, call, &key)
            .await
            .unwrap_or_else(|_| Self::now_unrecorded(call));
        Self {
            at: answer.decided_at.unwrap_or(first.at),
            ..first
        }
    }
}

/// Records that something happens now, unless it has happened before.
pub(crate) async fn record_first(
    next: &Next,
    call: &Call,
    key: &str,
) -> Result<FirstOccurrence, StoreError> {
    let now = call.env().clock().now();
    // Claimed before it is done: a callback must not run twice, even with two processes at once.
    // The random claim tells them apart when their clocks agree.
    let claim = format!("{:016x}", fastrand::u64(..));
    let mine = Json::new(json!({ "at": now, "claim": claim })).unwrap_or_else(|_| Json::null());
    let kept = next.perform_once(call, key, async || mine.clone()).await?;
    Ok(FirstOccurrence {
        at: parse_recorded_at(&kept).unwrap_or(now),
        is_new: kept == mine,
    })
}

pub(crate) fn parse_recorded_at(kept: &Json) -> Option<Timestamp> {
    kept.get("at")?.as_str()?.parse().ok()
}

/// Notes on an outcome who decided what, and when: the time of the decision, or else the time `met`
/// when it was first seen.
pub(crate) fn note_decision(outcome: Outcome, answer: ApprovalAnswer, met: Timestamp) -> Outcome {
    let word = answer.decision.verdict.decided_word();
    let outcome = note_consent(
        outcome,
        word,
        answer.decision.by.name,
        answer.decided_at.unwrap_or(met),
    );
    if answer.token.is_none() && answer.with.is_empty() {
        return outcome;
    }
    outcome.with_notes(|notes| {
        if let Some(token) = &answer.token {
            notes.insert(note_keys::APPROVAL_DIGEST, &token_id(token));
        }
        if !answer.with.is_empty() {
            let names: Vec<Principal> = answer.with.iter().map(|by| by.name.clone()).collect();
            notes.insert(note_keys::APPROVED_WITH, &*names);
        }
    })
}

/// Notes on an outcome which standing rule decided.
pub(crate) fn note_rule(outcome: Outcome, rule: StandingRule, at: Timestamp) -> Outcome {
    let word = match rule.effect {
        RuleEffect::Allow => "approved",
        RuleEffect::Deny => "denied",
    };
    note_consent(outcome, word, rule.owner, at)
        .with_notes(|notes| notes.insert(note_keys::APPROVAL_RULE, rule.id.as_str()))
}

/// Notes on an outcome that the request expired without a decision.
pub(crate) fn note_expiry(outcome: Outcome, at: Timestamp) -> Outcome {
    note_consent(outcome, "expired", "nobody".into(), at)
}

fn note_consent(
    outcome: Outcome,
    word: &str,
    decided_by: Principal,
    decided_at: Timestamp,
) -> Outcome {
    outcome.with_notes(|notes| {
        notes.consent = Some(ConsentNote {
            decision: word.to_owned(),
            decided_by,
            decided_at,
        })
    })
}
