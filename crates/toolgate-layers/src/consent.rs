//! What people decided about a call, and when that was first met.

use serde_json::json;
use toolgate_core::{
    Answer, Call, Consent, Json, Next, Outcome, Principal, StoreError, Timestamp, Verdict,
};

use crate::{AllowRule, RuleEffect, boundary::token_id};

/// The answer to this layer's question about the call as it is now.
pub(crate) fn answer(call: &Call, next: &Next) -> Option<Answer> {
    let answers = &call.resumed().answers;
    if answers.is_empty() {
        return None;
    }
    let decision = next.decision(call)?;
    answers
        .iter()
        .find(|answer| std::ptr::eq(&answer.decision, decision))
        .cloned()
}

/// When something happened for the first time, and whether that was just now.
pub(crate) struct First {
    pub(crate) at: Timestamp,
    pub(crate) is_new: bool,
}

impl First {
    /// Now, without being sure that it is the first time.
    pub(crate) fn unsure(call: &Call) -> Self {
        Self {
            at: call.env().clock().now(),
            is_new: false,
        }
    }

    /// When this answer was first met. A call comes back more than once, and its answer does not get younger. If it is
    /// known when the answer was given, it is that.
    pub(crate) async fn met(next: &Next, call: &Call, answer: &Answer) -> Self {
        if call.is_rehearsal() {
            return Self::unsure(call);
        }
        let key = format!("{}-{}", word(&answer.decision.verdict), answer.generation);
        let first = remember(next, call, &key)
            .await
            .unwrap_or_else(|_| Self::unsure(call));
        Self {
            at: answer.decided_at.unwrap_or(first.at),
            ..first
        }
    }
}

/// Writes down that something happens now, unless it has happened before.
///
/// It is claimed before it is done: what people are told must not be told twice, also by two processes at once.
pub(crate) async fn remember(next: &Next, call: &Call, key: &str) -> Result<First, StoreError> {
    let now = call.env().clock().now();
    let claim = format!("{:016x}", fastrand::u64(..));
    let mine = Json::new(json!({ "at": now, "claim": claim })).unwrap_or_else(|_| Json::null());
    let kept = next.once(call, key, async || mine.clone()).await?;
    Ok(First {
        at: moment(&kept).unwrap_or(now),
        is_new: kept == mine,
    })
}

pub(crate) fn moment(kept: &Json) -> Option<Timestamp> {
    kept.get("at")?.as_str()?.parse().ok()
}

/// Writes on an outcome who decided what, and when: when it was taken in, or else when it was first met.
pub(crate) fn decided(outcome: Outcome, answer: Answer, met: Timestamp) -> Outcome {
    let word = word(&answer.decision.verdict);
    let outcome = noted(
        outcome,
        word,
        answer.decision.by,
        answer.decided_at.unwrap_or(met),
    );
    if answer.token.is_none() && answer.with.is_empty() {
        return outcome;
    }
    outcome.noting(|notes| {
        if let Some(token) = &answer.token {
            notes
                .metadata
                .insert("approval_token".into(), token_id(token).to_string().into());
        }
        if !answer.with.is_empty() {
            let with: Vec<&str> = answer.with.iter().map(Principal::as_str).collect();
            notes.metadata.insert("approved_with".into(), with.into());
        }
    })
}

/// Writes on an outcome which standing rule answered.
pub(crate) fn ruled(outcome: Outcome, rule: AllowRule, at: Timestamp) -> Outcome {
    let word = match rule.effect {
        RuleEffect::Allow => "approved",
        RuleEffect::Deny => "denied",
    };
    noted(outcome, word, rule.owner, at).noting(|notes| {
        notes
            .metadata
            .insert("approval_rule".into(), rule.id.as_str().into());
    })
}

/// The same where nobody decided.
pub(crate) fn undecided(outcome: Outcome, at: Timestamp) -> Outcome {
    noted(outcome, "expired", "nobody".into(), at)
}

fn noted(outcome: Outcome, word: &str, decided_by: Principal, decided_at: Timestamp) -> Outcome {
    outcome.noting(|notes| {
        notes.consent = Some(Consent {
            decision: word.to_owned(),
            decided_by,
            decided_at,
        })
    })
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Approve | Verdict::ApproveWithEdits { .. } => "approved",
        Verdict::Deny { .. } => "denied",
    }
}
