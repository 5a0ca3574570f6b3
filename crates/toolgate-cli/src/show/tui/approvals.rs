//! The part of the update function that is about approvals.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use toolgate::{
    Arguments, Decision,
    approval::{ApprovalRequest, ApprovalRequestRef, ShownRequest},
    layers::StandingRule,
    value::CallId,
};

use super::{
    ChatApp, UiEffect,
    app::{OverlayWindow, RuleConfirmation},
    update::{show_error, show_info},
};
use crate::show::{
    entitlement::Entitlement,
    rule_proposal::{RuleAnswer, RuleProposal},
};

/// Returns the approval request that is selected and still open.
fn open_question(app: &ChatApp) -> Option<(CallId, ApprovalRequestRef, &ApprovalRequest)> {
    let (call, request) = app.selected_approval()?;
    app.is_undecided(call.invocation.id).then(|| {
        (
            call.invocation.id,
            ApprovalRequestRef::from(&**request),
            &**request,
        )
    })
}

fn send_decision(
    app: &mut ChatApp,
    question: ApprovalRequestRef,
    decision: Decision,
) -> Vec<UiEffect> {
    // Until the event arrives the call looks open; a second key must not decide it again.
    app.deciding.push(question.approval_id.call_id());
    vec![UiEffect::Decide(question, decision)]
}

/// Returns why the user cannot approve a request, if so.
fn rejected_approval(app: &ChatApp, request: &ApprovalRequest) -> Option<Vec<UiEffect>> {
    Entitlement::of(request, &app.setup.me)
        .notice()
        .map(show_info)
}

pub(super) fn approve_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    if let Some(rejected) = rejected_approval(app, request) {
        return rejected;
    }
    if !app.is_seen(request) {
        return show_info(NOT_SEEN);
    }
    let decision = Decision::approve(app.setup.me.clone());
    send_decision(app, question, decision)
}

pub(super) fn approve_unseen(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    if let Some(rejected) = rejected_approval(app, request) {
        return rejected;
    }
    if app.is_seen(request) {
        return show_info("the request was shown in full; y approves it");
    }
    let decision = Decision::approve(app.setup.me.clone()).unseen();
    send_decision(app, question, decision)
}

/// Shows every pending request that the user may approve, for one confirmation.
pub(super) fn propose_all(app: &mut ChatApp) -> Vec<UiEffect> {
    let me = &app.setup.me;
    let approvable = app.screen.pending_calls().filter_map(|call| {
        let request = call.question.as_ref()?;
        let is_open = app.is_undecided(call.invocation.id) && matches!(call.shown, Some(Ok(_)));
        (is_open && Entitlement::of(request, me).can_approve())
            .then(|| ApprovalRequestRef::from(&**request))
    });
    let questions: Vec<ApprovalRequestRef> = approvable.collect();
    if questions.len() < 2 {
        return show_info("there are not several requests that you may approve");
    }
    app.laid_out.window_seen = 0;
    app.window = Some(OverlayWindow::ApproveAll {
        questions,
        scroll: 0,
    });
    Vec::new()
}

pub(super) fn confirm_all(app: &mut ChatApp) -> Vec<UiEffect> {
    if !app.is_window_seen() {
        return show_info(SCROLL_FIRST);
    }
    let Some(OverlayWindow::ApproveAll { questions, .. }) = app.window.take() else {
        return Vec::new();
    };
    let mut effects = Vec::new();
    for question in questions {
        // Another process may have decided, or approval was requested again, for something else.
        if app.is_undecided(question.approval_id.call_id()) && is_current(app, question) {
            let decision = Decision::approve(app.setup.me.clone());
            effects.extend(send_decision(app, question, decision));
        }
    }
    effects
}

fn is_current(app: &ChatApp, question: ApprovalRequestRef) -> bool {
    let call = app.screen.call(question.approval_id.call_id());
    let asked = call.and_then(|call| call.question.as_ref());
    asked.is_some_and(|asked| ApprovalRequestRef::from(&**asked) == question)
}

const SCROLL_FIRST: &str = "scroll to the end first: there is more than the screen shows";

const NOT_SEEN: &str =
    "the request was not shown in full: v shows all of it, u approves it without that";

pub(super) fn open_denial(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    let tool = request.tool.to_string();
    app.window = Some(OverlayWindow::Deny {
        question,
        tool,
        reason: String::new(),
    });
    Vec::new()
}

pub(super) fn deny_question(
    app: &mut ChatApp,
    question: ApprovalRequestRef,
    reason: &str,
) -> Vec<UiEffect> {
    if !app.is_undecided(question.approval_id.call_id()) {
        return show_info("the approval is no longer pending");
    }
    let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
    let decision = Decision::deny(app.setup.me.clone(), reason);
    send_decision(app, question, decision)
}

pub(super) fn edit_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    match rejected_approval(app, request) {
        Some(rejected) => rejected,
        // The driver loads the stored request: an edit must not put redaction marks into the call.
        None => vec![UiEffect::Edit(question, None)],
    }
}

pub(super) fn show_edited(
    app: &mut ChatApp,
    question: ApprovalRequestRef,
    edited: Result<Option<(Arguments, Arc<ShownRequest>)>, String>,
) -> Vec<UiEffect> {
    match edited {
        Ok(Some((arguments, shown))) => {
            app.laid_out.window_seen = 0;
            app.window = Some(OverlayWindow::Edited {
                question,
                arguments,
                shown,
                scroll: 0,
            });
            Vec::new()
        }
        Ok(None) => show_info("nothing was changed and nothing decided"),
        Err(error) => show_error(format!("{error}; nothing was decided")),
    }
}

pub(super) fn confirm_edit(app: &mut ChatApp) -> Vec<UiEffect> {
    if !app.is_window_seen() {
        return show_info(SCROLL_FIRST);
    }
    let Some(OverlayWindow::Edited {
        question,
        arguments,
        ..
    }) = app.window.take()
    else {
        return Vec::new();
    };
    // Another process may have decided while the window was open.
    if !app.is_undecided(question.approval_id.call_id()) {
        return show_info("the approval is no longer pending");
    }
    let decision = Decision::approve_with_edits(app.setup.me.clone(), arguments);
    send_decision(app, question, decision)
}

pub(super) fn edit_again(app: &mut ChatApp) -> Vec<UiEffect> {
    match app.window.take() {
        Some(OverlayWindow::Edited {
            question,
            arguments,
            ..
        }) => vec![UiEffect::Edit(question, Some(arguments))],
        _ => Vec::new(),
    }
}

pub(super) fn explain_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    match app.selected_approval() {
        Some((_, request)) => vec![UiEffect::Explain(ApprovalRequestRef::from(&**request))],
        None => show_info("no approval is pending"),
    }
}

pub(super) fn propose_rule(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((call, _, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    if let Some(rejected) = rejected_approval(app, request) {
        return rejected;
    }
    // A rule approves this call, too.
    if !app.is_seen(request) {
        return show_info(NOT_SEEN);
    }
    let session = app
        .screen
        .call(call)
        .map_or(app.setup.session, |call| call.invocation.turn.session);
    let setup = &app.setup;
    match RuleProposal::new(
        request,
        session,
        &setup.me.name,
        &setup.project,
        &setup.tools,
        app.now,
    ) {
        Ok(proposal) => preview_rule(app, proposal),
        Err(error) => {
            let hint = error.hint_text().unwrap_or_default();
            show_info(format!("{error}; {hint}"))
        }
    }
}

/// Shows a proposed rule, and looks up what it would have answered.
fn preview_rule(app: &mut ChatApp, proposal: RuleProposal) -> Vec<UiEffect> {
    let effect = UiEffect::Preview(Box::new(proposal.rule().clone()));
    app.window = Some(OverlayWindow::Always(Box::new(RuleConfirmation {
        proposal,
        preview: None,
    })));
    vec![effect]
}

pub(super) fn store_preview(
    app: &mut ChatApp,
    rule: &StandingRule,
    matches: Result<Vec<String>, String>,
) {
    // The window may be about another rule by the time the preview arrives.
    if let Some(OverlayWindow::Always(always)) = &mut app.window
        && always.proposal.rule() == rule
    {
        always.preview = Some(matches);
    }
}

/// Handles a key in the window of a proposed rule.
pub(super) fn answer_rule(app: &mut ChatApp, key: KeyEvent) -> Option<Vec<UiEffect>> {
    let Some(OverlayWindow::Always(always)) = &mut app.window else {
        return None;
    };
    Some(match always.proposal.handle_key(key)? {
        RuleAnswer::Save => confirm_rule(app),
        RuleAnswer::Changed => {
            let proposal = always.proposal.clone();
            preview_rule(app, proposal)
        }
        RuleAnswer::Back => {
            app.window = None;
            Vec::new()
        }
    })
}

/// Stores the rule and approves the call, if the preview is known.
fn confirm_rule(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some(OverlayWindow::Always(always)) = app.window.take() else {
        return Vec::new();
    };
    let question = always.proposal.question;
    match &always.preview {
        // The user has to see what the rule covers before it takes effect.
        None => {
            app.window = Some(OverlayWindow::Always(always));
            Vec::new()
        }
        Some(Err(error)) => {
            let error = error.clone();
            app.window = Some(OverlayWindow::Always(always));
            show_error(error)
        }
        Some(Ok(_)) if !app.is_undecided(question.approval_id.call_id()) => {
            show_info("the approval is no longer pending")
        }
        Some(Ok(_)) => {
            let decision = Decision::approve(app.setup.me.clone());
            app.deciding.push(question.approval_id.call_id());
            let rule = Box::new(always.proposal.rule().clone());
            vec![UiEffect::Rule(rule, question, decision)]
        }
    }
}
