//! An approved call runs only if everything is exactly as it was approved.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::approval_world::{
    ApprovalWorld, amount_arguments, build_tools, call_statuses, keyring_with, pay_request,
    pending_request, register_write, resume_turn, run_turn, secret_key,
};
use serde_json::json;
use toolgate::{
    Band, Resources, View,
    approval::{ApprovalChange, ApprovalRequest, Keyring, Verdict},
    event::ToolEvent,
    layers::{Approval, Config, FilePreview, PathBase, SharedPreview, Validate, default_stack},
    prelude::*,
    session::TurnReport,
    stack::{ToolRequest, map_call},
    store::{EventStore, RecordKey, RecordStore, StoreRecord},
    value::{Digest, Json},
};

/// Requests and approves a payment that has not run yet.
async fn approved_payment(world: &ApprovalWorld, stack: Stack) -> TurnReport {
    let (process, report, question) = world.run_until_asked(stack).await;
    process
        .approval_service()
        .decide(&question, Decision::approve("ann"))
        .await
        .expect("taken");
    report
}

/// Resumes in a new process, and expects another approval request because of `changed` and no
/// execution.
async fn assert_asked_again(
    world: &ApprovalWorld,
    report: &TurnReport,
    stack: Stack,
    view: View,
    changed: &[ApprovalChange],
) -> TurnReport {
    let process = world.open_process(stack).await;
    let again = resume_turn(&process, report, view).await;
    let request = pending_request(&again, 0);
    assert_eq!(
        (request.changed.as_slice(), request.generation),
        (changed, 1)
    );
    assert_eq!(world.effects(), Vec::<serde_json::Value>::new());
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let codes: Vec<&str> = changed.iter().map(ApprovalChange::code).collect();
    let recorded = events.iter().any(|event| match event.as_tool() {
        Some((_, ToolEvent::ToolApprovalRequested(asked))) => {
            !codes.is_empty()
                && asked
                    .changed
                    .iter()
                    .map(ApprovalChange::code)
                    .collect::<Vec<_>>()
                    == codes
        }
        _ => false,
    });
    assert!(recorded, "the log has the reason");
    again
}

#[tokio::test]
async fn an_approval_that_was_signed_for_this_runs_once() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Ok)]);
    assert_eq!(world.effects(), [json!({ "pay": 5 })]);
    let notes = report.results[0]
        .outcome
        .as_ref()
        .expect("settled")
        .notes
        .fields()
        .expect("noted")
        .clone();
    assert_eq!(notes.consent.expect("noted").decided_by.as_str(), "ann");
    assert!(
        notes.metadata["approval_digest"]
            .as_str()
            .expect("noted")
            .starts_with("sha256:")
    );
}

#[tokio::test]
async fn an_answer_without_a_token_is_forged() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let edited = world
        .edit_records(report.turn, report.results[0].id, |answer, _| {
            answer.token = None
        })
        .await;
    let stack = edited.stack(edited.asking_layer());
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
}

#[tokio::test]
async fn a_token_of_another_key_is_forged() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let forger = keyring_with("k1", 66);
    let forge = |answer: &mut toolgate::approval::ApprovalAnswer, asked: &mut ApprovalRequest| {
        answer.token = forger.grant_token(asked, answer);
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, forge)
        .await;
    let stack = edited.stack(edited.asking_layer());
    let again = assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
    // A new approval is valid.
    let process = edited
        .open_process(edited.stack(edited.asking_layer()))
        .await;
    process
        .approval_service()
        .decide(&pending_request(&again, 0), Decision::approve("bob"))
        .await
        .expect("taken");
    assert_eq!(
        call_statuses(&resume_turn(&process, &again, edited.view()).await),
        [Some(Status::Ok)]
    );
    assert_eq!(edited.effects(), [json!({ "pay": 5 })]);
}

#[tokio::test]
async fn the_token_of_a_request_is_not_an_approval() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let swap = |answer: &mut toolgate::approval::ApprovalAnswer, asked: &mut ApprovalRequest| {
        answer.token = Some(world.ring.ask_token(asked));
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, swap)
        .await;
    let stack = edited.stack(edited.asking_layer());
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
}

#[tokio::test]
async fn an_answer_to_the_request_of_another_layer_is_forged() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    // The edited approval names a layer that has not asked yet.
    let relabel = |answer: &mut toolgate::approval::ApprovalAnswer, _: &mut ApprovalRequest| {
        answer.asked_by = "second_look".into()
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, relabel)
        .await;
    let second = LayerExt::named(edited.asking_layer(), "second_look");
    let stack = Stack::over(edited.registry.clone())
        .layer(Validate::new())
        .layer(second)
        .build()
        .expect("in order");
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
}

#[tokio::test]
async fn approvals_of_a_removed_key_are_invalid() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let kept = Keyring::new(secret_key("k2", 2)).verifying(secret_key("k1", 1));
    let gone = ApprovalWorld {
        ring: keyring_with("k2", 2),
        ..world.clone()
    };
    let stack = gone.stack(gone.asking_layer());
    assert_asked_again(
        &gone,
        &report,
        stack,
        gone.view(),
        &[ApprovalChange::KeyGone],
    )
    .await;
    // As long as the old key is in the ring, its approvals are valid.
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let kept = ApprovalWorld {
        ring: kept,
        ..world
    };
    let process = kept.open_process(kept.stack(kept.asking_layer())).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, kept.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn the_token_of_another_call_is_replayed() {
    let world = ApprovalWorld::new();
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = run_turn(
        &process,
        world.view(),
        vec![pay_request("1", 5), pay_request("2", 5)],
    )
    .await;
    for at in [0, 1] {
        process
            .approval_service()
            .decide(&pending_request(&report, at), Decision::approve("ann"))
            .await
            .expect("taken");
    }
    let other = match world
        .store
        .load_record(&RecordKey::Answer(report.results[1].id, 0))
        .await
        .expect("reads")
    {
        Some(StoreRecord::Answer(answer)) => answer.token.clone(),
        other => panic!("{other:?}"),
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, |answer, _| {
            answer.token = other
        })
        .await;
    let process = edited
        .open_process(edited.stack(edited.asking_layer()))
        .await;
    let again = process
        .resume(report.turn, edited.view())
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        pending_request(&again, 0).changed,
        [ApprovalChange::Replayed]
    );
    assert_eq!(edited.effects(), Vec::<serde_json::Value>::new());
}

#[tokio::test]
async fn a_token_of_a_settled_execution_is_replayed_and_one_whose_process_died_is_not() {
    for settled in [true, false] {
        let world = ApprovalWorld::new();
        let report = approved_payment(&world, world.stack(world.asking_layer())).await;
        let call = report.results[0].id;
        // The token was consumed, and then the process died, before or after the outcome was
        // written.
        let edited = world.edit_records(report.turn, call, |_, _| {}).await;
        let Some(StoreRecord::Answer(answer)) = world
            .store
            .load_record(&RecordKey::Answer(call, 0))
            .await
            .expect("reads")
        else {
            panic!("there is an answer")
        };
        let spent = Digest::of_bytes(answer.token.as_deref().expect("signed").as_bytes());
        let run = Json::new(json!({ "call": call, "generation": 0 })).expect("small");
        let key = RecordKey::Other(format!("grant/{spent}").into());
        edited
            .store
            .put_record_once(key, StoreRecord::Json(run))
            .await
            .expect("kept");
        if settled {
            let outcome =
                StoreRecord::Outcome(Arc::new(toolgate::stack::SettledOutcome::new(Status::Ok)));
            edited
                .store
                .put_record_once(RecordKey::Outcome(call), outcome)
                .await
                .expect("kept");
            let stack = edited.stack(edited.asking_layer());
            assert_asked_again(
                &edited,
                &report,
                stack,
                edited.view(),
                &[ApprovalChange::Replayed],
            )
            .await;
        } else {
            let process = edited
                .open_process(edited.stack(edited.asking_layer()))
                .await;
            assert_eq!(
                call_statuses(&resume_turn(&process, &report, edited.view()).await),
                [Some(Status::Ok)]
            );
            assert_eq!(edited.effects().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_token_that_was_used_for_another_run_is_replayed() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let call = report.results[0].id;
    let Some(StoreRecord::Answer(answer)) = world
        .store
        .load_record(&RecordKey::Answer(call, 0))
        .await
        .expect("reads")
    else {
        panic!("there is an answer")
    };
    let spent = Digest::of_bytes(answer.token.as_deref().expect("signed").as_bytes());
    let elsewhere = Json::new(json!({ "call": "another", "generation": 0 })).expect("small");
    world
        .store
        .put_record_once(
            RecordKey::Other(format!("grant/{spent}").into()),
            StoreRecord::Json(elsewhere),
        )
        .await
        .expect("kept");
    assert_asked_again(
        &world,
        &report,
        world.stack(world.asking_layer()),
        world.view(),
        &[ApprovalChange::Replayed],
    )
    .await;
}

#[tokio::test]
async fn arguments_that_a_layer_changes_after_the_approval_need_a_new_one() {
    let world = ApprovalWorld::new();
    // Sets another amount each time the call passes.
    let times = Arc::new(AtomicU32::new(5));
    let moody = move |call: Call| {
        let arguments = amount_arguments(times.fetch_add(1, Ordering::SeqCst));
        call.with_arguments(arguments)
    };
    let stack = |layer| {
        let stack = Stack::over(world.registry.clone())
            .layer(layer)
            .layer(world.asking_layer());
        stack.build().expect("in order")
    };
    let stack = stack(map_call(moody).named("moody").in_band(Band::Shape));
    let report = approved_payment(&world, stack.clone()).await;
    assert_asked_again(
        &world,
        &report,
        stack,
        world.view(),
        &[ApprovalChange::Arguments],
    )
    .await;
}

#[tokio::test]
async fn arguments_that_were_edited_in_the_history_are_not_run() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let edit = |answer: &mut toolgate::approval::ApprovalAnswer, _: &mut ApprovalRequest| {
        answer.decision.verdict = Verdict::ApproveWithEdits {
            arguments: amount_arguments(5_000),
        };
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, edit)
        .await;
    let stack = edited.stack(edited.asking_layer());
    let again = assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Arguments],
    )
    .await;
    assert_eq!(
        pending_request(&again, 0).arguments,
        amount_arguments(5_000),
        "the approver sees what would run"
    );
}

#[tokio::test]
async fn forged_edits_need_an_approval_even_if_the_edited_arguments_would_not() {
    let world = ApprovalWorld::new();
    let much = |call: &Call| {
        (call.arguments.get("amount")?.as_u64()? > 4).then(|| "more than 4".to_owned())
    };
    let asking = || Approval::when(much).keyring(world.ring.clone());
    let report = approved_payment(&world, world.stack(asking())).await;
    let edit = |answer: &mut toolgate::approval::ApprovalAnswer, _: &mut ApprovalRequest| {
        answer.decision.verdict = Verdict::ApproveWithEdits {
            arguments: amount_arguments(3),
        };
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, edit)
        .await;
    let stack = edited.stack(asking());
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Arguments],
    )
    .await;
}

#[tokio::test]
async fn forged_edits_need_an_approval_even_if_the_answer_names_no_known_layer() {
    let much = |call: &Call| {
        (call.arguments.get("amount")?.as_u64()? > 4).then(|| "more than 4".to_owned())
    };
    for asked_by in ["approval", "nobody"] {
        let world = ApprovalWorld::new();
        let asking = || Approval::when(much).keyring(world.ring.clone());
        let report = approved_payment(&world, world.stack(asking())).await;
        let edit = |answer: &mut toolgate::approval::ApprovalAnswer, _: &mut ApprovalRequest| {
            answer.asked_by = asked_by.into();
            answer.fingerprint = None;
            answer.decision.verdict = Verdict::ApproveWithEdits {
                arguments: amount_arguments(3),
            };
        };
        let edited = world
            .edit_records(report.turn, report.results[0].id, edit)
            .await;
        let process = edited.open_process(edited.stack(asking())).await;
        let again = resume_turn(&process, &report, edited.view()).await;
        assert_eq!(
            pending_request(&again, 0).arguments,
            amount_arguments(3),
            "the approver sees what would run"
        );
        assert!(edited.effects().is_empty());
    }
}

#[tokio::test]
async fn a_request_that_was_edited_in_the_history_is_not_approved() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let edit = |_: &mut toolgate::approval::ApprovalAnswer, asked: &mut ApprovalRequest| {
        asked.reason = Some("nothing special".into())
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, edit)
        .await;
    let stack = edited.stack(edited.asking_layer());
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
}

#[tokio::test]
async fn an_approver_that_was_edited_in_the_history_is_rejected() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let edit = |answer: &mut toolgate::approval::ApprovalAnswer, _: &mut ApprovalRequest| {
        answer.decision.by = "the boss".into()
    };
    let edited = world
        .edit_records(report.turn, report.results[0].id, edit)
        .await;
    let stack = edited.stack(edited.asking_layer());
    assert_asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[ApprovalChange::Forged],
    )
    .await;
}

#[tokio::test]
async fn arguments_from_a_process_with_other_code_need_a_new_approval() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let tenfold = map_call(|call: Call| {
        let more = call
            .arguments
            .get("amount")
            .and_then(|n| n.as_u64())
            .unwrap_or(0)
            * 10;
        let arguments = amount_arguments(u32::try_from(more).expect("small"));
        call.with_arguments(arguments)
    });
    let other = Stack::over(world.registry.clone())
        .layer(tenfold.in_band(Band::Shape))
        .layer(world.asking_layer());
    assert_asked_again(
        &world,
        &report,
        other.build().expect("in order"),
        world.view(),
        &[ApprovalChange::Arguments],
    )
    .await;
}

#[tokio::test]
async fn a_changed_tool_needs_a_new_approval() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, world.stack(world.asking_layer())).await;
    let other = ApprovalWorld {
        registry: build_tools(&world.ran, "Pays somebody else."),
        ..world
    };
    let stack = other.stack(other.asking_layer());
    assert_asked_again(
        &other,
        &report,
        stack,
        other.view(),
        &[ApprovalChange::Tool],
    )
    .await;
}

fn stack_with_rules(world: &ApprovalWorld, rules: &str) -> Stack {
    let text = format!("[layers.policy]\n[layers.approval]\n{rules}");
    let parts = Resources::new().with(world.ring.clone());
    let layers = Config::parse(&text)
        .and_then(|config| default_stack(&config, &parts))
        .expect(rules);
    Stack::over(world.registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order")
}

const ASK: &str = "[[layers.policy.rules]]\nname = 'money'\neffect = 'ask'\ntool = 'pay'\n";

#[tokio::test]
async fn a_changed_policy_that_still_asks_needs_a_new_approval() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, stack_with_rules(&world, ASK)).await;
    let stricter =
        format!("{ASK}[[layers.policy.rules]]\nname = 'more'\neffect = 'deny'\ntool = 'burn'\n");
    assert_asked_again(
        &world,
        &report,
        stack_with_rules(&world, &stricter),
        world.view(),
        &[ApprovalChange::Policy],
    )
    .await;
}

#[tokio::test]
async fn a_stricter_policy_blocks_an_approved_call() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, stack_with_rules(&world, ASK)).await;
    let process = world
        .open_process(stack_with_rules(&world, &ASK.replace("'ask'", "'deny'")))
        .await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Blocked)]);
    assert!(world.effects().is_empty());
}

#[tokio::test]
async fn a_policy_that_no_longer_asks_lets_the_call_run() {
    let world = ApprovalWorld::new();
    let report = approved_payment(&world, stack_with_rules(&world, ASK)).await;
    let process = world
        .open_process(stack_with_rules(&world, &ASK.replace("'ask'", "'allow'")))
        .await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn a_file_that_changed_since_its_diff_was_shown_needs_a_new_approval_with_the_new_diff() {
    for with_keys in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.txt");
        std::fs::write(&file, "one\n").expect("written");
        let world = ApprovalWorld::new();
        register_write(&world.registry, dir.path(), &world.ran);
        let stack = || {
            let preview = FilePreview::new(&PathBase::new(dir.path()));
            let asking = Approval::from_effect(SideEffect::WorkspaceWrite).with_preview(preview);
            let asking = if with_keys {
                asking.keyring(world.ring.clone())
            } else {
                asking
            };
            world.stack(asking)
        };
        let process = world.open_process(stack()).await;
        let write = ToolRequest::from_json(
            "1",
            "write_file",
            json!({ "path": "a.txt", "content": "two\n" }),
        );
        let report = run_turn(&process, world.view(), vec![write]).await;
        let first = pending_request(&report, 0);
        assert!(
            first
                .shown
                .as_ref()
                .and_then(|shown| shown.as_str())
                .expect("a diff")
                .contains("-one\n+two\n")
        );
        process
            .approval_service()
            .decide(&first, Decision::approve("ann"))
            .await
            .expect("taken");
        std::fs::write(&file, "somebody else was here\n").expect("written");
        let changed = [ApprovalChange::File {
            path: "a.txt".into(),
        }];
        let again = assert_asked_again(&world, &report, stack(), world.view(), &changed).await;
        let second = pending_request(&again, 0);
        assert!(
            second
                .shown
                .as_ref()
                .and_then(|shown| shown.as_str())
                .expect("a diff")
                .contains("-somebody else")
        );
        let process = world.open_process(stack()).await;
        process
            .approval_service()
            .decide(&second, Decision::approve("ann"))
            .await
            .expect("taken");
        assert_eq!(
            call_statuses(&resume_turn(&process, &again, world.view()).await),
            [Some(Status::Ok)]
        );
        assert_eq!(std::fs::read_to_string(&file).expect("reads"), "two\n");
    }
}

#[tokio::test]
async fn an_approval_counts_only_in_the_directory_that_was_shown() {
    for other in [
        "/srv/other",
        "/srv",
        "/srv/shop/sub",
        "/srv/shop2",
        "/srv/SHOP",
        "/srv/shop\u{200b}",
    ] {
        let world = ApprovalWorld::new();
        let stack = |workspace: &str| {
            let asking = Approval::when(|_| Some("it pays".to_owned())).keyring(world.ring.clone());
            world.stack(asking.in_workspace(PathBase::new(workspace)))
        };
        let report = approved_payment(&world, stack("/srv/shop")).await;
        let store = toolgate::store::StoreHandle::new(world.store.clone());
        let call = report.results[0].id;
        let stored = store.load_approval_request(call, 0).await.expect("reads");
        let stored = stored.expect("is stored");
        assert_eq!(stored.workspace.as_deref(), Some("/srv/shop"));
        let shown = stored.show(None).to_string();
        assert!(shown.contains("workspace: /srv/shop\n"), "{shown}");
        let changed = [ApprovalChange::Workspace];
        assert_asked_again(&world, &report, stack(other), world.view(), &changed).await;
    }
    // A request of an earlier version does not name its directory, and stays valid.
    let world = ApprovalWorld::new();
    let asking = || Approval::when(|_| Some("it pays".to_owned())).keyring(world.ring.clone());
    let report = approved_payment(&world, world.stack(asking())).await;
    let here = asking().in_workspace(PathBase::new("/srv/shop"));
    let process = world.open_process(world.stack(here)).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Ok)]);
}

#[tokio::test]
async fn a_preview_and_keys_reach_a_configured_stack_as_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = ApprovalWorld::new();
    register_write(&world.registry, dir.path(), &world.ran);
    let preview = SharedPreview::new(FilePreview::new(&PathBase::new(dir.path())));
    let parts = Resources::new()
        .with(world.ring.clone())
        .with(preview)
        .with(PathBase::new(dir.path()));
    let config =
        Config::parse("[layers.approval]\ntools = ['write_file']\nquorum = 2\n").expect("reads");
    let layers = default_stack(&config, &parts).expect("fits");
    let stack = Stack::over(world.registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let process = world.open_process(stack).await;
    let write = ToolRequest::from_json(
        "1",
        "write_file",
        json!({ "path": "new.txt", "content": "x\n" }),
    );
    let asked = pending_request(&run_turn(&process, world.view(), vec![write]).await, 0);
    assert!(
        asked
            .shown
            .expect("a diff")
            .as_str()
            .expect("text")
            .contains("+x\n")
    );
    assert_eq!(asked.quorum.map(|quorum| quorum.needed), Some(2));
}

#[tokio::test]
async fn without_keys_an_approval_needs_no_token() {
    let world = ApprovalWorld::new();
    let asking = || Approval::when(|_| Some("because".to_owned()));
    let report = approved_payment(
        &world,
        Stack::over(world.registry.clone())
            .layer(Validate::new())
            .layer(asking())
            .build()
            .expect("in order"),
    )
    .await;
    let edited = world
        .edit_records(report.turn, report.results[0].id, |answer, _| {
            answer.token = None
        })
        .await;
    let process = edited.open_process(edited.stack(asking())).await;
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, edited.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn an_acknowledgement_is_recorded_and_cannot_be_removed_from_the_approval() {
    let world = ApprovalWorld::new();
    let stack = world.stack(world.asking_layer());
    let (process, report, named) = world.run_until_asked(stack).await;
    let unseen = Decision::approve("ann").unseen();
    let service = process.approval_service();
    service.decide(&named, unseen).await.expect("taken");
    let changed = [ApprovalChange::Forged];
    let edited = world
        .edit_records(report.turn, report.results[0].id, |answer, _| {
            answer.decision.unseen = false
        })
        .await;
    let stack = edited.stack(edited.asking_layer());
    assert_asked_again(&edited, &report, stack, edited.view(), &changed).await;
    let process = world.open_process(world.stack(world.asking_layer())).await;
    let report = resume_turn(&process, &report, world.view()).await;
    assert_eq!(call_statuses(&report), [Some(Status::Ok)]);
    let events = world.store.events(world.session, 0, usize::MAX).await;
    let recorded = events.expect("reads").iter().any(|event| {
        matches!(
            event.as_tool(),
            Some((_, ToolEvent::ToolApproved { unseen: true, .. }))
        )
    });
    assert!(recorded, "the event says it");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_was_placed_after_the_approval_needs_a_new_one() {
    for placed in ["new.txt", "docs/new.txt", "old.txt"] {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::create_dir_all(root.join(".git/hooks")).expect("created");
        std::fs::create_dir(root.join("docs")).expect("created");
        std::fs::write(root.join("old.txt"), "one\n").expect("written");
        std::fs::write(root.join(".git/hooks/old"), "one\n").expect("written");
        let world = ApprovalWorld::new();
        register_write(&world.registry, &root, &world.ran);
        let stack = || {
            let preview = FilePreview::new(&PathBase::new(&root));
            let asking = Approval::from_effect(SideEffect::WorkspaceWrite).with_preview(preview);
            world.stack(asking.keyring(world.ring.clone()))
        };
        let process = world.open_process(stack()).await;
        let arguments = json!({ "path": placed, "content": "two\n" });
        let write = ToolRequest::from_json("1", "write_file", arguments);
        let report = run_turn(&process, world.view(), vec![write]).await;
        let first = pending_request(&report, 0);
        let service = process.approval_service();
        let approved = service.decide(&first, Decision::approve("ann")).await;
        approved.expect("taken");
        // The target is as missing, or as long, as the file that was shown.
        let target = if placed == "old.txt" {
            "old"
        } else {
            "post-merge"
        };
        let target = root.join(".git/hooks").join(target);
        let _ = std::fs::remove_file(root.join(placed));
        std::os::unix::fs::symlink(target, root.join(placed)).expect("linked");
        let changed = [ApprovalChange::File {
            path: placed.into(),
        }];
        let again = assert_asked_again(&world, &report, stack(), world.view(), &changed).await;
        let shown = pending_request(&again, 0).show(None).to_string();
        assert!(
            shown.contains(&format!("link: {placed} → .git/hooks/")),
            "{shown}"
        );
    }
}
