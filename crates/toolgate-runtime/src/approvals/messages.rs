//! Approvals in messages, for hosts that store nothing between two requests.
//!
//! A suspended turn becomes messages with `tool-approval-request` parts; the host shows them,
//! appends `tool-approval-response` parts and sends everything back. What the host shows to the
//! approver is `rendered`; the other fields are redacted copies for programs. Each part carries the token
//! that was issued with the approval request: a response without it is rejected. Messages are JSON
//! as the host has them; parts of other kinds are not touched.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    AdmittedDecision, ApprovalChange, ApprovalId, ApproverIdentity, Arguments, CallId,
    ChangedRequest, Decision, RejectCode, StoreError, Suspension, Timestamp, ToolName, Verdict,
    unverified_approval_id,
};

use crate::{ApprovalService, CallResult, DecisionTarget, DeliverError, RunReport, TurnReport};

/// The message part that asks for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolApprovalRequest {
    #[serde(rename = "type")]
    kind: ApprovalRequestTag,
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// The token that the response has to contain.
    pub approval_token: String,
    /// The label under which the provider gets the result.
    pub tool_call_id: String,
    /// The tool's name.
    pub tool_name: ToolName,
    /// What the approver has to be shown, line by line and in full: the call exactly as it will run,
    /// the reasons, the change. Every character is visible
    /// ([`ShownRequest`](toolgate_core::ShownRequest)).
    #[serde(default)]
    pub rendered: Vec<String>,
    /// The redacted arguments, as in events.
    pub input: Arguments,
    /// The redacted reason for the approval request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time at which the request expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The changes since it was asked the last time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ApprovalChange>,
}

/// The message part with the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolApprovalResponse {
    #[serde(rename = "type")]
    kind: ApprovalResponseTag,
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// True if the call is approved.
    pub approved: bool,
    /// The reason: of a denial, for the model; of an approval, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The token of the request.
    pub approval_token: String,
    /// The arguments to run with instead, if it is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_arguments: Option<Arguments>,
    /// True if the approver has acknowledged that the request was not shown in full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

/// The type tag of a request part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum ApprovalRequestTag {
    #[serde(rename = "tool-approval-request")]
    Request,
}

/// The type tag of a response part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum ApprovalResponseTag {
    #[serde(rename = "tool-approval-response")]
    Response,
}

/// A response that cannot be parsed, with as much as is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a response to an approval request is not valid: {code}")]
pub struct MalformedResponse {
    /// The approval it names, if it does.
    pub approval_id: Option<ApprovalId>,
    /// The problem with it.
    pub code: RejectCode,
}

/// Reason why a turn could not be written as messages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Messages carry tokens, and without keys there are none.
    #[error("approvals cannot travel in messages without a keyring")]
    NoKeyring,
    /// The stored request was changed, so it is neither shown nor sent.
    #[error(transparent)]
    Changed(#[from] ChangedRequest),
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[from] StoreError),
}

impl ToolApprovalRequest {
    /// Approves the call as it is.
    pub fn approve(&self) -> ToolApprovalResponse {
        self.build_response(true, None)
    }

    /// Approves the call with other arguments.
    pub fn approve_with_edits(&self, arguments: Arguments) -> ToolApprovalResponse {
        ToolApprovalResponse {
            edited_arguments: Some(arguments),
            ..self.build_response(true, None)
        }
    }

    /// Denies the call.
    pub fn deny(&self, reason: Option<&str>) -> ToolApprovalResponse {
        self.build_response(false, reason)
    }

    fn build_response(&self, approved: bool, reason: Option<&str>) -> ToolApprovalResponse {
        ToolApprovalResponse {
            kind: ApprovalResponseTag::Response,
            approval_id: self.approval_id,
            approved,
            reason: reason.map(str::to_owned),
            approval_token: self.approval_token.clone(),
            edited_arguments: None,
            unseen: false,
        }
    }
}

impl ToolApprovalResponse {
    /// Returns the response as a message of its own.
    pub fn into_message(self) -> Value {
        json!({ "role": "tool", "content": [self] })
    }

    /// Returns the decision and the approval request it is about.
    fn into_decision(
        self,
        by: &ApproverIdentity,
    ) -> Result<(DecisionTarget, Decision), RejectCode> {
        // A response whose token belongs to another approval must not decide on either of them.
        if unverified_approval_id(&self.approval_token).is_some_and(|id| id != self.approval_id) {
            return Err(RejectCode::TokenMismatch);
        }
        let approval_reason = self.reason.clone().filter(|_| self.approved);
        let verdict = match (self.approved, self.edited_arguments) {
            (true, None) => Verdict::Approve,
            (true, Some(arguments)) => Verdict::ApproveWithEdits { arguments },
            (false, None) => Verdict::Deny {
                reason: self.reason,
            },
            (false, Some(_)) => return Err(RejectCode::NotADecision),
        };
        Ok((
            DecisionTarget::Token(self.approval_token),
            Decision {
                verdict,
                by: by.clone(),
                unseen: self.unseen,
                approval_reason,
            },
        ))
    }
}

/// The calls of a suspended turn or run, as messages show them.
#[derive(Debug)]
pub struct SuspendedCalls<'a> {
    /// The calls that wait for a decision, each with the label under which the provider gets the
    /// result.
    asked: Vec<(CallId, &'a str)>,
    settled: Vec<&'a CallResult>,
}

impl<'a> From<&'a TurnReport> for SuspendedCalls<'a> {
    fn from(report: &'a TurnReport) -> Self {
        let waits = |call: &&CallResult| matches!(call.waits_for, Some(Suspension::Decision(_)));
        let asked = report.results.iter().filter(waits);
        Self {
            asked: asked.map(|call| (call.id, &*call.call_id)).collect(),
            settled: report.results.iter().collect(),
        }
    }
}

impl<'a> From<&'a RunReport> for SuspendedCalls<'a> {
    fn from(report: &'a RunReport) -> Self {
        let asked = report.pending.iter().filter(|call| call.question.is_some());
        Self {
            asked: asked.map(|call| (call.call, &*call.call_id)).collect(),
            settled: report.settled.iter().collect(),
        }
    }
}

/// Builds the messages that a host appends when a turn or a run is suspended: one that asks about
/// every call that waits for a decision, also of agents, and one with the result of each settled
/// call, in the order of the calls. Settled calls have run and are not run again.
///
/// # Errors
///
/// Fails without a keyring, because messages carry tokens, if a stored request was changed, or if the
/// store failed.
pub async fn suspended_messages(
    desk: &ApprovalService,
    report: impl Into<SuspendedCalls<'_>>,
) -> Result<Vec<Value>, MessageError> {
    let SuspendedCalls { asked, settled } = report.into();
    let mut parts = Vec::with_capacity(asked.len());
    for (call, call_id) in asked {
        parts.push(request_part(desk, call, call_id).await?);
    }
    let mut messages = Vec::new();
    if !parts.is_empty() {
        messages.push(json!({ "role": "assistant", "content": parts }));
    }
    messages.extend(settled.into_iter().filter_map(result_message));
    Ok(messages)
}

async fn request_part(
    desk: &ApprovalService,
    call: CallId,
    call_id: &str,
) -> Result<ToolApprovalRequest, MessageError> {
    let found = desk.find_approval(ApprovalId::for_call(call)).await;
    let details = found.map_err(read_error)?.ok_or(MessageError::NoKeyring)?;
    let token = desk.request_token(&details.row).await;
    let approval_token = token.map_err(read_error)?.ok_or(MessageError::NoKeyring)?;
    // It has a token, so it is in the store.
    let stored = details.request.ok_or(MessageError::NoKeyring)?;
    let request = &details.row.request;
    Ok(ToolApprovalRequest {
        kind: ApprovalRequestTag::Request,
        approval_id: request.approval_id,
        approval_token,
        tool_call_id: call_id.to_owned(),
        tool_name: request.tool.clone(),
        rendered: desk.show_request(&stored).lines().collect(),
        input: request.arguments.clone(),
        reason: request.reason.clone(),
        expires_at: request.expires_at,
        changed: request.changed.clone(),
    })
}

/// Returns why a request could not be read.
fn read_error(error: DeliverError) -> MessageError {
    match error {
        DeliverError::Changed(changed) => MessageError::Changed(changed),
        DeliverError::Store(error) => MessageError::Store(error),
        // Reading rejects no input and needs no approver.
        DeliverError::Rejected(_) | DeliverError::NoApprover | DeliverError::NoKeys => {
            MessageError::NoKeyring
        }
    }
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

/// Returns the requests in these messages that have no response.
pub fn approval_requests(messages: &[Value]) -> Vec<ToolApprovalRequest> {
    let requests =
        message_parts(messages).filter_map(|part| ToolApprovalRequest::deserialize(part).ok());
    let answered: Vec<Value> = message_parts(messages)
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

/// Returns the responses in these messages, in order, without those about calls whose result is
/// there too.
pub fn approval_responses(
    messages: &[Value],
) -> Vec<Result<ToolApprovalResponse, MalformedResponse>> {
    let over = settled_approvals(messages);
    let open = |part: &&Value| claimed_id(part).is_none_or(|id| !over.contains(&id));
    message_parts(messages)
        .filter(|part| is_response(part))
        .filter(open)
        .map(parse_response)
        .collect()
}

/// Returns the response to one approval request, the first that is valid, or else the problem of the
/// first one. Responses to an earlier request about the same call do not count: their token differs.
///
/// ```
/// use serde_json::json;
/// use toolgate_runtime::find_approval_response;
///
/// let response = json!({
///     "type": "tool-approval-response", "approved": true, "approvalToken": "t1",
///     "approvalId": "approval_01890a5d-ac96-774b-bcce-b302099a8057",
/// });
/// let messages = [json!({ "role": "tool", "content": [response] })];
/// let asked = "approval_01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// let decided = find_approval_response(&messages, asked).expect("there is one")?;
/// assert!(decided.approved);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find_approval_response(
    messages: &[Value],
    approval: ApprovalId,
) -> Option<Result<ToolApprovalResponse, MalformedResponse>> {
    // After a second request about the same call, only a response with its token is about it.
    let asked = message_parts(messages)
        .filter_map(|part| ToolApprovalRequest::deserialize(part).ok())
        .filter(|request| request.approval_id == approval)
        .last();
    let about_this = |part: &&Value| {
        let token = part.get("approvalToken").and_then(Value::as_str);
        is_response(part)
            && claimed_id(part) == Some(approval)
            && asked
                .as_ref()
                .is_none_or(|asked| token.is_none_or(|token| token == asked.approval_token))
    };
    let mut found = message_parts(messages)
        .filter(about_this)
        .map(parse_response)
        .peekable();
    let first = found.peek()?.clone();
    Some(found.find(Result::is_ok).unwrap_or(first))
}

/// Applies every response in these messages, each by itself; `by` is the approver according to the
/// host. The messages come from a client, so nothing in them says who decides.
pub async fn apply_approval_responses(
    desk: &ApprovalService,
    messages: &[Value],
    by: impl Into<ApproverIdentity>,
) -> Vec<Result<AdmittedDecision, DeliverError>> {
    let by = by.into();
    let mut answers = Vec::new();
    for response in approval_responses(messages) {
        let id = response
            .as_ref()
            .map_or_else(|bad| bad.approval_id, |response| Some(response.approval_id));
        let decision = response
            .map_err(|bad| bad.code)
            .and_then(|response| response.into_decision(&by));
        answers.push(match decision {
            Ok((on, decision)) => desk.decide(on, decision).await,
            Err(code) => match desk
                .reject_unparsed(id.map(ApprovalId::call_id), code)
                .await
            {
                Ok(code) => Err(code.into()),
                Err(error) => Err(error),
            },
        });
    }
    answers
}

fn parse_response(part: &Value) -> Result<ToolApprovalResponse, MalformedResponse> {
    let malformed = |code| MalformedResponse {
        approval_id: claimed_id(part),
        code,
    };
    // Without a token it cannot be known whether an approval was ever requested.
    if !part.get("approvalToken").is_some_and(Value::is_string) {
        return Err(malformed(RejectCode::Forged));
    }
    ToolApprovalResponse::deserialize(part).map_err(|_| malformed(RejectCode::NotADecision))
}

/// Returns the approvals whose call has a result in the messages after the request. A result before
/// it belongs to another call: some providers reuse their labels.
fn settled_approvals(messages: &[Value]) -> Vec<ApprovalId> {
    let mut waiting: Vec<(&str, ApprovalId)> = Vec::new();
    let mut over = Vec::new();
    for part in message_parts(messages) {
        let Some(label) = part["toolCallId"].as_str() else {
            continue;
        };
        match part["type"].as_str() {
            Some("tool-approval-request") => waiting.extend(claimed_id(part).map(|id| (label, id))),
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

fn claimed_id(part: &Value) -> Option<ApprovalId> {
    part.get("approvalId")?.as_str()?.parse().ok()
}

fn is_response(part: &Value) -> bool {
    part["type"] == "tool-approval-response"
}

fn message_parts(messages: &[Value]) -> impl Iterator<Item = &Value> {
    messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array())
        .flatten()
}
