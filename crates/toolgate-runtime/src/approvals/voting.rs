//! Counts votes and builds answers, for every way to decide on an approval request.

use toolgate_core::{
    AdmittedDecision, ApprovalAnswer, ApprovalRequest, Decision, Json, Keyring, RejectCode,
    StoreError, StoreHandle, Timestamp, Vote, admit_decision,
};

/// Limit on how many votes on one approval request are loaded.
const MOST_VOTES: usize = 1_000;

/// Returns the approvals of a request that needs several. With keys, only those with a valid
/// signature.
pub(crate) async fn load_votes(
    store: &StoreHandle,
    request: &ApprovalRequest,
    keyring: Option<&Keyring>,
) -> Result<Vec<Vote>, StoreError> {
    if request.quorum.is_none() {
        return Ok(Vec::new());
    }
    let kept = store
        .list_json(&Vote::record_prefix(request), None, MOST_VOTES)
        .await?;
    Ok(kept
        .into_iter()
        .filter_map(|(_, vote)| serde_json::from_value(vote.as_value().clone()).ok())
        .filter(|vote| is_valid_vote(request, vote, keyring))
        .collect())
}

fn is_valid_vote(request: &ApprovalRequest, vote: &Vote, keyring: Option<&Keyring>) -> bool {
    keyring.is_none_or(|keyring| keyring.check_vote_token(request, vote).is_ok())
}

/// Counts a decision, and returns its effect or why it does not count.
///
/// The vote is stored before it is counted, so that of two at the same time the later one sees
/// both. Repeating a vote that would have been the last one completes the answer: the process that
/// counted it may have been lost.
async fn count_vote(
    store: &StoreHandle,
    request: &ApprovalRequest,
    decision: &Decision,
    now: Timestamp,
    keyring: Option<&Keyring>,
) -> Result<Result<AdmittedDecision, RejectCode>, StoreError> {
    let mine = Vote::from_decision(request, decision, now).filter(|_| request.quorum.is_some());
    let Some(mut mine) = mine else {
        return Ok(admit_decision(request, &[], decision, now));
    };
    let key = Vote::record_key(request, &decision.by);
    // Checked alone first: a decision that can never count is not stored as a vote.
    if let Err(code) = admit_decision(request, &[], decision, now) {
        return Ok(Err(code));
    }
    mine.token = keyring.map(|keyring| keyring.vote_token(request, &mine));
    let vote = serde_json::to_value(&mine)
        .ok()
        .and_then(|value| Json::new(value).ok())
        .unwrap_or_else(Json::null);
    let earlier = store.put_json_once(key.clone(), vote).await?;
    let repeated = earlier.is_some();
    let earlier =
        earlier.and_then(|vote| serde_json::from_value::<Vote>(vote.as_value().clone()).ok());
    match earlier {
        // The stored vote under this name has no valid signature.
        Some(earlier) if !is_valid_vote(request, &earlier, keyring) => {
            return Ok(Err(RejectCode::Forged));
        }
        Some(earlier) if earlier.arguments_digest == mine.arguments_digest => {}
        None if !repeated => {}
        Some(_) | None => return Ok(Err(RejectCode::Duplicate)),
    }
    let mut others = load_votes(store, request, keyring).await?;
    others.retain(|vote| Vote::record_key(request, &vote.by) != key);
    Ok(match admit_decision(request, &others, decision, now) {
        Ok(AdmittedDecision::Counted { .. }) if repeated => Err(RejectCode::Duplicate),
        admitted => admitted,
    })
}

/// The effect of a decision that counts.
pub(crate) enum AdmittedAnswer {
    /// The request is decided, with the answer as it is stored.
    Complete(Box<ApprovalAnswer>),
    /// More approvals are needed.
    Counted {
        /// The number of missing approvals.
        missing: u32,
    },
}

/// Counts a decision; if it decides the request, builds the answer: dated, and signed if there are
/// keys. Returns the reason if it does not count.
pub(crate) async fn admit_answer(
    store: &StoreHandle,
    request: &ApprovalRequest,
    decision: Decision,
    now: Timestamp,
    keyring: Option<&Keyring>,
) -> Result<Result<AdmittedAnswer, RejectCode>, StoreError> {
    let with = match count_vote(store, request, &decision, now, keyring).await? {
        Ok(AdmittedDecision::Decided { with }) => with,
        Ok(AdmittedDecision::Counted { missing }) => {
            return Ok(Ok(AdmittedAnswer::Counted { missing }));
        }
        Err(code) => return Ok(Err(code)),
    };
    let mut answer = ApprovalAnswer::for_request(request, decision);
    answer.decided_at = Some(now);
    answer.with = with;
    answer.token = keyring.and_then(|keyring| keyring.grant_token(request, &answer));
    Ok(Ok(AdmittedAnswer::Complete(Box::new(answer))))
}
