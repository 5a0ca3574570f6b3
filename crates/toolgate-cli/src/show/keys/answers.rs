//! The answers to an approval request that are offered.

use toolgate::{
    approval::{ApprovalRequest, ApproverIdentity},
    layers::RuleDraft,
};

use super::{BINDINGS, KeyAction, KeyBinding, KeyContext};
use crate::show::entitlement::Entitlement;

/// Returns the keys that answer a request of `pending` ones, without those that would be rejected.
/// `is_seen` says whether all of the request was on the screen.
pub(crate) fn offered_answers(
    request: &ApprovalRequest,
    me: &ApproverIdentity,
    is_seen: bool,
    pending: usize,
) -> impl Iterator<Item = &'static KeyBinding> + use<> {
    let may = Entitlement::of(request, me);
    let can_approve = may.can_approve();
    let can_always = can_approve && is_seen && RuleDraft::check_request(request).is_ok();
    let is_offered = move |binding: &&KeyBinding| match binding.action {
        KeyAction::Approve => can_approve && is_seen,
        KeyAction::ApproveUnseen => can_approve && !is_seen,
        KeyAction::Open => !is_seen,
        KeyAction::Deny => may.can_deny,
        KeyAction::Edit => can_approve,
        KeyAction::Always => can_always,
        KeyAction::ApproveAll => can_approve && pending > 1,
        KeyAction::Choose => pending > 1,
        _ => true,
    };
    BINDINGS
        .iter()
        .filter(|binding| binding.place == KeyContext::Approvals && !binding.label.is_empty())
        .filter(is_offered)
}
