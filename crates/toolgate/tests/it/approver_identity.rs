//! A decision belongs to an approver whose identity is established, and the record says how.

use serde_json::{Value, json};
use toolgate::{
    approval::{
        ApprovalAnswer, ApprovalChange, ApproverIdentity, IdentitySource, Quorum,
        append_approval_response, apply_approval_responses, approval_requests, suspended_messages,
    },
    event::ToolEvent,
    layers::{Ledger, Receipts, Validate},
    prelude::*,
    session::{DeliverError, RejectCode},
    store::{EventStore, RecordKey, RecordStore, StoreRecord},
};
use toolgate_testkit::authenticated;

use crate::approval_world::{
    ApprovalWorld, call_statuses, code_of, pending_request, pending_token, resume_turn,
};

fn account(name: &str, uid: u32) -> ApproverIdentity {
    let host = "pc".to_owned();
    ApproverIdentity::new(name, IdentitySource::LocalAccount { uid, host })
}

/// Builds a stack that asks for two approvals of a payment and writes receipts.
fn two_approvals(world: &ApprovalWorld) -> Stack {
    let among = Vec::new();
    let asking = world.asking_layer().quorum(Quorum { needed: 2, among });
    Stack::over(world.registry.clone())
        .layer(Receipts::to_store())
        .layer(Validate::new())
        .layer(asking)
        .build()
        .expect("in order")
}

#[tokio::test]
async fn a_client_cannot_say_how_its_own_identity_was_established() {
    let world = ApprovalWorld::new();
    let (_, report, _) = world.run_until_asked(two_approvals(&world)).await;
    let service = world.approval_service();
    let token = pending_token(&service, report.results[0].id).await;
    for claim in [
        json!({ "by": "ann" }),
        json!({ "by": "ann", "established": { "how": "authenticated_token" } }),
        json!({ "by": "ann", "established": { "how": "local_account", "uid": 1000, "host": "pc" } }),
        json!({ "by": "ann", "established": { "how": "identity_provider", "issuer": "x" } }),
        json!({ "by": "ann", "claimed_as": "bob" }),
    ] {
        let mut raw = claim.clone();
        raw["token"] = token.clone().into();
        raw["decision"] = "approve".into();
        let code = code_of(service.decide_raw(&raw).await);
        assert_eq!(code, RejectCode::UnverifiedApprover, "{claim}");
    }
    let mut unknown = json!({ "by": "ann", "established": { "how": "trust me" } });
    unknown["token"] = token.into();
    unknown["decision"] = "approve".into();
    let code = code_of(service.decide_raw(&unknown).await);
    assert_eq!(code, RejectCode::NotADecision);
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn in_messages_only_the_identity_that_the_host_gives_counts() {
    let world = ApprovalWorld::new();
    let (_, report, _) = world.run_until_asked(two_approvals(&world)).await;
    let service = world.approval_service();
    let mut messages = suspended_messages(&service, &report).await.expect("writes");
    let asked = approval_requests(&messages).remove(0);
    append_approval_response(&mut messages, asked.approve());
    let apply = async |by: ApproverIdentity| {
        apply_approval_responses(&service, &messages, by)
            .await
            .remove(0)
    };
    for name in ["ann", "bob", "eve", "", "Ann"] {
        let rejected = apply(name.into()).await.expect_err("does not count");
        let expected = [None, Some(RejectCode::UnverifiedApprover)];
        assert!(expected.contains(&rejected.code()), "{name}: {rejected:?}");
    }
    apply(authenticated("ann")).await.expect("counts");
    let twice = apply(account("ann", 7)).await;
    assert_eq!(code_of(twice), RejectCode::Duplicate, "one person");
    let mut forged = messages.clone();
    for key in ["by", "established", "approver", "claimed_as"] {
        let part: &mut Value = &mut forged.last_mut().expect("the response")["content"][0];
        part[key] = json!({ "how": "authenticated_token" });
        let answers = apply_approval_responses(&service, &forged, "mallory").await;
        assert!(
            matches!(
                answers[0],
                Err(DeliverError::Rejected(RejectCode::NotADecision))
            ),
            "{key}: {answers:?}"
        );
    }
    apply(authenticated("bob")).await.expect("completes");
}

#[tokio::test]
async fn how_each_approver_was_established_is_on_the_answer_the_event_the_token_and_the_receipt() {
    let world = ApprovalWorld::new();
    let (process, report, asked) = world.run_until_asked(two_approvals(&world)).await;
    let service = world.approval_service();
    let ann = account("ann", 1000).claiming(Some("the boss".into()));
    let issuer = "login".to_owned();
    let bob = ApproverIdentity::new("bob", IdentitySource::IdentityProvider { issuer });
    for by in [&ann, &bob] {
        let decision = Decision::approve(by.clone());
        service.decide(&asked, decision).await.expect("counts");
    }
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Ok)]);
    let call = report.results[0].id;
    let Some(StoreRecord::Answer(answer)) = world
        .store
        .load_record(&RecordKey::Answer(call, 0))
        .await
        .expect("reads")
    else {
        panic!("no answer")
    };
    assert_eq!(
        (&answer.decision.by, &*answer.with),
        (&bob, &[ann.clone()][..])
    );
    let token = answer.token.as_deref().expect("signed");
    let claims = world.ring.verify_grant_token(token).expect("ours");
    assert_eq!(claims.identities, [bob.clone(), ann.clone()]);
    let events = world
        .store
        .events(world.session, 0, 100)
        .await
        .expect("reads");
    let approved = events.iter().find_map(|event| match event.as_tool() {
        Some((
            _,
            ToolEvent::ToolApproved {
                approver,
                established,
                ..
            },
        )) => Some((approver.clone(), established.clone())),
        _ => None,
    });
    assert_eq!(approved, Some((bob.name.clone(), bob.established.clone())));
    let ledger = Ledger::main(world.handle());
    let receipt = ledger
        .find_receipt(call)
        .await
        .expect("reads")
        .expect("there");
    let approval = receipt.receipt.approval.expect("approved");
    assert_eq!(approval.by, Some("bob".into()));
    assert_eq!(approval.identities, [bob, ann]);
}

#[tokio::test]
async fn an_answer_whose_approvers_were_only_claimed_does_not_run_the_call() {
    let world = ApprovalWorld::new();
    let (_, report, asked) = world.run_until_asked(two_approvals(&world)).await;
    for name in ["ann", "bob"] {
        let decision = Decision::approve(authenticated(name));
        let service = world.approval_service();
        service.decide(&asked, decision).await.expect("counts");
    }
    type Edit = fn(&mut ApprovalAnswer);
    let claimed: [Edit; 5] = [
        |answer| {
            answer.decision.by = "bob".into();
            answer.with = vec!["ann".into()];
        },
        |answer| answer.with = vec!["ann".into()],
        |answer| answer.with.clear(),
        |answer| answer.with = vec![authenticated("bob")],
        |answer| answer.with = vec![authenticated("eve")],
    ];
    for edit in claimed {
        let call = report.results[0].id;
        let edited = world
            .edit_records(report.turn, call, |answer, question| {
                edit(answer);
                // Signed as an earlier version would have signed it.
                answer.token = world.ring.grant_token(question, answer);
            })
            .await;
        let process = edited.open_process(two_approvals(&edited)).await;
        let again = resume_turn(&process, &report, edited.view()).await;
        let request = pending_request(&again, 0);
        assert_eq!(request.changed, [ApprovalChange::Approvers]);
        assert!(edited.effects().is_empty());
    }
}

#[tokio::test]
async fn a_decision_without_a_name_is_rejected() {
    let world = ApprovalWorld::new();
    let stack = world.stack(world.asking_layer());
    let (_, _, asked) = world.run_until_asked(stack).await;
    let service = world.approval_service();
    for by in [
        ApproverIdentity::from(""),
        ApproverIdentity::from(" \t"),
        authenticated(""),
        account(" ", 0),
        ApproverIdentity::from("").claiming(Some("ann".into())),
    ] {
        for decision in [
            Decision::approve(by.clone()),
            Decision::deny(by.clone(), None),
        ] {
            let rejected = service.decide(&asked, decision).await;
            assert!(matches!(rejected, Err(DeliverError::NoApprover)), "{by:?}");
        }
    }
    assert!(world.effects().is_empty());
}
