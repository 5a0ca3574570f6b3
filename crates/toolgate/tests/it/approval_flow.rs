//! Approvals in practice: across restarts, in messages, and with standing rules.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::approval_world::{
    ApprovalWorld, amount_arguments, call_statuses, code_of, look_request, pay_request,
    pending_request, resume_turn, run_turn,
};
use serde_json::{Value, json};
use toolgate::{
    approval::{
        MadeDecision, Quorum, append_approval_response, apply_approval_responses,
        approval_requests, approval_responses, find_approval_response, suspended_messages,
    },
    layers::{Approval, RuleBook, RuleError, StandingRule},
    prelude::*,
    session::{Dispatcher, RejectCode, TurnEnd, TurnReport},
    stack::ToolRequest,
    store::{ApprovalFilter, ApprovalState, MemoryStore, StoreHandle},
    value::{ApprovalId, CallId, Json, Timestamp},
};

#[tokio::test]
async fn of_three_calls_the_second_is_approved_with_edits_by_another_process_after_a_restart() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![look_request("a"), pay_request("b", 5), look_request("c")],
    )
    .await;
    assert_eq!(
        (report.end, call_statuses(&report)),
        (
            TurnEnd::Suspended,
            vec![Some(Status::Ok), None, Some(Status::Ok)]
        )
    );
    drop(process);
    // Another process has only the store.
    let desk = world.approval_service();
    let pending = desk
        .list_approvals(ApprovalFilter::default())
        .await
        .expect("lists");
    assert_eq!(pending.len(), 1);
    let token = desk
        .request_token(&pending[0])
        .await
        .expect("reads")
        .expect("signed");
    desk.decide(
        token,
        Decision::approve_with_edits("ann", amount_arguments(7)),
    )
    .await
    .expect("taken");
    // A third process resumes the turn.
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(report.end, TurnEnd::Settled);
    let texts: Vec<_> = report
        .results
        .iter()
        .map(|result| result.model_text().expect("settled"))
        .collect();
    assert_eq!(texts, ["seen", "paid 7", "seen"]);
    assert_eq!(
        world.effects(),
        [json!("look"), json!("look"), json!({ "pay": 7 })],
        "each ran once"
    );
    let rows = desk
        .list_approvals(ApprovalFilter {
            pending: false,
            ..ApprovalFilter::default()
        })
        .await
        .expect("lists");
    assert_eq!(rows[0].state, ApprovalState::Settled(Status::Ok));
}

#[tokio::test]
async fn edited_arguments_are_checked_like_any_others() {
    let world = ApprovalWorld::new();
    let (_, report, named) = world
        .run_until_asked(world.stack(world.asking_layer()))
        .await;
    let wrong = Arguments::try_from(json!({ "amount": "all of it" })).expect("an object");
    world
        .approval_service()
        .decide(&named, Decision::approve_with_edits("ann", wrong))
        .await
        .expect("taken");
    let process = world.open_process(world.stack(world.asking_layer())).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::SchemaViolation)]
    );
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn a_request_is_announced_once_across_processes() {
    let world = ApprovalWorld::new();
    let told: [Arc<AtomicUsize>; 3] = Default::default();
    let asking = || {
        let [request, approved, denied] = told.clone();
        let count = |counter: Arc<AtomicUsize>| {
            move || {
                counter.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            }
        };
        let request = count(request);
        let approved = count(approved);
        let denied = count(denied);
        world
            .asking_layer()
            .on_request(move |_, _| request())
            .on_approved(move |_| approved())
            .on_denied(move |_| denied())
    };
    let process = world.open_process(world.stack(asking())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![pay_request("1", 1), pay_request("2", 2)],
    )
    .await;
    for _ in 0..2 {
        let process = world.open_process(world.stack(asking())).await;
        resume_turn(&process, &report, world.view()).await;
    }
    let desk = world.approval_service();
    desk.decide(&pending_request(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    desk.decide(&pending_request(&report, 1), Decision::deny("ann", None))
        .await
        .expect("taken");
    let process = world.open_process(world.stack(asking())).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok), Some(Status::Denied)]
    );
    assert_eq!(
        told.map(|counter| counter.load(Ordering::SeqCst)),
        [2, 1, 1]
    );
}

#[tokio::test]
async fn a_decision_is_announced_when_it_is_made_and_not_again_when_its_turn_is_resumed() {
    let world = ApprovalWorld::new();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let asking = || {
        let told = |word: &'static str| {
            let heard = heard.clone();
            move |made: MadeDecision| {
                let heard = heard.clone();
                async move {
                    // A callback may wait, for example for a message to be sent.
                    tokio::task::yield_now().await;
                    let text = format!("{word} {} by {}", made.tool, made.decision.by);
                    heard.lock().expect("whole").push(text);
                }
            }
        };
        let asking = world.asking_layer().on_approved(told("approved"));
        asking.on_denied(told("denied"))
    };
    let calls = vec![pay_request("1", 1), pay_request("2", 2)];
    let process = world.open_process(world.stack(asking())).await;
    let report = run_turn(&process, world.view(), calls).await;
    drop(process);
    // Another process, which runs no tools. The decision is in the list at once; the event follows
    // when the session has a driver, the only writer of its log.
    let desk = world
        .approval_service()
        .notify_layers(&world.stack(asking()));
    desk.decide(&pending_request(&report, 0), Decision::approve("ann"))
        .await
        .expect("taken");
    assert_eq!(*heard.lock().expect("whole"), ["approved pay by ann"]);
    let filter = ApprovalFilter::for_call(report.results[0].id);
    let rows = desk.list_approvals(filter).await.expect("reads");
    assert_eq!(rows[0].state, ApprovalState::Answered);
    desk.decide(&pending_request(&report, 1), Decision::deny("bob", None))
        .await
        .expect("taken");
    assert_eq!(heard.lock().expect("whole")[1], "denied pay by bob");

    for _ in 0..2 {
        let process = world.open_process(world.stack(asking())).await;
        resume_turn(&process, &report, world.view()).await;
    }
    assert_eq!(world.effects().len(), 1);
    assert_eq!(heard.lock().expect("whole").len(), 2, "each is told once");
}

#[tokio::test]
async fn an_expired_request_is_announced_once() {
    for restarted in [false, true] {
        let world = ApprovalWorld::new();
        let told = Arc::new(AtomicUsize::new(0));
        let asking = || {
            let told = told.clone();
            let asking = world
                .asking_layer()
                .expires_after(std::time::Duration::from_secs(60));
            asking.on_request(move |_, _| {
                told.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            })
        };
        let (process, report, _) = world.run_until_asked(world.stack(asking())).await;
        world.clock.advance(std::time::Duration::from_secs(60));
        let process = if restarted {
            world.open_process(world.stack(asking())).await
        } else {
            process
        };
        assert_eq!(
            call_statuses(&resume_turn(&process, &report, world.view()).await),
            [Some(Status::Expired)]
        );
        assert_eq!(
            told.load(Ordering::SeqCst),
            1,
            "no request is sent after its expiry"
        );
    }
}

/// Returns a suspended turn as a host stores it.
async fn suspended_turn(world: &ApprovalWorld) -> (TurnReport, Vec<Value>) {
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![look_request("a"), pay_request("b", 5), pay_request("c", 6)],
    )
    .await;
    let mut messages = vec![json!({ "role": "user", "content": "pay, please" })];
    messages.extend(
        suspended_messages(&world.approval_service(), &report)
            .await
            .expect("written"),
    );
    // A stateless host has only the messages, as text.
    let text = serde_json::to_string(&messages).expect("writes");
    (report, serde_json::from_str(&text).expect("reads"))
}

#[tokio::test]
async fn messages_carry_requests_and_answers_and_executed_calls_do_not_run_again() {
    let world = ApprovalWorld::new();
    let (report, mut messages) = suspended_turn(&world).await;
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
    append_approval_response(
        &mut messages,
        requests[0].approve_with_edits(amount_arguments(50)),
    );
    append_approval_response(&mut messages, requests[1].deny(Some("too much")));
    assert!(approval_requests(&messages).is_empty(), "all are answered");
    for request in &requests {
        let found = find_approval_response(&messages, request.approval_id);
        let response = found.expect("it is answered").expect("it is valid");
        assert_eq!(response.approval_token, request.approval_token);
    }
    let unknown = ApprovalId::for_call(CallId::new(uuid::Uuid::nil()));
    assert!(find_approval_response(&messages, unknown).is_none());
    let answers = apply_approval_responses(&world.approval_service(), &messages, "ann").await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    let texts: Vec<_> = report
        .results
        .iter()
        .map(|result| result.model_text().expect("settled"))
        .collect();
    assert_eq!(
        texts,
        ["seen", "paid 50", "Tool execution denied: too much"]
    );
    assert_eq!(world.effects(), [json!("look"), json!({ "pay": 50 })]);
    // Once the messages contain the results, the responses have no effect.
    messages.extend(
        suspended_messages(&world.approval_service(), &report)
            .await
            .expect("written"),
    );
    assert!(approval_responses(&messages).is_empty());
}

#[tokio::test]
async fn a_response_without_a_token_or_of_an_unknown_shape_is_rejected_and_recorded() {
    let world = ApprovalWorld::new();
    let (_, messages) = suspended_turn(&world).await;
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
        (bare, RejectCode::Forged),
        (with("approvalToken", json!(null)), RejectCode::Forged),
        (
            with("approvalToken", json!("tg1.k1.AA.AA")),
            RejectCode::Forged,
        ),
        (
            with("approvalToken", other["approvalToken"].clone()),
            RejectCode::TokenMismatch,
        ),
        (with("approved", json!("true")), RejectCode::NotADecision),
        (with("approved", json!(null)), RejectCode::NotADecision),
        (with("surprise", json!(1)), RejectCode::NotADecision),
        (with("editedArguments", json!([])), RejectCode::NotADecision),
    ];
    for (part, wanted) in cases {
        let mut messages = messages.clone();
        messages.push(json!({ "role": "tool", "content": [part] }));
        let mut answers =
            apply_approval_responses(&world.approval_service(), &messages, "ann").await;
        assert_eq!(
            (answers.len(), code_of(answers.remove(0))),
            (1, wanted),
            "{part}"
        );
    }
    assert_eq!(world.effects(), [json!("look")]);
    let recorded = world.rejection_codes().await;
    assert_eq!(
        recorded
            .iter()
            .filter(|code| **code == RejectCode::NotADecision)
            .count(),
        4
    );
    assert!(
        recorded.contains(&RejectCode::TokenMismatch) && recorded.contains(&RejectCode::Forged)
    );
}

#[tokio::test]
async fn a_result_of_an_earlier_call_with_the_same_label_does_not_hide_a_response() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    // Some providers number their calls from zero in every message, so labels repeat.
    let first = run_turn(&process, world.view(), vec![look_request("call_0")]).await;
    let mut messages = suspended_messages(&world.approval_service(), &first)
        .await
        .expect("written");
    let second = run_turn(&process, world.view(), vec![pay_request("call_0", 5)]).await;
    messages.extend(
        suspended_messages(&world.approval_service(), &second)
            .await
            .expect("written"),
    );
    let request = approval_requests(&messages).remove(0);
    append_approval_response(&mut messages, request.approve());
    let answers = apply_approval_responses(&world.approval_service(), &messages, "ann").await;
    assert!(matches!(answers.as_slice(), [Ok(_)]), "{answers:?}");
}

#[tokio::test]
async fn a_response_that_comes_twice_counts_once() {
    let world = ApprovalWorld::new();
    let (_, mut messages) = suspended_turn(&world).await;
    let response = approval_requests(&messages)[0].approve();
    append_approval_response(&mut messages, response);
    assert!(apply_approval_responses(&world.approval_service(), &messages, "ann").await[0].is_ok());
    let mut again = apply_approval_responses(&world.approval_service(), &messages, "ann").await;
    assert_eq!(code_of(again.remove(0)), RejectCode::Replayed);
}

#[tokio::test]
async fn without_keys_nothing_travels_in_messages() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = run_turn(&process, world.view(), vec![pay_request("1", 5)]).await;
    let keyless = toolgate::approval::ApprovalService::new(world.handle());
    assert!(suspended_messages(&keyless, &report).await.is_err());
}

fn build_rule(id: &str, effect: &str, more: Value) -> StandingRule {
    let mut rule = json!({
        "id": id, "effect": effect, "tool": "pay", "owner": "ann", "created_at": Timestamp::EPOCH,
        "scope": { "scope": "project", "project": "shop" },
    });
    rule.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    serde_json::from_value(rule).expect("a rule")
}

fn small_amounts() -> Value {
    json!({ "arguments": { "/amount": { "equals": 5 } } })
}

async fn run_status(world: &ApprovalWorld, asking: Approval) -> Option<Status> {
    let fresh = world.with_store(MemoryStore::new());
    let process = fresh.open_process(fresh.stack(asking)).await;
    call_statuses(&run_turn(&process, fresh.view(), vec![pay_request("1", 5)]).await)[0]
}

#[tokio::test]
async fn a_standing_rule_decides_until_it_is_revoked_and_its_name_is_recorded() {
    let world = ApprovalWorld::new();
    let book = RuleBook::new(world.handle(), world.ring.clone()).in_project("shop");
    let asking = || world.asking_layer().with_rules(book.clone());
    assert_eq!(run_status(&world, asking()).await, None, "asked");
    book.add(build_rule("five", "allow", small_amounts()))
        .await
        .expect("kept");
    let process = world.open_process(world.stack(asking())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![pay_request("1", 5), pay_request("2", 6)],
    )
    .await;
    assert_eq!(call_statuses(&report), [Some(Status::Ok), None]);
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
        .expect("revoked");
    assert_eq!(run_status(&world, asking()).await, None, "asked again");
    assert!(matches!(
        book.revoke("five", "bob", Timestamp::EPOCH).await,
        Err(RuleError::Unknown(_))
    ));
    assert!(
        matches!(
            book.add(build_rule("five", "allow", small_amounts())).await,
            Err(RuleError::DuplicateId(_))
        ),
        "names are used once"
    );
}

#[tokio::test]
async fn a_standing_rule_does_not_stand_for_a_quorum() {
    let world = ApprovalWorld::new();
    let book = RuleBook::new(world.handle(), world.ring.clone()).in_project("shop");
    book.add(build_rule("five", "allow", small_amounts()))
        .await
        .expect("kept");
    let two = Quorum {
        needed: 2,
        among: Vec::new(),
    };
    let asking = world.asking_layer().with_rules(book).quorum(two);
    assert_eq!(run_status(&world, asking).await, None, "asked");
}

#[tokio::test]
async fn a_rule_that_another_process_revokes_expires_here_within_a_second() {
    let world = ApprovalWorld::new();
    let mine = RuleBook::new(world.handle(), world.ring.clone()).in_project("shop");
    let theirs = RuleBook::new(world.handle(), world.ring.clone());
    mine.add(build_rule("five", "allow", small_amounts()))
        .await
        .expect("kept");
    assert_eq!(
        run_status(&world, world.asking_layer().with_rules(mine.clone())).await,
        Some(Status::Ok)
    );
    theirs
        .revoke("five", "bob", Timestamp::EPOCH)
        .await
        .expect("revoked");
    world.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        run_status(&world, world.asking_layer().with_rules(mine)).await,
        None,
        "asked"
    );
}

#[tokio::test]
async fn deny_beats_allow_and_earlier_approvals() {
    let world = ApprovalWorld::new();
    let book = RuleBook::new(world.handle(), world.ring.clone()).in_project("shop");
    let asking = || world.asking_layer().with_rules(book.clone());
    let (process, report, named) = world.run_until_asked(world.stack(asking())).await;
    process
        .approval_service()
        .decide(&named, Decision::approve("ann"))
        .await
        .expect("taken");
    book.add(build_rule("yes", "allow", small_amounts()))
        .await
        .expect("kept");
    book.add(build_rule(
        "no",
        "deny",
        json!({ "reason": "the budget is used up" }),
    ))
    .await
    .expect("kept");
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Denied)]);
    assert_eq!(
        report.results[0].model_text().expect("told"),
        "Tool execution denied: the budget is used up"
    );
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn a_rule_of_another_project_or_an_expired_one_does_not_apply() {
    let world = ApprovalWorld::new();
    let book = RuleBook::new(world.handle(), world.ring.clone());
    book.add(build_rule("five", "allow", small_amounts()))
        .await
        .expect("kept");
    let ended = json!({ "scope": { "scope": "global" }, "expires_at": Timestamp::EPOCH, "arguments": small_amounts()["arguments"] });
    book.add(build_rule("ended", "allow", ended))
        .await
        .expect("kept");
    for book in [book.clone(), book.clone().in_project("other")] {
        assert_eq!(
            run_status(&world, world.asking_layer().with_rules(book)).await,
            None
        );
    }
}

#[tokio::test]
async fn a_preview_lists_the_past_calls_that_a_rule_matches() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    run_turn(
        &process,
        world.view(),
        vec![
            pay_request("1", 5),
            pay_request("2", 6),
            pay_request("3", 5),
        ],
    )
    .await;
    let book = RuleBook::new(world.handle(), world.ring.clone());
    let matched = book
        .preview(&build_rule("five", "allow", small_amounts()))
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
        "nothing was stored"
    );
}

#[tokio::test]
async fn unreadable_rules_mean_that_approval_is_requested() {
    use toolgate::store::{RecordKey, StoreRecord};
    let world = ApprovalWorld::new();
    let broken = StoreHandle::new(MemoryStore::new());
    let nonsense = StoreRecord::Json(Json::new(json!({ "effect": "perhaps" })).expect("small"));
    broken
        .put_record_once(RecordKey::Other("rule/odd".into()), nonsense)
        .await
        .expect("kept");
    let book = RuleBook::new(broken, world.ring.clone()).in_project("shop");
    let process = world
        .open_process(world.stack(world.asking_layer().with_rules(book)))
        .await;
    let report = run_turn(&process, world.view(), vec![look_request("1")]).await;
    assert_eq!(
        pending_request(&report, 0).tool,
        "look",
        "even for calls that need no approval otherwise"
    );
}

#[tokio::test]
async fn a_message_shows_the_approver_the_call_that_runs() {
    let world = ApprovalWorld::new();
    for (note, visible) in [
        (
            "Cookie: a=b; touch pwned",
            "note: Cookie: a=b; touch pwned⟨looks like a secret⟩",
        ),
        (
            "PASSWORD=hunter2;touch pwned",
            "note: PASSWORD=hunter2;touch⟨looks like a secret⟩ pwned",
        ),
        (
            "TOKEN=Zk3PqR7tVx9LmN2sQw5T ls",
            "note: TOKEN=Zk3PqR7tVx9LmN2sQw5T⟨looks like a secret⟩ ls",
        ),
        ("a\u{200b}b", "note: a⟨U+200B⟩b"),
        (
            "https://u:p4ssw0rd;x@host",
            "note: https://u:p4ssw0rd;x⟨looks like a secret⟩@host",
        ),
    ] {
        let builder = Dispatcher::builder(world.stack(world.asking_layer()))
            .store(world.store.clone())
            .keyring(world.ring.clone())
            .redactor(toolgate::layers::SecretScanner::standard());
        let process = builder.build().await.expect("builds");
        let arguments = json!({ "amount": 5, "note": note });
        let call = ToolRequest::from_json("1", "pay", arguments);
        let report = run_turn(&process, world.view(), vec![call]).await;
        let desk = process.approval_service();
        let messages = suspended_messages(&desk, &report).await.expect("written");
        let [part] = &approval_requests(&messages)[..] else {
            panic!("one request: {messages:?}")
        };
        assert!(
            part.rendered.iter().any(|line| line == visible),
            "{:?}",
            part.rendered
        );
    }
}
