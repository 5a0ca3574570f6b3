//! The rules of a decision: entitled approvers, expiry and quorum.

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalRequest, Decision, Digest, Principal, Quorum, RecordKey, RejectCode, Timestamp, Verdict,
};

/// One approval of several that a quorum needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The approver.
    pub by: Principal,
    /// The digest of the arguments this approver lets run.
    pub arguments_digest: Digest,
    /// The time of the approval.
    pub at: Timestamp,
    /// The signed token, if there are keys: writing to the store is not enough to forge a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The effect of an admissible decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmittedDecision {
    /// The request is decided. If a quorum was needed, the other approvers are named.
    Decided {
        /// The other approvers.
        with: Vec<Principal>,
    },
    /// The vote counts, but more approvals are needed.
    Counted {
        /// The number of missing approvals.
        missing: u32,
    },
}

/// Returns the effect of a decision.
///
/// `votes` are the approvals of others so far. One denial denies. Approvals count together if they
/// are by different people, all entitled, none of them the requester of the call, and for the same
/// final arguments.
///
/// # Errors
///
/// The [`RejectCode`] that says why the decision is rejected.
pub fn admit_decision(
    request: &ApprovalRequest,
    votes: &[Vote],
    decision: &Decision,
    now: Timestamp,
) -> Result<AdmittedDecision, RejectCode> {
    if request.expires_at.is_some_and(|until| now >= until) {
        return Err(RejectCode::Expired);
    }
    // The requester may approve here, too: a single user decides on the calls of their own agent.
    let Some(quorum) = &request.quorum else {
        return Ok(AdmittedDecision::Decided { with: Vec::new() });
    };
    if !is_entitled(quorum, &decision.by) {
        return Err(RejectCode::NotEntitled);
    }
    // A denial needs no quorum, and the requester may deny too.
    let Some(arguments) = approved_arguments(request, &decision.verdict) else {
        return Ok(AdmittedDecision::Decided { with: Vec::new() });
    };
    if request
        .requester
        .as_ref()
        .is_some_and(|requester| is_same_person(requester, &decision.by))
    {
        return Err(RejectCode::SelfApproval);
    }
    if votes
        .iter()
        .any(|vote| is_same_person(&vote.by, &decision.by))
    {
        return Err(RejectCode::Duplicate);
    }
    // The votes are checked again, because they come from the store.
    let with = agreeing_approvers(request, quorum, votes, arguments);
    // A quorum of zero still needs the approver who decides now.
    let missing = quorum.needed.max(1).saturating_sub(with.len() as u32 + 1);
    Ok(if missing == 0 {
        AdmittedDecision::Decided { with }
    } else {
        AdmittedDecision::Counted { missing }
    })
}

impl Vote {
    /// Creates the vote of a decision, if it approves.
    pub fn from_decision(
        request: &ApprovalRequest,
        decision: &Decision,
        at: Timestamp,
    ) -> Option<Self> {
        let arguments_digest = approved_arguments(request, &decision.verdict)?;
        Some(Self {
            by: decision.by.clone(),
            arguments_digest,
            at,
            token: None,
        })
    }

    /// Returns the record key of the vote of `by` on a request: one per person.
    pub fn record_key(request: &ApprovalRequest, by: &Principal) -> RecordKey {
        RecordKey::Other(format!("{}{}", Self::record_prefix(request), normalize_name(by)).into())
    }

    /// Returns the prefix of the keys of all votes on a request.
    pub fn record_prefix(request: &ApprovalRequest) -> String {
        format!("vote/{}/{}/", request.approval_id, request.generation)
    }
}

/// Returns the different people among `votes` who approved these arguments and are entitled to.
fn agreeing_approvers(
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
            .is_some_and(|requester| is_same_person(requester, &vote.by));
        let counted = people.iter().any(|person| is_same_person(person, &vote.by));
        if is_entitled(quorum, &vote.by) && !asked_for_it && !counted {
            people.push(vote.by.clone());
        }
    }
    people
}

/// Returns the digest of the arguments that a verdict lets run, if it does.
fn approved_arguments(request: &ApprovalRequest, verdict: &Verdict) -> Option<Digest> {
    match verdict {
        Verdict::Approve => Some(request.arguments_digest),
        Verdict::ApproveWithEdits { arguments } => Some(arguments.digest()),
        Verdict::Deny { .. } => None,
    }
}

fn is_entitled(quorum: &Quorum, by: &Principal) -> bool {
    // Compared exactly, unlike `is_same_person`: a similar name must not gain the right to decide,
    // and two similar names must not count as two people.
    quorum.among.is_empty() || quorum.among.contains(by)
}

/// Checks whether two names are one person: capital letters do not make a quorum.
fn is_same_person(a: &Principal, b: &Principal) -> bool {
    normalize_name(a) == normalize_name(b)
}

fn normalize_name(name: &Principal) -> String {
    let plain = name.as_str().trim().to_lowercase();
    // Bounded, because the name becomes part of a record key and the approver chooses it.
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
        let mut request = ApprovalRequest::for_call(&Call::detached("pay", Arguments::empty()));
        request.requester = Some("eve".into());
        request.quorum = Some(Quorum {
            needed,
            among: among.iter().map(|name| (*name).into()).collect(),
        });
        request.expiring_at(Timestamp::from_micros(1_000))
    }

    fn vote(request: &ApprovalRequest, by: &str) -> Vote {
        Vote::from_decision(request, &Decision::approve(by), Timestamp::EPOCH).expect("approves")
    }

    fn edited() -> Arguments {
        Arguments::parse(r#"{"n":2}"#).expect("object")
    }

    const EARLY: Timestamp = Timestamp::EPOCH;

    #[test]
    fn an_expired_request_accepts_no_decision() {
        for decision in [Decision::approve("ann"), Decision::deny("ann", None)] {
            let late = Timestamp::from_micros(1_000);
            assert_eq!(
                admit_decision(&request(1, &[]), &[], &decision, late),
                Err(RejectCode::Expired)
            );
            let just = Timestamp::from_micros(999);
            assert!(admit_decision(&request(1, &[]), &[], &decision, just).is_ok());
        }
    }

    #[test]
    fn without_a_quorum_any_approver_decides_alone() {
        let alone = ApprovalRequest {
            quorum: None,
            ..request(1, &[])
        };
        assert_eq!(
            admit_decision(&alone, &[], &Decision::approve("eve"), EARLY),
            Ok(AdmittedDecision::Decided { with: Vec::new() }),
            "without a quorum the requester may approve"
        );
    }

    #[test]
    fn under_a_quorum_the_requester_cannot_approve_but_can_deny() {
        let request = request(1, &[]);
        for name in ["eve", "Eve", " eve "] {
            assert_eq!(
                admit_decision(&request, &[], &Decision::approve(name), EARLY),
                Err(RejectCode::SelfApproval),
                "{name}"
            );
        }
        assert!(admit_decision(&request, &[], &Decision::deny("eve", None), EARLY).is_ok());
    }

    #[test]
    fn only_the_named_approvers_may_decide() {
        let request = request(1, &["ann", "bob"]);
        assert_eq!(
            admit_decision(&request, &[], &Decision::approve("mallory"), EARLY),
            Err(RejectCode::NotEntitled)
        );
        assert_eq!(
            admit_decision(&request, &[], &Decision::deny("mallory", None), EARLY),
            Err(RejectCode::NotEntitled)
        );
        assert!(admit_decision(&request, &[], &Decision::approve("bob"), EARLY).is_ok());
    }

    #[test]
    fn an_approver_votes_once_whatever_the_spelling() {
        let request = request(2, &[]);
        let votes = [vote(&request, "ann")];
        for name in ["ann", "ANN", " ann"] {
            assert_eq!(
                admit_decision(&request, &votes, &Decision::approve(name), EARLY),
                Err(RejectCode::Duplicate),
                "{name}"
            );
        }
        assert_eq!(
            Vote::record_key(&request, &"ann".into()),
            Vote::record_key(&request, &"Ann ".into())
        );
    }

    #[test]
    fn approvals_of_other_arguments_do_not_count_together() {
        let request = request(2, &[]);
        let votes = [vote(&request, "ann")];
        let other = admit_decision(
            &request,
            &votes,
            &Decision::approve_with_edits("bob", edited()),
            EARLY,
        );
        assert_eq!(other, Ok(AdmittedDecision::Counted { missing: 1 }));
        let same = admit_decision(&request, &votes, &Decision::approve("bob"), EARLY);
        assert_eq!(
            same,
            Ok(AdmittedDecision::Decided {
                with: vec!["ann".into()]
            })
        );
    }

    #[test]
    fn one_denial_denies_and_an_approver_may_change_their_mind() {
        let request = request(3, &[]);
        let votes = [vote(&request, "ann")];
        assert!(matches!(
            admit_decision(&request, &votes, &Decision::deny("ann", None), EARLY),
            Ok(AdmittedDecision::Decided { .. })
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
            let decide = |by: &str, with_edits| {
                if with_edits {
                    Decision::approve_with_edits(by, edited())
                } else {
                    Decision::approve(by)
                }
            };
            let votes: Vec<Vote> = votes
                .iter()
                .filter_map(|(by, with_edits)| Vote::from_decision(&request, &decide(by, *with_edits), EARLY))
                .collect();
            let decision = decide(&by, with_edits);
            let plain = |name: &str| name.trim().to_lowercase();
            match admit_decision(&request, &votes, &decision, EARLY) {
                Ok(AdmittedDecision::Decided { with }) => {
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
                Ok(AdmittedDecision::Counted { missing }) => prop_assert!(missing > 0 && missing < needed.max(1)),
                Err(code) => prop_assert!(matches!(
                    code,
                    RejectCode::SelfApproval | RejectCode::NotEntitled | RejectCode::Duplicate
                )),
            }
        }
    }
}
