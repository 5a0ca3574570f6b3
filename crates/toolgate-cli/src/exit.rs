//! The exit codes of the program, for scripts.

use std::process::ExitCode;

use toolgate::{RunEnd, Status};

/// The end of a command. The numbers are part of the interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command completed.
    Done,
    /// The command failed.
    Failed,
    /// The command line or the configuration is invalid.
    Usage,
    /// The run is suspended until an approver decides.
    Suspended,
    /// A budget limit was reached.
    BudgetReached,
    /// Policy blocked the call, or a person denied it.
    NotAllowed,
    /// The run stopped early: iteration limit or deadline reached, or loop detected.
    Incomplete,
    /// The verification of receipts failed.
    VerificationFailed,
    /// Receipts are intact, and no signature confirms any of them.
    Unsigned,
    /// The store failed.
    StoreFailed,
    /// Another process drives the session.
    SessionTaken,
    /// The terminal was closed.
    HungUp,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The reader of the output closed it before the run was complete.
    OutputClosed,
    /// The system asked the program to end.
    Terminated,
}

impl Exit {
    /// All variants, for documentation.
    pub const ALL: [Self; 15] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Suspended,
        Self::BudgetReached,
        Self::NotAllowed,
        Self::Incomplete,
        Self::VerificationFailed,
        Self::Unsigned,
        Self::StoreFailed,
        Self::SessionTaken,
        Self::HungUp,
        Self::Interrupted,
        Self::OutputClosed,
        Self::Terminated,
    ];

    /// Returns the exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Suspended => 3,
            Self::BudgetReached => 4,
            Self::NotAllowed => 5,
            Self::Incomplete => 6,
            Self::VerificationFailed => 7,
            Self::Unsigned => 8,
            Self::StoreFailed => 10,
            Self::SessionTaken => 11,
            // As a shell reports a program that a signal has ended: 128 plus the signal.
            Self::HungUp => 129,
            Self::Interrupted => 130,
            Self::OutputClosed => 141,
            Self::Terminated => 143,
        }
    }

    /// Returns the meaning in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed; the error message gives the reason",
            Self::Usage => "the command line or the configuration is invalid",
            Self::Suspended => {
                "suspended until an approver decides; `toolgate approvals list` shows the requests"
            }
            Self::BudgetReached => "a budget limit was reached",
            Self::NotAllowed => "the call was blocked by policy or denied by a person",
            Self::Incomplete => {
                "stopped early: iteration limit or deadline reached, or loop detected"
            }
            Self::VerificationFailed => {
                "the verification of receipts failed, or a restored backup is not accepted yet"
            }
            Self::Unsigned => "the receipts are consistent, but no signature confirms them",
            Self::StoreFailed => {
                "the store failed: full, locked, deleted, read-only or out of reach; what was stored before can be resumed"
            }
            Self::SessionTaken => "another process drives the session",
            Self::HungUp => {
                "the terminal was closed (SIGHUP); the session is saved, and `--resume` continues it"
            }
            Self::Interrupted => {
                "interrupted (SIGINT, Ctrl-C); the session is saved, and `--resume` continues it"
            }
            Self::OutputClosed => {
                "the reader of the output closed the pipe, and the run was stopped; the session is saved, and `--resume` continues it"
            }
            Self::Terminated => {
                "terminated (SIGTERM); the session is saved, and `--resume` continues it"
            }
        }
    }
}

impl From<RunEnd> for Exit {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Completed => Self::Done,
            RunEnd::Suspended => Self::Suspended,
            RunEnd::MaxIterations | RunEnd::LoopGuard | RunEnd::Deadline => Self::Incomplete,
            RunEnd::BudgetExceeded => Self::BudgetReached,
            RunEnd::Cancelled => Self::Interrupted,
            RunEnd::Failed => Self::Failed,
        }
    }
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok | Status::DryRun => Self::Done,
            Status::ToolNotFound | Status::SchemaViolation => Self::Usage,
            Status::BudgetExceeded => Self::BudgetReached,
            Status::Denied
            | Status::Expired
            | Status::Blocked
            | Status::OutOfScope
            | Status::RateLimited
            | Status::LoopGuard => Self::NotAllowed,
            Status::Cancelled => Self::Interrupted,
            Status::ExecutorError
            | Status::Timeout
            | Status::OutcomeUnknown
            | Status::Redacted
            | Status::Exception
            | Status::LayerException => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_code() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        codes.dedup();
        assert_eq!(
            codes,
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 129, 130, 141, 143]
        );
    }

    #[test]
    fn a_blocked_or_denied_call_never_exits_as_done() {
        for status in Status::ALL.into_iter().filter(|status| status.is_refusal()) {
            assert!(
                matches!(Exit::from(status), Exit::NotAllowed | Exit::BudgetReached),
                "{status}"
            );
        }
    }
}
