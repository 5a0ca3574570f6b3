//! Decisions that come in at the desk: what is taken, and with which code everything else is refused.

mod approving;

use std::time::Duration;

use approving::{World, amount, code, look, pay, question, resume, ring, run, statuses, token};
use serde_json::json;
use toolgate::{
    Admitted, ApprovalFilter, ApprovalState, Approvals, DecideOn, Post, Quorum, Record, RecordKey,
    Store, layers::Approval, prelude::*,
};

async fn asked(world: &World) -> (Dispatcher, TurnReport, String) {
    let (process, report, _) = world.asked(world.stack(world.asking())).await;
    let token = token(&world.desk(), report.results[0].id).await;
    (process, report, token)
}

fn decided() -> Admitted {
    Admitted::Decided { with: Vec::new() }
}

/// Nothing ran and nothing will: the call is as it was.
async fn untouched(world: &World, report: &TurnReport, refusals: &[PostCode]) {
    assert!(world.ran().is_empty());
    assert_eq!(
        world.refusals().await,
        refusals,
        "every refusal is recorded"
    );
    let answer = world
        .store
        .record(&RecordKey::Answer(report.results[0].id, 0))
        .await
        .expect("reads");
    assert_eq!(answer, None);
}

#[tokio::test]
async fn a_decision_with_the_token_of_the_question_is_taken_and_runs_once() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let desk = world.desk();
    assert_eq!(
        desk.decide(token.as_str(), Decision::approve("ann"))
            .await
            .expect("taken"),
        decided()
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
        Post::Answer {
            turn: report.turn,
            call,
            generation: 0
        }
    );
    let Some(Record::Answer(answer)) = world
        .store
        .record(&RecordKey::Answer(call, 0))
        .await
        .expect("reads")
    else {
        panic!("the answer is there")
    };
    assert_eq!(answer.decided_at, Some(toolgate::Clock::now(&world.clock)));
    assert!(answer.token.is_some());
    let shown = desk
        .show(toolgate::ApprovalId::of(call))
        .await
        .expect("reads")
        .expect("there");
    assert_eq!(shown.row.state, ApprovalState::Answered);
    let process = world.process(world.stack(world.asking())).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
    assert_eq!(world.ran(), [json!({ "pay": 5 })]);
}

#[tokio::test]
async fn a_forged_token_is_refused() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let forged = Approvals::new(world.handle()).keyring(ring("k1", 66));
    let rows = forged
        .pending(ApprovalFilter::default())
        .await
        .expect("lists");
    let theirs = forged
        .token(&rows[0])
        .await
        .expect("reads")
        .expect("signed");
    assert_eq!(
        code(
            world
                .desk()
                .decide(theirs.as_str(), Decision::approve("ann"))
                .await
        ),
        PostCode::Forged
    );
    let cut = &token[..token.len() - 2];
    assert_eq!(
        code(world.desk().decide(cut, Decision::approve("ann")).await),
        PostCode::Forged
    );
    untouched(&world, &report, &[PostCode::Forged; 2]).await;
}

#[tokio::test]
async fn what_is_no_token_is_forged_and_concerns_nobody() {
    let world = World::new();
    let (_, report, _) = asked(&world).await;
    assert_eq!(
        code(
            world
                .desk()
                .decide("nonsense", Decision::approve("ann"))
                .await
        ),
        PostCode::Forged
    );
    untouched(&world, &report, &[]).await;
}

#[tokio::test]
async fn a_token_of_a_key_that_is_gone_is_refused() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let rotated = World {
        ring: ring("k2", 2),
        ..world.clone()
    };
    assert_eq!(
        code(
            rotated
                .desk()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        PostCode::KeyGone
    );
    let keyless = Approvals::new(world.handle());
    assert_eq!(
        code(
            keyless
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        PostCode::KeyGone
    );
    untouched(&world, &report, &[PostCode::KeyGone; 2]).await;
}

#[tokio::test]
async fn the_token_of_an_earlier_question_is_about_another_one() {
    let world = World::new();
    let (process, report, first) = asked(&world).await;
    process
        .decide(report.turn, &question(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    // The tool has changed meanwhile, so somebody is asked again.
    let other = World {
        registry: approving::tools(&world.ran, "Pays somebody else."),
        ..world.clone()
    };
    let process = other.process(other.stack(other.asking())).await;
    let again = resume(&process, &report, other.view()).await;
    assert_eq!(question(&again, 0).generation, 1);
    let stale = world
        .desk()
        .decide(first.as_str(), Decision::approve("ann"))
        .await;
    assert_eq!(code(stale), PostCode::TokenMismatch);
    assert_eq!(other.refusals().await, [PostCode::TokenMismatch]);
    assert!(world.ran().is_empty());
}

#[tokio::test]
async fn a_replayed_token_is_refused() {
    let world = World::new();
    let (_, _, token) = asked(&world).await;
    let desk = world.desk();
    desk.decide(token.as_str(), Decision::approve("ann"))
        .await
        .expect("taken");
    for decision in [
        Decision::approve("ann"),
        Decision::approve("bob"),
        Decision::deny("bob", None),
    ] {
        assert_eq!(
            code(desk.decide(token.as_str(), decision).await),
            PostCode::Replayed
        );
    }
    assert_eq!(world.refusals().await, [PostCode::Replayed; 3]);
}

#[tokio::test]
async fn a_second_answer_to_a_named_question_is_a_duplicate() {
    let world = World::new();
    let (_, report, _) = asked(&world).await;
    let desk = world.desk();
    let named = question(&report, 0);
    desk.decide(&named, Decision::approve("ann"))
        .await
        .expect("taken");
    assert_eq!(
        code(desk.decide(&named, Decision::approve("bob")).await),
        PostCode::Duplicate
    );
    assert_eq!(world.refusals().await, [PostCode::Duplicate]);
}

#[tokio::test]
async fn a_decision_after_a_denial_is_refused() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let desk = world.desk();
    desk.decide(token.as_str(), Decision::deny("ann", Some("no")))
        .await
        .expect("taken");
    assert_eq!(
        code(desk.decide(token.as_str(), Decision::approve("bob")).await),
        PostCode::AlreadyDenied
    );
    let process = world.process(world.stack(world.asking())).await;
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(statuses(&report), [Some(Status::Denied)]);
    assert_eq!(
        report.results[0].model_text().expect("told"),
        "Tool execution denied: no"
    );
    assert_eq!(
        code(desk.decide(token.as_str(), Decision::approve("bob")).await),
        PostCode::AlreadyDenied
    );
    assert!(world.ran().is_empty());
}

#[tokio::test]
async fn a_decision_for_a_closed_turn_is_refused() {
    let world = World::new();
    let (process, report, token) = asked(&world).await;
    process
        .decide(report.turn, &question(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    resume(&process, &report, world.view()).await;
    assert_eq!(world.ran().len(), 1);
    let late = world
        .desk()
        .decide(token.as_str(), Decision::approve("bob"))
        .await;
    assert_eq!(code(late), PostCode::TurnClosed);
    assert_eq!(
        (world.refusals().await, world.ran().len()),
        (vec![PostCode::TurnClosed], 1)
    );
}

#[tokio::test]
async fn a_decision_for_a_call_that_was_interrupted_while_it_waited_is_refused() {
    let world = World::new();
    let (process, report, token) = asked(&world).await;
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
        statuses(&taken_up.run().await.expect("runs")),
        [Some(Status::Cancelled)]
    );
    assert_eq!(
        code(
            world
                .desk()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        PostCode::TurnClosed
    );
    untouched(&world, &report, &[PostCode::TurnClosed]).await;
}

#[tokio::test]
async fn an_expired_question_takes_no_decision() {
    let world = World::new();
    let hour = Duration::from_secs(3_600);
    let (process, report, named) = world
        .asked(world.stack(world.asking().expires_after(hour)))
        .await;
    let token = token(&world.desk(), report.results[0].id).await;
    world.clock.advance(hour);
    assert_eq!(
        code(
            world
                .desk()
                .decide(token.as_str(), Decision::approve("ann"))
                .await
        ),
        PostCode::Expired
    );
    assert_eq!(
        code(
            process
                .decide(report.turn, &named, Decision::approve("ann"))
                .await
        ),
        PostCode::Expired
    );
    untouched(&world, &report, &[PostCode::Expired; 2]).await;
}

#[tokio::test]
async fn what_was_decided_in_time_counts_however_late_it_is_taken_up() {
    let world = World::new();
    let hour = Duration::from_secs(3_600);
    let stack = || world.stack(world.asking().expires_after(hour));
    let (_, report, named) = world.asked(stack()).await;
    world.clock.advance(hour / 2);
    world
        .desk()
        .decide(&named, Decision::approve("ann"))
        .await
        .expect("taken");
    world.clock.advance(hour * 48);
    let process = world.process(stack()).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn an_unknown_decision_word_is_no_decision() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let desk = world.desk();
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
        refused.push(code(desk.decide_raw(&raw).await));
    }
    refused.push(code(
        desk.decide_raw(&json!({ "token": token, "by": "ann" }))
            .await,
    ));
    refused.push(code(
        desk.decide_raw(&json!({ "token": token, "decision": "approve" }))
            .await,
    ));
    let id = toolgate::ApprovalId::of(report.results[0].id);
    refused.push(code(
        desk.decide_raw(&json!({ "approval_id": id, "decision": "approve", "by": "ann" }))
            .await,
    ));
    assert_eq!(refused, [PostCode::NotADecision; 10]);
    untouched(&world, &report, &refused).await;
    let raw = json!({ "token": token, "decision": "approve", "by": "ann" });
    assert_eq!(desk.decide_raw(&raw).await.expect("taken"), decided());
}

#[tokio::test]
async fn an_approval_that_brings_other_arguments_without_saying_so_is_no_decision() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let unclear =
        json!({ "token": token, "decision": "approve", "by": "ann", "arguments": { "amount": 1 } });
    assert_eq!(
        code(world.desk().decide_raw(&unclear).await),
        PostCode::NotADecision
    );
    untouched(&world, &report, &[PostCode::NotADecision]).await;
}

#[tokio::test]
async fn a_nameless_decision_is_not_taken() {
    let world = World::new();
    let (_, report, token) = asked(&world).await;
    let refused = world
        .desk()
        .decide(token.as_str(), Decision::approve("  "))
        .await;
    assert!(matches!(refused, Err(toolgate::PostError::Nameless)));
    untouched(&world, &report, &[]).await;
}

#[tokio::test]
async fn several_decisions_are_answered_each_on_its_own() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    let report = run(
        &process,
        world.view(),
        vec![pay("1", 1), look("2"), pay("3", 3), pay("4", 4)],
    )
    .await;
    let desk = world.desk();
    let on = |at: usize| DecideOn::from(&question(&report, at));
    let answers = desk
        .decide_many(vec![
            (on(3), Decision::approve_with_edits("ann", amount(40))),
            (DecideOn::from("nonsense"), Decision::approve("ann")),
            (on(0), Decision::deny("ann", None)),
            (on(0), Decision::approve("ann")),
        ])
        .await;
    let codes: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.map_err(|error| error.code()))
        .collect();
    let taken = || Ok(decided());
    assert_eq!(
        codes,
        [
            taken(),
            Err(Some(PostCode::Forged)),
            taken(),
            Err(Some(PostCode::AlreadyDenied))
        ]
    );
    let pending = desk
        .pending(ApprovalFilter::default())
        .await
        .expect("lists");
    assert_eq!(pending.len(), 1, "the third is still open");
    let process = world.process(world.stack(world.asking())).await;
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(
        statuses(&report),
        [
            Some(Status::Denied),
            Some(Status::Ok),
            None,
            Some(Status::Ok)
        ]
    );
    assert_eq!(world.ran(), [json!("look"), json!({ "pay": 40 })]);
}

fn two_of(world: &World, among: &[&str]) -> Approval {
    let among = among.iter().map(|name| (*name).into()).collect();
    world.asking().quorum(Quorum { needed: 2, among })
}

#[tokio::test]
async fn under_a_quorum_two_different_people_have_to_agree_and_neither_is_the_requester() {
    for at_the_desk in [true, false] {
        let world = World::new();
        let stack = || world.stack(two_of(&world, &["ann", "bob", "eve"]));
        let (process, report, named) = world.asked(stack()).await;
        let desk = world.desk();
        let decide = async |name: &str| {
            if at_the_desk {
                desk.decide(&named, Decision::approve(name)).await.map(drop)
            } else {
                process
                    .decide(report.turn, &named, Decision::approve(name))
                    .await
            }
        };
        assert_eq!(code(decide("eve").await), PostCode::SelfApproval);
        assert_eq!(code(decide("mallory").await), PostCode::NotEntitled);
        decide("ann").await.expect("counted");
        assert_eq!(code(decide("ann").await), PostCode::Duplicate);
        untouched(
            &world,
            &report,
            &[
                PostCode::SelfApproval,
                PostCode::NotEntitled,
                PostCode::Duplicate,
            ],
        )
        .await;
        decide("bob").await.expect("taken");
        let process = world.process(stack()).await;
        let report = resume(&process, &report, world.view()).await;
        assert_eq!(statuses(&report), [Some(Status::Ok)], "{at_the_desk}");
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
    let world = World::new();
    let (_, report, named) = world.asked(world.stack(two_of(&world, &[]))).await;
    let desk = world.desk();
    let counted = Admitted::Counted { missing: 1 };
    assert_eq!(
        desk.decide(&named, Decision::approve("ann"))
            .await
            .expect("counted"),
        counted
    );
    let edited = Decision::approve_with_edits("bob", amount(6));
    assert_eq!(desk.decide(&named, edited).await.expect("counted"), counted);
    let shown = desk
        .show(named.approval_id)
        .await
        .expect("reads")
        .expect("there");
    assert_eq!(shown.votes.len(), 2);
    desk.decide(&named, Decision::deny("cid", None))
        .await
        .expect("taken");
    let process = world.process(world.stack(two_of(&world, &[]))).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Denied)]
    );
    assert!(world.ran().is_empty());
}

/// Keeps a vote in the store, as whoever counts votes does, or without the signature as somebody else could.
async fn keep_vote(
    world: &World,
    named: &ApprovalRequest,
    name: &str,
    ring: Option<&toolgate::Keyring>,
) {
    let vote = toolgate::Vote::of(named, &Decision::approve(name), toolgate::Timestamp::EPOCH)
        .expect("approves");
    let vote = toolgate::Vote {
        token: ring.map(|ring| ring.vote_token(named, &vote)),
        ..vote
    };
    let vote = Json::new(serde_json::to_value(vote).expect("writes")).expect("small");
    world
        .store
        .once(toolgate::Vote::key(named, &name.into()), Record::Json(vote))
        .await
        .expect("kept");
}

#[tokio::test]
async fn a_vote_that_somebody_wrote_into_the_store_does_not_count() {
    for forger in [None, Some(approving::ring("k1", 9))] {
        let world = World::new();
        let (_, _, named) = world.asked(world.stack(two_of(&world, &[]))).await;
        keep_vote(&world, &named, "ann", forger.as_ref()).await;
        let desk = world.desk();
        let counted = Admitted::Counted { missing: 1 };
        assert_eq!(
            desk.decide(&named, Decision::approve("bob"))
                .await
                .expect("counted"),
            counted
        );
        assert_eq!(
            code(
                desk.decide(&named, Decision::approve("ann"))
                    .await
                    .map(drop)
            ),
            PostCode::Forged
        );
        assert_eq!(
            desk.show(named.approval_id)
                .await
                .expect("reads")
                .expect("there")
                .votes
                .len(),
            1
        );
    }
}

#[tokio::test]
async fn a_denied_call_is_not_listed_as_pending_whoever_drives_it() {
    let world = World::new();
    let (process, report, named) = world.asked(world.stack(world.asking())).await;
    process
        .decide(report.turn, &named, Decision::deny("ann", None))
        .await
        .expect("taken");
    assert!(
        world
            .desk()
            .pending(ApprovalFilter::default())
            .await
            .expect("reads")
            .is_empty()
    );
    let again = process
        .decide(report.turn, &named, Decision::approve("bob"))
        .await;
    assert_eq!(code(again), PostCode::AlreadyDenied);
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Denied)]
    );
}

#[tokio::test]
async fn a_last_vote_whose_process_was_lost_is_completed_by_repeating_it() {
    let world = World::new();
    let (_, report, named) = world.asked(world.stack(two_of(&world, &[]))).await;
    for name in ["ann", "bob"] {
        keep_vote(&world, &named, name, Some(&world.ring)).await;
    }
    let answer = world
        .desk()
        .decide(&named, Decision::approve("bob"))
        .await
        .expect("taken");
    assert_eq!(
        answer,
        Admitted::Decided {
            with: vec!["ann".into()]
        }
    );
    let process = world.process(world.stack(two_of(&world, &[]))).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn a_turn_can_be_interrupted_from_the_desk_once_it_is_there_and_not_over() {
    let world = World::new();
    let (process, report, _) = asked(&world).await;
    let desk = world.desk();
    let nowhere = "00000000-0000-0000-0000-0000000000bb"
        .parse()
        .expect("an id");
    assert!(!desk.interrupt(nowhere, "stop").await.expect("reads"));
    assert!(desk.interrupt(report.turn, "stop").await.expect("posts"));
    let posts = world
        .store
        .posts(world.session, 0, 10)
        .await
        .expect("reads");
    assert_eq!(
        posts[0].1,
        Post::Interrupt {
            turn: report.turn,
            reason: "stop".into()
        }
    );
    process
        .decide(
            report.turn,
            &question(&report, 0),
            Decision::deny("ann", None),
        )
        .await
        .expect("taken");
    resume(&process, &report, world.view()).await;
    assert!(
        !desk.interrupt(report.turn, "stop").await.expect("reads"),
        "it is over"
    );
}
