//! What keeps an approved call from running: whatever is not exactly as it was when somebody agreed.

mod approving;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use approving::{
    World, amount, key, pay, question, register_write, resume, ring, run, statuses, tools,
};
use serde_json::json;
use toolgate::{
    Changed, Digest, Keyring, Parts, Record, RecordKey, Store,
    layers::{Approval, Config, FilePreview, SharedPreview, Validate, Workspace, default_stack},
    prelude::*,
};

/// A world in which a payment was asked about and approved, but has not run.
async fn approved(world: &World, stack: Stack) -> TurnReport {
    let (process, report, question) = world.asked(stack).await;
    process
        .decide(report.turn, &question, Decision::approve("ann"))
        .await
        .expect("taken");
    report
}

/// Resumes in a fresh process, expects to be asked again for `changed`, and nothing to have run.
async fn asked_again(
    world: &World,
    report: &TurnReport,
    stack: Stack,
    view: View,
    changed: &[Changed],
) -> TurnReport {
    let process = world.process(stack).await;
    let again = resume(&process, report, view).await;
    let request = question(&again, 0);
    assert_eq!(
        (request.changed.as_slice(), request.generation),
        (changed, 1)
    );
    assert_eq!(world.ran(), Vec::<serde_json::Value>::new());
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let codes: Vec<&str> = changed.iter().map(Changed::code).collect();
    let recorded = events.iter().any(|event| match event.as_tool() {
        Some((_, ToolEvent::ToolApprovalRequested(asked))) => {
            !codes.is_empty()
                && asked.changed.iter().map(Changed::code).collect::<Vec<_>>() == codes
        }
        _ => false,
    });
    assert!(recorded, "the log says why");
    again
}

#[tokio::test]
async fn an_approval_that_was_signed_for_this_runs_once() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let process = world.process(world.stack(world.asking())).await;
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
    assert_eq!(world.ran(), [json!({ "pay": 5 })]);
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
        notes.metadata["approval_token"]
            .as_str()
            .expect("noted")
            .starts_with("sha256:")
    );
}

#[tokio::test]
async fn an_answer_without_a_token_is_forged() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let edited = world
        .edited(report.turn, report.results[0].id, |answer, _| {
            answer.token = None
        })
        .await;
    let stack = edited.stack(edited.asking());
    asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
}

#[tokio::test]
async fn a_token_that_was_not_signed_by_us_is_forged() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let forger = ring("k1", 66);
    let forge = |answer: &mut toolgate::Answer, asked: &mut ApprovalRequest| {
        answer.token = forger.grant_token(asked, answer);
    };
    let edited = world.edited(report.turn, report.results[0].id, forge).await;
    let stack = edited.stack(edited.asking());
    let again = asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
    // A new approval is as good as any.
    let process = edited.process(edited.stack(edited.asking())).await;
    process
        .decide(again.turn, &question(&again, 0), Decision::approve("bob"))
        .await
        .expect("taken");
    assert_eq!(
        statuses(&resume(&process, &again, edited.view()).await),
        [Some(Status::Ok)]
    );
    assert_eq!(edited.ran(), [json!({ "pay": 5 })]);
}

#[tokio::test]
async fn a_question_does_not_pass_for_an_approval() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let swap = |answer: &mut toolgate::Answer, asked: &mut ApprovalRequest| {
        answer.token = Some(world.ring.ask_token(asked));
    };
    let edited = world.edited(report.turn, report.results[0].id, swap).await;
    let stack = edited.stack(edited.asking());
    asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
}

#[tokio::test]
async fn an_answer_to_the_question_of_another_layer_is_forged() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    // Somebody makes the approval out to a layer that has not asked yet.
    let relabel = |answer: &mut toolgate::Answer, _: &mut ApprovalRequest| {
        answer.asked_by = "second_look".into()
    };
    let edited = world
        .edited(report.turn, report.results[0].id, relabel)
        .await;
    let second = LayerExt::named(edited.asking(), "second_look");
    let stack = Stack::over(edited.registry.clone())
        .layer(Validate::new())
        .layer(second)
        .build()
        .expect("in order");
    asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
}

#[tokio::test]
async fn a_key_that_was_rotated_away_makes_its_approvals_worthless() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let kept = Keyring::new(key("k2", 2)).verifying(key("k1", 1));
    let gone = World {
        ring: ring("k2", 2),
        ..world.clone()
    };
    let stack = gone.stack(gone.asking());
    asked_again(&gone, &report, stack, gone.view(), &[Changed::KeyGone]).await;
    // As long as the old key is in the ring, its approvals count.
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let kept = World {
        ring: kept,
        ..world
    };
    let process = kept.process(kept.stack(kept.asking())).await;
    assert_eq!(
        statuses(&resume(&process, &report, kept.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn the_token_of_another_call_is_replayed() {
    let world = World::new();
    let process = world.process(world.stack(world.asking())).await;
    let report = run(&process, world.view(), vec![pay("1", 5), pay("2", 5)]).await;
    for at in [0, 1] {
        process
            .decide(
                report.turn,
                &question(&report, at),
                Decision::approve("ann"),
            )
            .await
            .expect("taken");
    }
    let other = match world
        .store
        .record(&RecordKey::Answer(report.results[1].id, 0))
        .await
        .expect("reads")
    {
        Some(Record::Answer(answer)) => answer.token.clone(),
        other => panic!("{other:?}"),
    };
    let edited = world
        .edited(report.turn, report.results[0].id, |answer, _| {
            answer.token = other
        })
        .await;
    let process = edited.process(edited.stack(edited.asking())).await;
    let again = process
        .resume(report.turn, edited.view())
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(question(&again, 0).changed, [Changed::Replayed]);
    assert_eq!(edited.ran(), Vec::<serde_json::Value>::new());
}

#[tokio::test]
async fn a_token_that_was_used_for_a_settled_run_is_replayed_and_one_whose_process_was_lost_is_not()
{
    for settled in [true, false] {
        let world = World::new();
        let report = approved(&world, world.stack(world.asking())).await;
        let call = report.results[0].id;
        // The token was used up and then the process was lost, before or after the outcome was written.
        let edited = world.edited(report.turn, call, |_, _| {}).await;
        let Some(Record::Answer(answer)) = world
            .store
            .record(&RecordKey::Answer(call, 0))
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
            .once(key, Record::Json(run))
            .await
            .expect("kept");
        if settled {
            let outcome = Record::Outcome(Arc::new(toolgate::Settled::new(Status::Ok)));
            edited
                .store
                .once(RecordKey::Outcome(call), outcome)
                .await
                .expect("kept");
            let stack = edited.stack(edited.asking());
            asked_again(&edited, &report, stack, edited.view(), &[Changed::Replayed]).await;
        } else {
            let process = edited.process(edited.stack(edited.asking())).await;
            assert_eq!(
                statuses(&resume(&process, &report, edited.view()).await),
                [Some(Status::Ok)]
            );
            assert_eq!(edited.ran().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_token_that_was_used_for_another_run_is_replayed() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let call = report.results[0].id;
    let Some(Record::Answer(answer)) = world
        .store
        .record(&RecordKey::Answer(call, 0))
        .await
        .expect("reads")
    else {
        panic!("there is an answer")
    };
    let spent = Digest::of_bytes(answer.token.as_deref().expect("signed").as_bytes());
    let elsewhere = Json::new(json!({ "call": "another", "generation": 0 })).expect("small");
    world
        .store
        .once(
            RecordKey::Other(format!("grant/{spent}").into()),
            Record::Json(elsewhere),
        )
        .await
        .expect("kept");
    asked_again(
        &world,
        &report,
        world.stack(world.asking()),
        world.view(),
        &[Changed::Replayed],
    )
    .await;
}

#[tokio::test]
async fn arguments_that_a_layer_changes_after_the_approval_are_asked_about_again() {
    let world = World::new();
    // Hands out another amount each time the call comes by.
    let times = Arc::new(AtomicU32::new(5));
    let moody = move |call: Call| {
        let arguments = amount(times.fetch_add(1, Ordering::SeqCst));
        call.with_arguments(arguments)
    };
    let stack = |layer| {
        let stack = Stack::over(world.registry.clone())
            .layer(layer)
            .layer(world.asking());
        stack.build().expect("in order")
    };
    let stack = stack(map_call(moody).named("moody").in_band(Band::Shape));
    let report = approved(&world, stack.clone()).await;
    asked_again(&world, &report, stack, world.view(), &[Changed::Arguments]).await;
}

#[tokio::test]
async fn arguments_that_were_edited_in_the_history_are_not_run() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let edit = |answer: &mut toolgate::Answer, _: &mut ApprovalRequest| {
        answer.decision.verdict = Verdict::ApproveWithEdits {
            arguments: amount(5_000),
        };
    };
    let edited = world.edited(report.turn, report.results[0].id, edit).await;
    let stack = edited.stack(edited.asking());
    let again = asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[Changed::Arguments],
    )
    .await;
    assert_eq!(
        question(&again, 0).arguments,
        amount(5_000),
        "whoever is asked sees what would run"
    );
}

#[tokio::test]
async fn edited_arguments_that_nobody_would_be_asked_about_are_still_asked_about_if_they_were_forged()
 {
    let world = World::new();
    let much = |call: &Call| {
        (call.arguments.get("amount")?.as_u64()? > 4).then(|| "more than 4".to_owned())
    };
    let asking = || Approval::when(much).keyring(world.ring.clone());
    let report = approved(&world, world.stack(asking())).await;
    let edit = |answer: &mut toolgate::Answer, _: &mut ApprovalRequest| {
        answer.decision.verdict = Verdict::ApproveWithEdits {
            arguments: amount(3),
        };
    };
    let edited = world.edited(report.turn, report.results[0].id, edit).await;
    let stack = edited.stack(asking());
    asked_again(
        &edited,
        &report,
        stack,
        edited.view(),
        &[Changed::Arguments],
    )
    .await;
}

#[tokio::test]
async fn forged_edits_are_asked_about_also_if_the_answer_is_made_out_to_nobody() {
    let much = |call: &Call| {
        (call.arguments.get("amount")?.as_u64()? > 4).then(|| "more than 4".to_owned())
    };
    for asked_by in ["approval", "nobody"] {
        let world = World::new();
        let asking = || Approval::when(much).keyring(world.ring.clone());
        let report = approved(&world, world.stack(asking())).await;
        let edit = |answer: &mut toolgate::Answer, _: &mut ApprovalRequest| {
            (answer.asked_by, answer.fingerprint) = (asked_by.into(), None);
            answer.decision.verdict = Verdict::ApproveWithEdits {
                arguments: amount(3),
            };
        };
        let edited = world.edited(report.turn, report.results[0].id, edit).await;
        let process = edited.process(edited.stack(asking())).await;
        let again = resume(&process, &report, edited.view()).await;
        assert_eq!(
            question(&again, 0).arguments,
            amount(3),
            "whoever is asked sees what would run"
        );
        assert!(edited.ran().is_empty());
    }
}

#[tokio::test]
async fn a_question_that_was_edited_in_the_history_has_not_been_approved() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let edit = |_: &mut toolgate::Answer, asked: &mut ApprovalRequest| {
        asked.reason = Some("nothing special".into())
    };
    let edited = world.edited(report.turn, report.results[0].id, edit).await;
    let stack = edited.stack(edited.asking());
    asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
}

#[tokio::test]
async fn an_approver_who_was_edited_in_the_history_has_not_approved() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let edit = |answer: &mut toolgate::Answer, _: &mut ApprovalRequest| {
        answer.decision.by = "the boss".into()
    };
    let edited = world.edited(report.turn, report.results[0].id, edit).await;
    let stack = edited.stack(edited.asking());
    asked_again(&edited, &report, stack, edited.view(), &[Changed::Forged]).await;
}

#[tokio::test]
async fn arguments_that_a_process_with_other_code_makes_are_asked_about_again() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let tenfold = map_call(|call: Call| {
        let more = call
            .arguments
            .get("amount")
            .and_then(|n| n.as_u64())
            .unwrap_or(0)
            * 10;
        let arguments = amount(u32::try_from(more).expect("small"));
        call.with_arguments(arguments)
    });
    let other = Stack::over(world.registry.clone())
        .layer(tenfold.in_band(Band::Shape))
        .layer(world.asking());
    asked_again(
        &world,
        &report,
        other.build().expect("in order"),
        world.view(),
        &[Changed::Arguments],
    )
    .await;
}

#[tokio::test]
async fn a_tool_that_has_changed_is_asked_about_again() {
    let world = World::new();
    let report = approved(&world, world.stack(world.asking())).await;
    let other = World {
        registry: tools(&world.ran, "Pays somebody else."),
        ..world
    };
    let stack = other.stack(other.asking());
    asked_again(&other, &report, stack, other.view(), &[Changed::Tool]).await;
}

fn ruled(world: &World, rules: &str) -> Stack {
    let text = format!("[layers.policy]\n[layers.approval]\n{rules}");
    let parts = Parts::new().with(world.ring.clone());
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
async fn a_policy_that_has_changed_and_still_asks_is_asked_again() {
    let world = World::new();
    let report = approved(&world, ruled(&world, ASK)).await;
    let stricter =
        format!("{ASK}[[layers.policy.rules]]\nname = 'more'\neffect = 'deny'\ntool = 'burn'\n");
    asked_again(
        &world,
        &report,
        ruled(&world, &stricter),
        world.view(),
        &[Changed::Policy],
    )
    .await;
}

#[tokio::test]
async fn a_policy_that_has_become_stricter_denies_what_was_approved() {
    let world = World::new();
    let report = approved(&world, ruled(&world, ASK)).await;
    let process = world
        .process(ruled(&world, &ASK.replace("'ask'", "'deny'")))
        .await;
    let report = resume(&process, &report, world.view()).await;
    assert_eq!(statuses(&report), [Some(Status::Blocked)]);
    assert!(world.ran().is_empty());
}

#[tokio::test]
async fn a_policy_that_does_not_ask_any_more_lets_the_call_run() {
    let world = World::new();
    let report = approved(&world, ruled(&world, ASK)).await;
    let process = world
        .process(ruled(&world, &ASK.replace("'ask'", "'allow'")))
        .await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn a_policy_that_asks_by_itself_takes_only_what_was_signed_too() {
    let world = World::new();
    let text = format!("[stack]\norder = ['policy']\n[layers.policy]\n{ASK}");
    let stack = |world: &World| {
        let parts = Parts::new().with(world.ring.clone());
        let layers = Config::parse(&text)
            .and_then(|config| default_stack(&config, &parts))
            .expect("reads");
        Stack::over(world.registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order")
    };
    let report = approved(&world, stack(&world)).await;
    let edited = world
        .edited(report.turn, report.results[0].id, |answer, _| {
            answer.token = None
        })
        .await;
    asked_again(
        &edited,
        &report,
        stack(&edited),
        edited.view(),
        &[Changed::Forged],
    )
    .await;
    let process = world.process(stack(&world)).await;
    assert_eq!(
        statuses(&resume(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
}

#[tokio::test]
async fn a_file_that_has_changed_since_its_diff_was_shown_is_asked_about_again_with_the_new_diff() {
    for with_keys in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.txt");
        std::fs::write(&file, "one\n").expect("written");
        let world = World::new();
        register_write(&world.registry, dir.path(), &world.ran);
        let stack = || {
            let preview = FilePreview::new(&Workspace::new(dir.path()));
            let asking = Approval::from_effect(SideEffect::WorkspaceWrite).previewing(preview);
            let asking = if with_keys {
                asking.keyring(world.ring.clone())
            } else {
                asking
            };
            world.stack(asking)
        };
        let process = world.process(stack()).await;
        let write = ToolRequest::json(
            "1",
            "write_file",
            json!({ "path": "a.txt", "content": "two\n" }),
        );
        let report = run(&process, world.view(), vec![write]).await;
        let first = question(&report, 0);
        assert!(
            first
                .shown
                .as_ref()
                .and_then(|shown| shown.as_str())
                .expect("a diff")
                .contains("-one\n+two\n")
        );
        process
            .decide(report.turn, &first, Decision::approve("ann"))
            .await
            .expect("taken");
        std::fs::write(&file, "somebody else was here\n").expect("written");
        let changed = [Changed::File {
            path: "a.txt".into(),
        }];
        let again = asked_again(&world, &report, stack(), world.view(), &changed).await;
        let second = question(&again, 0);
        assert!(
            second
                .shown
                .as_ref()
                .and_then(|shown| shown.as_str())
                .expect("a diff")
                .contains("-somebody else")
        );
        let process = world.process(stack()).await;
        process
            .decide(report.turn, &second, Decision::approve("ann"))
            .await
            .expect("taken");
        assert_eq!(
            statuses(&resume(&process, &again, world.view()).await),
            [Some(Status::Ok)]
        );
        assert_eq!(std::fs::read_to_string(&file).expect("reads"), "two\n");
    }
}

#[tokio::test]
async fn a_preview_and_keys_reach_a_configured_stack_as_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::new();
    register_write(&world.registry, dir.path(), &world.ran);
    let preview = SharedPreview::new(FilePreview::new(&Workspace::new(dir.path())));
    let parts = Parts::new()
        .with(world.ring.clone())
        .with(preview)
        .with(Workspace::new(dir.path()));
    let config =
        Config::parse("[layers.approval]\ntools = ['write_file']\nquorum = 2\n").expect("reads");
    let layers = default_stack(&config, &parts).expect("fits");
    let stack = Stack::over(world.registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let process = world.process(stack).await;
    let write = ToolRequest::json(
        "1",
        "write_file",
        json!({ "path": "new.txt", "content": "x\n" }),
    );
    let asked = question(&run(&process, world.view(), vec![write]).await, 0);
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
    let world = World::new();
    let asking = || Approval::when(|_| Some("because".to_owned()));
    let report = approved(
        &world,
        Stack::over(world.registry.clone())
            .layer(Validate::new())
            .layer(asking())
            .build()
            .expect("in order"),
    )
    .await;
    let edited = world
        .edited(report.turn, report.results[0].id, |answer, _| {
            answer.token = None
        })
        .await;
    let process = edited.process(edited.stack(asking())).await;
    assert_eq!(
        statuses(&resume(&process, &report, edited.view()).await),
        [Some(Status::Ok)]
    );
}
