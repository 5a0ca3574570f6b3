//! Decisions through the approval service: which are accepted, and the code of every rejected one.

use std::time::Duration;

use crate::approval_world::{
    ApprovalWorld, amount_arguments, call_statuses, code_of, keyring_with, look_request,
    pay_request, pending_request, pending_token, resume_turn, run_turn,
};
use serde_json::json;
use toolgate::{
    approval::{
        AdmittedDecision, ApprovalRequest, ApprovalService, ApproverIdentity, DecisionTarget,
        Keyring, Quorum, Vote,
    },
    layers::Approval,
    prelude::*,
    session::{DeliverError, Dispatcher, RejectCode, TurnReport},
    store::{
        ApprovalFilter, ApprovalState, MailboxItem, MailboxStore, RecordKey, RecordStore,
        StoreRecord,
    },
    value::{ApprovalId, CallId, Digest, Json, Timestamp},
};
use toolgate_testkit::{CountingIds, authenticated};

async fn request_with_token(world: &ApprovalWorld) -> (Dispatcher, TurnReport, String) {
    let (process, report, _) = world
        .run_until_asked(world.stack(world.asking_layer()))
        .await;
    let token = pending_token(&world.approval_service(), report.results[0].id).await;
    (process, report, token)
}

fn admitted_decision() -> AdmittedDecision {
    AdmittedDecision::Decided { with: Vec::new() }
}

/// Asserts that nothing ran and the call is still pending.
async fn assert_untouched(world: &ApprovalWorld, report: &TurnReport, refusals: &[RejectCode]) {
    assert!(world.effects().is_empty());
    assert_eq!(
        world.rejection_codes().await,
        refusals,
        "every rejection is recorded"
    );
    let answer = world
        .store
        .load_record(&RecordKey::Answer(report.results[0].id, 0))
        .await
        .expect("reads");
    assert_eq!(answer, None);
}

#[tokio::test]
async fn a_decision_with_the_token_of_the_request_is_accepted_and_runs_once() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let desk = world.approval_service();
    assert_eq!(
        desk.decide(token.as_str(), Decision::approve("ann"))
            .await
            .expect("taken"),
        admitted_decision()
    );
    let posts = world
        .store
        .posts(world.session, 0, 10)
        .await
        .expect("reads");
    let call = report.results[0].id;
    assert_eq!(posts.len(), 1);
    assert_eq!(
        posts[0].1,
        MailboxItem::Answer {
            turn: report.turn,
            call,
            generation: 0
        }
    );
    let Some(StoreRecord::Answer(answer)) = world
        .store
        .load_record(&RecordKey::Answer(call, 0))
        .await
        .expect("reads")
    else {
        panic!("the answer is there")
    };
    assert_eq!(
        answer.decided_at,
        Some(toolgate::value::Clock::now(&world.clock))
    );
    assert!(answer.token.is_some());
    let shown = desk
        .find_approval(toolgate::value::ApprovalId::for_call(call))
        .await
        .expect("reads")
        .expect("there");
    assert_eq!(shown.row.state, ApprovalState::Answered);
    let process = world.open_process(world.stack(world.asking_layer())).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
    assert_eq!(world.effects(), [json!({ "pay": 5 })]);
}

#[tokio::test]
async fn a_forged_token_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    // Another installation does not even issue a token for a request that it has not sealed.
    let other = ApprovalService::new(world.handle()).keyring(keyring_with("k1", 66));
    let rows = other
        .list_approvals(ApprovalFilter::default())
        .await
        .expect("lists");
    let unsealed = other.request_token(&rows[0]).await;
    assert!(
        matches!(unsealed, Err(DeliverError::Changed(_))),
        "{unsealed:?}"
    );
    let theirs = keyring_with("k1", 66).ask_token(&pending_request(&report, 0));
    assert_eq!(
        code_of(
            world
                .approval_service()
                .decide(theirs.as_str(), Decision::approve("ann"))
                .await
        ),
        RejectCode::Forged
    );
    let cut = &token[..token.len() - 2];
    assert_eq!(
        code_of(
            world
                .approval_service()
                .decide(cut, Decision::approve("ann"))
                .await
        ),
        RejectCode::Forged
    );
    assert_untouched(&world, &report, &[RejectCode::Forged; 2]).await;
}

#[tokio::test]
async fn malformed_tokens_are_forged_and_recorded_nowhere() {
    let world = ApprovalWorld::new();
    let (_, report, _) = request_with_token(&world).await;
    assert_eq!(
        code_of(
            world
                .approval_service()
                .decide("nonsense", Decision::approve("ann"))
                .await
        ),
        RejectCode::Forged
    );
    assert_untouched(&world, &report, &[]).await;
}

#[tokio::test]
async fn a_token_of_a_removed_key_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let rotated = ApprovalWorld {
        ring: keyring_with("k2", 2),
        ..world.clone()
    };
    assert_eq!(
        code_of(
            rotated
                .approval_service()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        RejectCode::KeyGone
    );
    let keyless = ApprovalService::new(world.handle());
    assert_eq!(
        code_of(
            keyless
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        RejectCode::KeyGone
    );
    assert_untouched(&world, &report, &[RejectCode::KeyGone; 2]).await;
}

#[tokio::test]
async fn the_token_of_an_earlier_request_is_rejected() {
    let world = ApprovalWorld::new();
    let (process, report, first) = request_with_token(&world).await;
    process
        .approval_service()
        .decide(&pending_request(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    // The tool has changed meanwhile, so the approval is requested again.
    let other = ApprovalWorld {
        registry: crate::approval_world::build_tools(&world.ran, "Pays somebody else."),
        ..world.clone()
    };
    let process = other.open_process(other.stack(other.asking_layer())).await;
    let again = resume_turn(&process, &report, other.view()).await;
    assert_eq!(pending_request(&again, 0).generation, 1);
    let stale = world
        .approval_service()
        .decide(first.as_str(), Decision::approve("ann"))
        .await;
    assert_eq!(code_of(stale), RejectCode::TokenMismatch);
    assert_eq!(other.rejection_codes().await, [RejectCode::TokenMismatch]);
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn a_replayed_token_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, _, token) = request_with_token(&world).await;
    let desk = world.approval_service();
    desk.decide(token.as_str(), Decision::approve("ann"))
        .await
        .expect("taken");
    for decision in [
        Decision::approve("ann"),
        Decision::approve("bob"),
        Decision::deny("bob", None),
    ] {
        assert_eq!(
            code_of(desk.decide(token.as_str(), decision).await),
            RejectCode::Replayed
        );
    }
    assert_eq!(world.rejection_codes().await, [RejectCode::Replayed; 3]);
}

#[tokio::test]
async fn a_second_answer_to_a_named_request_is_a_duplicate() {
    let world = ApprovalWorld::new();
    let (_, report, _) = request_with_token(&world).await;
    let desk = world.approval_service();
    let named = pending_request(&report, 0);
    desk.decide(&named, Decision::approve("ann"))
        .await
        .expect("taken");
    assert_eq!(
        code_of(desk.decide(&named, Decision::approve("bob")).await),
        RejectCode::Duplicate
    );
    assert_eq!(world.rejection_codes().await, [RejectCode::Duplicate]);
}

#[tokio::test]
async fn a_decision_after_a_denial_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let desk = world.approval_service();
    desk.decide(token.as_str(), Decision::deny("ann", Some("no")))
        .await
        .expect("taken");
    assert_eq!(
        code_of(desk.decide(token.as_str(), Decision::approve("bob")).await),
        RejectCode::AlreadyDenied
    );
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Denied)]);
    assert_eq!(
        report.results[0].model_text().expect("told"),
        "Tool execution denied: no"
    );
    assert_eq!(
        code_of(desk.decide(token.as_str(), Decision::approve("bob")).await),
        RejectCode::AlreadyDenied
    );
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn a_decision_for_a_closed_turn_is_rejected() {
    let world = ApprovalWorld::new();
    let (process, report, token) = request_with_token(&world).await;
    process
        .approval_service()
        .decide(&pending_request(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    resume_turn(&process, &report, world.view()).await;
    assert_eq!(world.effects().len(), 1);
    let late = world
        .approval_service()
        .decide(token.as_str(), Decision::approve("bob"))
        .await;
    assert_eq!(code_of(late), RejectCode::TurnClosed);
    assert_eq!(
        (world.rejection_codes().await, world.effects().len()),
        (vec![RejectCode::TurnClosed], 1)
    );
}

#[tokio::test]
async fn a_decision_for_an_interrupted_call_is_rejected() {
    let world = ApprovalWorld::new();
    let (process, report, token) = request_with_token(&world).await;
    let taken_up = process
        .resume(report.turn, world.view())
        .await
        .expect("resumes");
    taken_up
        .handle()
        .interrupt("never mind")
        .await
        .expect("written");
    assert_eq!(
        call_statuses(&taken_up.run().await.expect("runs")),
        [Some(Status::Cancelled)]
    );
    assert_eq!(
        code_of(
            world
                .approval_service()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        RejectCode::TurnClosed
    );
    assert_untouched(&world, &report, &[RejectCode::TurnClosed]).await;
}

#[tokio::test]
async fn an_expired_request_accepts_no_decision() {
    let world = ApprovalWorld::new();
    let hour = Duration::from_secs(3_600);
    let (process, report, named) = world
        .run_until_asked(world.stack(world.asking_layer().expires_after(hour)))
        .await;
    let token = pending_token(&world.approval_service(), report.results[0].id).await;
    world.clock.advance(hour);
    assert_eq!(
        code_of(
            world
                .approval_service()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        RejectCode::Expired
    );
    assert_eq!(
        code_of(
            process
                .approval_service()
                .decide(&named, Decision::approve("ann"))
                .await
        ),
        RejectCode::Expired
    );
    assert_untouched(&world, &report, &[RejectCode::Expired; 2]).await;
}

#[tokio::test]
async fn a_decision_in_time_is_valid_however_late_the_turn_is_resumed() {
    let world = ApprovalWorld::new();
    let hour = Duration::from_secs(3_600);
    let stack = || world.stack(world.asking_layer().expires_after(hour));
    let (_, report, named) = world.run_until_asked(stack()).await;
    world.clock.advance(hour / 2);
    world
        .approval_service()
        .decide(&named, Decision::approve("ann"))
        .await
        .expect("taken");
    world.clock.advance(hour * 48);
    let process = world.open_process(stack()).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn an_unknown_decision_word_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let desk = world.approval_service();
    let mut refused = Vec::new();
    for word in [
        json!("Approve"),
        json!("yes"),
        json!("approve "),
        json!(""),
        json!(null),
        json!(true),
        json!(1),
    ] {
        let raw = json!({ "token": token, "decision": word, "by": "ann" });
        refused.push(code_of(desk.decide_raw(&raw).await));
    }
    refused.push(code_of(
        desk.decide_raw(&json!({ "token": token, "by": "ann" }))
            .await,
    ));
    refused.push(code_of(
        desk.decide_raw(&json!({ "token": token, "decision": "approve" }))
            .await,
    ));
    let id = toolgate::value::ApprovalId::for_call(report.results[0].id);
    refused.push(code_of(
        desk.decide_raw(&json!({ "approval_id": id, "decision": "approve", "by": "ann" }))
            .await,
    ));
    assert_eq!(refused, [RejectCode::NotADecision; 10]);
    assert_untouched(&world, &report, &refused).await;
    let raw = json!({ "token": token, "decision": "approve", "by": "ann" });
    assert_eq!(
        desk.decide_raw(&raw).await.expect("taken"),
        admitted_decision()
    );
}

#[tokio::test]
async fn an_approval_with_undeclared_edits_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let unclear =
        json!({ "token": token, "decision": "approve", "by": "ann", "arguments": { "amount": 1 } });
    assert_eq!(
        code_of(world.approval_service().decide_raw(&unclear).await),
        RejectCode::NotADecision
    );
    assert_untouched(&world, &report, &[RejectCode::NotADecision]).await;
}

#[tokio::test]
async fn a_decision_without_a_name_is_rejected() {
    let world = ApprovalWorld::new();
    let (_, report, token) = request_with_token(&world).await;
    let refused = world
        .approval_service()
        .decide(token.as_str(), Decision::approve("  "))
        .await;
    assert!(matches!(
        refused,
        Err(toolgate::session::DeliverError::NoApprover)
    ));
    assert_untouched(&world, &report, &[]).await;
}

#[tokio::test]
async fn several_decisions_are_answered_each_on_its_own() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![
            pay_request("1", 1),
            look_request("2"),
            pay_request("3", 3),
            pay_request("4", 4),
        ],
    )
    .await;
    let desk = world.approval_service();
    let on = |at: usize| DecisionTarget::from(&pending_request(&report, at));
    let answers = desk
        .decide_many(vec![
            (
                on(3),
                Decision::approve_with_edits("ann", amount_arguments(40)),
            ),
            (DecisionTarget::from("nonsense"), Decision::approve("ann")),
            (on(0), Decision::deny("ann", None)),
            (on(0), Decision::approve("ann")),
        ])
        .await;
    let codes: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.map_err(|error| error.code()))
        .collect();
    let taken = || Ok(admitted_decision());
    assert_eq!(
        codes,
        [
            taken(),
            Err(Some(RejectCode::Forged)),
            taken(),
            Err(Some(RejectCode::AlreadyDenied))
        ]
    );
    let pending = desk
        .list_approvals(ApprovalFilter::default())
        .await
        .expect("lists");
    assert_eq!(pending.len(), 1, "the third is still open");
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(
        call_statuses(&report),
        [
            Some(Status::Denied),
            Some(Status::Ok),
            None,
            Some(Status::Ok)
        ]
    );
    assert_eq!(world.effects(), [json!("look"), json!({ "pay": 40 })]);
}

fn two_of(world: &ApprovalWorld, among: &[&str]) -> Approval {
    let among = among.iter().map(|name| (*name).into()).collect();
    world.asking_layer().quorum(Quorum { needed: 2, among })
}

#[tokio::test]
async fn a_quorum_needs_two_different_approvers_other_than_the_requester() {
    for from_elsewhere in [true, false] {
        let world = ApprovalWorld::new();
        let stack = || world.stack(two_of(&world, &["ann", "bob", "eve"]));
        let (process, report, named) = world.run_until_asked(stack()).await;
        let service = if from_elsewhere {
            world.approval_service()
        } else {
            process.approval_service()
        };
        let decide = async |name: &str| {
            let decision = Decision::approve(authenticated(name));
            service.decide(&named, decision).await
        };
        assert_eq!(code_of(decide("eve").await), RejectCode::SelfApproval);
        assert_eq!(code_of(decide("mallory").await), RejectCode::NotEntitled);
        decide("ann").await.expect("counted");
        assert_eq!(code_of(decide("ann").await), RejectCode::Duplicate);
        assert_untouched(
            &world,
            &report,
            &[
                RejectCode::SelfApproval,
                RejectCode::NotEntitled,
                RejectCode::Duplicate,
            ],
        )
        .await;
        decide("bob").await.expect("taken");
        let process = world.open_process(stack()).await;
        let report = resume_turn(&process, &report, world.view()).await;
        assert_eq!(
            call_statuses(&report),
            [Some(Status::Ok)],
            "{from_elsewhere}"
        );
        let notes = report.results[0]
            .outcome
            .as_ref()
            .expect("settled")
            .notes
            .fields()
            .expect("noted")
            .clone();
        assert_eq!(notes.metadata["approved_with"], json!(["ann"]));
        assert_eq!(notes.consent.expect("noted").decided_by.as_str(), "bob");
    }
}

#[tokio::test]
async fn votes_for_other_arguments_do_not_add_up_and_one_denial_denies() {
    let world = ApprovalWorld::new();
    let (_, report, named) = world
        .run_until_asked(world.stack(two_of(&world, &[])))
        .await;
    let desk = world.approval_service();
    let counted = AdmittedDecision::Counted { missing: 1 };
    assert_eq!(
        desk.decide(&named, Decision::approve(authenticated("ann")))
            .await
            .expect("counted"),
        counted
    );
    let edited = Decision::approve_with_edits(authenticated("bob"), amount_arguments(6));
    assert_eq!(desk.decide(&named, edited).await.expect("counted"), counted);
    let shown = desk
        .find_approval(named.approval_id)
        .await
        .expect("reads")
        .expect("there");
    assert_eq!(shown.votes.len(), 2);
    desk.decide(&named, Decision::deny("cid", None))
        .await
        .expect("taken");
    let process = world.open_process(world.stack(two_of(&world, &[]))).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Denied)]
    );
    assert!(world.effects().is_empty());
}

/// Stores a vote as the service does, or without the signature, as another writer of the store
/// could.
/// Returns the vote of an approver for a request, without a signature.
fn unsigned_vote(named: &ApprovalRequest, by: ApproverIdentity) -> Vote {
    let decision = Decision::approve(by);
    let vote = Vote::from_decision(named, &decision, Timestamp::EPOCH);
    vote.expect("approves")
}

async fn store_vote(
    world: &ApprovalWorld,
    named: &ApprovalRequest,
    name: &str,
    sign: impl FnOnce(&Vote) -> Option<String>,
) {
    let mut vote = unsigned_vote(named, authenticated(name));
    vote.token = sign(&vote);
    let vote = Json::new(serde_json::to_value(vote).expect("writes")).expect("small");
    let key = Vote::record_key(named, &authenticated(name));
    let stored = world.store.put_record_once(key, StoreRecord::Json(vote));
    stored.await.expect("kept");
}

/// Returns signatures that are not those of the vote of Ann for this request.
fn foreign_signatures(ring: &Keyring, named: &ApprovalRequest) -> Vec<Option<String>> {
    let ann = || unsigned_vote(named, authenticated("ann"));
    let mut later = named.clone();
    later.generation += 1;
    let mut edited = ann();
    edited.arguments_digest = Digest::of_bytes(b"other arguments");
    let other_call = ApprovalId::for_call(CallId::from_source(&CountingIds::after(900)));
    let mut other = named.clone();
    other.approval_id = other_call;
    let forger = keyring_with("k1", 9);
    let valid = ring.vote_token(named, &ann());
    vec![
        None,
        Some(String::new()),
        Some(forger.vote_token(named, &ann())),
        Some(ring.vote_token(&later, &ann())),
        Some(ring.vote_token(&other, &ann())),
        Some(ring.vote_token(named, &edited)),
        Some(ring.vote_token(named, &unsigned_vote(named, authenticated("carol")))),
        Some(ring.vote_token(named, &unsigned_vote(named, "ann".into()))),
        named.seal.clone(),
        Some(valid[..valid.len() - 1].to_owned()),
    ]
}

#[tokio::test]
async fn an_unsigned_vote_in_the_store_does_not_count() {
    for at in 0..10 {
        let world = ApprovalWorld::new();
        let (_, _, named) = world
            .run_until_asked(world.stack(two_of(&world, &[])))
            .await;
        let signature = foreign_signatures(&world.ring, &named).swap_remove(at);
        store_vote(&world, &named, "ann", |_| signature).await;
        let desk = world.approval_service();
        let by_bob = desk.decide(&named, Decision::approve(authenticated("bob")));
        assert_eq!(
            by_bob.await.expect("counted"),
            AdmittedDecision::Counted { missing: 1 },
            "{at}"
        );
        let by_ann = desk.decide(&named, Decision::approve(authenticated("ann")));
        assert_eq!(code_of(by_ann.await.map(drop)), RejectCode::Forged, "{at}");
        let found = desk.find_approval(named.approval_id).await;
        let votes = found.expect("reads").expect("there").votes;
        assert_eq!(votes.len(), 1, "{at}");
    }
}

#[tokio::test]
async fn a_denied_call_is_not_listed_as_pending_by_any_driver() {
    let world = ApprovalWorld::new();
    let (process, report, named) = world
        .run_until_asked(world.stack(world.asking_layer()))
        .await;
    process
        .approval_service()
        .decide(&named, Decision::deny("ann", None))
        .await
        .expect("taken");
    assert!(
        world
            .approval_service()
            .list_approvals(ApprovalFilter::default())
            .await
            .expect("reads")
            .is_empty()
    );
    let again = process
        .approval_service()
        .decide(&named, Decision::approve(authenticated("bob")))
        .await;
    assert_eq!(code_of(again), RejectCode::AlreadyDenied);
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Denied)]
    );
}

#[tokio::test]
async fn a_last_vote_whose_process_died_is_completed_by_repeating_it() {
    let world = ApprovalWorld::new();
    let (_, report, named) = world
        .run_until_asked(world.stack(two_of(&world, &[])))
        .await;
    for name in ["ann", "bob"] {
        store_vote(&world, &named, name, |vote| {
            Some(world.ring.vote_token(&named, vote))
        })
        .await;
    }
    let answer = world
        .approval_service()
        .decide(&named, Decision::approve(authenticated("bob")))
        .await
        .expect("taken");
    assert_eq!(
        answer,
        AdmittedDecision::Decided {
            with: vec![authenticated("ann")]
        }
    );
    let process = world.open_process(world.stack(two_of(&world, &[]))).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn an_open_turn_can_be_interrupted_through_the_approval_service() {
    let world = ApprovalWorld::new();
    let (process, report, _) = request_with_token(&world).await;
    let desk = world.approval_service();
    let nowhere = "00000000-0000-0000-0000-0000000000bb"
        .parse()
        .expect("an id");
    assert!(!desk.interrupt_turn(nowhere, "stop").await.expect("reads"));
    assert!(
        desk.interrupt_turn(report.turn, "stop")
            .await
            .expect("posts")
    );
    let posts = world
        .store
        .posts(world.session, 0, 10)
        .await
        .expect("reads");
    assert_eq!(
        posts[0].1,
        MailboxItem::Interrupt {
            turn: report.turn,
            reason: "stop".into()
        }
    );
    process
        .approval_service()
        .decide(&pending_request(&report, 0), Decision::deny("ann", None))
        .await
        .expect("taken");
    resume_turn(&process, &report, world.view()).await;
    assert!(
        !desk
            .interrupt_turn(report.turn, "stop")
            .await
            .expect("reads"),
        "it has ended"
    );
}
