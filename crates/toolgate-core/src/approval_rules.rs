//! Who may decide on a question, until when, and when enough have agreed.

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalRequest, Decision, Digest, PostCode, Principal, Quorum, RecordKey, Timestamp, Verdict,
};

/// An approval that was counted because it takes more than one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Who approved.
    pub by: Principal,
    /// The digest of the arguments that may run for all they care.
    pub arguments_digest: Digest,
    /// When.
    pub at: Timestamp,
    /// Signed by whoever counted it, if there are keys: nobody can vote for another by writing to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What a decision that may be made leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The question is answered. If that took more than one, the others are named.
    Decided {
        /// Who else approved.
        with: Vec<Principal>,
    },
    /// It counts, but others have to agree as well.
    Counted {
        /// How many are missing.
        missing: u32,
    },
}

/// Says what a decision leads to, or why it does not count.
///
/// `votes` are the approvals of others so far. One denial denies. Approvals count together if they are by different
/// people, all entitled, none of them the one who asked for the call, and about the same arguments in the end.
pub fn admit(
    request: &ApprovalRequest,
    votes: &[Vote],
    decision: &Decision,
    now: Timestamp,
) -> Result<Admitted, PostCode> {
    if request.expires_at.is_some_and(|until| now >= until) {
        return Err(PostCode::Expired);
    }
    let Some(quorum) = &request.quorum else {
        return Ok(Admitted::Decided { with: Vec::new() });
    };
    if !is_entitled(quorum, &decision.by) {
        return Err(PostCode::NotEntitled);
    }
    let Some(arguments) = approved_arguments(request, &decision.verdict) else {
        return Ok(Admitted::Decided { with: Vec::new() });
    };
    if request
        .requester
        .as_ref()
        .is_some_and(|requester| is_same(requester, &decision.by))
    {
        return Err(PostCode::SelfApproval);
    }
    if votes.iter().any(|vote| is_same(&vote.by, &decision.by)) {
        return Err(PostCode::Duplicate);
    }
    let with = agreeing(request, quorum, votes, arguments);
    let missing = quorum.needed.max(1).saturating_sub(with.len() as u32 + 1);
    Ok(if missing == 0 {
        Admitted::Decided { with }
    } else {
        Admitted::Counted { missing }
    })
}

impl Vote {
    /// The vote that a decision is, if it approves.
    pub fn of(request: &ApprovalRequest, decision: &Decision, at: Timestamp) -> Option<Self> {
        let arguments_digest = approved_arguments(request, &decision.verdict)?;
        Some(Self {
            by: decision.by.clone(),
            arguments_digest,
            at,
            token: None,
        })
    }

    /// Where the vote of `by` on a question is kept: one per person.
    pub fn key(request: &ApprovalRequest, by: &Principal) -> RecordKey {
        RecordKey::Other(format!("{}{}", Self::prefix(request), person(by)).into())
    }

    /// What the keys of all votes on a question start with.
    pub fn prefix(request: &ApprovalRequest) -> String {
        format!("vote/{}/{}/", request.approval_id, request.generation)
    }
}

/// The different people among `votes` who approved these arguments and may do so.
fn agreeing(
    request: &ApprovalRequest,
    quorum: &Quorum,
    votes: &[Vote],
    arguments: Digest,
) -> Vec<Principal> {
    let mut people: Vec<Principal> = Vec::new();
    for vote in votes
        .iter()
        .filter(|vote| vote.arguments_digest == arguments)
    {
        let asked_for_it = request
            .requester
            .as_ref()
            .is_some_and(|requester| is_same(requester, &vote.by));
        let counted = people.iter().any(|person| is_same(person, &vote.by));
        if is_entitled(quorum, &vote.by) && !asked_for_it && !counted {
            people.push(vote.by.clone());
        }
    }
    people
}

/// The digest of the arguments that a verdict lets run, if it does.
fn approved_arguments(request: &ApprovalRequest, verdict: &Verdict) -> Option<Digest> {
    match verdict {
        Verdict::Approve => Some(request.arguments_digest),
        Verdict::ApproveWithEdits { arguments } => Some(arguments.digest()),
        Verdict::Deny { .. } => None,
    }
}

fn is_entitled(quorum: &Quorum, by: &Principal) -> bool {
    quorum.among.is_empty() || quorum.among.contains(by)
}

/// Two spellings of one name are one person: nobody makes up a quorum with capital letters.
fn is_same(a: &Principal, b: &Principal) -> bool {
    person(a) == person(b)
}

fn person(name: &Principal) -> String {
    let plain = name.as_str().trim().to_lowercase();
    // A key in a store is not made longer by whoever chooses a name.
    if plain.len() > 128 {
        Digest::of_bytes(plain.as_bytes()).to_string()
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Call};
    use proptest::prelude::*;

    fn request(needed: u32, among: &[&str]) -> ApprovalRequest {
        let mut request = ApprovalRequest::about(&Call::detached("pay", Arguments::empty()));
        request.requester = Some("eve".into());
        request.quorum = Some(Quorum {
            needed,
            among: among.iter().map(|name| (*name).into()).collect(),
        });
        request.until(Timestamp::from_micros(1_000))
    }

    fn vote(request: &ApprovalRequest, by: &str) -> Vote {
        Vote::of(request, &Decision::approve(by), Timestamp::EPOCH).expect("approves")
    }

    fn edited() -> Arguments {
        Arguments::parse(r#"{"n":2}"#).expect("object")
    }

    const EARLY: Timestamp = Timestamp::EPOCH;

    #[test]
    fn after_its_end_a_question_takes_no_decision() {
        for decision in [Decision::approve("ann"), Decision::deny("ann", None)] {
            let late = Timestamp::from_micros(1_000);
            assert_eq!(
                admit(&request(1, &[]), &[], &decision, late),
                Err(PostCode::Expired)
            );
            let just = Timestamp::from_micros(999);
            assert!(admit(&request(1, &[]), &[], &decision, just).is_ok());
        }
    }

    #[test]
    fn without_a_quorum_anybody_decides_alone() {
        let alone = ApprovalRequest {
            quorum: None,
            ..request(1, &[])
        };
        assert_eq!(
            admit(&alone, &[], &Decision::approve("eve"), EARLY),
            Ok(Admitted::Decided { with: Vec::new() }),
            "who asked may approve where nobody else is wanted"
        );
    }

    #[test]
    fn under_a_quorum_whoever_asked_cannot_approve_but_can_deny() {
        let request = request(1, &[]);
        for name in ["eve", "Eve", " eve "] {
            assert_eq!(
                admit(&request, &[], &Decision::approve(name), EARLY),
                Err(PostCode::SelfApproval),
                "{name}"
            );
        }
        assert!(admit(&request, &[], &Decision::deny("eve", None), EARLY).is_ok());
    }

    #[test]
    fn only_the_named_may_decide() {
        let request = request(1, &["ann", "bob"]);
        assert_eq!(
            admit(&request, &[], &Decision::approve("mallory"), EARLY),
            Err(PostCode::NotEntitled)
        );
        assert_eq!(
            admit(&request, &[], &Decision::deny("mallory", None), EARLY),
            Err(PostCode::NotEntitled)
        );
        assert!(admit(&request, &[], &Decision::approve("bob"), EARLY).is_ok());
    }

    #[test]
    fn nobody_votes_twice_under_whatever_spelling() {
        let request = request(2, &[]);
        let votes = [vote(&request, "ann")];
        for name in ["ann", "ANN", " ann"] {
            assert_eq!(
                admit(&request, &votes, &Decision::approve(name), EARLY),
                Err(PostCode::Duplicate),
                "{name}"
            );
        }
        assert_eq!(
            Vote::key(&request, &"ann".into()),
            Vote::key(&request, &"Ann ".into())
        );
    }

    #[test]
    fn approvals_of_other_arguments_do_not_count_together() {
        let request = request(2, &[]);
        let votes = [vote(&request, "ann")];
        let other = admit(
            &request,
            &votes,
            &Decision::approve_with_edits("bob", edited()),
            EARLY,
        );
        assert_eq!(other, Ok(Admitted::Counted { missing: 1 }));
        let same = admit(&request, &votes, &Decision::approve("bob"), EARLY);
        assert_eq!(
            same,
            Ok(Admitted::Decided {
                with: vec!["ann".into()]
            })
        );
    }

    #[test]
    fn one_denial_denies_and_whoever_approved_may_change_their_mind() {
        let request = request(3, &[]);
        let votes = [vote(&request, "ann")];
        assert!(matches!(
            admit(&request, &votes, &Decision::deny("ann", None), EARLY),
            Ok(Admitted::Decided { .. })
        ));
    }

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "ann", "Ann", "bob", "cid", "eve", "EVE ", "mallory", "dan",
        ])
        .prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn an_approval_is_complete_only_with_enough_different_entitled_people(
            needed in 0_u32..4,
            named in any::<bool>(),
            votes in prop::collection::vec((name(), any::<bool>()), 0..6),
            by in name(),
            with_edits in any::<bool>(),
        ) {
            let among: &[&str] = if named { &["ann", "Ann", "bob", "cid", "eve"] } else { &[] };
            let request = request(needed, among);
            let decide = |by: &str, with_edits| match with_edits {
                true => Decision::approve_with_edits(by, edited()),
                false => Decision::approve(by),
            };
            let votes: Vec<Vote> = votes
                .iter()
                .filter_map(|(by, with_edits)| Vote::of(&request, &decide(by, *with_edits), EARLY))
                .collect();
            let decision = decide(&by, with_edits);
            let plain = |name: &str| name.trim().to_lowercase();
            match admit(&request, &votes, &decision, EARLY) {
                Ok(Admitted::Decided { with }) => {
                    let mut people: Vec<String> = with.iter().map(|name| plain(name.as_str())).collect();
                    people.push(plain(&by));
                    let number = people.len();
                    people.sort();
                    people.dedup();
                    prop_assert_eq!(people.len(), number, "all different");
                    prop_assert!(people.len() as u32 >= needed);
                    prop_assert!(!people.contains(&"eve".to_owned()));
                    prop_assert!(!named || people.iter().all(|name| ["ann", "bob", "cid"].contains(&name.as_str())));
                    for name in &with {
                        let agrees = |vote: &&Vote| vote.by == *name;
                        let vote = votes.iter().filter(agrees).any(|vote| Some(vote.arguments_digest)
                            == approved_arguments(&request, &decision.verdict));
                        prop_assert!(vote, "about the same arguments");
                    }
                }
                Ok(Admitted::Counted { missing }) => prop_assert!(missing > 0 && missing < needed.max(1)),
                Err(code) => prop_assert!(matches!(
                    code,
                    PostCode::SelfApproval | PostCode::NotEntitled | PostCode::Duplicate
                )),
            }
        }
    }
}
