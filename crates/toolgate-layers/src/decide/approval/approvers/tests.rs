//! Tests of the approvers.

use super::*;
use crate::Approval;
use serde_json::json;
use toolgate_core::{ApprovalAnswer, ApprovalChange, Call, CallSeed, Stack, Suspension};
use toolgate_testkit::{FakeExecutor, authenticated, call_with, seed};

/// A writer that collects its output.
#[derive(Clone, Default)]
struct CapturedScreen(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedScreen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn request() -> ApprovalRequest {
    ApprovalRequest::for_call(&call_with("rm", json!({ "path": "a" }))).with_reason("it deletes")
}

async fn verdict_for(typed: &'static str) -> Option<Verdict> {
    let prompt = Prompt::new("ann", typed.as_bytes(), io::sink());
    prompt
        .decide(request())
        .await
        .map(|decision| decision.verdict)
}

#[tokio::test]
async fn the_exact_words_decide() {
    for yes in ["y\n", "yes\n", "approve\r\n"] {
        assert_eq!(verdict_for(yes).await, Some(Verdict::Approve), "{yes:?}");
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
        assert_eq!(verdict_for(no).await, deny(reason), "{no:?}");
    }
    let arguments = Arguments::parse(r#"{"path":"b"}"#).expect("object");
    assert_eq!(
        verdict_for("e {\"path\": \"b\"}\n").await,
        Some(Verdict::ApproveWithEdits { arguments })
    );
}

/// Sends a call through an approval layer with `approver`; returns the number of tool runs.
async fn count_runs(approver: impl Approver) -> usize {
    let tool = FakeExecutor::new();
    let asking = Approval::when(|_| Some("ask".to_owned()));
    let stack = Stack::over(tool.clone())
        .layer(asking)
        .build()
        .expect("valid order");
    let first = stack.run(Call::new(seed("rm", json!({})))).await;
    let Some(Suspension::Decision(request)) = first.suspension() else {
        panic!("no approval was requested")
    };
    if let Ok(Some(decision)) = run_contained(approver.decide(request.clone())).await {
        let mut again = CallSeed {
            generation: 1,
            ..seed("rm", json!({}))
        };
        again
            .resumed
            .answers
            .push(ApprovalAnswer::for_request(request, decision));
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
        let prompt = Prompt::new("ann", io::Cursor::new(typed), io::sink());
        assert_eq!(count_runs(prompt).await, 0, "{word:?}");
    }
    assert_eq!(
        count_runs(Prompt::new("ann", "yes\n".as_bytes(), io::sink())).await,
        1
    );
}

#[tokio::test]
async fn an_invalid_answer_is_prompted_for_again_three_times() {
    assert_eq!(
        verdict_for("what?\nok\nsure\nyes\n").await,
        Some(Verdict::Approve)
    );
    assert_eq!(verdict_for("what?\nok\nsure\nhm\nyes\n").await, None);
}

#[tokio::test]
async fn input_that_ends_leaves_the_request_pending() {
    for typed in ["", "yes", "hm\n", "hm\nyes"] {
        assert_eq!(verdict_for(typed).await, None, "{typed:?}");
    }
    let prompt = Prompt::new("ann", &b"\xff\xfe\n"[..], io::sink());
    assert_eq!(prompt.decide(request()).await, None);
}

#[tokio::test]
async fn text_from_the_model_cannot_control_the_terminal() {
    let screen = CapturedScreen::default();
    let prompt = Prompt::new("ann", "n\n".as_bytes(), screen.clone());
    let call = call_with("rm", json!({ "path": "\u{1b}[2J\u{9b}31m\u{202e}txt" }));
    prompt
        .decide(ApprovalRequest::for_call(&call).with_reason("x\u{1b}]0;boo\u{7}\ny"))
        .await;
    let shown = String::from_utf8(screen.0.lock().expect("not poisoned").clone()).expect("text");
    assert!(
        shown.contains("tool: rm\n")
            && shown.contains("risk: reaches other machines")
            && shown.contains("path: ⟨U+001B⟩[2J⟨U+009B⟩31m⟨U+202E⟩txt\n"),
        "{shown}"
    );
    assert!(
        !shown.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']),
        "{shown:?}"
    );
}

#[tokio::test]
async fn withheld_arguments_are_approved_only_with_another_word_that_is_recorded() {
    let mut withheld = request();
    withheld.withheld = true;
    withheld.arguments = Arguments::empty();
    for word in ["y", "yes", "approve", "unseen please", "Unseen"] {
        let typed = format!("{word}\n").repeat(4);
        let prompt = Prompt::new("ann", io::Cursor::new(typed), io::sink());
        assert_eq!(prompt.decide(withheld.clone()).await, None, "{word}");
    }
    let screen = CapturedScreen::default();
    let prompt = Prompt::new("ann", "unseen\n".as_bytes(), screen.clone());
    let decision = prompt.decide(withheld).await;
    assert_eq!(decision, Some(Decision::approve("ann").unseen()));
    let shown = String::from_utf8(screen.0.lock().expect("not poisoned").clone()).expect("text");
    assert!(shown.contains("arguments: ⟨withheld⟩"), "{shown}");
    let prompt = Prompt::new(
        "ann",
        "unseen\nunseen\nunseen\nunseen\n".as_bytes(),
        io::sink(),
    );
    assert_eq!(prompt.decide(request()).await, None, "it was shown");
}

#[tokio::test]
async fn a_mask_never_hides_what_runs() {
    for (command, visible) in [
        ("echo Cookie: a=b; touch pwned", "touch pwned"),
        ("PASSWORD=hunter2;touch pwned", "touch pwned"),
        (
            "curl https://u:pass;touch pwned;@host/",
            ";touch pwned;@host/",
        ),
        (
            "echo -----BEGIN PRIVATE KEY-----; touch pwned # -----END PRIVATE KEY-----",
            "touch pwned",
        ),
        ("PASSWORD=$(touch\tpwned) ls", "$(touch⇥   pwned)"),
        (
            "curl -H 'Authorization: Bearer x' `touch pwned`",
            "`touch pwned`",
        ),
        (
            "token=--output=/etc/passwd123ABCdef cmd",
            "--output=/etc/passwd123ABCdef",
        ),
    ] {
        let screen = CapturedScreen::default();
        let secrets = SharedRedactor::new(crate::SecretScanner::standard());
        let prompt = Prompt::new("ann", "".as_bytes(), screen.clone()).redactor(secrets);
        let call = call_with("shell", json!({ "command": command }));
        prompt.decide(ApprovalRequest::for_call(&call)).await;
        let shown =
            String::from_utf8(screen.0.lock().expect("not poisoned").clone()).expect("text");
        let shown = shown.replace("⟨looks like a secret⟩", "");
        assert!(shown.contains(visible), "{command}: {shown}");
    }
}

#[tokio::test]
async fn a_known_secret_value_is_masked_with_its_length() {
    let secrets = SharedRedactor::new(crate::SecretScanner::with_options(
        crate::SecretScannerOptions::default(),
        ["Zk3PqR7tVx9LmN2s".to_owned()],
    ));
    for (arguments, expected) in [
        (
            json!({ "command": "PASSWORD=Zk3PqR7tVx9LmN2s ./x" }),
            "PASSWORD=⟨masked: 16 characters⟩ ./x",
        ),
        (
            json!({ "command": "PASSWORD=Zk3PqR7tVx9LmN2sQ ./x" }),
            "PASSWORD=Zk3PqR7tVx9LmN2s⟨looks like a secret⟩Q ./x",
        ),
        (
            json!({ "command": "curl -d key=Zk3PqR7tVx9LmN2s" }),
            "key=⟨masked: 16 characters⟩\n",
        ),
        (
            json!({ "headers": { "Authorization": "Bq7RtY3uKp9WxZ5cVb2n" } }),
            "Authorization: Bq7RtY3uKp9WxZ5cVb2n⟨looks like a secret⟩",
        ),
        (
            json!({ "password": "hunter2" }),
            "password: hunter2⟨looks like a secret⟩",
        ),
    ] {
        let screen = CapturedScreen::default();
        let prompt = Prompt::new("ann", "".as_bytes(), screen.clone()).redactor(secrets.clone());
        let call = call_with("shell", arguments);
        prompt.decide(ApprovalRequest::for_call(&call)).await;
        let shown =
            String::from_utf8(screen.0.lock().expect("not poisoned").clone()).expect("text");
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[tokio::test]
async fn an_approver_without_a_name_approves_nothing() {
    let screen = CapturedScreen::default();
    let prompt = Prompt::new(" ", "yes\n".as_bytes(), screen.clone());
    assert_eq!(count_runs(prompt).await, 0);
    let shown = String::from_utf8(screen.0.lock().expect("not poisoned").clone()).expect("text");
    assert!(shown.contains("the approver has no name"), "{shown}");
    assert_eq!(
        count_runs(FixedApprover::new(Decision::approve(""))).await,
        0
    );
}

#[test]
fn a_prompt_works_without_a_runtime() {
    let prompt = Prompt::new("ann", "y\n".as_bytes(), io::sink());
    assert!(futures::executor::block_on(prompt.decide(request())).is_some());
}

struct PanickingApprover;

impl Approver for PanickingApprover {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        panic!("no")
    }
}

#[tokio::test]
async fn an_approver_that_leaves_the_request_pending_or_panics_has_not_approved() {
    let yes = || FixedApprover::new(Decision::approve("ann"));
    let no = || FixedApprover::new(Decision::deny("bob", None));
    assert_eq!(
        (
            count_runs(SuspendingApprover).await,
            count_runs(PanickingApprover).await,
            count_runs(no()).await,
            count_runs(yes()).await
        ),
        (0, 0, 0, 1)
    );
    assert_eq!(
        count_runs(FirstOf(PanickingApprover, SuspendingApprover)).await,
        0
    );
    assert_eq!(count_runs(FirstOf(no(), yes())).await, 0);
    assert_eq!(
        (
            count_runs(FirstOf(SuspendingApprover, yes())).await,
            count_runs(FirstOf(PanickingApprover, yes())).await
        ),
        (1, 1)
    );
}

/// Types an answer, and returns the decision with what was on the screen.
async fn answer_on_screen(
    by: ApproverIdentity,
    typed: &'static str,
    request: ApprovalRequest,
) -> (Option<Verdict>, String) {
    let screen = CapturedScreen::default();
    let prompt = Prompt::new(by, typed.as_bytes(), screen.clone());
    let verdict = prompt
        .decide(request)
        .await
        .map(|decision| decision.verdict);
    let shown = screen.0.lock().expect("not poisoned").clone();
    (verdict, String::from_utf8(shown).expect("text"))
}

#[tokio::test]
async fn the_prompt_offers_yes_only_to_an_approver_whose_approval_would_count() {
    let with_quorum = |among: &[&str]| {
        let among = among.iter().map(|name| (*name).into()).collect();
        let mut request = request();
        request.requester = Some("eve".into());
        request.quorum = Some(toolgate_core::Quorum { needed: 1, among });
        request
    };
    let typed = "y\ne {}\nyes\nno too risky\n";
    let denied = Some(Verdict::Deny {
        reason: Some("too risky".to_owned()),
    });
    for (by, among) in [
        (ApproverIdentity::from("ann"), &[][..]),
        (authenticated("eve"), &[]),
        (authenticated("EVE "), &[]),
        (authenticated("eve"), &["eve", "ann"]),
        (
            ApproverIdentity::from("bob").claiming(Some("ann".into())),
            &[],
        ),
    ] {
        let (verdict, shown) = answer_on_screen(by.clone(), typed, with_quorum(among)).await;
        assert_eq!(verdict, denied, "{by:?}");
        assert!(
            !shown.contains("[y]es") && shown.contains("cannot approve this"),
            "{shown}"
        );
    }
    for by in [ApproverIdentity::from("ann"), authenticated("mallory")] {
        let (verdict, shown) = answer_on_screen(by, typed, with_quorum(&["ann"])).await;
        assert_eq!(verdict, None, "may not even deny");
        assert!(
            !shown.contains("[n]o") && shown.contains("stays pending"),
            "{shown}"
        );
    }
    let (verdict, shown) =
        answer_on_screen(authenticated("ann"), typed, with_quorum(&["ann"])).await;
    assert_eq!(verdict, Some(Verdict::Approve));
    assert!(shown.contains("[y]es"), "{shown}");
}

#[tokio::test]
async fn a_repeated_request_names_the_changes_and_the_quorum() {
    let mut again = request();
    again.changed = vec![
        ApprovalChange::Tool,
        ApprovalChange::File {
            path: "a\u{1b}[2J".into(),
        },
    ];
    again.quorum = Some(toolgate_core::Quorum {
        needed: 2,
        among: Vec::new(),
    });
    let (decided, shown) = answer_on_screen(authenticated("ann"), "", again).await;
    assert_eq!(decided, None);
    for line in [
        "requested again: the tool has changed since it was approved",
        "requested again: a⟨U+001B⟩[2J has changed since it was approved",
        "quorum: 2 approvals needed",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}
