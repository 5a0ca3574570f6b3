//! What to do next about an error, for those that a newcomer meets.

use std::{error::Error, io};

use toolgate::{Status, models::SetupError, store::DatabaseError};

/// What to do about `error` or one of its causes, if that is known.
pub(crate) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(hint) = about(error) {
            return Some(hint);
        }
        next = error.source();
    }
    None
}

fn about(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<SetupError>() {
        return about_model(error);
    }
    if let Some(error) = error.downcast_ref::<DatabaseError>() {
        return Some(about_database(error));
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

/// What the store itself has to say, in words of the command line.
fn about_database(error: &DatabaseError) -> String {
    let other = "--db or TOOLGATE_DB names another database; `toolgate doctor` looks at this one";
    match (error, error.hint()) {
        (DatabaseError::ReadOnly { .. } | DatabaseError::NoDirectory { .. }, _) => {
            "set TOOLGATE_HOME to a directory that you can write to, or name another database with --db".to_owned()
        }
        (DatabaseError::Damaged { .. }, _) => {
            "`toolgate doctor --deep` says what is damaged; move the file away to begin with a new one, or restore a backup"
                .to_owned()
        }
        (DatabaseError::NotADatabase { .. } | DatabaseError::NotOurs { .. } | DatabaseError::Failed { .. }, _)
        | (_, None) => other.to_owned(),
        (_, Some(hint)) => hint.to_owned(),
    }
}

fn about_model(error: &SetupError) -> Option<String> {
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

/// What to do about a call that settled like this, if that is known.
pub(crate) fn about_status(status: Status) -> Option<&'static str> {
    match status {
        Status::ToolNotFound => Some("`toolgate tools list` shows them all"),
        Status::SchemaViolation => Some("`toolgate tools show TOOL` says what it takes"),
        Status::Blocked | Status::OutOfScope | Status::Denied => {
            Some("`toolgate explain` with the same words says which layer refuses, and why")
        }
        Status::OutcomeUnknown => Some("look whether it had its effect before you call it again"),
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
