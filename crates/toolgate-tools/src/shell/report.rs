//! The report of a command: for programs as a value, for the model as text.

use std::{borrow::Cow, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    SandboxEnforcement,
    shell::{
        output::{OutputBuffer, OutputText},
        sandbox::{CommandEnd, acting_files::ActingFiles},
    },
};

/// The result of a command.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CommandReport {
    /// The output of the command, standard output and standard error together.
    output: String,
    /// The exit code, unless the command was terminated by a signal.
    exit_code: Option<i32>,
    /// The signal that terminated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// True if it was stopped because it timed out.
    timed_out: bool,
    /// The number of bytes it printed.
    output_bytes: u64,
    /// The number of bytes that the output omits.
    omitted_bytes: u64,
    /// True if all of the output was UTF-8.
    utf8: bool,
    /// The number of processes it left running, which were killed.
    left_running: u32,
    /// Files that act later and are read-only, which the output of a failed command names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read_only_files: Vec<String>,
    /// Files that act later and were created or changed while the command ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    acting_files: Vec<String>,
    /// The duration in milliseconds.
    duration_ms: u64,
    /// The restrictions that applied to it.
    sandbox: SandboxEnforcement,
}

/// Builds the report of a command that has ended.
pub(super) fn build_report(
    ended: CommandEnd,
    timed_out: bool,
    kept: OutputBuffer,
    took: Duration,
    sandbox: SandboxEnforcement,
) -> CommandReport {
    let output_bytes = kept.total_bytes();
    let OutputText {
        text,
        omitted,
        is_utf8,
    } = kept.into_text();
    let (exit_code, signal) = exit_code_or_signal(ended.status);
    CommandReport {
        output: text,
        exit_code,
        signal,
        timed_out,
        output_bytes,
        omitted_bytes: omitted,
        utf8: is_utf8,
        left_running: ended.left,
        read_only_files: Vec::new(),
        acting_files: Vec::new(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        sandbox,
    }
}

impl CommandReport {
    /// Adds what the command has to do with files that act later.
    pub(super) fn with_acting_files(mut self, acting: &ActingFiles) -> Self {
        // The errors of the kernel for writing to a mount that is read-only, and for replacing it.
        let is_blocked = ["Read-only file system", "Device or resource busy"]
            .iter()
            .any(|text| self.output.contains(text));
        if is_blocked && self.exit_code != Some(0) {
            self.read_only_files = acting.list_named(&self.output);
        }
        self.acting_files = acting.list_changes();
        self
    }
}

/// Returns the exit code or the signal; without a status the command was killed with the guard.
fn exit_code_or_signal(status: Option<ExitStatus>) -> (Option<i32>, Option<i32>) {
    match status {
        Some(status) => (status.code(), status.signal()),
        None => (None, Some(rustix::process::Signal::KILL.as_raw())),
    }
}

/// Renders the report for the model.
pub(super) fn render_report(report: &CommandReport) -> String {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    match report.output.trim_end() {
        "" => lines.push("[no output]".into()),
        output => lines.push(output.into()),
    }
    let seconds = report.duration_ms as f64 / 1000.0;
    match (report.timed_out, report.exit_code, report.signal) {
        // First: a stopped command also has an exit code or a signal, which would read as its own.
        (true, _, _) => {
            lines.push(format!("[stopped: the time limit was reached; {seconds:.1} s]").into());
        }
        (false, Some(code), _) => lines.push(format!("[exit code {code}]").into()),
        (false, None, Some(signal)) => {
            lines.push(format!("[terminated by signal {signal}]").into());
        }
        (false, None, None) => lines.push("[ended]".into()),
    }
    if !report.utf8 {
        lines.push("[parts of the output are not UTF-8 and were replaced]".into());
    }
    match report.left_running {
        0 => {}
        1 => lines.push("[1 process that was left running was killed]".into()),
        many => {
            lines.push(format!("[{many} processes that were left running were killed]").into());
        }
    }
    if !report.read_only_files.is_empty() {
        let files = report.read_only_files.join(", ");
        lines.push(
            format!(
                "[read-only, because they act later outside this sandbox: {files}; to change them, call again with \
                 them in unlock_files, which needs approval]"
            )
            .into(),
        );
    }
    if !report.acting_files.is_empty() {
        let files = report.acting_files.join(", ");
        lines.push(
            format!("[created or changed files that act later outside this sandbox: {files}; tell the user]")
                .into(),
        );
    }
    lines.join("\n")
}
