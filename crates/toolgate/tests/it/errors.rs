//! Errors print what went wrong including its cause, once.

use std::{error::Error, io, sync::Arc};

use toolgate::{
    Band,
    approval::KeyFileError,
    budget::BudgetError,
    event::JournalError,
    layers::{BuildError, RuleError},
    ledger::LedgerError,
    model::{ModelError, ModelErrorKind, ModelName, PriceFileError},
    session::{
        DeliverError, DispatchError, RunError, SessionBuildError, SessionError, StrategyError,
    },
    stack::StackError,
    store::{DatabaseError, StoreError},
    tool::{RegisterError, ViewError},
    value::{SchemaError, SessionId, error_chain},
};

fn disk_full() -> StoreError {
    StoreError::Backend("the disk is full".into())
}

fn io_error() -> io::Error {
    io::Error::other("the disk is full")
}

fn out_of_band() -> StackError {
    StackError::OutOfBand {
        outer: "timeout".into(),
        outer_band: Band::Bound,
        inner: "policy".into(),
        inner_band: Band::Decide,
        why: "the disk is full",
    }
}

fn model_error() -> ModelError {
    let model = ModelName::new("scripted", "demo");
    ModelError::new(ModelErrorKind::Overloaded, model, "the disk is full")
}

fn session_errors() -> Vec<Box<dyn Error>> {
    let session = SessionId::new(uuid::Uuid::nil());
    let journal = JournalError::Store {
        session,
        source: Arc::new(disk_full()),
    };
    let view = ViewError::Renamed {
        by: "the disk is full".into(),
        tool: "t".into(),
    };
    vec![
        Box::new(SessionBuildError::Stack(out_of_band())),
        Box::new(SessionBuildError::Agent(RegisterError::Schema {
            tool: "t".into(),
            source: SchemaError::NotAnObject,
        })),
        Box::new(SessionBuildError::Open(SessionError::Store(disk_full()))),
        Box::new(SessionError::Dispatch(DispatchError::Journal(journal))),
        Box::new(SessionError::Options(RunError::View(view))),
        Box::new(RunError::Model(model_error())),
        Box::new(RunError::Budget(Arc::new(BudgetError::Store(disk_full())))),
        Box::new(RunError::Strategy(StrategyError("the disk is full".into()))),
        Box::new(RunError::Stack(out_of_band())),
        Box::new(DispatchError::Store(disk_full())),
        Box::new(DeliverError::Store(disk_full())),
    ]
}

fn other_errors() -> Vec<Box<dyn Error>> {
    let locked = DatabaseError::BadAddress;
    vec![
        Box::new(BuildError::Stack(out_of_band())),
        Box::new(RegisterError::Schema {
            tool: "t".into(),
            source: SchemaError::NotAnObject,
        }),
        Box::new(disk_full()),
        Box::new(StoreError::Backend(Box::new(locked))),
        Box::new(StoreError::Damaged {
            what: "a record".into(),
            source: "the disk is full".into(),
        }),
        Box::new(LedgerError::Store(disk_full())),
        Box::new(LedgerError::Io(io_error())),
        Box::new(RuleError::Store(disk_full())),
        Box::new(BudgetError::Store(disk_full())),
        Box::new(PriceFileError::Unreadable {
            path: "prices.toml".into(),
            source: io_error(),
        }),
        Box::new(KeyFileError::Io {
            path: "keys".into(),
            doing: "read",
            source: io_error(),
        }),
    ]
}

/// Returns the text of the last cause.
fn root_cause(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => root_cause(cause),
        None => error.to_string(),
    }
}

#[test]
fn an_error_prints_its_cause_once() {
    for error in session_errors().into_iter().chain(other_errors()) {
        let text = error.to_string();
        assert!(error.source().is_some(), "{text}");
        let cause = root_cause(&*error);
        assert_eq!(text.matches(&*cause).count(), 1, "{text}");
        assert_eq!(error_chain(&*error), text);
    }
}
