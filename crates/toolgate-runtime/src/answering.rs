//! What every way to answer a question shares: counting votes, and making an answer that counts.

use toolgate_core::{
    Admitted, Answer, ApprovalRequest, Decision, Json, Keyring, PostCode, Principal, Record,
    StoreError, StoreHandle, Timestamp, Vote, admit,
};

/// How many votes on one question are looked at.
const MOST_VOTES: usize = 1_000;

/// The approvals of a question that waits for more of them. With keys, only those that we have counted.
pub(crate) async fn votes(
    store: &StoreHandle,
    request: &ApprovalRequest,
    keyring: Option<&Keyring>,
) -> Result<Vec<Vote>, StoreError> {
    if request.quorum.is_none() {
        return Ok(Vec::new());
    }
    let kept = store.list(&Vote::prefix(request), None, MOST_VOTES).await?;
    let read = |(_, record)| match record {
        Record::Json(json) => serde_json::from_value(Json::as_value(&json).clone()).ok(),
        _ => None,
    };
    Ok(kept
        .into_iter()
        .filter_map(read)
        .filter(|vote| counts(request, vote, keyring))
        .collect())
}

fn counts(request: &ApprovalRequest, vote: &Vote, keyring: Option<&Keyring>) -> bool {
    keyring.is_none_or(|keyring| keyring.check_vote(request, vote).is_ok())
}

/// Counts a decision, and says what it leads to or why it does not count.
///
/// The vote is kept before it is counted, so that of two at the same time the later one sees both. Whoever repeats a
/// vote that would have been the last one completes the answer: the process that counted it may have been lost.
pub(crate) async fn count(
    store: &StoreHandle,
    request: &ApprovalRequest,
    decision: &Decision,
    now: Timestamp,
    keyring: Option<&Keyring>,
) -> Result<Result<Admitted, PostCode>, StoreError> {
    let mine = Vote::of(request, decision, now).filter(|_| request.quorum.is_some());
    let Some(mut mine) = mine else {
        return Ok(admit(request, &[], decision, now));
    };
    let key = Vote::key(request, &decision.by);
    if let Err(code) = admit(request, &[], decision, now) {
        return Ok(Err(code));
    }
    mine.token = keyring.map(|keyring| keyring.vote_token(request, &mine));
    let vote = serde_json::to_value(&mine)
        .ok()
        .and_then(|value| Json::new(value).ok())
        .unwrap_or_else(Json::null);
    let earlier = store.once(key.clone(), Record::Json(vote)).await?;
    let repeated = earlier.is_some();
    let earlier = match earlier {
        Some(Record::Json(earlier)) => {
            serde_json::from_value::<Vote>(earlier.as_value().clone()).ok()
        }
        Some(_) | None => None,
    };
    match earlier {
        // Somebody wrote it for them.
        Some(earlier) if !counts(request, &earlier, keyring) => return Ok(Err(PostCode::Forged)),
        Some(earlier) if earlier.arguments_digest == mine.arguments_digest => {}
        None if !repeated => {}
        Some(_) | None => return Ok(Err(PostCode::Duplicate)),
    }
    let mut others = votes(store, request, keyring).await?;
    others.retain(|vote| Vote::key(request, &vote.by) != key);
    Ok(match admit(request, &others, decision, now) {
        Ok(Admitted::Counted { .. }) if repeated => Err(PostCode::Duplicate),
        admitted => admitted,
    })
}

/// The votes of people who are known to have approved the same arguments.
pub(crate) fn agreed(
    request: &ApprovalRequest,
    decision: &Decision,
    with: &[Principal],
    now: Timestamp,
) -> Result<Admitted, PostCode> {
    let vote = |by: &Principal| {
        Vote::of(
            request,
            &Decision {
                by: by.clone(),
                ..decision.clone()
            },
            now,
        )
    };
    let votes: Vec<Vote> = with.iter().filter_map(vote).collect();
    admit(request, &votes, decision, now)
}

/// The answer as it is kept: dated, and signed if there are keys.
pub(crate) fn answer(
    request: &ApprovalRequest,
    decision: Decision,
    with: Vec<Principal>,
    now: Timestamp,
    keyring: Option<&Keyring>,
) -> Answer {
    let mut answer = Answer::to(request, decision);
    (answer.decided_at, answer.with) = (Some(now), with);
    answer.token = keyring.and_then(|keyring| keyring.grant_token(request, &answer));
    answer
}
