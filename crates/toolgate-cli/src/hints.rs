//! Hints about the next step, for the errors that newcomers meet.

use std::{error::Error, io};

use toolgate::{Status, model::SetupError, store::DatabaseError};

/// Returns a hint for `error` or the nearest of its causes that has one.
pub(crate) fn find_hint(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(hint) = hint_for_error(error) {
            return Some(hint);
        }
        next = error.source();
    }
    None
}

fn hint_for_error(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<SetupError>() {
        return model_hint(error);
    }
    if let Some(error) = error.downcast_ref::<DatabaseError>() {
        return Some(database_hint(error));
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("set TOOLGATE_HOME to a directory that you can write to".to_owned())
        }
        io::ErrorKind::StorageFull => {
            Some("make room on the disk, or set TOOLGATE_HOME to another one".to_owned())
        }
        _ => None,
    }
}

/// Returns the hint of the store, reworded where the command line has an option for it.
fn database_hint(error: &DatabaseError) -> String {
    let other = "--db or TOOLGATE_DB names another database; `toolgate doctor` checks this one";
    match (error, error.hint()) {
        (DatabaseError::ReadOnly { .. } | DatabaseError::NoDirectory { .. }, _) => {
            "set TOOLGATE_HOME to a directory that you can write to, or name another database with --db".to_owned()
        }
        (DatabaseError::Damaged { .. }, _) => {
            "`toolgate doctor --deep` reports what is damaged; move the file away to start with a new one, or restore a backup"
                .to_owned()
        }
        (DatabaseError::NotADatabase { .. } | DatabaseError::NotOurs { .. } | DatabaseError::Failed { .. }, _)
        | (_, None) => other.to_owned(),
        (_, Some(hint)) => hint.to_owned(),
    }
}

fn model_hint(error: &SetupError) -> Option<String> {
    match error {
        SetupError::MissingKey { variable } => Some(format!(
            "export {variable}=…, or try `toolgate demo`, which needs no key"
        )),
        SetupError::UnknownProvider { .. } => Some(
            "name a model as provider:name, such as --model anthropic:claude-sonnet-4-5".to_owned(),
        ),
        _ => None,
    }
}

/// Returns a hint for a call that settled with `status`.
pub(crate) fn status_hint(status: Status) -> Option<&'static str> {
    match status {
        Status::ToolNotFound => Some("`toolgate tools list` shows them all"),
        Status::SchemaViolation => Some("`toolgate tools show TOOL` lists its parameters"),
        Status::Blocked | Status::OutOfScope | Status::Denied => {
            Some("`toolgate explain` with the same arguments shows which layer blocks it, and why")
        }
        Status::OutcomeUnknown => Some("check whether it took effect before you call it again"),
        Status::BudgetExceeded => Some("`toolgate budget` shows what is left"),
        Status::Ok
        | Status::Expired
        | Status::RateLimited
        | Status::LoopGuard
        | Status::ExecutorError
        | Status::Timeout
        | Status::Cancelled
        | Status::Redacted
        | Status::DryRun
        | Status::Exception
        | Status::LayerException => None,
    }
}
