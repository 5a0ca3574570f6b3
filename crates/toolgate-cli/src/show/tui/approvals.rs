//! The part of the update function that is about approvals.

use serde_json::Value;
use toolgate::{
    Arguments, Decision,
    approval::{ApprovalRequest, ApprovalRequestRef},
    layers::{ArgumentPattern, RuleEffect, RuleScope, StandingRule, ToastLevel},
    value::CallId,
};

use super::{
    ChatApp, UiEffect,
    app::{OverlayWindow, RuleConfirmation},
    update::show_info,
};

/// The longest value that a proposed rule restricts.
const MAX_RULE_VALUE_LEN: usize = 200;

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

pub(super) fn approve_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, _)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    let decision = Decision::approve(app.setup.me.clone());
    send_decision(app, question, decision)
}

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

/// Checks whether the arguments on the screen are exactly those that will run.
fn is_unredacted(request: &ApprovalRequest) -> bool {
    // Otherwise an edit would put the redaction marks in place of the secrets.
    !request.withheld && request.arguments.digest() == request.arguments_digest
}

pub(super) fn edit_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((_, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    if !is_unredacted(request) {
        return show_info("parts of the arguments are redacted, so they cannot be edited");
    }
    vec![UiEffect::Edit(
        question,
        request.tool.clone(),
        request.arguments.clone(),
    )]
}

pub(super) fn show_edited(
    app: &mut ChatApp,
    question: ApprovalRequestRef,
    edited: Result<Option<Arguments>, String>,
) -> Vec<UiEffect> {
    let Some(call) = app.screen.call(question.approval_id.call_id()) else {
        return Vec::new();
    };
    match edited {
        Ok(Some(arguments)) => {
            app.window = Some(OverlayWindow::Edited {
                question,
                tool: call.invocation.tool.clone(),
                arguments,
                scroll: 0,
            });
            Vec::new()
        }
        Ok(None) => show_info("nothing was changed and nothing decided"),
        Err(error) => show_error(format!("{error}; nothing was decided")),
    }
}

pub(super) fn confirm_edit(app: &mut ChatApp) -> Vec<UiEffect> {
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
            tool,
            arguments,
            ..
        }) => vec![UiEffect::Edit(question, tool, arguments)],
        _ => Vec::new(),
    }
}

fn show_error(text: String) -> Vec<UiEffect> {
    vec![UiEffect::Tell(ToastLevel::Error, text)]
}

pub(super) fn explain_selected(app: &mut ChatApp) -> Vec<UiEffect> {
    match app.selected_approval() {
        Some((_, request)) if is_unredacted(request) => {
            vec![UiEffect::Explain(
                request.tool.clone(),
                request.arguments.clone(),
            )]
        }
        Some(_) => {
            show_info("parts of the arguments are redacted, so the call cannot be explained")
        }
        None => show_info("no approval is pending"),
    }
}

pub(super) fn propose_rule(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some((call, question, request)) = open_question(app) else {
        return show_info("no approval is pending");
    };
    if !is_unredacted(request) {
        return show_info("parts of the arguments are redacted, so no rule can be made from them");
    }
    let mut open = Vec::new();
    let mut arguments = std::collections::BTreeMap::new();
    for (name, value) in request.arguments.as_map() {
        if is_restricted(value) {
            drop(arguments.insert(
                argument_pointer(name),
                ArgumentPattern::Equals(value.clone()),
            ))
        } else {
            open.push(name.clone())
        }
    }
    let session = app
        .screen
        .call(call)
        .map_or(app.setup.session, |call| call.invocation.turn.session);
    let rule = StandingRule {
        id: format!("always-{}", call.uuid().simple()),
        effect: RuleEffect::Allow,
        tool: escape_glob(request.tool.as_str()),
        arguments,
        scope: RuleScope::Session { session },
        owner: app.setup.me.clone(),
        created_at: app.now,
        expires_at: None,
        reason: Some("always, chosen at the approval prompt".to_owned()),
    };
    let effect = UiEffect::Preview(Box::new(rule.clone()));
    app.window = Some(OverlayWindow::Always(Box::new(RuleConfirmation {
        question,
        rule,
        open,
        preview: None,
    })));
    vec![effect]
}

/// Checks whether a rule restricts this value.
fn is_restricted(value: &Value) -> bool {
    // A long text, such as the new content of a file, is unlikely to come again. It is left open.
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= MAX_RULE_VALUE_LEN,
        Value::Array(_) | Value::Object(_) => value.to_string().len() <= MAX_RULE_VALUE_LEN,
    }
}

fn argument_pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Escapes the name of a tool for a glob, so that it matches nothing else.
fn escape_glob(tool: &str) -> String {
    let mut out = String::new();
    for c in tool.chars() {
        if "*?[]{}!\\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

pub(super) fn set_rule_scope(app: &mut ChatApp, scope: char) -> Vec<UiEffect> {
    let session = app.setup.session;
    let project = app.setup.project.clone();
    let Some(OverlayWindow::Always(always)) = &mut app.window else {
        return Vec::new();
    };
    let of_call = app
        .screen
        .call(always.question.approval_id.call_id())
        .map(|call| call.invocation.turn.session);
    always.rule.scope = match scope {
        's' => RuleScope::Session {
            session: of_call.unwrap_or(session),
        },
        'p' => RuleScope::Project { project },
        _ => RuleScope::Global,
    };
    // It was made for the other scope, and a rule cannot be confirmed without one.
    always.preview = None;
    vec![UiEffect::Preview(Box::new(always.rule.clone()))]
}

pub(super) fn store_preview(app: &mut ChatApp, rule: &str, matches: Result<Vec<String>, String>) {
    // The window may be about another call by the time the preview arrives.
    if let Some(OverlayWindow::Always(always)) = &mut app.window
        && always.rule.id == rule
    {
        always.preview = Some(matches);
    }
}

/// Stores the rule and approves the call, if the preview is known.
pub(super) fn confirm_rule(app: &mut ChatApp) -> Vec<UiEffect> {
    let Some(OverlayWindow::Always(always)) = app.window.take() else {
        return Vec::new();
    };
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
        Some(Ok(_)) if !app.is_undecided(always.question.approval_id.call_id()) => {
            show_info("the approval is no longer pending")
        }
        Some(Ok(_)) => {
            let decision = Decision::approve(app.setup.me.clone());
            app.deciding.push(always.question.approval_id.call_id());
            vec![UiEffect::Rule(
                Box::new(always.rule),
                always.question,
                decision,
            )]
        }
    }
}
