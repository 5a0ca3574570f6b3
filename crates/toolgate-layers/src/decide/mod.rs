//! Layers that decide whether a call may run. Policy rules are checked before an approver is asked.

pub(crate) mod approval;
pub(crate) mod budget;
pub(crate) mod loop_guard;
pub(crate) mod policy;
pub(crate) mod rate_limit;
pub(crate) mod scope;
pub(crate) mod validate;
