//! The error of a command: the whole chain of causes, and a hint about the next step.

use std::{error::Error, fmt, io, sync::Arc};

use toolgate::{
    archive::{ExportError, ImportError},
    layers::{BuildError, ConfigError, LedgerError, RuleError, UndraftableRule},
    memory::MemoryError,
    model::SetupError,
    session::{DispatchError, SessionBuildError, SessionError},
    store::{DatabaseError, StoreError},
    value::error_chain,
};

use crate::Exit;

/// The error of a command, with its causes, a hint and the exit code.
#[derive(Debug)]
pub struct CliError {
    problem: String,
    causes: Vec<String>,
    hint: Option<String>,
    exit: Exit,
}

impl CliError {
    /// Creates an error from one sentence.
    pub fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            causes: Vec::new(),
            hint: None,
            exit: Exit::Failed,
        }
    }

    /// Creates an error about the command line or the configuration.
    pub fn usage(problem: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(problem)
        }
    }

    /// Builds the error from `error` and its chain of causes, with a hint if one is known.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        Self {
            hint: crate::hints::find_hint(error),
            exit: exit_of(error),
            ..Self::new(error_chain(error))
        }
    }

    /// Puts the failed action in front of the problem, which becomes the first cause.
    pub fn while_doing(mut self, what: impl Into<String>) -> Self {
        self.causes
            .insert(0, std::mem::replace(&mut self.problem, what.into()));
        self
    }

    /// Sets the hint about the next step.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the exit code.
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Returns the exit code.
    pub fn exit_status(&self) -> Exit {
        self.exit
    }

    /// Returns the hint about the next step.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns true if the reader of the output closed the pipe, which is not worth a message.
    pub fn is_broken_pipe(&self) -> bool {
        self.problem == BROKEN_PIPE
    }
}

/// Returns the exit code of an error: the store has its own, so that a script can try again.
fn exit_of(error: &(dyn Error + 'static)) -> Exit {
    let mut next = Some(error);
    while let Some(error) = next {
        // Writes of one group share their error.
        let shared = error
            .downcast_ref::<Arc<StoreError>>()
            .map(|error| &**error);
        match error.downcast_ref::<StoreError>().or(shared) {
            Some(StoreError::Fenced { .. } | StoreError::LeaseHeld { .. }) => {
                return Exit::SessionTaken;
            }
            Some(StoreError::Damaged { .. } | StoreError::Unavailable { .. }) => {
                return Exit::StoreFailed;
            }
            _ => {}
        }
        if let Some(DispatchError::Held { .. } | DispatchError::Fenced { .. }) =
            error.downcast_ref()
        {
            return Exit::SessionTaken;
        }
        if let Some(
            DatabaseError::Locked { .. }
            | DatabaseError::Full { .. }
            | DatabaseError::ReadOnly { .. }
            | DatabaseError::Damaged { .. }
            | DatabaseError::Unreachable { .. }
            | DatabaseError::Lost { .. }
            | DatabaseError::Closed { .. }
            | DatabaseError::Gone { .. }
            | DatabaseError::Failed { .. },
        ) = error.downcast_ref::<DatabaseError>()
        {
            return Exit::StoreFailed;
        }
        next = error.source();
    }
    Exit::Failed
}

const BROKEN_PIPE: &str = "the output pipe was closed";

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl Error for CliError {}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(BROKEN_PIPE).with_exit(Exit::Done),
            _ => Self::from_error(&error),
        }
    }
}

impl From<toolgate::Error> for CliError {
    fn from(error: toolgate::Error) -> Self {
        let hint = crate::hints::find_hint(&error).or_else(|| error.hint().map(str::to_owned));
        let about_file = error.find_cause::<ConfigError>().is_some();
        let hint = hint.or_else(|| about_file.then(|| SCHEMA_HINT.to_owned()));
        let exit = if error.is_invalid_configuration() {
            Exit::Usage
        } else {
            exit_of(&error)
        };
        // The message has the whole chain of causes.
        Self {
            hint,
            exit,
            ..Self::new(error.to_string())
        }
    }
}

/// The hint about an invalid configuration that has no other one.
const SCHEMA_HINT: &str = "`toolgate config schema` describes the values of each option";

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint().unwrap_or(SCHEMA_HINT);
        Self {
            hint: Some(hint.to_owned()),
            exit: Exit::Usage,
            ..Self::from_error(&error)
        }
    }
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> Self {
        let exit = if matches!(error, SetupError::UnknownProvider { .. }) {
            Exit::Usage
        } else {
            Exit::Failed
        };
        Self {
            exit,
            ..Self::from_error(&error)
        }
    }
}

impl From<UndraftableRule> for CliError {
    fn from(error: UndraftableRule) -> Self {
        Self::from_error(&error)
            .with_hint("`toolgate approvals rules add` adds a rule with patterns of your own")
    }
}

impl From<ExportError> for CliError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Io(error) => error.into(),
            error => Self::from_error(&error),
        }
    }
}

impl From<ImportError> for CliError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Io(error) => error.into(),
            error => Self::from_error(&error),
        }
    }
}

// A run shares its error with everything that waits for it.
impl From<Arc<SessionError>> for CliError {
    fn from(error: Arc<SessionError>) -> Self {
        Self::from_error(&*error)
    }
}

impl From<MemoryError> for CliError {
    fn from(error: MemoryError) -> Self {
        let hint = match &error {
            MemoryError::Text(_) => Some("write a sentence or two; documents belong in files"),
            MemoryError::NoProject => Some("run the command in the directory of the project"),
            MemoryError::NoSession => Some("name the session with --session ID"),
            _ => None,
        };
        let is_usage = hint.is_some();
        let mut told = Self::from_error(&error);
        if let Some(hint) = hint {
            told = told.with_hint(hint);
        }
        if is_usage {
            told = told.with_exit(Exit::Usage);
        }
        told
    }
}

/// Implements `From` for errors that need no more than their chain of causes.
macro_rules! from_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::from_error(&error)
            }
        })*
    };
}

from_errors!(
    StoreError,
    DatabaseError,
    SessionError,
    SessionBuildError,
    DispatchError,
    BuildError,
    LedgerError,
    RuleError,
    serde_json::Error,
    toolgate::session::DeliverError,
    toolgate::tool::RegisterError,
    toolgate::tool::ViewError,
    toolgate::stack::StackError,
    toolgate::approval::KeyFileError,
);

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::value::{SessionId, Timestamp};

    #[test]
    fn the_stored_name_of_a_lease_holder_is_not_shown() {
        let name = "driver 3 in process 12+345 of 0f1e2d3c pid:[4026531836]";
        let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057"
            .parse()
            .expect("an id");
        let until = Timestamp::EPOCH;
        let held = StoreError::LeaseHeld {
            session,
            holder: name.into(),
            until,
            is_expired: false,
            fence: 7,
        };
        let foreign = DispatchError::Held {
            session,
            holder: "worker-9f2c".into(),
            until,
        };
        let own = DispatchError::Held {
            session,
            holder: name.into(),
            until,
        };
        for error in [CliError::from(held), foreign.into(), own.into()] {
            let said = error.to_string();
            assert!(
                !said.contains("driver 3") && !said.contains("worker-9f2c"),
                "{said}"
            );
            assert!(
                !said.contains("4026531836") && error.hint_text().is_some(),
                "{said}"
            );
            assert_eq!(error.exit_status(), Exit::SessionTaken);
        }
    }
}
