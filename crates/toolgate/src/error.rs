//! The error of the front door: one opaque type, with questions about what happened and a hint.

use std::{borrow::Cow, error::Error as StdError, fmt, io, sync::Arc};

use toolgate_core::{
    BudgetError, InvalidSearchCursor, InvalidSearchFilter, RegisterError, SearchError, StackError,
    StoreError, ViewError, error_chain,
};
use toolgate_layers::{BuildError, ConfigError, LedgerError, RuleError};
use toolgate_models::PriceFileError;
#[cfg(feature = "http")]
use toolgate_models::SetupError;
use toolgate_runtime::{
    DeliverError, DispatchError, IncompleteRun, KeyFileError, MemoryError, SessionBuildError,
    SessionError,
};
use toolgate_store::DatabaseError;

/// The result of the front door.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something that a gate or a session could not do.
///
/// It prints the whole chain of causes. The typed errors below it are its sources, and the
/// questions that programs ask most have an answer here.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let error = toolgate::Gate::open("mysql://host/db").await.unwrap_err();
/// assert_eq!(error.to_string(), "the database mysql://host/db cannot be opened: \"mysql\" is not a known kind of store");
/// assert!(!error.is_lease_lost());
/// # });
/// ```
pub struct Error(Box<ErrorParts>);

struct ErrorParts {
    problem: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    hint: Option<Cow<'static, str>>,
    invalid_configuration: bool,
}

impl Error {
    /// Creates an error about the configuration or the way the gate is set up.
    pub(crate) fn configuration(problem: impl Into<String>) -> Self {
        Self(Box::new(ErrorParts {
            problem: Some(problem.into()),
            source: None,
            hint: None,
            invalid_configuration: true,
        }))
    }

    /// Wraps a typed error.
    pub(crate) fn from_source(source: impl StdError + Send + Sync + 'static) -> Self {
        let invalid_configuration = is_about_configuration(&source);
        let hint = find_hint(&source);
        Self(Box::new(ErrorParts {
            problem: None,
            source: Some(Box::new(source)),
            hint,
            invalid_configuration,
        }))
    }

    /// Puts what was being done in front of the causes.
    pub(crate) fn while_doing(mut self, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        self.0.problem = Some(match self.0.problem.take() {
            Some(inner) => format!("{problem}: {inner}"),
            None => problem,
        });
        self
    }

    /// Sets the hint about the next step.
    pub(crate) fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Returns what the user can do next, if that is known.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Checks whether a run did not complete because calls wait for an approval.
    pub fn is_pending_approval(&self) -> bool {
        self.find_cause::<IncompleteRun>()
            .is_some_and(|run| run.waits_for_approval())
    }

    /// Checks whether another process holds the session, or has taken it over.
    pub fn is_lease_lost(&self) -> bool {
        causes(self.source()).any(|cause| {
            let store = cause.downcast_ref::<StoreError>().or_else(|| {
                cause
                    .downcast_ref::<Arc<StoreError>>()
                    .map(|error| &**error)
            });
            let dispatch = cause.downcast_ref::<DispatchError>();
            matches!(
                store,
                Some(StoreError::LeaseHeld { .. } | StoreError::Fenced { .. })
            ) || matches!(
                dispatch,
                Some(DispatchError::Held { .. } | DispatchError::Fenced { .. })
            )
        })
    }

    /// Checks whether a budget is exceeded.
    pub fn is_budget_exceeded(&self) -> bool {
        self.find_cause::<BudgetError>().is_some()
            || self.find_cause::<Arc<BudgetError>>().is_some()
            || self
                .find_cause::<IncompleteRun>()
                .is_some_and(|run| run.0.end == toolgate_core::RunEnd::BudgetExceeded)
    }

    /// Checks whether the configuration, or the way the gate is set up, is invalid.
    pub fn is_invalid_configuration(&self) -> bool {
        self.0.invalid_configuration
    }

    /// Returns the nearest cause of this type.
    pub fn find_cause<E: StdError + 'static>(&self) -> Option<&E> {
        causes(self.source()).find_map(|cause| cause.downcast_ref())
    }
}

/// Returns an error and its causes, outermost first.
fn causes<'a>(
    first: Option<&'a (dyn StdError + 'static)>,
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(first, |error: &&'a (dyn StdError + 'static)| {
        (*error).source()
    })
}

fn is_about_configuration(error: &(dyn StdError + 'static)) -> bool {
    causes(Some(error)).any(|cause| {
        cause.is::<ConfigError>()
            || cause.is::<toolgate_core::InvalidModelName>()
            || is_unknown_provider(cause)
    })
}

#[cfg(feature = "http")]
fn is_unknown_provider(error: &(dyn StdError + 'static)) -> bool {
    let setup = error.downcast_ref::<SetupError>();
    matches!(setup, Some(SetupError::UnknownProvider { .. }))
}

#[cfg(not(feature = "http"))]
fn is_unknown_provider(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// Returns the hint of the nearest cause that has one.
fn find_hint(error: &(dyn StdError + 'static)) -> Option<Cow<'static, str>> {
    causes(Some(error)).find_map(|cause| {
        if let Some(error) = cause.downcast_ref::<ConfigError>() {
            return error.hint().map(|hint| hint.to_owned().into());
        }
        if let Some(error) = cause.downcast_ref::<DatabaseError>() {
            return error.hint().map(|hint| hint.to_owned().into());
        }
        if let Some(error) = cause.downcast_ref::<SearchError>() {
            return error.hint().map(Into::into);
        }
        provider_hint(cause)
    })
}

#[cfg(feature = "http")]
fn provider_hint(error: &(dyn StdError + 'static)) -> Option<Cow<'static, str>> {
    match error.downcast_ref::<SetupError>()? {
        SetupError::MissingKey { variable } => Some(format!("export {variable}=…").into()),
        // Events call the provider of a scenario `scripted`.
        SetupError::UnknownProvider { provider, .. } if provider.starts_with("script") => {
            Some("a scenario in a file is named script:FILE".into())
        }
        SetupError::UnknownProvider { .. } => {
            Some("name a model as provider:name, such as anthropic:claude-sonnet-4-5".into())
        }
        _ => None,
    }
}

#[cfg(not(feature = "http"))]
fn provider_hint(_: &(dyn StdError + 'static)) -> Option<Cow<'static, str>> {
    None
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(problem) = &self.0.problem {
            f.write_str(problem)?;
        }
        let Some(source) = self.source() else {
            return Ok(());
        };
        if self.0.problem.is_some() {
            f.write_str(": ")?;
        }
        f.write_str(&error_chain(source))
    }
}

/// As [`Display`](fmt::Display), so that `main` prints a sentence and not a structure.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source.as_deref();
        source.map(|source| source as &(dyn StdError + 'static))
    }
}

/// Implements the conversion from typed errors.
macro_rules! from_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::from_source(error)
            }
        })*
    };
}

from_errors!(
    BuildError,
    ConfigError,
    DatabaseError,
    DeliverError,
    DispatchError,
    IncompleteRun,
    InvalidSearchCursor,
    InvalidSearchFilter,
    KeyFileError,
    LedgerError,
    MemoryError,
    PriceFileError,
    RegisterError,
    RuleError,
    SearchError,
    SessionBuildError,
    SessionError,
    StackError,
    StoreError,
    ViewError,
    io::Error,
    toolgate_core::InvalidModelName,
);

#[cfg(feature = "http")]
from_errors!(SetupError);
