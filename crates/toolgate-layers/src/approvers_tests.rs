//! The rules of those who can be asked.

use super::*;
use crate::Approval;
use serde_json::json;
use toolgate_core::{Answer, Call, CallSeed, Stack, Suspension};
use toolgate_testkit::{Scripted, call_with, seed};

/// Collects what is written.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn request() -> ApprovalRequest {
    ApprovalRequest::about(&call_with("rm", json!({ "path": "a" }))).because("it deletes")
}

async fn verdict(typed: &'static str) -> Option<Verdict> {
    let prompt = Prompt::new("ann", typed.as_bytes(), io::sink()).expect("a name");
    prompt
        .decide(request())
        .await
        .map(|decision| decision.verdict)
}

#[tokio::test]
async fn the_exact_words_decide() {
    for yes in ["y\n", "yes\n", "approve\r\n"] {
        assert_eq!(verdict(yes).await, Some(Verdict::Approve), "{yes:?}");
    }
    let deny = |reason: Option<&str>| {
        Some(Verdict::Deny {
            reason: reason.map(str::to_owned),
        })
    };
    for (no, reason) in [
        ("n\n", None),
        ("no \n", None),
        ("deny too risky\n", Some("too risky")),
    ] {
        assert_eq!(verdict(no).await, deny(reason), "{no:?}");
    }
    let arguments = Arguments::parse(r#"{"path":"b"}"#).expect("object");
    assert_eq!(
        verdict("e {\"path\": \"b\"}\n").await,
        Some(Verdict::ApproveWithEdits { arguments })
    );
}

/// Sends a call through an approval that `approver` decides on; returns how often the tool ran.
async fn runs(approver: impl Approver) -> usize {
    let tool = Scripted::new();
    let asking = Approval::when(|_| Some("ask".to_owned()));
    let stack = Stack::over(tool.clone())
        .layer(asking)
        .build()
        .expect("in order");
    let first = stack.run(Call::new(seed("rm", json!({})))).await;
    let Some(Suspension::Decision(request)) = first.suspension() else {
        panic!("nobody was asked")
    };
    if let Ok(Some(decision)) = contained(approver.decide(request.clone())).await {
        let mut again = CallSeed {
            generation: 1,
            ..seed("rm", json!({}))
        };
        again.resumed.answers.push(Answer::to(request, decision));
        stack.run(Call::new(again)).await;
    }
    tool.seen().len()
}

#[tokio::test]
async fn a_word_that_is_no_decision_never_runs_a_tool() {
    for word in [
        "",
        " ",
        "Y",
        "YES",
        "Yes",
        "Y es",
        "y es",
        " y",
        "y ",
        "yes please",
        "ok",
        "sure",
        "true",
        "1",
        "approved",
        "Approve",
        "allow",
        "go",
        "e",
        "e ",
        "e {",
        "e []",
        "e null",
        "edit",
        "E {}",
        "approve {}",
        "\u{43d}",
        "ｙ",
    ] {
        let typed = format!("{word}\n").repeat(10);
        let prompt = Prompt::new("ann", io::Cursor::new(typed), io::sink()).expect("a name");
        assert_eq!(runs(prompt).await, 0, "{word:?}");
    }
    assert_eq!(
        runs(Prompt::new("ann", "yes\n".as_bytes(), io::sink()).expect("a name")).await,
        1
    );
}

#[tokio::test]
async fn an_answer_that_is_none_is_asked_for_again_three_times() {
    assert_eq!(
        verdict("what?\nok\nsure\nyes\n").await,
        Some(Verdict::Approve)
    );
    assert_eq!(verdict("what?\nok\nsure\nhm\nyes\n").await, None);
}

#[tokio::test]
async fn input_that_ends_or_breaks_off_leaves_the_question_open() {
    for typed in ["", "yes", "hm\n", "hm\nyes"] {
        assert_eq!(verdict(typed).await, None, "{typed:?}");
    }
    let prompt = Prompt::new("ann", &b"\xff\xfe\n"[..], io::sink()).expect("a name");
    assert_eq!(prompt.decide(request()).await, None);
}

#[tokio::test]
async fn what_a_model_wrote_cannot_take_over_the_screen() {
    let screen = Screen::default();
    let prompt = Prompt::new("ann", "n\n".as_bytes(), screen.clone()).expect("a name");
    let call = call_with("rm", json!({ "path": "\u{1b}[2J\u{9b}31m\u{202e}txt" }));
    prompt
        .decide(ApprovalRequest::about(&call).because("x\u{1b}]0;boo\u{7}\ny"))
        .await;
    let shown = String::from_utf8(screen.0.lock().expect("whole").clone()).expect("text");
    assert!(
        shown.contains("tool: rm\n") && shown.contains("risk: network") && shown.contains("path"),
        "{shown}"
    );
    assert!(
        !shown.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']),
        "{shown:?}"
    );
}

#[tokio::test]
async fn withheld_arguments_are_said_to_be_withheld() {
    let screen = Screen::default();
    let prompt = Prompt::new("ann", "n\n".as_bytes(), screen.clone()).expect("a name");
    let mut request = request();
    request.withheld = true;
    prompt.decide(request).await;
    let shown = String::from_utf8(screen.0.lock().expect("whole").clone()).expect("text");
    assert!(shown.contains("not shown") && !shown.contains("path"));
}

#[tokio::test]
async fn without_a_name_nobody_decides() {
    assert_eq!(
        Prompt::new(" ", io::empty(), io::sink()).expect_err("refused"),
        NoName
    );
    assert_eq!(
        Fixed::new(Decision::approve("")).expect_err("refused"),
        NoName
    );
}

#[test]
fn a_prompt_works_without_a_runtime() {
    let prompt = Prompt::new("ann", "y\n".as_bytes(), io::sink()).expect("a name");
    assert!(futures::executor::block_on(prompt.decide(request())).is_some());
}

struct Panics;

impl Approver for Panics {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        panic!("no")
    }
}

#[tokio::test]
async fn one_that_leaves_it_open_or_panics_has_not_approved() {
    let yes = || Fixed::new(Decision::approve("ann")).expect("a name");
    let no = || Fixed::new(Decision::deny("bob", None)).expect("a name");
    assert_eq!(
        (
            runs(Suspend).await,
            runs(Panics).await,
            runs(no()).await,
            runs(yes()).await
        ),
        (0, 0, 0, 1)
    );
    assert_eq!(runs(FirstOf(Panics, Suspend)).await, 0);
    assert_eq!(runs(FirstOf(no(), yes())).await, 0);
    assert_eq!(
        (
            runs(FirstOf(Suspend, yes())).await,
            runs(FirstOf(Panics, yes())).await
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_question_that_is_put_again_says_what_has_changed_and_how_many_are_needed() {
    let mut again = request();
    again.changed = vec![
        Changed::Tool,
        Changed::File {
            path: "a\u{1b}[2J".into(),
        },
    ];
    again.quorum = Some(toolgate_core::Quorum {
        needed: 2,
        among: Vec::new(),
    });
    let screen = Screen::default();
    let prompt = Prompt::new("ann", "".as_bytes(), screen.clone()).expect("a name");
    assert_eq!(prompt.decide(again).await, None);
    let shown = String::from_utf8(screen.0.lock().expect("whole").clone()).expect("text");
    for line in [
        "asked again: tool_changed",
        "asked again: file_changed a\\u{1b}[2J",
        "to approve: 2 different people",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}
