//! Approvals as users live through them: over restarts, in messages, and with rules that answer for them.

mod approving;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use approving::{World, amount, code, look, pay, question, resume, run, statuses};
use serde_json::{Value, json};
use toolgate::{
    ApprovalFilter, ApprovalState, MemoryStore, StoreHandle, Timestamp,
    layers::{AllowRule, Approval, RuleBook, RuleError},
    messages::{
        append_approval_response, apply_approval_responses, approval_requests, approval_responses,
        suspended_messages,
    },
    prelude::*,
};

#[tokio::test]
async fn of_three_calls_the_second_is_approved_with_edits_by_another_process_after_a_restart() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    let report = run(
        &process,
        world.view(),
        vec![look("a"), pay("b", 5), look("c")],
    )
    .await;
    assert_eq!(
        (report.end, statuses(&report)),
        (
            TurnEnd::Suspended,
            vec![Some(Status::Ok), None, Some(Status::Ok)]
        )
    );
    drop(process);
    // Another process knows only the store.
    let desk = world.desk();
    let pending = desk
        .pending(ApprovalFilter::default())
        .await
        .expect("lists");
    assert_eq!(pending.len(), 1);
    let token = desk
        .token(&pending[0])
        .await
        .expect("reads")
        .expect("signed");
    desk.decide(token, Decision::approve_with_edits("ann", amount(7)))
        .await
        .expect("taken");
    // A third one takes the turn up again.
    let process = world.process(world.stack(world.asking())).await;
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(report.end, TurnEnd::Settled);
    let texts: Vec<_> = report
        .results
        .iter()
        .map(|result| result.model_text().expect("settled"))
        .collect();
    assert_eq!(texts, ["seen", "paid 7", "seen"]);
    assert_eq!(
        world.ran(),
        [json!("look"), json!("look"), json!({ "pay": 7 })],
        "each ran once"
    );
    let rows = desk
        .pending(ApprovalFilter {
            pending: false,
            ..ApprovalFilter::default()
        })
        .await
        .expect("lists");
    assert_eq!(rows[0].state, ApprovalState::Settled(Status::Ok));
}

#[tokio::test]
async fn edited_arguments_are_checked_like_any_others() {
    let world = World::new();
    let (_, report, named) = world.asked(world.stack(world.asking())).await;
    let wrong = Arguments::try_from(json!({ "amount": "all of it" })).expect("an object");
    world
        .desk()
        .decide(&named, Decision::approve_with_edits("ann", wrong))
        .await
        .expect("taken");
    let process = world.process(world.stack(world.asking())).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::SchemaViolation)]
    );
    assert!(world.ran().is_empty());
}

#[tokio::test]
async fn whoever_wants_to_know_is_told_once_across_processes() {
    let world = World::new();
    let told: [Arc<AtomicUsize>; 3] = Default::default();
    let asking = || {
        let [request, approved, denied] = told.clone();
        let count = |counter: Arc<AtomicUsize>| {
            move || {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        };
        let (request, approved, denied) = (count(request), count(approved), count(denied));
        world
            .asking()
            .on_request(move |_, _| request())
            .on_approved(move |_, _| approved())
            .on_denied(move |_, _| denied())
    };
    let process = world.process(world.stack(asking())).await;
    let report = run(&process, world.view(), vec![pay("1", 1), pay("2", 2)]).await;
    for _ in 0..2 {
        let process = world.process(world.stack(asking())).await;
        resume(&process, &report, world.view()).await;
    }
    let desk = world.desk();
    desk.decide(&question(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    desk.decide(&question(&report, 1), Decision::deny("ann", None))
        .await
        .expect("taken");
    let process = world.process(world.stack(asking())).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok), Some(Status::Denied)]
    );
    assert_eq!(
        told.map(|counter| counter.load(Ordering::SeqCst)),
        [2, 1, 1]
    );
}

#[tokio::test]
async fn a_question_that_expires_is_told_once() {
    for restarted in [false, true] {
        let world = World::new();
        let told = Arc::new(AtomicUsize::new(0));
        let asking = || {
            let told = told.clone();
            let asking = world
                .asking()
                .expires_after(std::time::Duration::from_secs(60));
            asking.on_request(move |_, _| {
                told.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (process, report, _) = world.asked(world.stack(asking())).await;
        world.clock.advance(std::time::Duration::from_secs(60));
        let process = if restarted {
            world.process(world.stack(asking())).await
        } else {
            process
        };
        assert_eq!(
            statuses(&resume(&process, &report, world.view()).await),
            [Some(Status::Expired)]
        );
        assert_eq!(
            told.load(Ordering::SeqCst),
            1,
            "no question goes out when its time is over"
        );
    }
}

/// A suspended turn as a host keeps it.
async fn kept(world: &World) -> (TurnReport, Vec<Value>) {
    let process = world.process(world.stack(world.asking())).await;
    let report = run(
        &process,
        world.view(),
        vec![look("a"), pay("b", 5), pay("c", 6)],
    )
    .await;
    let mut messages = vec![json!({ "role": "user", "content": "pay, please" })];
    messages.extend(
        suspended_messages(&world.desk(), &report)
            .await
            .expect("written"),
    );
    // A host that keeps nothing has only text.
    let text = serde_json::to_string(&messages).expect("writes");
    (report, serde_json::from_str(&text).expect("reads"))
}

#[tokio::test]
async fn messages_carry_questions_and_answers_and_what_has_run_does_not_run_again() {
    let world = World::new();
    let (report, mut messages) = kept(&world).await;
    assert_eq!(
        messages[2]["content"][0]["toolCallId"], "a",
        "the sibling that has run"
    );
    assert_eq!(messages[2]["content"][0]["type"], "tool-result");
    let requests = approval_requests(&messages);
    assert_eq!(
        requests
            .iter()
            .map(|request| &*request.tool_call_id)
            .collect::<Vec<_>>(),
        ["b", "c"]
    );
    append_approval_response(&mut messages, requests[0].approve_with_edits(amount(50)));
    append_approval_response(&mut messages, requests[1].deny(Some("too much")));
    assert!(approval_requests(&messages).is_empty(), "all are answered");
    let answers = apply_approval_responses(&world.desk(), &messages, "ann").await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let process = world.process(world.stack(world.asking())).await;
    let report = resume(&process, &report, world.view()).await;
    let texts: Vec<_> = report
        .results
        .iter()
        .map(|result| result.model_text().expect("settled"))
        .collect();
    assert_eq!(
        texts,
        ["seen", "paid 50", "Tool execution denied: too much"]
    );
    assert_eq!(world.ran(), [json!("look"), json!({ "pay": 50 })]);
    // With the results in the messages, the responses are history.
    messages.extend(
        suspended_messages(&world.desk(), &report)
            .await
            .expect("written"),
    );
    assert!(approval_responses(&messages).is_empty());
}

#[tokio::test]
async fn a_response_without_a_token_or_of_an_unknown_shape_is_refused_and_recorded() {
    let world = World::new();
    let (_, messages) = kept(&world).await;
    let good = serde_json::to_value(approval_requests(&messages)[0].approve()).expect("writes");
    let other = serde_json::to_value(&approval_requests(&messages)[1]).expect("writes");
    let with = |key: &str, value: Value| {
        let mut part = good.clone();
        part.as_object_mut()
            .expect("an object")
            .insert(key.to_owned(), value);
        part
    };
    let mut bare = good.clone();
    bare.as_object_mut()
        .expect("an object")
        .remove("approvalToken");
    let cases = [
        (bare, PostCode::Forged),
        (with("approvalToken", json!(null)), PostCode::Forged),
        (
            with("approvalToken", json!("tg1.k1.AA.AA")),
            PostCode::Forged,
        ),
        (
            with("approvalToken", other["approvalToken"].clone()),
            PostCode::TokenMismatch,
        ),
        (with("approved", json!("true")), PostCode::NotADecision),
        (with("approved", json!(null)), PostCode::NotADecision),
        (with("surprise", json!(1)), PostCode::NotADecision),
        (with("editedArguments", json!([])), PostCode::NotADecision),
    ];
    for (part, wanted) in cases {
        let mut messages = messages.clone();
        messages.push(json!({ "role": "tool", "content": [part] }));
        let mut answers = apply_approval_responses(&world.desk(), &messages, "ann").await;
        assert_eq!(
            (answers.len(), code(answers.remove(0))),
            (1, wanted),
            "{part}"
        );
    }
    assert_eq!(world.ran(), [json!("look")]);
    let recorded = world.refusals().await;
    assert_eq!(
        recorded
            .iter()
            .filter(|code| **code == PostCode::NotADecision)
            .count(),
        4
    );
    assert!(recorded.contains(&PostCode::TokenMismatch) && recorded.contains(&PostCode::Forged));
}

#[tokio::test]
async fn a_result_of_an_earlier_call_with_the_same_label_does_not_hide_a_response() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    // Providers that count their calls anew in every message use the same label again.
    let first = run(&process, world.view(), vec![look("call_0")]).await;
    let mut messages = suspended_messages(&world.desk(), &first)
        .await
        .expect("written");
    let second = run(&process, world.view(), vec![pay("call_0", 5)]).await;
    messages.extend(
        suspended_messages(&world.desk(), &second)
            .await
            .expect("written"),
    );
    let request = approval_requests(&messages).remove(0);
    append_approval_response(&mut messages, request.approve());
    let answers = apply_approval_responses(&world.desk(), &messages, "ann").await;
    assert!(matches!(answers.as_slice(), [Ok(_)]), "{answers:?}");
}

#[tokio::test]
async fn a_response_that_comes_twice_counts_once() {
    let world = World::new();
    let (_, mut messages) = kept(&world).await;
    let response = approval_requests(&messages)[0].approve();
    append_approval_response(&mut messages, response);
    assert!(apply_approval_responses(&world.desk(), &messages, "ann").await[0].is_ok());
    let mut again = apply_approval_responses(&world.desk(), &messages, "ann").await;
    assert_eq!(code(again.remove(0)), PostCode::Replayed);
}

#[tokio::test]
async fn without_keys_nothing_travels_in_messages() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    let report = run(&process, world.view(), vec![pay("1", 5)]).await;
    let keyless = toolgate::Approvals::new(world.handle());
    assert!(suspended_messages(&keyless, &report).await.is_err());
}

fn rule(id: &str, effect: &str, more: Value) -> AllowRule {
    let mut rule = json!({
        "id": id, "effect": effect, "tool": "pay", "owner": "ann", "created_at": Timestamp::EPOCH,
        "scope": { "scope": "project", "project": "shop" },
    });
    rule.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    serde_json::from_value(rule).expect("a rule")
}

fn small() -> Value {
    json!({ "arguments": { "/amount": { "equals": 5 } } })
}

async fn status(world: &World, asking: Approval) -> Option<Status> {
    let fresh = world.over(MemoryStore::new());
    let process = fresh.process(fresh.stack(asking)).await;
    statuses(&run(&process, fresh.view(), vec![pay("1", 5)]).await)[0]
}

#[tokio::test]
async fn a_standing_rule_answers_until_it_is_taken_back_and_its_name_is_noted() {
    let world = World::new();
    let book = RuleBook::new(world.handle()).in_project("shop");
    let asking = || world.asking().with_rules(book.clone());
    assert_eq!(status(&world, asking()).await, None, "asked");
    book.add(rule("five", "allow", small()))
        .await
        .expect("kept");
    let process = world.process(world.stack(asking())).await;
    let report = run(&process, world.view(), vec![pay("1", 5), pay("2", 6)]).await;
    assert_eq!(statuses(&report), [Some(Status::Ok), None]);
    let notes = report.results[0]
        .outcome
        .as_ref()
        .expect("settled")
        .notes
        .fields()
        .expect("noted")
        .clone();
    assert_eq!(notes.metadata["approval_rule"], "five");
    assert_eq!(notes.consent.expect("noted").decided_by.as_str(), "ann");
    book.revoke("five", "bob", Timestamp::EPOCH)
        .await
        .expect("taken back");
    assert_eq!(status(&world, asking()).await, None, "asked again");
    assert!(matches!(
        book.revoke("five", "bob", Timestamp::EPOCH).await,
        Err(RuleError::Unknown(_))
    ));
    assert!(
        matches!(
            book.add(rule("five", "allow", small())).await,
            Err(RuleError::Taken(_))
        ),
        "names are used once"
    );
}

#[tokio::test]
async fn a_rule_that_another_process_takes_back_stops_to_count_within_a_second() {
    let world = World::new();
    let (mine, theirs) = (
        RuleBook::new(world.handle()).in_project("shop"),
        RuleBook::new(world.handle()),
    );
    mine.add(rule("five", "allow", small()))
        .await
        .expect("kept");
    assert_eq!(
        status(&world, world.asking().with_rules(mine.clone())).await,
        Some(Status::Ok)
    );
    theirs
        .revoke("five", "bob", Timestamp::EPOCH)
        .await
        .expect("taken back");
    world.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        status(&world, world.asking().with_rules(mine)).await,
        None,
        "asked"
    );
}

#[tokio::test]
async fn deny_beats_allow_and_what_somebody_has_approved() {
    let world = World::new();
    let book = RuleBook::new(world.handle()).in_project("shop");
    let asking = || world.asking().with_rules(book.clone());
    let (process, report, named) = world.asked(world.stack(asking())).await;
    process
        .decide(report.turn, &named, Decision::approve("ann"))
        .await
        .expect("taken");
    book.add(rule("yes", "allow", small())).await.expect("kept");
    book.add(rule(
        "no",
        "deny",
        json!({ "reason": "the budget is used up" }),
    ))
    .await
    .expect("kept");
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(statuses(&report), [Some(Status::Denied)]);
    assert_eq!(
        report.results[0].model_text().expect("told"),
        "Tool execution denied: the budget is used up"
    );
    assert!(world.ran().is_empty());
}

#[tokio::test]
async fn a_rule_of_another_project_or_one_that_has_ended_does_not_count() {
    let world = World::new();
    let book = RuleBook::new(world.handle());
    book.add(rule("five", "allow", small()))
        .await
        .expect("kept");
    let ended = json!({ "scope": { "scope": "global" }, "expires_at": Timestamp::EPOCH, "arguments": small()["arguments"] });
    book.add(rule("ended", "allow", ended)).await.expect("kept");
    for book in [book.clone(), book.clone().in_project("other")] {
        assert_eq!(status(&world, world.asking().with_rules(book)).await, None);
    }
}

#[tokio::test]
async fn a_rule_is_shown_with_the_calls_it_would_have_answered() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    run(
        &process,
        world.view(),
        vec![pay("1", 5), pay("2", 6), pay("3", 5)],
    )
    .await;
    let book = RuleBook::new(world.handle());
    let matched = book
        .preview(&rule("five", "allow", small()))
        .await
        .expect("reads");
    assert_eq!(matched.len(), 2);
    assert!(
        matched
            .iter()
            .all(|call| call.state == ApprovalState::Pending && call.tool == "pay")
    );
    assert!(
        book.list().await.expect("reads").is_empty(),
        "nothing was kept"
    );
}

#[tokio::test]
async fn rules_that_cannot_be_read_mean_that_somebody_is_asked() {
    use toolgate::{Record, RecordKey};
    let world = World::new();
    let broken = StoreHandle::new(MemoryStore::new());
    let nonsense = Record::Json(Json::new(json!({ "effect": "perhaps" })).expect("small"));
    broken
        .once(RecordKey::Other("rule/odd".into()), nonsense)
        .await
        .expect("kept");
    let book = RuleBook::new(broken).in_project("shop");
    let process = world
        .process(world.stack(world.asking().with_rules(book)))
        .await;
    let report = run(&process, world.view(), vec![look("1")]).await;
    assert_eq!(
        question(&report, 0).tool,
        "look",
        "even about what needs nobody otherwise"
    );
}
