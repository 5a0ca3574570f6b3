//! Approval requests as they are stored: events have redacted copies, and an approver sees the
//! original.

use std::sync::Arc;

use toolgate::{
    Arguments, Gate, Session,
    approval::{ApprovalDetails, ApprovalRequest, ApprovalService, ShownRequest},
    layers::{Preview, SharedPreview},
    stack::{CallSeed, RawArguments, ToolRequest},
    store::ApprovalState,
    value::{ApprovalId, CallId},
};

use super::screen::SessionScreen;
use crate::CliError;

/// What an approver sees of the request with this generation, or why it cannot be shown.
pub(crate) type LoadedRequest = (CallId, u32, Result<Arc<ShownRequest>, String>);

/// Loads what approvers see of the pending requests of a screen that are not loaded yet.
pub(crate) async fn load_shown(
    screen: &SessionScreen,
    desk: &ApprovalService,
) -> Vec<LoadedRequest> {
    let mut loaded = Vec::new();
    for (call, generation) in screen.unloaded_requests() {
        let found = desk.find_approval(ApprovalId::for_call(call)).await;
        if matches!(&found, Ok(Some(found)) if is_answered(found, generation)) {
            // Decided elsewhere: the driver applies the answer, and there is nothing to ask.
            continue;
        }
        let shown = found
            .map_err(CliError::from)
            .and_then(stored_request)
            .map(|request| Arc::new(desk.show_request(&request)))
            .map_err(|error| error.to_string());
        loaded.push((call, generation, shown));
    }
    loaded
}

/// Loads what approvers see of the pending requests of a screen into it.
pub(crate) async fn load_requests(screen: &mut SessionScreen, desk: &ApprovalService) {
    for (call, generation, shown) in load_shown(screen, desk).await {
        screen.set_shown(call, generation, shown);
    }
}

/// Loads the stored request of an approval.
///
/// # Errors
///
/// Fails if it was changed since approval was requested, or is not in the store.
pub(crate) async fn load_request(
    desk: &ApprovalService,
    id: ApprovalId,
) -> Result<Arc<ApprovalRequest>, CliError> {
    stored_request(desk.find_approval(id).await?)
}

fn stored_request(found: Option<ApprovalDetails>) -> Result<Arc<ApprovalRequest>, CliError> {
    let request = found.and_then(|found| found.request);
    request.ok_or_else(|| CliError::new("the approval request is no longer in the store"))
}

/// Checks whether there is a decision about the request of this generation.
fn is_answered(found: &ApprovalDetails, generation: u32) -> bool {
    let is_decided = matches!(
        found.row.state,
        ApprovalState::Answered | ApprovalState::Running
    );
    is_decided && found.row.request.generation == generation
}

/// Returns what an approver sees of a request with edited arguments: their diff and their links.
pub(crate) fn show_edited(
    gate: &Gate,
    session: &Session,
    request: &ApprovalRequest,
    edited: &Arguments,
) -> ShownRequest {
    let preview = gate.resources().get::<SharedPreview>();
    let seed = rehearse_call(gate, session, request, edited).ok();
    let request = edit_request(request, edited, preview.as_ref(), seed);
    gate.approvals().show_request(&request)
}

/// Returns a request with edited arguments. `seed` is the edited call, for the preview; without it
/// the change is not shown.
pub(crate) fn edit_request(
    request: &ApprovalRequest,
    edited: &Arguments,
    preview: Option<&SharedPreview>,
    seed: Option<CallSeed>,
) -> ApprovalRequest {
    let mut request = request.clone();
    request.arguments = edited.clone();
    request.arguments_digest = edited.digest();
    // The stored preview, files and links are about other arguments.
    request.shown = None;
    request.files.clear();
    request.links.clear();
    let Some(preview) = preview else {
        return request;
    };
    request.links = preview.find_links(edited);
    if let Some(change) = seed.and_then(|seed| preview.preview(&toolgate::Call::new(seed))) {
        request.shown = Some(change.shown);
        request.files = change.files;
    }
    request
}

/// Returns the call of a request with these arguments, for a rehearsal.
pub(crate) fn rehearse_call(
    gate: &Gate,
    session: &Session,
    request: &ApprovalRequest,
    arguments: &Arguments,
) -> Result<CallSeed, CliError> {
    let view = gate.view()?;
    let call = request_with_arguments(request, arguments);
    Ok(session.dispatcher().rehearse_call(&view, &call))
}

/// Returns what the model would have written to make the call of a request with these arguments.
pub(crate) fn request_with_arguments(
    request: &ApprovalRequest,
    arguments: &Arguments,
) -> ToolRequest {
    ToolRequest {
        provider_call_id: String::new(),
        tool: request.tool.to_string(),
        arguments: RawArguments::Json(arguments.as_json().clone()),
    }
}
