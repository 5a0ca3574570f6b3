//! The rules of the update function.

use std::sync::Arc;

use serde_json::json;
use toolgate::{
    Decision, RunEnd,
    approval::{ApprovalRequestRef, Quorum},
    event::ToolEvent,
    layers::{FileChange, FileChangeKind, RuleScope, StandingRule, Toast, ToastAction, ToastLevel},
    stack::Progress,
    value::Timestamp,
};

use crate::show::tui::{
    UiEffect, UiMessage,
    app::{OverlayWindow, PanelFocus},
    stage::{UiStage, sample_conversation},
    transcript::ScrollPosition,
};

#[test]
fn a_message_is_sent_and_can_be_recalled() {
    let mut stage = UiStage::new();
    stage.type_text("hello");
    stage.press_keys("Ctrl-J");
    stage.type_text("there");
    assert_eq!(
        stage.press_keys("Enter"),
        [UiEffect::Say("hello\nthere".to_owned())]
    );
    assert!(stage.app.input.is_blank());
    stage.press_keys("Up");
    assert_eq!(stage.app.input.text(), "hello\nthere");
}

#[test]
fn nothing_is_sent_when_nothing_is_written() {
    let mut stage = UiStage::new();
    stage.type_text("  ");
    assert_eq!(stage.press_keys("Enter"), []);
}

#[test]
fn ctrl_c_stops_the_run_and_a_second_one_quits() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    assert_eq!(stage.press_keys("Ctrl-C"), [UiEffect::Interrupt]);
    assert_eq!(stage.press_keys("Ctrl-C"), [UiEffect::Quit]);
}

#[test]
fn another_key_in_between_resets_ctrl_c() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    stage.press_keys("Ctrl-C x");
    assert_eq!(stage.press_keys("Ctrl-C"), [UiEffect::Interrupt]);
}

#[test]
fn ctrl_c_without_a_run_clears_the_message_before_it_quits() {
    let mut stage = UiStage::new();
    stage.type_text("half a thought");
    assert_eq!(stage.press_keys("Ctrl-C"), []);
    assert!(stage.app.input.is_blank());
    assert_eq!(stage.press_keys("Ctrl-C"), [UiEffect::Quit]);
}

#[test]
fn ctrl_d_quits_only_if_nothing_is_written() {
    let mut stage = UiStage::new();
    stage.type_text("x");
    assert_eq!(stage.press_keys("Ctrl-D"), []);
    stage.press_keys("Backspace");
    assert_eq!(stage.press_keys("Ctrl-D"), [UiEffect::Quit]);
}

#[test]
fn an_approval_that_comes_up_takes_no_keys_from_the_message() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    stage.type_text("hey");
    stage.pending_call(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press_keys("y"), []);
    assert_eq!(stage.app.input.text(), "heyy");
    assert_eq!(stage.app.focus, PanelFocus::Message);
}

#[test]
fn always_is_not_offered_for_a_request_that_is_made_each_time() {
    for each_time in [false, true] {
        let mut stage = UiStage::new();
        stage.user_message("work");
        let (_, mut request) = stage.pending_call(1, "write_file", json!({ "path": ".envrc" }));
        request.generation += 1;
        request.each_time = each_time;
        stage.ask_about(&request);
        stage.press_keys("Tab");
        let screen = stage.render_screen(100, 30);
        assert_eq!(screen.contains("a always"), !each_time, "{screen}");
    }
}

#[test]
fn calls_can_be_decided_in_any_order() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (_, first) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let (_, second) = stage.pending_call(2, "write_file", json!({ "path": "b" }));
    let effects = stage.press_keys("Tab Down y Up y");
    let approved =
        |request| UiEffect::Decide(ApprovalRequestRef::from(request), Decision::approve("ann"));
    assert_eq!(effects, [approved(&second), approved(&first)]);
}

#[test]
fn a_new_request_does_not_move_the_selection() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let (_, second) = stage.pending_call(2, "write_file", json!({ "path": "b" }));
    stage.press_keys("Tab Down");
    stage.pending_call(3, "write_file", json!({ "path": "c" }));
    assert_eq!(
        stage.press_keys("y"),
        [UiEffect::Decide(
            ApprovalRequestRef::from(&second),
            Decision::approve("ann")
        )]
    );
}

#[test]
fn a_request_that_arrives_is_not_selected_in_place_of_the_one_that_is_shown() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let first = stage.request_call(1, "write_file", json!({ "path": "a" }));
    let second = stage.request_call(2, "write_file", json!({ "path": "b" }));
    let request = stage.request_approval(second, json!({ "path": "b" }), None);
    // Its call comes first in the list, and the panel does not have the focus yet.
    stage.request_approval(first, json!({ "path": "a" }), None);
    assert_eq!(
        stage.press_keys("Tab y"),
        [UiEffect::Decide(
            ApprovalRequestRef::from(&request),
            Decision::approve("ann")
        )]
    );
}

#[test]
fn a_call_is_not_decided_twice_while_the_decision_is_on_its_way() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (call, _) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press_keys("Tab y").len(), 1);
    assert!(
        !stage
            .press_keys("y")
            .iter()
            .any(|effect| matches!(effect, UiEffect::Decide(..)))
    );
    // The decision was rejected: the call can be decided again, and the user is told why.
    let told = stage.apply_message(UiMessage::Decided(
        call,
        Err("the store is away".to_owned()),
    ));
    assert!(matches!(&told[..], [UiEffect::Tell(..)]));
    assert!(matches!(&stage.press_keys("y")[..], [UiEffect::Decide(..)]));
}

#[test]
fn a_user_whose_approval_would_not_count_is_told_why_and_decides_nothing() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (call, mut request) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    request.quorum = Some(Quorum {
        needed: 2,
        among: Vec::new(),
    });
    stage.approve_call(call);
    stage.apply_tool_event(call, ToolEvent::ToolApprovalRequested(Box::new(request)));
    stage.press_keys("Tab");
    // The user of the stage is a claimed name.
    for key in ["y", "e", "a"] {
        let told = stage.press_keys(key);
        let why = |effect: &UiEffect| format!("{effect:?}").contains("you cannot approve this");
        assert!(told.len() == 1 && told.iter().all(why), "{key}: {told:?}");
    }
    stage.press_keys("n");
    assert!(matches!(
        &stage.press_keys("Enter")[..],
        [UiEffect::Decide(..)]
    ));
}

#[test]
fn a_denial_carries_its_reason_to_the_model() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (_, request) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    stage.press_keys("Tab n");
    stage.type_text("not this file");
    let denied = Decision::deny("ann", Some("not this file"));
    assert_eq!(
        stage.press_keys("Enter"),
        [UiEffect::Decide(ApprovalRequestRef::from(&request), denied)]
    );
    assert!(stage.app.window.is_none());
}

#[test]
fn all_requests_are_approved_together_after_they_were_shown() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let command: String = (0..60).map(|n| format!("echo {n}\n")).collect();
    let (_, first) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let (_, second) = stage.pending_call(2, "run_shell", json!({ "command": command }));
    stage.render_screen(80, 24);
    stage.press_keys("Tab A");
    let effects = stage.press_keys("y");
    assert!(
        matches!(&effects[..], [UiEffect::Tell(..)]),
        "there is more below: {effects:?}"
    );
    // One that comes up meanwhile was not shown.
    stage.pending_call(3, "write_file", json!({ "path": "c" }));
    stage.press_keys(&"PgDn ".repeat(10));
    let approved =
        |request| UiEffect::Decide(ApprovalRequestRef::from(request), Decision::approve("ann"));
    assert_eq!(stage.press_keys("y"), [approved(&first), approved(&second)]);
    assert!(stage.app.window.is_none());
}

#[test]
fn a_request_is_chosen_by_its_number_and_left_for_later() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let (second, _) = stage.pending_call(2, "write_file", json!({ "path": "b" }));
    stage.press_keys("Tab 2");
    assert_eq!(stage.app.approval, Some(second));
    assert_eq!(stage.press_keys("s"), []);
    assert_eq!(stage.app.focus, PanelFocus::Message);
    assert!(stage.app.is_undecided(second));
}

#[test]
fn esc_leaves_a_request_pending() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    stage.pending_call(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press_keys("Tab n x Esc"), []);
    assert!(stage.app.window.is_none() && stage.app.deciding.is_empty());
}

#[test]
fn edited_arguments_are_shown_again_before_they_count() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (_, request) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let question = ApprovalRequestRef::from(&request);
    assert_eq!(stage.press_keys("Tab e"), [UiEffect::Edit(question, None)]);
    let arguments = toolgate::Arguments::parse("{\"path\": \"b\"}").expect("valid");
    let mut changed = request
        .clone()
        .with_preview("@@ -1 +1 @@\n-one\n+two\n".into());
    changed.arguments = arguments.clone();
    let edit = (arguments.clone(), Arc::new(changed.show(None)));
    let message = UiMessage::Edited(question, Ok(Some(edit)));
    assert_eq!(stage.apply_message(message.clone()), []);
    let shown = stage.render_screen(80, 24);
    assert!(
        shown.contains("path: b") && shown.contains("│ +two"),
        "{shown}"
    );
    stage.render_screen(80, 8);
    stage.app.window = None;
    stage.render_screen(80, 8);
    stage.apply_message(message);
    let effects = stage.press_keys("y");
    assert!(
        matches!(&effects[..], [UiEffect::Tell(..)]),
        "there is more below: {effects:?}"
    );
    stage.press_keys("PgDn PgDn PgDn PgDn");
    let edited = Decision::approve_with_edits("ann", arguments);
    assert_eq!(stage.press_keys("y"), [UiEffect::Decide(question, edited)]);
}

#[test]
fn an_edit_that_fails_or_changes_nothing_decides_nothing() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (_, request) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    let question = ApprovalRequestRef::from(&request);
    for edited in [Ok(None), Err("the edited text is not JSON".to_owned())] {
        let effects = stage.apply_message(UiMessage::Edited(question, edited));
        assert!(matches!(&effects[..], [UiEffect::Tell(..)]), "{effects:?}");
        assert!(stage.app.window.is_none());
    }
}

#[test]
fn redacted_arguments_are_loaded_to_be_edited_and_not_used_for_a_rule() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let call = stage.request_call(1, "write_file", json!({ "path": "a" }));
    let mut request = stage.request_approval(call, json!({ "key": "s3cret" }), None);
    request.arguments = toolgate::Arguments::parse("{\"key\": \"[redacted]\"}").expect("valid");
    stage.approve_call(call);
    stage.apply_tool_event(
        call,
        toolgate::event::ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
    );
    stage.load_request(&request);
    stage.press_keys("Tab");
    // The driver loads the stored request for these.
    let question = ApprovalRequestRef::from(&request);
    assert_eq!(stage.press_keys("e"), [UiEffect::Edit(question, None)]);
    assert_eq!(stage.press_keys("?"), [UiEffect::Explain(question)]);
    let effects = stage.press_keys("a");
    assert!(matches!(&effects[..], [UiEffect::Tell(..)]), "{effects:?}");
}

#[test]
fn a_request_that_was_not_on_the_screen_in_full_is_approved_only_with_another_key() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let command: String = (0..200).map(|n| format!("echo {n}\n")).collect();
    let (_, request) = stage.pending_call(1, "run_shell", json!({ "command": command }));
    let question = ApprovalRequestRef::from(&request);
    let is_told = |effects: Vec<UiEffect>| matches!(&effects[..], [UiEffect::Tell(..)]);
    let panel = stage.render_screen(80, 24);
    assert!(panel.contains("more rows; v shows all of them"), "{panel}");
    assert!(is_told(stage.press_keys("Tab y")));
    assert!(is_told(stage.press_keys("a")));
    // Who jumps to the end has not seen the middle.
    stage.press_keys("Enter End Esc");
    assert!(is_told(stage.press_keys("y")));
    let unseen = Decision::approve("ann").unseen();
    assert_eq!(stage.press_keys("u"), [UiEffect::Decide(question, unseen)]);
    stage.apply_message(UiMessage::Decided(
        request.approval_id.call_id(),
        Err("no".to_owned()),
    ));
    stage.press_keys("Enter");
    stage.press_keys(&"PgDn ".repeat(20));
    stage.press_keys("Esc");
    assert!(is_told(stage.press_keys("u")));
    let seen = Decision::approve("ann");
    assert_eq!(stage.press_keys("y"), [UiEffect::Decide(question, seen)]);
}

#[test]
fn a_request_that_cannot_be_shown_is_not_approved() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (call, request) = stage.pending_call(1, "write_file", json!({ "path": "a" }));
    stage.app.screen.set_shown(
        call,
        request.generation,
        Err("the request was changed".to_owned()),
    );
    stage.app.seen.clear();
    assert!(
        stage
            .render_screen(80, 24)
            .contains("the request was changed")
    );
    let effects = stage.press_keys("Tab y");
    assert!(matches!(&effects[..], [UiEffect::Tell(..)]), "{effects:?}");
}

#[test]
fn always_spells_out_the_arguments_and_waits_for_the_preview() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let (_, request) = stage.pending_call(
        1,
        "write_file",
        json!({ "path": "a", "content": "x".repeat(500) }),
    );
    let effects = stage.press_keys("Tab a");
    let [UiEffect::Preview(rule)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        rule.arguments.keys().collect::<Vec<_>>(),
        ["/content", "/path"]
    );
    assert!(matches!(rule.scope, RuleScope::Session { .. }));
    assert_eq!(stage.press_keys("y"), [], "the preview was not shown yet");
    let effects = stage.press_keys("p");
    let [UiEffect::Preview(wider)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        wider.scope,
        RuleScope::Project {
            project: "/shop".to_owned()
        }
    );
    let previewed = |rule: &StandingRule| {
        UiMessage::Previewed(Box::new(rule.clone()), Ok(vec!["write_file".to_owned()]))
    };
    stage.apply_message(previewed(rule));
    assert_eq!(
        stage.press_keys("y"),
        [],
        "the preview is of the former rule"
    );
    stage.apply_message(previewed(wider));
    for not_yes in ["Enter", "Ctrl-y", "Alt-y"] {
        let effects = stage.press_keys(not_yes);
        let stored = |effect: &UiEffect| matches!(effect, UiEffect::Rule(..));
        assert!(!effects.iter().any(stored), "{not_yes}: {effects:?}");
    }
    let kept = UiEffect::Rule(
        wider.clone(),
        ApprovalRequestRef::from(&request),
        Decision::approve("ann"),
    );
    assert_eq!(stage.press_keys("y"), [kept]);
}

#[test]
fn the_visible_text_stays_while_more_arrives_and_the_end_is_followed_again() {
    let mut stage = UiStage::new();
    stage.user_message("count");
    stage.model_replies(60);
    assert!(stage.render_screen(80, 24).contains("number 59"));
    stage.press_keys("Tab k k k");
    let before = stage.render_screen(80, 24);
    stage.model_reply("one more");
    let rows = |text: &str| text.lines().take(15).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&stage.render_screen(80, 24)), rows(&before));
    stage.press_keys("G");
    assert!(stage.render_screen(80, 24).contains("one more"));
    assert_eq!(stage.app.transcripts[0].scroll(), ScrollPosition::Follow);
}

#[test]
fn scrolling_down_to_the_end_follows_it_again() {
    let mut stage = UiStage::new();
    stage.user_message("count");
    stage.model_replies(60);
    stage.render_screen(80, 24);
    stage.press_keys("PgUp PgUp PgDn PgDn PgDn");
    assert_eq!(stage.app.transcripts[0].scroll(), ScrollPosition::Follow);
    stage.press_keys("Tab g");
    assert!(stage.render_screen(80, 24).contains("count"));
}

#[test]
fn what_fits_on_the_screen_does_not_scroll() {
    let mut stage = sample_conversation();
    stage.render_screen(80, 24);
    stage.press_keys("PgUp");
    assert_eq!(stage.app.transcripts[0].scroll(), ScrollPosition::Follow);
}

#[test]
fn search_finds_the_newest_match_first_and_wraps_around() {
    let mut stage = UiStage::new();
    stage.user_message("count");
    stage.model_replies(50);
    stage.render_screen(80, 24);
    stage.press_keys("Tab /");
    stage.type_text("NUMBER 1");
    stage.press_keys("Enter");
    // 1 and 10 to 19.
    assert_eq!(
        stage.app.search.as_ref().expect("searches").status_text(),
        "“number 1”: 11 of 11"
    );
    assert!(stage.render_screen(80, 24).contains("number 19"));
    stage.press_keys("n");
    assert_eq!(
        stage.app.search.as_ref().expect("searches").status_text(),
        "“number 1”: 1 of 11"
    );
    let shown = stage.render_screen(80, 24);
    assert!(
        shown.contains("number 1\n") || shown.contains("number 2\n"),
        "{shown}"
    );
    stage.press_keys("N");
    assert!(stage.render_screen(80, 24).contains("number 19"));
}

#[test]
fn search_counts_what_can_be_seen() {
    let mut stage = UiStage::new();
    stage.user_message("count the ducks, the **ducks**");
    let call = stage.request_call(1, "read_file", json!({ "path": "ducks.txt" }));
    stage.start_call(call);
    // The result is not in the conversation.
    stage.succeed_call(call, json!("ducks ducks ducks"));
    stage.model_reply("There are [ducks](https://pond.example) here.");
    stage.render_screen(80, 24);
    stage.press_keys("Tab /");
    stage.type_text("ducks");
    stage.press_keys("Enter");
    let status = |stage: &UiStage| stage.app.search.as_ref().expect("searches").status_text();
    assert_eq!(status(&stage), "“ducks”: 4 of 4");
    stage.model_reply("More ducks.");
    stage.render_screen(80, 24);
    assert_eq!(status(&stage), "“ducks”: 4 of 5");
    // At another width the matches are counted again, also across the end of a line.
    stage.press_keys("Tab /");
    stage.press_keys("Esc Esc Tab /");
    stage.type_text("the ducks");
    stage.press_keys("Enter");
    assert_eq!(status(&stage), "“the ducks”: 1 of 1");
    stage.render_screen(14, 40);
    assert_eq!(status(&stage), "“the ducks”: 1 of 1");
}

#[test]
fn a_command_of_the_palette_does_what_its_key_does() {
    let mut stage = sample_conversation();
    stage.press_keys("Ctrl-P");
    stage.type_text("copy");
    let effects = stage.press_keys("Enter");
    assert!(
        matches!(&effects[..], [UiEffect::Copy(text)] if text.starts_with("# Found it")),
        "{effects:?}"
    );
}

#[test]
fn agents_are_shown_one_after_the_other() {
    let mut stage = UiStage::new();
    stage.user_message("delegate");
    stage
        .agent(Some("reviewer"))
        .user_message("review this")
        .model_reply("looks fine");
    assert_eq!(
        stage.app.agent, 0,
        "events of other agents do not change the selected conversation"
    );
    stage.press_keys("Ctrl-N");
    assert!(stage.render_screen(80, 24).contains("looks fine"));
    stage.press_keys("Ctrl-N");
    assert!(!stage.render_screen(80, 24).contains("looks fine"));
}

#[test]
fn details_open_for_the_selected_call() {
    let mut stage = sample_conversation();
    stage.render_screen(80, 24);
    stage.press_keys("Tab [ [ Enter");
    let first = stage.app.calls_here().next();
    assert!(
        matches!(stage.app.window, Some(OverlayWindow::Detail { call, .. }) if Some(call) == first)
    );
    stage.press_keys("Esc");
    assert!(stage.app.window.is_none());
}

#[test]
fn scrolling_past_the_end_of_a_window_is_forgotten() {
    let mut stage = UiStage::new();
    stage.press_keys("F1");
    let top = stage.render_screen(80, 24);
    stage.press_keys("G j j j");
    stage.render_screen(80, 24);
    stage.press_keys("k");
    let up = stage.render_screen(80, 24);
    assert_ne!(up, top);
    stage.press_keys("j");
    assert_ne!(stage.render_screen(80, 24), up);
}

#[test]
fn a_stopped_run_resumes_on_request_and_a_running_one_does_not_start_twice() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    assert!(matches!(
        &stage.press_keys("Ctrl-R")[..],
        [UiEffect::Tell(..)]
    ));
    stage.end_run(RunEnd::Cancelled);
    assert_eq!(stage.press_keys("Ctrl-R"), [UiEffect::Resume]);
}

#[test]
fn a_request_to_end_is_obeyed_whatever_is_on_the_screen() {
    let mut stage = UiStage::new();
    stage.press_keys("Ctrl-P");
    assert_eq!(stage.apply_message(UiMessage::Terminate), [UiEffect::Quit]);
    assert_eq!(stage.press_keys("Ctrl-C Ctrl-C"), [UiEffect::Quit]);
}

#[test]
fn the_action_of_the_newest_message_shows_the_call_and_dismisses_the_message() {
    let mut stage = UiStage::new();
    let call = stage.request_call(1, "run_shell", json!({ "command": "make" }));
    assert!(matches!(
        &stage.press_keys("Ctrl-O")[..],
        [UiEffect::Tell(..)]
    ));
    let toast = Toast::new(
        ToastLevel::Error,
        "run_shell",
        "it failed",
        Timestamp::EPOCH,
    );
    let action = ToastAction::show_call(call);
    let toast = toast.with_action(action.label, action.command);
    stage.apply_message(UiMessage::Toasts([toast.clone()].into()));
    assert!(stage.render_screen(80, 24).contains("Ctrl-O details"));
    assert_eq!(stage.press_keys("Ctrl-O"), [UiEffect::Dismiss(toast.id)]);
    assert!(
        matches!(stage.app.window, Some(OverlayWindow::Detail { call: shown, .. }) if shown == call)
    );
}

#[test]
fn a_key_cancels_the_oldest_running_call_or_the_selected_one() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    assert!(matches!(
        &stage.press_keys("Ctrl-K")[..],
        [UiEffect::Tell(..)]
    ));
    let first = stage.request_call(1, "run_shell", json!({ "command": "make" }));
    let second = stage.request_call(2, "run_shell", json!({ "command": "make test" }));
    stage.start_call(first).start_call(second);
    assert_eq!(stage.press_keys("Ctrl-K"), [UiEffect::CancelCall(first)]);
    stage.app.call = Some(second);
    assert_eq!(stage.press_keys("Ctrl-K"), [UiEffect::CancelCall(second)]);
}

#[test]
fn changed_files_and_labels_are_on_the_screen() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let call = stage.request_call(1, "apply_patch", json!({ "patch": "…" }));
    stage.start_call(call);
    let progress = Progress::busy().with_label("Patching");
    stage.apply_tool_event(call, ToolEvent::ToolExecutionProgress { progress });
    assert!(stage.render_screen(80, 24).contains("Patching"));
    let changes = ["a.rs", "b.rs"];
    let changes = changes.map(|path| FileChange::new(path, FileChangeKind::Modified));
    let changes = changes.to_vec();
    stage.apply_tool_event(
        call,
        ToolEvent::ToolFilesChanged {
            changes,
            omitted: 3,
        },
    );
    stage.succeed_call(call, json!("done"));
    let shown = stage.render_screen(80, 24);
    assert!(shown.contains("changed a.rs and 4 more"), "{shown}");
}
