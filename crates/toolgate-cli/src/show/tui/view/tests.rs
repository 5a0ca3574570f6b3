//! The look of the screen.

use std::{sync::Arc, time::Duration};

use insta::assert_snapshot;
use serde_json::json;
use toolgate::{
    event::{SessionEvent, StreamPiece, ToolEvent},
    layers::ToastLevel,
    model::Delta,
    stack::{Notes, Progress, ProgressKind, TurnInfo},
    value::{Timestamp, TurnId},
};
use unicode_width::UnicodeWidthStr;
use uuid::Uuid;

use crate::show::tui::{
    UiEffect, UiMessage,
    stage::{UiStage, sample_conversation},
};

const DIFF: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-fn add(a: i32, b: i32) -> i32 { a - b }\n+fn add(a: i32, b: i32) -> i32 { a + b }\n";

/// Builds two pending approvals: one of the main agent with a diff, one of another agent.
fn stage_with_approvals() -> UiStage {
    let mut stage = sample_conversation();
    stage.user_message("Then fix it.");
    let arguments = json!({ "path": "src/lib.rs", "old_text": "a - b", "new_text": "a + b" });
    let edit = stage.request_call(3, "edit_file", arguments.clone());
    stage.request_approval(edit, arguments, Some(DIFF));
    stage.agent(Some("tester")).user_message("Run the tests.");
    stage.pending_call(4, "run_shell", json!({ "command": "cargo test" }));
    stage
}

fn stage_with_two_agents() -> UiStage {
    let mut stage = sample_conversation();
    stage.user_message("Delegate the rest.");
    stage
        .agent(Some("reviewer"))
        .user_message("Review src/lib.rs.");
    let shell = stage.request_call(5, "run_shell", json!({ "command": "cargo clippy" }));
    stage.start_call(shell);
    let kind = ProgressKind::Determinate;
    let message = Some("checking toolgate-core".to_owned());
    let progress = Progress {
        kind,
        current: Some(3),
        total: Some(10),
        message,
        label: None,
    };
    stage.apply_tool_event(shell, ToolEvent::ToolExecutionProgress { progress });
    stage
}

#[test]
fn empty() {
    assert_snapshot!(UiStage::new().render_screen(80, 24));
}

#[test]
fn the_greeting_says_where_it_is_and_what_to_do_first() {
    let mut stage = UiStage::new();
    stage.app.setup.previous = Some(toolgate::value::SessionId::new(Uuid::from_u128(9)));
    for (columns, rows) in [(60, 20), (120, 30)] {
        let screen = stage.render_screen(columns, rows);
        for said in [
            "/shop",
            "scripted:captain",
            "00000001",
            "00000009",
            "/resume",
        ] {
            assert!(screen.contains(said), "{said} in {screen}");
        }
        let steps = [
            "1  Describe a task",
            "2  @ names a file",
            "3  A call that needs",
        ];
        assert!(steps.iter().all(|step| screen.contains(step)), "{screen}");
    }
}

#[test]
fn a_conversation() {
    assert_snapshot!(sample_conversation().render_screen(100, 30));
}

#[test]
fn a_conversation_at_80_by_24() {
    assert_snapshot!(sample_conversation().render_screen(80, 24));
}

#[test]
fn a_conversation_at_59_by_15() {
    assert_snapshot!(sample_conversation().render_screen(59, 15));
}

#[test]
fn two_agents_side_by_side() {
    let mut stage = stage_with_two_agents();
    stage.press_keys("Ctrl-N");
    assert_snapshot!(stage.render_screen(120, 24));
}

#[test]
fn two_agents_in_a_narrow_terminal() {
    assert_snapshot!(stage_with_two_agents().render_screen(59, 15));
}

#[test]
fn pending_approvals() {
    let mut stage = stage_with_approvals();
    stage.press_keys("Tab");
    assert_snapshot!(stage.render_screen(100, 30));
}

#[test]
fn pending_approvals_at_80_by_24() {
    assert_snapshot!(stage_with_approvals().render_screen(80, 24));
}

#[test]
fn a_reply_that_is_still_coming() {
    let mut stage = UiStage::new();
    stage.user_message("Hello?");
    stage.apply_loop_event(SessionEvent::InferenceStarted {
        attempt: 1,
        messages: 1,
        tools: 4,
    });
    let turn = Arc::new(TurnInfo::new(
        stage.app.setup.session,
        TurnId::new(Uuid::from_u128(2)),
    ));
    for text in ["I am **com", "ing** to", " it"] {
        let piece = StreamPiece {
            turn: turn.clone(),
            after: 2,
            delta: Delta::Text(text.to_owned()),
        };
        stage.apply_message(UiMessage::Piece(Arc::new(piece)));
        stage.render_screen(60, 12);
    }
    assert_snapshot!(stage.render_screen(60, 12));
}

#[test]
fn everything_about_a_call() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let call = stage.request_call(1, "read_file", json!({ "path": "src/lib.rs" }));
    let notes: Notes = serde_json::from_value(json!({
        "summary": "Read src/lib.rs",
        "layers": [
            { "name": "receipts", "band": "record", "status": "ok", "changed": false, "attempt": 1,
              "started_at": "2025-06-15T15:06:40Z", "ended_at": "2025-06-15T15:06:40.000900Z" },
            { "name": "redact", "band": "shape", "status": "ok", "changed": true, "attempt": 1,
              "redacted": true, "started_at": "2025-06-15T15:06:40.000100Z", "ended_at": "2025-06-15T15:06:40.000800Z",
              "reason": "1 secret is blanked out" },
            { "name": "policy", "band": "decide", "status": "ok", "changed": false, "attempt": 1,
              "started_at": "2025-06-15T15:06:40.000200Z", "ended_at": "2025-06-15T15:06:40.000700Z",
              "reason": "it only reads" }
        ],
        "provenance": [{ "layer": "redact", "subject": "result", "changes": [{ "pointer": "/text", "op": "replace" }] }]
    }))
    .expect("notes");
    stage.start_call(call);
    stage.apply_tool_event(call, ToolEvent::ToolCallAudit { audit: notes });
    stage.succeed_call(call, json!({ "text": "fn add() {}" }));
    stage.render_screen(100, 44);
    stage.press_keys("Tab Enter");
    assert_snapshot!(stage.render_screen(100, 44));
}

#[test]
fn wide_characters_and_emoji() {
    let mut stage = UiStage::new();
    stage.user_message("日本語で説明してください 🙏");
    let call = stage.request_call(
        1,
        "write_file",
        json!({ "path": "資料/説明.md", "content": "👨‍👩‍👧‍👦" }),
    );
    stage.start_call(call).succeed_call(call, json!("ok"));
    stage.model_reply("これは長い日本語の段落です。端末の幅に合わせて正しく折り返される必要があります。👍🏽 e\u{301}");
    let screen = stage.render_screen(40, 16);
    for row in screen.lines() {
        assert!(row.width() <= 40, "{row}");
    }
    assert_snapshot!(screen);
}

#[test]
fn long_text_without_a_break() {
    let mut stage = UiStage::new();
    stage.user_message(&"a".repeat(130));
    stage.model_reply(&format!("{} and then words again", "b".repeat(150)));
    assert_snapshot!(stage.render_screen(60, 16));
}

#[test]
fn text_of_models_and_tools_cannot_control_the_terminal() {
    let evil = "x\u{1b}[2J\u{7}\u{202e}y\u{9b}31m";
    let mut stage = UiStage::new();
    stage.user_message(evil).model_reply(evil);
    let call = stage.request_call(1, evil, json!({ "path": evil }));
    stage.request_approval(call, json!({ "path": evil }), Some(evil));
    stage.show_toast(ToastLevel::Error, evil);
    for keys in ["", "Tab", "n", "Esc a", "Esc Enter"] {
        stage.press_keys(keys);
        let screen = stage.render_screen(100, 40);
        let steers =
            |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!(!screen.contains(steers), "{keys}: {screen:?}");
    }
}

#[test]
fn the_palette() {
    let mut stage = sample_conversation();
    stage.press_keys("Ctrl-P");
    stage.type_text("ag");
    assert_snapshot!(stage.render_screen(80, 24));
}

#[test]
fn the_palette_keeps_its_field_in_view_and_says_when_nothing_is_found() {
    let mut stage = sample_conversation();
    stage.press_keys("Ctrl-P");
    stage.type_text("e");
    stage.press_keys(&"Down ".repeat(20));
    let screen = stage.render_screen(80, 12);
    assert!(screen.contains("› e▏"), "{screen}");
    stage.type_text("zzz");
    let screen = stage.render_screen(80, 12);
    assert!(
        screen.contains("› ezzz▏") && screen.contains("nothing found"),
        "{screen}"
    );
    assert_eq!(stage.press_keys("Enter"), []);
    assert!(
        stage.render_screen(80, 12).contains("nothing found"),
        "it can be corrected"
    );
}

#[test]
fn the_list_of_agents_appears_with_the_second_agent() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    let call = stage.request_call(1, "run_shell", json!({ "command": "make" }));
    stage.start_call(call);
    assert!(!stage.render_screen(120, 24).contains("agents"));
    assert!(
        stage_with_two_agents()
            .render_screen(120, 24)
            .contains("agents")
    );
}

#[test]
fn toasts_cover_no_text() {
    for keys in ["", "Tab Enter", "Ctrl-P"] {
        let mut stage = stage_with_approvals();
        stage.press_keys(keys);
        let text = |screen: &str| -> Vec<String> {
            let rows = screen.lines().map(|row| row.trim().to_owned());
            rows.filter(|row| !row.is_empty()).collect()
        };
        // So high that nothing has to make room.
        let before = text(&stage.render_screen(100, 60));
        stage.show_toast(ToastLevel::Warning, "git push is not allowed here");
        let after = stage.render_screen(100, 60);
        let toast = "│ run_shell: git push is not allowed here";
        assert!(after.contains(toast), "{keys}: {after}");
        let after = text(&after);
        if stage.app.window.is_none() {
            let missing = before.iter().find(|row| !after.contains(row));
            assert_eq!(missing, None, "{keys}");
        }
    }
}

#[test]
fn every_key_of_an_approval_is_visible_in_60_columns() {
    let mut stage = stage_with_approvals();
    for focus in ["", "Tab"] {
        stage.press_keys(focus);
        for (columns, rows) in [(60, 30), (80, 30), (120, 30)] {
            let screen = stage.render_screen(columns, rows);
            let keys = [
                "y approve",
                "n deny",
                "e edit",
                "a always",
                "? explain",
                "s later",
                "1-9 another",
            ];
            for key in keys {
                assert!(screen.contains(key), "{key} at {columns}: {screen}");
            }
        }
    }
}

#[test]
fn the_help() {
    let mut stage = UiStage::new();
    stage.press_keys("F1");
    assert_snapshot!(stage.render_screen(100, 60));
}

#[test]
fn a_window_that_does_not_fit_says_which_lines_are_visible() {
    let mut stage = UiStage::new();
    stage.press_keys("F1");
    let whole = stage.render_screen(100, 100);
    assert!(!whole.contains("↑↓"), "{whole}");
    let first = stage.render_screen(60, 20);
    assert!(first.contains("↑↓ 1-16 of "), "{first}");
    stage.press_keys("Down");
    let next = stage.render_screen(60, 20);
    assert!(next.contains("↑↓ 2-17 of "), "{next}");
}

#[test]
fn every_voter_is_named() {
    let mut stage = UiStage::new();
    stage.user_message("Write it.");
    let arguments = json!({ "path": "a.txt", "content": "x" });
    let call = stage.request_call(3, "write_file", arguments.clone());
    stage.request_approval(call, arguments, None);
    stage.approve_by(call, &["carol", "bob", "ann"]);
    let shown = stage.render_screen(100, 30);
    assert!(shown.contains("carol, bob, ann"), "{shown}");
}

#[test]
fn a_search() {
    let mut stage = sample_conversation();
    stage.render_screen(80, 24);
    stage.press_keys("Tab /");
    stage.type_text("tests");
    let asking = stage.render_screen(80, 24);
    stage.press_keys("Enter");
    assert_snapshot!(format!("{asking}\n{}", stage.render_screen(80, 24)));
}

#[test]
fn a_standing_rule_before_it_is_kept() {
    let mut stage = stage_with_approvals();
    stage.press_keys("Tab a");
    let Some(UiEffect::Preview(rule)) = stage.effects.last().cloned() else {
        panic!("{:?}", stage.effects)
    };
    stage.apply_message(UiMessage::Previewed(
        rule,
        Ok(vec![
            "it would have answered one approval request so far:".to_owned(),
            "  2025-06-15 edit_file in session 3f21, done".to_owned(),
        ]),
    ));
    assert_snapshot!(stage.render_screen(90, 24));
}

#[test]
fn messages_grow_pale_before_they_go() {
    let mut stage = sample_conversation();
    stage.show_toast(
        ToastLevel::Warning,
        "policy_blocked: git push is not allowed here",
    );
    let fresh = stage.render_screen(80, 24);
    let shown = stage.app.toasts[0].created_at;
    stage.apply_message(UiMessage::Tick(shown.plus(Duration::from_millis(4_500))));
    assert_eq!(stage.render_screen(80, 24), fresh, "only paler");
    assert_snapshot!(fresh);
}

#[test]
fn no_size_is_too_small_to_draw() {
    let mut stages = [
        UiStage::new(),
        sample_conversation(),
        stage_with_two_agents(),
        stage_with_approvals(),
    ];
    for stage in &mut stages {
        for keys in ["", "Tab", "F1", "Esc Ctrl-P", "Esc Tab Enter", "Esc Ctrl-F"] {
            stage.press_keys(keys);
            for (columns, rows) in [
                (1, 1),
                (2, 2),
                (5, 3),
                (20, 5),
                (59, 8),
                (60, 4),
                (200, 3),
                (3, 60),
            ] {
                stage.render_screen(columns, rows);
            }
        }
    }
}

#[test]
fn a_long_session_costs_no_more_to_lay_out_than_what_is_seen() {
    let mut stage = UiStage::new();
    stage.user_message("count");
    stage.model_replies(3_000);
    stage.render_screen(80, 24);
    assert!(
        stage.app.transcripts[0].laid_out_count() < 30,
        "{}",
        stage.app.transcripts[0].laid_out_count()
    );
    stage.apply_message(UiMessage::Tick(Timestamp::EPOCH));
}
