//! How the program ends, as a number for scripts.

use std::process::ExitCode;

use toolgate::{RunEnd, Status};

/// How a command ended. The numbers are part of the interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for is done.
    Done,
    /// Something went wrong.
    Failed,
    /// The command line or the configuration is not understood.
    Usage,
    /// Somebody has to decide before it goes on.
    Suspended,
    /// There is no budget left.
    Budget,
    /// Policy or a person refused the call.
    Refused,
    /// Stopped before it was complete: rounds used up, or going round in circles.
    Incomplete,
    /// Receipts are not what they were.
    Tampered,
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

impl Exit {
    /// Every way to end, for documentation.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Suspended,
        Self::Budget,
        Self::Refused,
        Self::Incomplete,
        Self::Tampered,
        Self::Interrupted,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Suspended => 3,
            Self::Budget => 4,
            Self::Refused => 5,
            Self::Incomplete => 6,
            Self::Tampered => 7,
            Self::Interrupted => 130,
        }
    }

    /// What it means, in a line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "something went wrong; the message says what",
            Self::Usage => "the command line or the configuration is not understood",
            Self::Suspended => {
                "stopped until somebody decides; `toolgate approvals list` shows on what"
            }
            Self::Budget => "a budget is used up",
            Self::Refused => "the call was refused by policy or by a person",
            Self::Incomplete => {
                "stopped before it was complete: rounds used up, or going round in circles"
            }
            Self::Tampered => "receipts are not what they were",
            Self::Interrupted => "interrupted; what was done is saved, and `--resume` goes on",
        }
    }
}

impl From<RunEnd> for Exit {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Completed => Self::Done,
            RunEnd::Suspended => Self::Suspended,
            RunEnd::MaxIterations | RunEnd::LoopGuard => Self::Incomplete,
            RunEnd::BudgetExceeded => Self::Budget,
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
            Status::BudgetExceeded => Self::Budget,
            Status::Denied
            | Status::Expired
            | Status::Blocked
            | Status::OutOfScope
            | Status::RateLimited
            | Status::LoopGuard => Self::Refused,
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
    fn each_way_to_end_has_a_number_of_its_own() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        codes.dedup();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 130]);
    }

    #[test]
    fn a_call_that_was_refused_never_ends_as_if_it_was_done() {
        for status in Status::ALL.into_iter().filter(|status| status.is_refusal()) {
            assert!(
                matches!(Exit::from(status), Exit::Refused | Exit::Budget),
                "{status}"
            );
        }
    }
}
