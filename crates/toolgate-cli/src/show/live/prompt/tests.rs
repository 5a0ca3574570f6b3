//! Which answers count, which requests are asked about, and what is shown of them.

use super::*;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;
use toolgate::{
    Annotations, Call, Event, Registry,
    event::{Invocation, ToolEvent},
    layers::RuleScope,
    stack::CallSeed,
    tool::{Resource, ToolSpec},
    value::{Schema, SessionId, Timestamp},
};
use toolgate_testkit::seed;

use crate::show::render::StyledLine;

/// The narrowest terminal that every key has to fit.
const NARROW: usize = 59;

/// Returns a screen with a pending `write_file` call for each path.
pub(in crate::show::live) fn pending_screen(paths: &[&str]) -> SessionScreen {
    let mut screen = unloaded_screen(paths);
    for (call, generation) in screen.unloaded_requests() {
        let question = screen.call(call).and_then(|call| call.question.clone());
        let shown = question.expect("asked").show(None);
        screen.set_shown(call, generation, Ok(Arc::new(shown)));
    }
    screen
}

/// Returns the same screen before the stored requests are loaded.
fn unloaded_screen(paths: &[&str]) -> SessionScreen {
    let mut screen = SessionScreen::new();
    let mut sequence = 0;
    for (number, path) in paths.iter().enumerate() {
        let id = CallId::new(uuid::Uuid::from_u128(10 + number as u128));
        let call = Call::new(CallSeed {
            id,
            ..seed("write_file", json!({ "path": path, "content": "x" }))
        });
        let invocation = Arc::new(Invocation {
            id: call.id,
            call_id: (*path).into(),
            tool: call.tool.clone(),
            emit_order: 0,
            turn: call.turn().clone(),
        });
        let arguments = Some(call.arguments.as_json().clone());
        let arguments_digest = call.arguments.digest();
        let arguments_bytes = 1;
        let requested = ToolEvent::ToolRequested {
            arguments,
            arguments_digest,
            arguments_bytes,
            executor: None,
        };
        let asked = ToolEvent::ToolApprovalRequested(Box::new(ApprovalRequest::for_call(&call)));
        for event in [requested, asked] {
            sequence += 1;
            let event =
                Event::for_invocation(sequence, Timestamp::EPOCH, invocation.clone(), event)
                    .expect("valid");
            screen.apply(&event);
        }
    }
    screen
}

/// Returns the events of another call that succeeds, from event `number` on.
pub(in crate::show::live) fn settled_event(number: u64) -> [Arc<Event>; 2] {
    let call = Call::new(CallSeed {
        id: CallId::new(uuid::Uuid::from_u128(99)),
        ..seed("other_tool", json!({}))
    });
    let invocation = Arc::new(Invocation {
        id: call.id,
        call_id: "other".into(),
        tool: call.tool.clone(),
        emit_order: 1,
        turn: call.turn().clone(),
    });
    let requested = ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: call.arguments.digest(),
        arguments_bytes: 1,
        executor: None,
    };
    let outcome = toolgate::Outcome::ok("x");
    let settled = outcome.settled().expect("settled");
    let ended = ToolEvent::from_settled(settled, false, None, None);
    let event = |number, event| {
        let event = Event::for_invocation(number, Timestamp::EPOCH, invocation.clone(), event);
        Arc::new(event.expect("valid"))
    };
    [event(number, requested), event(number + 1, ended)]
}

/// Loads the requests, as if all of them had been printed.
fn sync_printed(
    prompt: &mut ApprovalPrompt,
    screen: &SessionScreen,
) -> Option<Arc<ApprovalRequest>> {
    let current = prompt.sync_requests(screen);
    for request in prompt.questions.clone() {
        prompt.mark_printed(&request, 1, true);
    }
    current
}

const SESSION: SessionId = SessionId::new(uuid::Uuid::from_u128(7));

/// Drafts a rule for a tool whose `path` names its target.
fn propose_rule(request: &ApprovalRequest) -> RuleProposal {
    let mut spec = ToolSpec::new("write_file", "Writes.", Schema::any_object());
    spec.annotations = Annotations::default().with_resource(Resource::path("path"));
    let registry = Registry::new();
    registry.register_host(spec).expect("registers");
    let view = toolgate_testkit::plain_view(&registry);
    RuleProposal::new(
        request,
        SESSION,
        &"ann".into(),
        "p",
        &view,
        Timestamp::EPOCH,
    )
    .expect("drafts")
}

fn press_keys(prompt: &mut ApprovalPrompt, keys: &str) -> Vec<PromptAction> {
    let code = |c| match c {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    keys.chars()
        .map(|c| prompt.handle_key(KeyEvent::new(code(c), KeyModifiers::NONE)))
        .collect()
}

#[test]
fn yes_is_not_offered_to_a_user_whose_approval_would_not_count() {
    use toolgate::approval::{IdentitySource, Quorum};
    let established = |name: &str| ApproverIdentity::new(name, IdentitySource::AuthenticatedToken);
    let with_quorum = |among: &[&str]| {
        let call = toolgate_testkit::call_with("write_file", json!({ "path": "a" }));
        let mut request = ApprovalRequest::for_call(&call);
        request.requester = Some("eve".into());
        let among = among.iter().map(|name| (*name).into()).collect();
        request.quorum = Some(Quorum { needed: 2, among });
        Arc::new(request)
    };
    for (me, among, answers) in [
        (established("ann"), &[][..], "yne"),
        (established("ann"), &["ann", "bob"], "yne"),
        ("ann".into(), &[], "n"),
        (established("eve"), &[], "n"),
        (established("mallory"), &["ann", "bob"], ""),
        ("ann".into(), &["ann", "bob"], ""),
    ] {
        let mut prompt = ApprovalPrompt::new(me);
        let request = with_quorum(among);
        prompt.mark_printed(&request, 1, true);
        prompt.questions = vec![request];
        let lines: Vec<String> = prompt
            .render_lines(200)
            .iter()
            .map(StyledLine::text)
            .collect();
        let notice = lines
            .iter()
            .any(|line| line.contains("you cannot approve this"));
        assert_eq!(notice, !answers.contains('y'), "{lines:?}");
        let keys = lines.last().expect("keys");
        for (key, shown) in [('y', "y approve"), ('n', "n deny"), ('e', "e edit")] {
            assert_eq!(keys.contains(shown), answers.contains(key), "{keys}");
        }
        if !answers.contains('y') {
            assert_eq!(
                press_keys(&mut prompt, "yea"),
                [
                    PromptAction::Nothing,
                    PromptAction::Nothing,
                    PromptAction::Nothing
                ]
            );
            assert!(matches!(prompt.mode, PromptStep::Choosing));
        }
    }
}

fn current_path(prompt: &ApprovalPrompt) -> String {
    prompt
        .current()
        .map(|request| request.arguments.as_map()["path"].to_string())
        .unwrap_or_default()
}

#[test]
fn only_the_approve_key_approves() {
    for keys in ["q", "Y", "\n", " ", "yes"] {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = sync_printed(&mut prompt, &screen).expect("asks");
        let acts = press_keys(&mut prompt, keys);
        let approved = acts.contains(&PromptAction::Approve(request));
        assert_eq!(approved, keys == "yes", "{keys:?}: {acts:?}");
    }
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    sync_printed(&mut prompt, &screen);
    assert_eq!(
        prompt.handle_key(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::ALT)),
        PromptAction::Nothing
    );
}

#[test]
fn what_was_not_printed_in_full_is_approved_only_with_another_key() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    let request = prompt.sync_requests(&screen).expect("asks");
    prompt.mark_printed(&request, 1_000, false);
    assert_eq!(
        press_keys(&mut prompt, "yav"),
        [
            PromptAction::Nothing,
            PromptAction::Nothing,
            PromptAction::More(request.clone())
        ]
    );
    let keys: String = prompt
        .render_lines(200)
        .iter()
        .map(StyledLine::text)
        .collect();
    assert!(
        keys.contains("v view all") && !keys.contains("y approve "),
        "{keys}"
    );
    assert_eq!(
        press_keys(&mut prompt, "u"),
        [PromptAction::ApproveUnseen(request.clone())]
    );
    prompt.reopen(&request);
    prompt.sync_requests(&screen);
    prompt.mark_printed(&request, 1_500, true);
    assert_eq!(
        press_keys(&mut prompt, "uy"),
        [PromptAction::Nothing, PromptAction::Approve(request)]
    );
}

#[test]
fn always_is_not_offered_for_a_request_that_is_made_each_time() {
    for each_time in [false, true] {
        let call = toolgate_testkit::call_with("write_file", json!({ "path": ".envrc" }));
        let mut request = ApprovalRequest::for_call(&call);
        request.each_time = each_time;
        let mut prompt = ApprovalPrompt::new("ann".into());
        prompt.mark_printed(&request, 1, true);
        prompt.questions = vec![Arc::new(request)];
        let keys: String = prompt
            .render_lines(200)
            .iter()
            .map(StyledLine::text)
            .collect();
        assert_eq!(keys.contains("a always"), !each_time, "{keys}");
    }
}

#[test]
fn a_request_that_is_not_loaded_is_not_asked_about() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let mut screen = unloaded_screen(&["a"]);
    assert_eq!(prompt.sync_requests(&screen), None);
    let call = screen.calls()[0].invocation.id;
    screen.set_shown(call, 7, Err("an earlier request".to_owned()));
    assert_eq!(screen.unloaded_requests(), [(call, 0)]);
    screen.set_shown(call, 0, Err("it was changed".to_owned()));
    let request = prompt.sync_requests(&screen).expect("it can be postponed");
    assert_eq!(
        press_keys(&mut prompt, "y"),
        [PromptAction::Nothing],
        "{request:?} cannot be shown"
    );
}

#[test]
fn an_answered_request_is_not_shown_again_unless_the_answer_is_rejected() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a", "b"]);
    let first = sync_printed(&mut prompt, &screen).expect("asks");
    assert_eq!(
        press_keys(&mut prompt, "y"),
        [PromptAction::Approve(first.clone())]
    );
    assert!(
        sync_printed(&mut prompt, &screen)
            .is_some_and(|next| request_key(&next) != request_key(&first)),
        "the log does not say so yet"
    );
    prompt.reopen(&first);
    sync_printed(&mut prompt, &screen);
    assert_eq!(prompt.questions.len(), 2);
}

#[test]
fn a_reason_may_hold_the_letters_that_are_keys_elsewhere() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    let request = sync_printed(&mut prompt, &screen).expect("asks");
    let acts = press_keys(&mut prompt, "nany y\n");
    assert_eq!(
        acts.last(),
        Some(&PromptAction::Deny(
            request.clone(),
            Some("any y".to_owned())
        ))
    );
    assert!(
        acts[..acts.len() - 1]
            .iter()
            .all(|act| *act == PromptAction::Nothing)
    );
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    let request = sync_printed(&mut prompt, &screen).expect("asks");
    assert_eq!(
        press_keys(&mut prompt, "n\n").last(),
        Some(&PromptAction::Deny(request, None))
    );
}

#[test]
fn going_back_decides_nothing() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    let request = sync_printed(&mut prompt, &screen).expect("asks");
    press_keys(&mut prompt, "nwhy\u{1b}");
    prompt.confirm_edited(&request, Arguments::empty());
    assert_eq!(press_keys(&mut prompt, "n"), [PromptAction::Nothing]);
    prompt.confirm_rule(propose_rule(&request));
    assert_eq!(press_keys(&mut prompt, "\u{1b}"), [PromptAction::Nothing]);
    assert_eq!(
        press_keys(&mut prompt, "y"),
        [PromptAction::Approve(request)]
    );
}

#[test]
fn a_new_request_does_not_replace_the_one_that_is_being_answered() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let both = pending_screen(&["a", "b"]);
    sync_printed(&mut prompt, &both);
    press_keys(&mut prompt, "2");
    assert_eq!(current_path(&prompt), "\"b\"");
    press_keys(&mut prompt, "nno");
    sync_printed(&mut prompt, &both);
    assert!(matches!(&prompt.mode, PromptStep::Reason(reason) if reason == "no"));
    sync_printed(&mut prompt, &SessionScreen::new());
    assert!(
        prompt.render_lines(200).is_empty() && matches!(prompt.mode, PromptStep::Choosing),
        "it was decided elsewhere"
    );
}

#[test]
fn a_rule_is_shown_again_whenever_it_changes() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a"]);
    let request = sync_printed(&mut prompt, &screen).expect("asks");
    prompt.confirm_rule(propose_rule(&request));
    let scopes: Vec<RuleScope> = press_keys(&mut prompt, "gsp")
        .into_iter()
        .filter_map(|act| match act {
            PromptAction::Preview(proposal) => Some(proposal.rule().scope.clone()),
            _ => None,
        })
        .collect();
    let project = "p".to_owned();
    assert_eq!(
        scopes,
        [
            RuleScope::Global,
            RuleScope::Session { session: SESSION },
            RuleScope::Project { project }
        ]
    );
    let [PromptAction::Preview(wider)] = &press_keys(&mut prompt, "x")[..] else {
        panic!("it is shown again")
    };
    assert_eq!(
        wider.rule().to_string(),
        r#"allow write_file where content is any value and path is "a""#
    );
    let [PromptAction::Preview(exact)] = &press_keys(&mut prompt, "x")[..] else {
        panic!("it is shown again")
    };
    let [PromptAction::Always(_, kept)] = &press_keys(&mut prompt, "y")[..] else {
        panic!("it is kept")
    };
    assert_eq!(kept, exact);
}

#[test]
fn always_is_offered_only_where_a_rule_can_be_drafted() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    sync_printed(&mut prompt, &pending_screen(&["a"]));
    let shown = |prompt: &ApprovalPrompt| {
        let lines = prompt.render_lines(200);
        lines.iter().any(|line| line.text().contains("a always"))
    };
    assert!(shown(&prompt));
    Arc::make_mut(&mut prompt.questions[0]).withheld = true;
    assert!(!shown(&prompt));
}

#[test]
fn every_key_is_visible_on_a_narrow_terminal() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a", "b", "c"]);
    let request = sync_printed(&mut prompt, &screen).expect("asks");
    let check = |prompt: &ApprovalPrompt, keys: &[&str]| {
        let lines = prompt.render_lines(NARROW);
        let rows: Vec<String> = lines.iter().map(StyledLine::text).collect();
        for row in &rows {
            assert!(StyledLine::plain(row).width() <= NARROW, "{row}");
        }
        let shown = rows.join("  ");
        for key in keys {
            assert!(shown.contains(key), "{key} in {rows:#?}");
        }
    };
    let answers = [
        "y approve",
        "n deny",
        "e edit",
        "a always",
        "A approve all",
        "? explain",
        "s later",
        "1-9 another",
    ];
    check(&prompt, &answers);
    prompt.confirm_rule(propose_rule(&request));
    check(
        &prompt,
        &[
            "s session",
            "p project",
            "g everywhere",
            "x same target",
            "y save and run",
            "n back",
        ],
    );
    prompt.back_to_choosing();
    press_keys(&mut prompt, "n");
    check(&prompt, &["Enter deny", "Esc back"]);
}

#[test]
fn a_request_that_comes_up_later_is_the_last_in_the_list() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let mut screen = unloaded_screen(&["a", "b"]);
    let calls: Vec<CallId> = screen
        .calls()
        .iter()
        .map(|call| call.invocation.id)
        .collect();
    for (call, path) in [(calls[1], "b"), (calls[0], "a")] {
        let question = screen.call(call).and_then(|call| call.question.clone());
        let shown = question.expect("asked").show(None);
        screen.set_shown(call, 0, Ok(Arc::new(shown)));
        sync_printed(&mut prompt, &screen);
        let last = prompt.questions.last().expect("one");
        assert_eq!(last.arguments.as_map()["path"], path);
    }
    let lines: Vec<String> = prompt
        .render_lines(80)
        .iter()
        .map(StyledLine::text)
        .collect();
    assert!(lines[1].starts_with("▸ 1 write_file b"), "{lines:#?}");
    assert!(lines[2].starts_with("  2 write_file a"), "{lines:#?}");
}

#[test]
fn all_requests_are_approved_together_only_after_all_of_them_were_shown() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    let screen = pending_screen(&["a", "b"]);
    sync_printed(&mut prompt, &screen);
    let requests = prompt.questions.clone();
    assert_eq!(
        press_keys(&mut prompt, "Ay"),
        [
            PromptAction::ShowAll(requests.clone()),
            PromptAction::Approve(requests[0].clone())
        ],
        "until they are shown, y is about the marked one"
    );
    prompt.reopen(&requests[0]);
    sync_printed(&mut prompt, &screen);
    prompt.confirm_all(requests.clone());
    let question = prompt.render_lines(80)[0].text();
    assert_eq!(question, "Approve all 2 requests above?");
    assert_eq!(press_keys(&mut prompt, "n"), [PromptAction::Nothing]);
    prompt.confirm_all(requests.clone());
    // A request that came up since was not shown.
    sync_printed(&mut prompt, &pending_screen(&["a", "b", "c"]));
    assert_eq!(
        press_keys(&mut prompt, "y"),
        [PromptAction::ApproveAll(requests)]
    );
}

#[test]
fn one_request_is_not_offered_to_be_approved_with_others() {
    let mut prompt = ApprovalPrompt::new("ann".into());
    sync_printed(&mut prompt, &pending_screen(&["a"]));
    let lines: String = prompt
        .render_lines(200)
        .iter()
        .map(StyledLine::text)
        .collect();
    assert!(!lines.contains("approve all"), "{lines}");
    assert_eq!(press_keys(&mut prompt, "A"), [PromptAction::Nothing]);
}
