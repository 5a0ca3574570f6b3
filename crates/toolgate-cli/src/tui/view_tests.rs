//! What the screen looks like.

use std::{sync::Arc, time::Duration};

use insta::assert_snapshot;
use serde_json::json;
use toolgate::{
    Delta, LoopEvent, Notes, Piece, Progress, ProgressKind, Timestamp, ToolEvent, TurnId, TurnInfo,
    layers::ToastLevel,
};
use unicode_width::UnicodeWidthStr;
use uuid::Uuid;

use super::{
    Msg,
    stage::{Stage, conversation},
};

const DIFF: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-fn add(a: i32, b: i32) -> i32 { a - b }\n+fn add(a: i32, b: i32) -> i32 { a + b }\n";

/// Two calls that wait: one of the main agent with a diff, one of another agent.
fn approvals() -> Stage {
    let mut stage = conversation();
    stage.said("Then mend it.");
    let arguments = json!({ "path": "src/lib.rs", "old_text": "a - b", "new_text": "a + b" });
    let edit = stage.call(3, "edit_file", arguments.clone());
    stage.asked(edit, arguments, Some(DIFF));
    stage.agent(Some("tester")).said("Run the tests.");
    stage.waiting(4, "run_shell", json!({ "command": "cargo test" }));
    stage
}

fn two_agents() -> Stage {
    let mut stage = conversation();
    stage.said("Delegate the rest.");
    stage.agent(Some("reviewer")).said("Review src/lib.rs.");
    let shell = stage.call(5, "run_shell", json!({ "command": "cargo clippy" }));
    stage.started(shell);
    let (kind, message) = (
        ProgressKind::Determinate,
        Some("checking toolgate-core".to_owned()),
    );
    let progress = Progress {
        kind,
        current: Some(3),
        total: Some(10),
        message,
    };
    stage.tool(shell, ToolEvent::ToolExecutionProgress { progress });
    stage
}

#[test]
fn empty() {
    assert_snapshot!(Stage::new().screen(80, 24));
}

#[test]
fn a_conversation() {
    assert_snapshot!(conversation().screen(100, 30));
}

#[test]
fn a_conversation_at_80_by_24() {
    assert_snapshot!(conversation().screen(80, 24));
}

#[test]
fn a_conversation_at_59_by_15() {
    assert_snapshot!(conversation().screen(59, 15));
}

#[test]
fn two_agents_side_by_side() {
    let mut stage = two_agents();
    stage.press("Ctrl-N");
    assert_snapshot!(stage.screen(120, 24));
}

#[test]
fn two_agents_in_a_narrow_terminal() {
    assert_snapshot!(two_agents().screen(59, 15));
}

#[test]
fn pending_approvals() {
    let mut stage = approvals();
    stage.press("Tab");
    assert_snapshot!(stage.screen(100, 30));
}

#[test]
fn pending_approvals_at_80_by_24() {
    assert_snapshot!(approvals().screen(80, 24));
}

#[test]
fn a_reply_that_is_still_coming() {
    let mut stage = Stage::new();
    stage.said("Hello?");
    stage.around(LoopEvent::InferenceStarted {
        attempt: 1,
        messages: 1,
        tools: 4,
    });
    let turn = Arc::new(TurnInfo::new(
        stage.app.setup.session,
        TurnId::new(Uuid::from_u128(2)),
    ));
    for text in ["I am **com", "ing** to", " it"] {
        let piece = Piece {
            turn: turn.clone(),
            delta: Delta::Text(text.to_owned()),
        };
        stage.put(Msg::Piece(Arc::new(piece)));
        stage.screen(60, 12);
    }
    assert_snapshot!(stage.screen(60, 12));
}

#[test]
fn everything_about_a_call() {
    let mut stage = Stage::new();
    stage.said("work");
    let call = stage.call(1, "read_file", json!({ "path": "src/lib.rs" }));
    let notes: Notes = serde_json::from_value(json!({
        "summary": "Read src/lib.rs",
        "layers": [
            { "name": "receipts", "band": "record", "status": "ok", "changed": false, "attempt": 1,
              "started_at": "2025-06-15T15:06:40Z", "ended_at": "2025-06-15T15:06:40.000900Z" },
            { "name": "redact", "band": "shape", "status": "ok", "changed": true, "attempt": 1,
              "started_at": "2025-06-15T15:06:40.000100Z", "ended_at": "2025-06-15T15:06:40.000800Z",
              "reason": "1 secret is blanked out" },
            { "name": "policy", "band": "decide", "status": "ok", "changed": false, "attempt": 1,
              "started_at": "2025-06-15T15:06:40.000200Z", "ended_at": "2025-06-15T15:06:40.000700Z",
              "reason": "it only reads" }
        ],
        "provenance": [{ "layer": "redact", "subject": "result", "changes": [{ "pointer": "/text", "op": "replace" }] }]
    }))
    .expect("notes");
    stage.started(call);
    stage.tool(call, ToolEvent::ToolCallAudit { audit: notes });
    stage.done(call, json!({ "text": "fn add() {}" }));
    stage.screen(100, 44);
    stage.press("Tab Enter");
    assert_snapshot!(stage.screen(100, 44));
}

#[test]
fn wide_characters_and_emoji() {
    let mut stage = Stage::new();
    stage.said("日本語で説明してください 🙏");
    let call = stage.call(
        1,
        "write_file",
        json!({ "path": "資料/説明.md", "content": "👨‍👩‍👧‍👦" }),
    );
    stage.started(call).done(call, json!("ok"));
    stage.replied("これは長い日本語の段落です。端末の幅に合わせて正しく折り返される必要があります。👍🏽 e\u{301}");
    let screen = stage.screen(40, 16);
    for row in screen.lines() {
        assert!(row.width() <= 40, "{row}");
    }
    assert_snapshot!(screen);
}

#[test]
fn long_text_without_a_break() {
    let mut stage = Stage::new();
    stage.said(&"a".repeat(130));
    stage.replied(&format!("{} and then words again", "b".repeat(150)));
    assert_snapshot!(stage.screen(60, 16));
}

#[test]
fn what_models_and_tools_write_cannot_steer_the_terminal() {
    let evil = "x\u{1b}[2J\u{7}\u{202e}y\u{9b}31m";
    let mut stage = Stage::new();
    stage.said(evil).replied(evil);
    let call = stage.call(1, evil, json!({ "path": evil }));
    stage.asked(call, json!({ "path": evil }), Some(evil));
    stage.toast(ToastLevel::Error, evil);
    for keys in ["", "Tab", "n", "Esc a", "Esc Enter"] {
        stage.press(keys);
        let screen = stage.screen(100, 40);
        let steers =
            |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!(!screen.contains(steers), "{keys}: {screen:?}");
    }
}

#[test]
fn the_palette() {
    let mut stage = conversation();
    stage.press("Ctrl-P");
    stage.write("ag");
    assert_snapshot!(stage.screen(80, 24));
}

#[test]
fn the_help() {
    let mut stage = Stage::new();
    stage.press("F1");
    assert_snapshot!(stage.screen(100, 60));
}

#[test]
fn a_search() {
    let mut stage = conversation();
    stage.screen(80, 24);
    stage.press("Tab /");
    stage.write("tests");
    let asking = stage.screen(80, 24);
    stage.press("Enter");
    assert_snapshot!(format!("{asking}\n{}", stage.screen(80, 24)));
}

#[test]
fn a_standing_rule_before_it_is_kept() {
    let mut stage = approvals();
    stage.press("Tab a");
    let id = format!("always-{}", Uuid::from_u128(1_003).simple());
    stage.put(Msg::Previewed(
        id,
        Ok(vec!["2025-06-15 edit_file approved".to_owned()]),
    ));
    assert_snapshot!(stage.screen(90, 24));
}

#[test]
fn messages_grow_pale_before_they_go() {
    let mut stage = conversation();
    stage.toast(
        ToastLevel::Warning,
        "policy_blocked: git push is not allowed here",
    );
    let fresh = stage.screen(80, 24);
    let shown = stage.app.toasts[0].created_at;
    stage.put(Msg::Tick(shown.plus(Duration::from_millis(4_500))));
    assert_eq!(stage.screen(80, 24), fresh, "only paler");
    assert_snapshot!(fresh);
}

#[test]
fn no_size_is_too_small_to_draw() {
    let mut stages = [Stage::new(), conversation(), two_agents(), approvals()];
    for stage in &mut stages {
        for keys in ["", "Tab", "F1", "Esc Ctrl-P", "Esc Tab Enter", "Esc Ctrl-F"] {
            stage.press(keys);
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
                stage.screen(columns, rows);
            }
        }
    }
}

#[test]
fn a_long_session_costs_no_more_to_lay_out_than_what_is_seen() {
    let mut stage = Stage::new();
    stage.said("count");
    stage.counted(3_000);
    stage.screen(80, 24);
    assert!(
        stage.app.transcripts[0].laid_out() < 30,
        "{}",
        stage.app.transcripts[0].laid_out()
    );
    stage.put(Msg::Tick(Timestamp::EPOCH));
}
