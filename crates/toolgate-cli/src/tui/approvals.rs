//! Deciding on calls: the part of the update function that is about approvals.

use serde_json::Value;
use toolgate::{
    ApprovalRequest, Arguments, CallId, Decision, Question,
    layers::{AllowRule, ArgumentPattern, RuleEffect, RuleScope, ToastLevel},
};

use super::{
    App, Effect,
    app::{Always, Window},
    update::tell,
};

/// The longest value that a proposed rule spells out.
const MOST_SPELLED: usize = 200;

/// The question that is open and selected.
fn question(app: &App) -> Option<(CallId, Question, &ApprovalRequest)> {
    let (call, request) = app.asked()?;
    app.is_open(call.invocation.id)
        .then(|| (call.invocation.id, Question::from(&**request), &**request))
}

fn decide(app: &mut App, question: Question, decision: Decision) -> Vec<Effect> {
    app.deciding.push(question.approval_id.call());
    vec![Effect::Decide(question, decision)]
}

pub(super) fn approve(app: &mut App) -> Vec<Effect> {
    let Some((_, question, _)) = question(app) else {
        return tell("no call waits for a decision");
    };
    let decision = Decision::approve(app.setup.me.clone());
    decide(app, question, decision)
}

pub(super) fn ask_reason(app: &mut App) -> Vec<Effect> {
    let Some((_, question, request)) = question(app) else {
        return tell("no call waits for a decision");
    };
    let tool = request.tool.to_string();
    app.window = Some(Window::Deny {
        question,
        tool,
        reason: String::new(),
    });
    Vec::new()
}

pub(super) fn deny(app: &mut App, question: Question, reason: &str) -> Vec<Effect> {
    if !app.is_open(question.approval_id.call()) {
        return tell("the call does not wait any more");
    }
    let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
    let decision = Decision::deny(app.setup.me.clone(), reason);
    decide(app, question, decision)
}

/// Whether what is shown is exactly what will run. Otherwise an edit would put the blanks in place of the secrets.
fn is_whole(request: &ApprovalRequest) -> bool {
    !request.withheld && request.arguments.digest() == request.arguments_digest
}

pub(super) fn edit(app: &mut App) -> Vec<Effect> {
    let Some((_, question, request)) = question(app) else {
        return tell("no call waits for a decision");
    };
    if !is_whole(request) {
        return tell("parts of the arguments are hidden here, so they cannot be edited");
    }
    vec![Effect::Edit(
        question,
        request.tool.clone(),
        request.arguments.clone(),
    )]
}

pub(super) fn edited(
    app: &mut App,
    question: Question,
    edited: Result<Option<Arguments>, String>,
) -> Vec<Effect> {
    let Some(call) = app.screen.call(question.approval_id.call()) else {
        return Vec::new();
    };
    match edited {
        Ok(Some(arguments)) => {
            app.window = Some(Window::Edited {
                question,
                tool: call.invocation.tool.clone(),
                arguments,
                scroll: 0,
            });
            Vec::new()
        }
        Ok(None) => tell("nothing was changed and nothing decided"),
        Err(error) => problem(format!("{error}; nothing was decided")),
    }
}

pub(super) fn confirm_edit(app: &mut App) -> Vec<Effect> {
    let Some(Window::Edited {
        question,
        arguments,
        ..
    }) = app.window.take()
    else {
        return Vec::new();
    };
    if !app.is_open(question.approval_id.call()) {
        return tell("the call does not wait any more");
    }
    let decision = Decision::approve_with_edits(app.setup.me.clone(), arguments);
    decide(app, question, decision)
}

pub(super) fn edit_again(app: &mut App) -> Vec<Effect> {
    match app.window.take() {
        Some(Window::Edited {
            question,
            tool,
            arguments,
            ..
        }) => vec![Effect::Edit(question, tool, arguments)],
        _ => Vec::new(),
    }
}

fn problem(text: String) -> Vec<Effect> {
    vec![Effect::Tell(ToastLevel::Error, text)]
}

pub(super) fn explain(app: &mut App) -> Vec<Effect> {
    match app.asked() {
        Some((_, request)) if is_whole(request) => {
            vec![Effect::Explain(
                request.tool.clone(),
                request.arguments.clone(),
            )]
        }
        Some(_) => {
            tell("parts of the arguments are hidden here, so the call cannot be walked through")
        }
        None => tell("no call waits for a decision"),
    }
}

pub(super) fn propose_rule(app: &mut App) -> Vec<Effect> {
    let Some((call, question, request)) = question(app) else {
        return tell("no call waits for a decision");
    };
    if !is_whole(request) {
        return tell("parts of the arguments are hidden here, so no rule can be made from them");
    }
    let mut open = Vec::new();
    let mut arguments = std::collections::BTreeMap::new();
    for (name, value) in request.arguments.as_map() {
        match is_spelled_out(value) {
            true => drop(arguments.insert(pointer(name), ArgumentPattern::Equals(value.clone()))),
            false => open.push(name.clone()),
        }
    }
    let session = app
        .screen
        .call(call)
        .map_or(app.setup.session, |call| call.invocation.turn.session);
    let rule = AllowRule {
        id: format!("always-{}", call.uuid().simple()),
        effect: RuleEffect::Allow,
        tool: escaped(request.tool.as_str()),
        arguments,
        scope: RuleScope::Session { session },
        owner: app.setup.me.clone(),
        created_at: app.now,
        expires_at: None,
        reason: Some("always, said at an approval".to_owned()),
    };
    let effect = Effect::Preview(Box::new(rule.clone()));
    app.window = Some(Window::Always(Box::new(Always {
        question,
        rule,
        open,
        preview: None,
    })));
    vec![effect]
}

/// A long text, such as a file's new content, is left open: nobody writes the same one twice.
fn is_spelled_out(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= MOST_SPELLED,
        Value::Array(_) | Value::Object(_) => value.to_string().len() <= MOST_SPELLED,
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The name of a tool as a glob that fits nothing else.
fn escaped(tool: &str) -> String {
    let mut out = String::new();
    for c in tool.chars() {
        if "*?[]{}!\\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

pub(super) fn rescope(app: &mut App, scope: char) -> Vec<Effect> {
    let (session, project) = (app.setup.session, app.setup.project.clone());
    let Some(Window::Always(always)) = &mut app.window else {
        return Vec::new();
    };
    let of_call = app
        .screen
        .call(always.question.approval_id.call())
        .map(|call| call.invocation.turn.session);
    always.rule.scope = match scope {
        's' => RuleScope::Session {
            session: of_call.unwrap_or(session),
        },
        'p' => RuleScope::Project { project },
        _ => RuleScope::Global,
    };
    always.preview = None;
    vec![Effect::Preview(Box::new(always.rule.clone()))]
}

pub(super) fn previewed(app: &mut App, rule: &str, matches: Result<Vec<String>, String>) {
    if let Some(Window::Always(always)) = &mut app.window
        && always.rule.id == rule
    {
        always.preview = Some(matches);
    }
}

/// Keeps the rule and approves the call, if it is known what the rule would have answered.
pub(super) fn confirm_rule(app: &mut App) -> Vec<Effect> {
    let Some(Window::Always(always)) = app.window.take() else {
        return Vec::new();
    };
    match &always.preview {
        None => {
            app.window = Some(Window::Always(always));
            Vec::new()
        }
        Some(Err(error)) => {
            let error = error.clone();
            app.window = Some(Window::Always(always));
            problem(error)
        }
        Some(Ok(_)) if !app.is_open(always.question.approval_id.call()) => {
            tell("the call does not wait any more")
        }
        Some(Ok(_)) => {
            let decision = Decision::approve(app.setup.me.clone());
            app.deciding.push(always.question.approval_id.call());
            vec![Effect::Rule(
                Box::new(always.rule),
                always.question,
                decision,
            )]
        }
    }
}
