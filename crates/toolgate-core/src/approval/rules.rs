//! The rules of a decision: entitled approvers, expiry and quorum.

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalAnswer, ApprovalRequest, ApproverIdentity, Decision, Digest, Quorum, RecordKey,
    RejectCode, Timestamp, Verdict,
};

/// One approval of several that a quorum needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The approver, and how it is known who that is.
    #[serde(flatten)]
    pub by: ApproverIdentity,
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
        with: Vec<ApproverIdentity>,
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
/// final arguments. A name that is only claimed never counts towards a quorum.
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
    let by = &decision.by;
    if !is_named(quorum, by) {
        return Err(RejectCode::NotEntitled);
    }
    // A list of approvers would be no protection if anyone could claim to be one of them.
    if !quorum.among.is_empty() && !by.is_established() {
        return Err(RejectCode::UnverifiedApprover);
    }
    // A denial needs no quorum, and the requester may deny too.
    let Some(arguments) = approved_arguments(request, &decision.verdict) else {
        return Ok(AdmittedDecision::Decided { with: Vec::new() });
    };
    if !by.is_established() {
        return Err(RejectCode::UnverifiedApprover);
    }
    if is_requester(request, by) {
        return Err(RejectCode::SelfApproval);
    }
    if votes.iter().any(|vote| vote.by.is_same_person(by)) {
        return Err(RejectCode::Duplicate);
    }
    // The votes are checked again, because they come from the store.
    let agreeing = votes
        .iter()
        .filter(|vote| vote.arguments_digest == arguments)
        .map(|vote| &vote.by);
    let with = countable_approvers(request, quorum, agreeing);
    // A quorum of zero still needs the approver who decides now.
    let missing = quorum.needed.max(1).saturating_sub(with.len() as u32 + 1);
    Ok(if missing == 0 {
        AdmittedDecision::Decided { with }
    } else {
        AdmittedDecision::Counted { missing }
    })
}

/// Checks whether an answer has the approvers that its request needs. An answer of an earlier
/// version has claimed names only.
pub fn meets_quorum(request: &ApprovalRequest, answer: &ApprovalAnswer) -> bool {
    let Some(quorum) = request.quorum.as_ref().filter(|_| !answer.is_denial()) else {
        return true;
    };
    let counted = countable_approvers(request, quorum, answer.approvers());
    counted.len() as u64 >= u64::from(quorum.needed.max(1))
}

impl ApprovalRequest {
    /// Checks whether this approver may approve the request, before they are asked.
    ///
    /// # Errors
    ///
    /// The [`RejectCode`] with which an approval would be rejected.
    pub fn check_approver(&self, by: &ApproverIdentity, now: Timestamp) -> Result<(), RejectCode> {
        admit_decision(self, &[], &Decision::approve(by.clone()), now).map(drop)
    }
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
    pub fn record_key(request: &ApprovalRequest, by: &ApproverIdentity) -> RecordKey {
        RecordKey::Other(format!("{}{}", Self::record_prefix(request), by.person_key()).into())
    }

    /// Returns the prefix of the keys of all votes on a request.
    pub fn record_prefix(request: &ApprovalRequest) -> String {
        format!("vote/{}/{}/", request.approval_id, request.generation)
    }
}

/// Returns the different people among `approvers` who are entitled to approve the request.
fn countable_approvers<'a>(
    request: &ApprovalRequest,
    quorum: &Quorum,
    approvers: impl Iterator<Item = &'a ApproverIdentity>,
) -> Vec<ApproverIdentity> {
    let mut people: Vec<ApproverIdentity> = Vec::new();
    for by in approvers {
        let counted = people.iter().any(|person| person.is_same_person(by));
        let entitled = is_named(quorum, by) && by.is_established() && !is_requester(request, by);
        if entitled && !counted {
            people.push(by.clone());
        }
    }
    people
}

fn is_requester(request: &ApprovalRequest, by: &ApproverIdentity) -> bool {
    let requester = request.requester.as_ref();
    requester.is_some_and(|requester| by.has_name(requester))
}

/// Returns the digest of the arguments that a verdict lets run, if it does.
fn approved_arguments(request: &ApprovalRequest, verdict: &Verdict) -> Option<Digest> {
    match verdict {
        Verdict::Approve => Some(request.arguments_digest),
        Verdict::ApproveWithEdits { arguments } => Some(arguments.digest()),
        Verdict::Deny { .. } => None,
    }
}

fn is_named(quorum: &Quorum, by: &ApproverIdentity) -> bool {
    // Compared exactly, unlike `is_same_person`: a similar name must not gain the right to decide,
    // and two similar names must not count as two people.
    quorum.among.is_empty() || quorum.among.contains(&by.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Call, IdentitySource};
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

    fn person(name: &str) -> ApproverIdentity {
        ApproverIdentity::new(name, IdentitySource::AuthenticatedToken)
    }

    fn account(name: &str, uid: u32) -> ApproverIdentity {
        let host = "pc".to_owned();
        ApproverIdentity::new(name, IdentitySource::LocalAccount { uid, host })
    }

    fn vote(request: &ApprovalRequest, by: impl Into<ApproverIdentity>) -> Vote {
        Vote::from_decision(request, &Decision::approve(by), Timestamp::EPOCH).expect("approves")
    }

    fn edited() -> Arguments {
        Arguments::parse(r#"{"n":2}"#).expect("object")
    }

    const EARLY: Timestamp = Timestamp::EPOCH;

    #[test]
    fn an_expired_request_accepts_no_decision() {
        for decision in [
            Decision::approve(person("ann")),
            Decision::deny("ann", None),
        ] {
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
                admit_decision(&request, &[], &Decision::approve(person(name)), EARLY),
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
            admit_decision(&request, &[], &Decision::approve(person("mallory")), EARLY),
            Err(RejectCode::NotEntitled)
        );
        assert_eq!(
            admit_decision(&request, &[], &Decision::deny("mallory", None), EARLY),
            Err(RejectCode::NotEntitled)
        );
        assert!(admit_decision(&request, &[], &Decision::approve(person("bob")), EARLY).is_ok());
    }

    #[test]
    fn an_approver_votes_once_whatever_the_spelling() {
        let request = request(2, &[]);
        let votes = [vote(&request, person("ann"))];
        for name in ["ann", "ANN", " ann"] {
            assert_eq!(
                admit_decision(&request, &votes, &Decision::approve(person(name)), EARLY),
                Err(RejectCode::Duplicate),
                "{name}"
            );
        }
        assert_eq!(
            Vote::record_key(&request, &person("ann")),
            Vote::record_key(&request, &person("Ann "))
        );
    }

    #[test]
    fn approvals_of_other_arguments_do_not_count_together() {
        let request = request(2, &[]);
        let votes = [vote(&request, person("ann"))];
        let other = admit_decision(
            &request,
            &votes,
            &Decision::approve_with_edits(person("bob"), edited()),
            EARLY,
        );
        assert_eq!(other, Ok(AdmittedDecision::Counted { missing: 1 }));
        let same = admit_decision(&request, &votes, &Decision::approve(person("bob")), EARLY);
        assert_eq!(
            same,
            Ok(AdmittedDecision::Decided {
                with: vec![person("ann")]
            })
        );
    }

    #[test]
    fn one_denial_denies_and_an_approver_may_change_their_mind() {
        let request = request(3, &[]);
        let votes = [vote(&request, person("ann"))];
        assert!(matches!(
            admit_decision(&request, &votes, &Decision::deny("ann", None), EARLY),
            Ok(AdmittedDecision::Decided { .. })
        ));
    }

    #[test]
    fn a_claimed_name_never_counts_towards_a_quorum() {
        let claim = |name: &str| ApproverIdentity::from(name);
        for among in [&[][..], &["ann", "bob"]] {
            for needed in [1, 2, 3] {
                let request = request(needed, among);
                let votes = [vote(&request, person("ann"))];
                for decision in [
                    Decision::approve(claim("bob")),
                    Decision::approve_with_edits(claim("bob"), edited()),
                    Decision::approve(claim("bob").claiming(Some("bob".into()))),
                    Decision::approve(person(" ")),
                ] {
                    let code = admit_decision(&request, &votes, &decision, EARLY);
                    let code = code.expect_err("does not count");
                    let expected = [RejectCode::UnverifiedApprover, RejectCode::NotEntitled];
                    assert!(expected.contains(&code), "{code:?} {decision:?}");
                }
            }
        }
        // A claimed vote in the store, as an earlier version has left it, is not counted either.
        let request = request(2, &[]);
        let votes = [vote(&request, "ann"), vote(&request, "cid")];
        let last = Decision::approve(person("bob"));
        assert_eq!(
            admit_decision(&request, &votes, &last, EARLY),
            Ok(AdmittedDecision::Counted { missing: 1 })
        );
    }

    #[test]
    fn a_claimed_name_is_on_no_list_of_approvers_and_may_deny_only_where_anyone_may() {
        let deny = Decision::deny("ann", None);
        assert!(admit_decision(&request(2, &[]), &[], &deny, EARLY).is_ok());
        assert_eq!(
            admit_decision(&request(1, &["ann"]), &[], &deny, EARLY),
            Err(RejectCode::UnverifiedApprover)
        );
        let deny = Decision::deny(person("ann"), None);
        assert!(admit_decision(&request(1, &["ann"]), &[], &deny, EARLY).is_ok());
    }

    #[test]
    fn votes_of_one_account_count_once_whatever_name_they_claim() {
        let request = request(2, &[]);
        let votes = [vote(
            &request,
            account("ann", 1000).claiming(Some("bob".into())),
        )];
        for by in [
            account("ann", 1000).claiming(Some("carol".into())),
            account("ann", 1000),
            account("carol", 1000),
            account("ANN", 1001),
            person("Ann "),
        ] {
            assert_eq!(
                admit_decision(&request, &votes, &Decision::approve(by.clone()), EARLY),
                Err(RejectCode::Duplicate),
                "{by:?}"
            );
        }
        assert_eq!(
            Vote::record_key(&request, &account("ann", 1000)),
            Vote::record_key(&request, &account("bob", 1000).claiming(Some("x".into())))
        );
        // The same in the store: five votes of one account are one.
        let votes: Vec<Vote> = ["ann", "bob", "cid", "dan", "Ann"]
            .map(|name| vote(&request, account(name, 1000)))
            .into();
        let three = ApprovalRequest {
            quorum: Some(Quorum {
                needed: 3,
                among: Vec::new(),
            }),
            ..request
        };
        let last = Decision::approve(account("fay", 1001));
        assert_eq!(
            admit_decision(&three, &votes, &last, EARLY),
            Ok(AdmittedDecision::Counted { missing: 1 })
        );
    }

    #[test]
    fn a_stored_answer_is_counted_again_before_it_runs() {
        let request = request(2, &["ann", "bob", "eve"]);
        let answer = |by: ApproverIdentity, with: &[ApproverIdentity]| {
            let mut answer = ApprovalAnswer::for_request(&request, Decision::approve(by));
            answer.with = with.to_vec();
            answer
        };
        assert!(meets_quorum(
            &request,
            &answer(person("ann"), &[person("bob")])
        ));
        for short in [
            answer("ann".into(), &["bob".into()]),
            answer(person("ann"), &["bob".into()]),
            answer(person("ann"), &[person("ann")]),
            answer(person("ann"), &[person("eve")]),
            answer(person("ann"), &[person("mallory")]),
            answer(account("ann", 7), &[account("bob", 7)]),
            answer(person("ann"), &[]),
        ] {
            assert!(!meets_quorum(&request, &short), "{short:?}");
        }
        let denied = ApprovalAnswer::for_request(&request, Decision::deny("x", None));
        assert!(meets_quorum(&request, &denied), "a denial needs no quorum");
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
                    Decision::approve_with_edits(person(by), edited())
                } else {
                    Decision::approve(person(by))
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
