//! Hints about the next step, for the errors that newcomers meet.

use std::{error::Error, io, sync::Arc};

use toolgate::{
    Status,
    approval::ChangedRequest,
    archive::{ExportError, ImportError},
    budget::BudgetError,
    model::{ModelError, SetupError},
    session::{DeliverError, DispatchError, RunError},
    store::{DatabaseError, StoreError},
};

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
    if let Some(error) = error.downcast_ref::<ModelError>() {
        return reply_hint(error);
    }
    let shared = error.downcast_ref::<Arc<BudgetError>>();
    if let Some(error) = error.downcast_ref().or(shared.map(|error| &**error)) {
        return budget_hint(error);
    }
    if let Some(error) = error.downcast_ref::<ImportError>() {
        return error.hint().map(str::to_owned);
    }
    if let Some(ExportError::Changed(_)) = error.downcast_ref() {
        return Some("wait until the run has ended, then export it again".to_owned());
    }
    if let Some(error) = error.downcast_ref::<DatabaseError>() {
        return Some(database_hint(error));
    }
    if let Some(DispatchError::Fenced { .. }) = error.downcast_ref() {
        return Some(TAKEN_OVER_HINT.to_owned());
    }
    if let Some(DispatchError::Held { .. }) = error.downcast_ref() {
        return Some(
            "wait until it is done, or resume the session here with --take-over".to_owned(),
        );
    }
    if let Some(DispatchError::Imported { session, .. }) = error.downcast_ref() {
        return Some(format!(
            "`toolgate sessions show {session}` shows it; begin a new session with `toolgate run`, \
             and give it what it needs to know"
        ));
    }
    if let Some(RunError::UnknownFinish) = error.downcast_ref() {
        return Some(
            "what there is of the reply is stored; send another message to continue: \
             toolgate run \"continue\" --resume"
                .to_owned(),
        );
    }
    let shared = error
        .downcast_ref::<Arc<StoreError>>()
        .map(|error| &**error);
    if let Some(hint) = error.downcast_ref().or(shared).and_then(store_hint) {
        return Some(hint.to_owned());
    }
    if let Some(DeliverError::Changed(problem)) = error.downcast_ref::<DeliverError>() {
        return request_hint(problem);
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

/// The hint for a process whose session was taken over.
const TAKEN_OVER_HINT: &str =
    "this process wrote nothing more; `toolgate sessions show` shows what the other one does";

fn store_hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Fenced { .. } => Some(TAKEN_OVER_HINT),
        StoreError::Damaged { .. } => Some(
            "other sessions can be used; `toolgate doctor --deep` reports what is damaged, and a backup has it as it was",
        ),
        StoreError::LeaseHeld { .. } => {
            Some("wait until that process has ended its run, or stop it; then resume the session")
        }
        _ => None,
    }
}

/// Returns the hint about a request that is neither shown nor decided.
fn request_hint(problem: &ChangedRequest) -> Option<String> {
    matches!(problem, ChangedRequest::Unsealed | ChangedRequest::KeyGone).then(|| {
        "`toolgate run --resume SESSION` requests approval again, with a request that can be checked"
            .to_owned()
    })
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
        // Events call the provider of a scenario `scripted`.
        SetupError::UnknownProvider { provider, .. } if provider.starts_with("script") => {
            Some("a scenario in a file is named script:FILE".to_owned())
        }
        SetupError::UnknownProvider { .. } => Some(
            "name a model as provider:name, such as --model anthropic:claude-sonnet-4-5".to_owned(),
        ),
        _ => None,
    }
}

/// Returns a hint for a request that a budget does not allow.
fn budget_hint(error: &BudgetError) -> Option<String> {
    match error {
        BudgetError::Exceeded { .. } => Some(
            "what the longest reply would cost is reserved beforehand: lower `max_tokens` under [run] in toolgate.toml, or raise the budget"
                .to_owned(),
        ),
        BudgetError::UnknownPrice {
            model: Some(model), ..
        } => Some(format!(
            "put its price into a file: [providers.{}.models.\"{}\"] with input = … and output = …, in dollars for \
             a million tokens (0 for a local model), and name the file: `prices = \"prices.toml\"` under [run]",
            model.provider, model.model
        )),
        _ => None,
    }
}

/// Returns a hint for a model that did not reply: a server of this machine that is not running.
fn reply_hint(error: &ModelError) -> Option<String> {
    error.retry_within?;
    Some(match &*error.model.provider {
        "ollama" => "is Ollama running? `ollama serve` starts it".to_owned(),
        provider => format!("is the server of {provider} on this machine running?"),
    })
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
