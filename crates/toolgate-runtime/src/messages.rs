//! Approvals that travel in messages, for hosts that keep nothing between two requests.
//!
//! A suspended turn becomes messages with `tool-approval-request` parts; the host shows them, appends
//! `tool-approval-response` parts and sends everything back. Each part carries the token that went out with the
//! question: a response without it is refused. Messages are JSON as the host has them; parts of other kinds are left
//! alone.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Admitted, ApprovalFilter, ApprovalId, Arguments, Changed, Decision, PostCode, Principal,
    StoreError, Suspension, Timestamp, ToolName, Verdict, claimed_approval,
};

use crate::{Approvals, CallResult, DecideOn, PostError, TurnReport};

/// The part that asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolApprovalRequest {
    #[serde(rename = "type")]
    kind: RequestKind,
    /// Which approval.
    pub approval_id: ApprovalId,
    /// The token that the response has to bring back.
    pub approval_token: String,
    /// The label under which the provider is answered.
    pub tool_call_id: String,
    /// Which tool.
    pub tool_name: ToolName,
    /// With which arguments, as far as they may be shown.
    pub input: Arguments,
    /// Why somebody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What else is shown, such as a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Value>,
    /// When the question lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Why it is asked again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
}

/// The part that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolApprovalResponse {
    #[serde(rename = "type")]
    kind: ResponseKind,
    /// Which approval.
    pub approval_id: ApprovalId,
    /// Yes or no.
    pub approved: bool,
    /// Why not, in words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The token of the request.
    pub approval_token: String,
    /// The arguments to run with instead, if it is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_arguments: Option<Arguments>,
}

/// The word by which a part that asks is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum RequestKind {
    #[serde(rename = "tool-approval-request")]
    Request,
}

/// The word by which a part that answers is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum ResponseKind {
    #[serde(rename = "tool-approval-response")]
    Response,
}

/// A response that cannot be read, with as much as is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a response to an approval cannot be read: {code}")]
pub struct MalformedResponse {
    /// Which approval it names, if it does.
    pub approval_id: Option<ApprovalId>,
    /// What is wrong with it.
    pub code: PostCode,
}

/// Why a turn could not be written as messages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Messages carry tokens, and without keys there are none.
    #[error("approvals cannot travel in messages without a keyring")]
    NoKeyring,
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[from] StoreError),
}

impl ToolApprovalRequest {
    /// Approves the call as it is.
    pub fn approve(&self) -> ToolApprovalResponse {
        self.respond(true, None)
    }

    /// Approves it with other arguments.
    pub fn approve_with_edits(&self, arguments: Arguments) -> ToolApprovalResponse {
        ToolApprovalResponse {
            edited_arguments: Some(arguments),
            ..self.respond(true, None)
        }
    }

    /// Denies it.
    pub fn deny(&self, reason: Option<&str>) -> ToolApprovalResponse {
        self.respond(false, reason)
    }

    fn respond(&self, approved: bool, reason: Option<&str>) -> ToolApprovalResponse {
        ToolApprovalResponse {
            kind: ResponseKind::Response,
            approval_id: self.approval_id,
            approved,
            reason: reason.map(str::to_owned),
            approval_token: self.approval_token.clone(),
            edited_arguments: None,
        }
    }
}

impl ToolApprovalResponse {
    /// The response as a message of its own.
    pub fn into_message(self) -> Value {
        json!({ "role": "tool", "content": [self] })
    }

    /// What was decided, on which question.
    fn decision(self, by: &Principal) -> Result<(DecideOn, Decision), PostCode> {
        if claimed_approval(&self.approval_token).is_some_and(|id| id != self.approval_id) {
            return Err(PostCode::TokenMismatch);
        }
        let verdict = match (self.approved, self.edited_arguments) {
            (true, None) => Verdict::Approve,
            (true, Some(arguments)) => Verdict::ApproveWithEdits { arguments },
            (false, None) => Verdict::Deny {
                reason: self.reason,
            },
            (false, Some(_)) => return Err(PostCode::NotADecision),
        };
        Ok((
            DecideOn::Token(self.approval_token),
            Decision {
                verdict,
                by: by.clone(),
            },
        ))
    }
}

/// What a host appends to its messages when a turn is suspended: one message that asks about every call that waits for
/// a decision, and one with the result of each call that is settled, in the order of the calls. Those have run and are
/// not run again.
pub async fn suspended_messages(
    desk: &Approvals,
    report: &TurnReport,
) -> Result<Vec<Value>, MessageError> {
    let mut asked = Vec::new();
    for result in &report.results {
        if let Some(Suspension::Decision(_)) = &result.waits_for {
            asked.push(request_part(desk, result).await?);
        }
    }
    let mut messages = Vec::new();
    if !asked.is_empty() {
        messages.push(json!({ "role": "assistant", "content": asked }));
    }
    messages.extend(report.results.iter().filter_map(result_message));
    Ok(messages)
}

async fn request_part(
    desk: &Approvals,
    result: &CallResult,
) -> Result<ToolApprovalRequest, MessageError> {
    let rows = desk.pending(ApprovalFilter::of(result.id)).await?;
    let row = rows.first().ok_or(MessageError::NoKeyring)?;
    let approval_token = desk.token(row).await?.ok_or(MessageError::NoKeyring)?;
    let request = &row.request;
    Ok(ToolApprovalRequest {
        kind: RequestKind::Request,
        approval_id: request.approval_id,
        approval_token,
        tool_call_id: result.call_id.to_string(),
        tool_name: request.tool.clone(),
        input: request.arguments.clone(),
        reason: request.reason.clone(),
        shown: request.shown.clone(),
        expires_at: request.expires_at,
        changed: request.changed.clone(),
    })
}

fn result_message(result: &CallResult) -> Option<Value> {
    let part = json!({
        "type": "tool-result",
        "toolCallId": &*result.call_id,
        "toolName": result.tool,
        "output": result.model_text()?,
        "status": result.status()?,
    });
    Some(json!({ "role": "tool", "content": [part] }))
}

/// The requests in these messages that nobody has responded to.
pub fn approval_requests(messages: &[Value]) -> Vec<ToolApprovalRequest> {
    let requests = parts(messages).filter_map(|part| ToolApprovalRequest::deserialize(part).ok());
    let answered: Vec<Value> = parts(messages)
        .filter(|part| is_response(part))
        .cloned()
        .collect();
    let is_open = |request: &ToolApprovalRequest| {
        let token = Value::from(request.approval_token.as_str());
        answered
            .iter()
            .all(|part| part.get("approvalToken") != Some(&token))
    };
    requests.filter(is_open).collect()
}

/// Adds a response to the messages.
pub fn append_approval_response(messages: &mut Vec<Value>, response: ToolApprovalResponse) {
    messages.push(response.into_message());
}

/// The responses in these messages, in order, without those about calls whose result is there too.
pub fn approval_responses(
    messages: &[Value],
) -> Vec<Result<ToolApprovalResponse, MalformedResponse>> {
    let over = settled_approvals(messages);
    let open = |part: &&Value| claimed(part).is_none_or(|id| !over.contains(&id));
    parts(messages)
        .filter(|part| is_response(part))
        .filter(open)
        .map(read_response)
        .collect()
}

/// Applies every response in these messages at the desk, each on its own; `by` is who the host says responded.
pub async fn apply_approval_responses(
    desk: &Approvals,
    messages: &[Value],
    by: impl Into<Principal>,
) -> Vec<Result<Admitted, PostError>> {
    let by = by.into();
    let mut answers = Vec::new();
    for response in approval_responses(messages) {
        let id = response
            .as_ref()
            .map_or_else(|bad| bad.approval_id, |response| Some(response.approval_id));
        let decision = response
            .map_err(|bad| bad.code)
            .and_then(|response| response.decision(&by));
        answers.push(match decision {
            Ok((on, decision)) => desk.decide(on, decision).await,
            Err(code) => match desk.refuse_unread(id.map(ApprovalId::call), code).await {
                Ok(code) => Err(code.into()),
                Err(error) => Err(error),
            },
        });
    }
    answers
}

fn read_response(part: &Value) -> Result<ToolApprovalResponse, MalformedResponse> {
    let malformed = |code| MalformedResponse {
        approval_id: claimed(part),
        code,
    };
    // Without a token there is no telling whether anybody was asked.
    if !part.get("approvalToken").is_some_and(Value::is_string) {
        return Err(malformed(PostCode::Forged));
    }
    ToolApprovalResponse::deserialize(part).map_err(|_| malformed(PostCode::NotADecision))
}

/// The approvals whose call has a result in the messages behind the request. One in front of it is of another call:
/// some providers use their labels again.
fn settled_approvals(messages: &[Value]) -> Vec<ApprovalId> {
    let mut waiting: Vec<(&str, ApprovalId)> = Vec::new();
    let mut over = Vec::new();
    for part in parts(messages) {
        let Some(label) = part["toolCallId"].as_str() else {
            continue;
        };
        match part["type"].as_str() {
            Some("tool-approval-request") => waiting.extend(claimed(part).map(|id| (label, id))),
            Some("tool-result") => {
                over.extend(
                    waiting
                        .extract_if(.., |(of, _)| *of == label)
                        .map(|(_, id)| id),
                );
            }
            _ => {}
        }
    }
    over
}

fn claimed(part: &Value) -> Option<ApprovalId> {
    part.get("approvalId")?.as_str()?.parse().ok()
}

fn is_response(part: &Value) -> bool {
    part["type"] == "tool-approval-response"
}

fn parts(messages: &[Value]) -> impl Iterator<Item = &Value> {
    messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array())
        .flatten()
}
