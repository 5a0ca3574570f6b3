//! What a person is told when a command could not do its work: the whole chain of causes, and what to do next.

use std::{error::Error, fmt, io};

use toolgate::{
    ConfigError, DispatchError, SessionBuildError, SessionError, StoreError,
    layers::{BuildError, LedgerError, RuleError},
    models::SetupError,
    store::DatabaseError,
};

use crate::Exit;

/// Why a command could not do its work.
#[derive(Debug)]
pub struct CliError {
    problem: String,
    causes: Vec<String>,
    hint: Option<String>,
    exit: Exit,
}

impl CliError {
    /// A problem in a sentence.
    pub fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            causes: Vec::new(),
            hint: None,
            exit: Exit::Failed,
        }
    }

    /// A problem with the command line or the configuration.
    pub fn usage(problem: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(problem)
        }
    }

    /// What an error says, with all that it says about its causes.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            let said = cause.to_string();
            // Many libraries repeat their cause in their own words.
            let before = causes.last().cloned().unwrap_or_else(|| error.to_string());
            if !said.contains(&before) && !before.contains(&said) {
                causes.push(said);
            }
            next = cause.source();
        }
        Self {
            causes,
            hint: crate::hints::hint(error),
            ..Self::new(error.to_string())
        }
    }

    /// Says what could not be done, in front of what went wrong.
    pub fn while_doing(mut self, what: impl Into<String>) -> Self {
        self.causes
            .insert(0, std::mem::replace(&mut self.problem, what.into()));
        self
    }

    /// Says what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says how the program ends.
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// How the program ends.
    pub fn code(&self) -> Exit {
        self.exit
    }

    /// What to do next, if there is something.
    pub fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether whoever reads our output has gone away: no reason to complain.
    pub fn is_broken_pipe(&self) -> bool {
        self.problem == BROKEN_PIPE
    }
}

const BROKEN_PIPE: &str = "nobody reads the output any more";

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
            io::ErrorKind::BrokenPipe => Self::new(BROKEN_PIPE).exit(Exit::Done),
            _ => Self::of(&error),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let hint = error
            .hint()
            .unwrap_or("`toolgate config schema` says what each option takes");
        Self {
            hint: Some(hint.to_owned()),
            exit: Exit::Usage,
            ..Self::of(&error)
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
            ..Self::of(&error)
        }
    }
}

/// Errors whose chain says it all.
macro_rules! from_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::of(&error)
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
    toolgate::PostError,
    toolgate::RegisterError,
    toolgate::ViewError,
    toolgate::StackError,
    toolgate::KeyFileError,
);
