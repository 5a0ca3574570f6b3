//! The rules of the update function.

use serde_json::json;
use toolgate::{Decision, Question, RunEnd, layers::RuleScope};

use super::{
    Effect, Msg,
    app::{Focus, Window},
    stage::{Stage, conversation},
    transcript::Scroll,
};

#[test]
fn what_is_written_is_said_and_can_be_called_back() {
    let mut stage = Stage::new();
    stage.write("hello");
    stage.press("Ctrl-J");
    stage.write("there");
    assert_eq!(
        stage.press("Enter"),
        [Effect::Say("hello\nthere".to_owned())]
    );
    assert!(stage.app.input.is_blank());
    stage.press("Up");
    assert_eq!(stage.app.input.text(), "hello\nthere");
}

#[test]
fn nothing_is_sent_when_nothing_is_written() {
    let mut stage = Stage::new();
    stage.write("  ");
    assert_eq!(stage.press("Enter"), []);
}

#[test]
fn ctrl_c_stops_the_run_and_a_second_one_quits() {
    let mut stage = Stage::new();
    stage.said("work");
    assert_eq!(stage.press("Ctrl-C"), [Effect::Interrupt]);
    assert_eq!(stage.press("Ctrl-C"), [Effect::Quit]);
}

#[test]
fn a_key_in_between_means_that_ctrl_c_counts_anew() {
    let mut stage = Stage::new();
    stage.said("work");
    stage.press("Ctrl-C x");
    assert_eq!(stage.press("Ctrl-C"), [Effect::Interrupt]);
}

#[test]
fn ctrl_c_at_rest_clears_what_is_written_before_it_quits() {
    let mut stage = Stage::new();
    stage.write("half a thought");
    assert_eq!(stage.press("Ctrl-C"), []);
    assert!(stage.app.input.is_blank());
    assert_eq!(stage.press("Ctrl-C"), [Effect::Quit]);
}

#[test]
fn ctrl_d_quits_only_if_nothing_is_written() {
    let mut stage = Stage::new();
    stage.write("x");
    assert_eq!(stage.press("Ctrl-D"), []);
    stage.press("Backspace");
    assert_eq!(stage.press("Ctrl-D"), [Effect::Quit]);
}

#[test]
fn an_approval_that_comes_up_takes_no_keys_from_the_message() {
    let mut stage = Stage::new();
    stage.said("work");
    stage.write("hey");
    stage.waiting(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press("y"), []);
    assert_eq!(stage.app.input.text(), "heyy");
    assert_eq!(stage.app.focus, Focus::Message);
}

#[test]
fn calls_can_be_decided_in_any_order() {
    let mut stage = Stage::new();
    stage.said("work");
    let (_, first) = stage.waiting(1, "write_file", json!({ "path": "a" }));
    let (_, second) = stage.waiting(2, "write_file", json!({ "path": "b" }));
    let effects = stage.press("Tab Down y Up y");
    let approved = |request| Effect::Decide(Question::from(request), Decision::approve("ann"));
    assert_eq!(effects, [approved(&second), approved(&first)]);
}

#[test]
fn a_new_question_does_not_move_the_selection() {
    let mut stage = Stage::new();
    stage.said("work");
    stage.waiting(1, "write_file", json!({ "path": "a" }));
    let (_, second) = stage.waiting(2, "write_file", json!({ "path": "b" }));
    stage.press("Tab Down");
    stage.waiting(3, "write_file", json!({ "path": "c" }));
    assert_eq!(
        stage.press("y"),
        [Effect::Decide(
            Question::from(&second),
            Decision::approve("ann")
        )]
    );
}

#[test]
fn until_somebody_looks_the_first_call_is_the_one_that_is_selected() {
    let mut stage = Stage::new();
    stage.said("work");
    let first = stage.call(1, "write_file", json!({ "path": "a" }));
    let second = stage.call(2, "write_file", json!({ "path": "b" }));
    stage.asked(second, json!({ "path": "b" }), None);
    let request = stage.asked(first, json!({ "path": "a" }), None);
    assert_eq!(
        stage.press("Tab y"),
        [Effect::Decide(
            Question::from(&request),
            Decision::approve("ann")
        )]
    );
}

#[test]
fn a_call_is_not_decided_twice_while_the_decision_is_on_its_way() {
    let mut stage = Stage::new();
    stage.said("work");
    let (call, _) = stage.waiting(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press("Tab y").len(), 1);
    assert!(
        !stage
            .press("y")
            .iter()
            .any(|effect| matches!(effect, Effect::Decide(..)))
    );
    // It could not be taken in: then it can be decided again, and the person is told why.
    let told = stage.put(Msg::Decided(call, Err("the store is away".to_owned())));
    assert!(matches!(&told[..], [Effect::Tell(..)]));
    assert!(matches!(&stage.press("y")[..], [Effect::Decide(..)]));
}

#[test]
fn a_denial_carries_its_reason_to_the_model() {
    let mut stage = Stage::new();
    stage.said("work");
    let (_, request) = stage.waiting(1, "write_file", json!({ "path": "a" }));
    stage.press("Tab n");
    stage.write("not this file");
    let denied = Decision::deny("ann", Some("not this file"));
    assert_eq!(
        stage.press("Enter"),
        [Effect::Decide(Question::from(&request), denied)]
    );
    assert!(stage.app.window.is_none());
}

#[test]
fn esc_leaves_a_question_open() {
    let mut stage = Stage::new();
    stage.said("work");
    stage.waiting(1, "write_file", json!({ "path": "a" }));
    assert_eq!(stage.press("Tab n x Esc"), []);
    assert!(stage.app.window.is_none() && stage.app.deciding.is_empty());
}

#[test]
fn edited_arguments_are_shown_again_before_they_count() {
    let mut stage = Stage::new();
    stage.said("work");
    let (_, request) = stage.waiting(1, "write_file", json!({ "path": "a" }));
    let question = Question::from(&request);
    assert_eq!(
        stage.press("Tab e"),
        [Effect::Edit(
            question,
            "write_file".into(),
            request.arguments.clone()
        )]
    );
    let arguments = toolgate::Arguments::parse("{\"path\": \"b\"}").expect("valid");
    assert_eq!(
        stage.put(Msg::Edited(question, Ok(Some(arguments.clone())))),
        []
    );
    assert!(stage.screen(80, 24).contains("\"b\""));
    let edited = Decision::approve_with_edits("ann", arguments);
    assert_eq!(stage.press("y"), [Effect::Decide(question, edited)]);
}

#[test]
fn an_edit_that_fails_or_changes_nothing_decides_nothing() {
    let mut stage = Stage::new();
    stage.said("work");
    let (_, request) = stage.waiting(1, "write_file", json!({ "path": "a" }));
    let question = Question::from(&request);
    for edited in [Ok(None), Err("what you wrote is not JSON".to_owned())] {
        let effects = stage.put(Msg::Edited(question, edited));
        assert!(matches!(&effects[..], [Effect::Tell(..)]), "{effects:?}");
        assert!(stage.app.window.is_none());
    }
}

#[test]
fn hidden_arguments_are_neither_edited_nor_made_a_rule_of() {
    let mut stage = Stage::new();
    stage.said("work");
    let call = stage.call(1, "write_file", json!({ "path": "a" }));
    let mut request = stage.asked(call, json!({ "key": "s3cret" }), None);
    request.arguments = toolgate::Arguments::parse("{\"key\": \"[redacted]\"}").expect("valid");
    stage.tool(
        call,
        toolgate::ToolEvent::ToolApprovalRequested(Box::new(request)),
    );
    for key in ["e", "a", "?"] {
        stage.press("Esc Tab");
        let effects = stage.press(key);
        assert!(
            matches!(&effects[..], [Effect::Tell(..)]),
            "{key}: {effects:?}"
        );
    }
}

#[test]
fn always_spells_out_the_arguments_and_waits_for_the_preview() {
    let mut stage = Stage::new();
    stage.said("work");
    let (_, request) = stage.waiting(
        1,
        "write_file",
        json!({ "path": "a", "content": "x".repeat(500) }),
    );
    let effects = stage.press("Tab a");
    let [Effect::Preview(rule)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(rule.arguments.keys().collect::<Vec<_>>(), ["/path"]);
    assert!(matches!(rule.scope, RuleScope::Session { .. }));
    assert_eq!(
        stage.press("y"),
        [],
        "nobody has seen yet what it would answer"
    );
    let effects = stage.press("p");
    let [Effect::Preview(wider)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        wider.scope,
        RuleScope::Project {
            project: "/shop".to_owned()
        }
    );
    stage.put(Msg::Previewed(
        wider.id.clone(),
        Ok(vec!["write_file".to_owned()]),
    ));
    let kept = Effect::Rule(
        wider.clone(),
        Question::from(&request),
        Decision::approve("ann"),
    );
    assert_eq!(stage.press("y"), [kept]);
}

#[test]
fn what_is_read_stays_while_more_comes_in_and_the_end_is_followed_again() {
    let mut stage = Stage::new();
    stage.said("count");
    stage.counted(60);
    assert!(stage.screen(80, 24).contains("number 59"));
    stage.press("Tab k k k");
    let before = stage.screen(80, 24);
    stage.replied("one more");
    let rows = |text: &str| text.lines().take(15).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&stage.screen(80, 24)), rows(&before));
    stage.press("G");
    assert!(stage.screen(80, 24).contains("one more"));
    assert_eq!(stage.app.transcripts[0].scroll(), Scroll::Follow);
}

#[test]
fn scrolling_down_to_the_end_follows_it_again() {
    let mut stage = Stage::new();
    stage.said("count");
    stage.counted(60);
    stage.screen(80, 24);
    stage.press("PgUp PgUp PgDn PgDn PgDn");
    assert_eq!(stage.app.transcripts[0].scroll(), Scroll::Follow);
    stage.press("Tab g");
    assert!(stage.screen(80, 24).contains("count"));
}

#[test]
fn what_fits_on_the_screen_does_not_scroll() {
    let mut stage = conversation();
    stage.screen(80, 24);
    stage.press("PgUp");
    assert_eq!(stage.app.transcripts[0].scroll(), Scroll::Follow);
}

#[test]
fn search_finds_the_newest_place_first_and_goes_round() {
    let mut stage = Stage::new();
    stage.said("count");
    stage.counted(50);
    stage.screen(80, 24);
    stage.press("Tab /");
    stage.write("NUMBER 1");
    stage.press("Enter");
    // 1 and 10 to 19.
    assert_eq!(
        stage.app.search.as_ref().expect("searches").standing(),
        "“number 1”: 11 of 11"
    );
    assert!(stage.screen(80, 24).contains("number 19"));
    stage.press("n");
    assert_eq!(
        stage.app.search.as_ref().expect("searches").standing(),
        "“number 1”: 1 of 11"
    );
    let shown = stage.screen(80, 24);
    assert!(
        shown.contains("number 1\n") || shown.contains("number 2\n"),
        "{shown}"
    );
    stage.press("N");
    assert!(stage.screen(80, 24).contains("number 19"));
}

#[test]
fn a_command_of_the_palette_does_what_its_key_does() {
    let mut stage = conversation();
    stage.press("Ctrl-P");
    stage.write("copy");
    let effects = stage.press("Enter");
    assert!(
        matches!(&effects[..], [Effect::Copy(text)] if text.starts_with("# Found it")),
        "{effects:?}"
    );
}

#[test]
fn agents_are_looked_at_one_after_the_other() {
    let mut stage = Stage::new();
    stage.said("delegate");
    stage
        .agent(Some("reviewer"))
        .said("review this")
        .replied("looks fine");
    assert_eq!(
        stage.app.agent, 0,
        "somebody else's news do not take the screen"
    );
    stage.press("Ctrl-N");
    assert!(stage.screen(80, 24).contains("looks fine"));
    stage.press("Ctrl-N");
    assert!(!stage.screen(80, 24).contains("looks fine"));
}

#[test]
fn details_open_for_the_call_that_is_meant() {
    let mut stage = conversation();
    stage.screen(80, 24);
    stage.press("Tab [ [ Enter");
    let first = stage.app.calls_here().next();
    assert!(matches!(stage.app.window, Some(Window::Detail { call, .. }) if Some(call) == first));
    stage.press("Esc");
    assert!(stage.app.window.is_none());
}

#[test]
fn scrolling_past_the_end_of_a_window_is_forgotten() {
    let mut stage = Stage::new();
    stage.press("F1");
    let top = stage.screen(80, 24);
    stage.press("G j j j");
    stage.screen(80, 24);
    stage.press("k");
    let up = stage.screen(80, 24);
    assert_ne!(up, top);
    stage.press("j");
    assert_ne!(stage.screen(80, 24), up);
}

#[test]
fn a_stopped_run_goes_on_when_asked_and_a_running_one_does_not_begin_twice() {
    let mut stage = Stage::new();
    stage.said("work");
    assert!(matches!(&stage.press("Ctrl-R")[..], [Effect::Tell(..)]));
    stage.ended(RunEnd::Cancelled);
    assert_eq!(stage.press("Ctrl-R"), [Effect::GoOn]);
}

#[test]
fn whoever_asks_the_program_to_end_is_heard_whatever_is_on_the_screen() {
    let mut stage = Stage::new();
    stage.press("Ctrl-P");
    assert_eq!(stage.put(Msg::Terminate), [Effect::Quit]);
    assert_eq!(stage.press("Ctrl-C Ctrl-C"), [Effect::Quit]);
}
