//! Runs a command in a shell, confined by the sandbox.

#[cfg(unix)]
pub(crate) mod options;
#[cfg(unix)]
mod output;
#[cfg(unix)]
mod pipes;
#[cfg(unix)]
mod report;
#[cfg(unix)]
pub(crate) mod sandbox;

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    process::Command,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    time::{Sleep, sleep, timeout},
};
use toolgate_core::{
    Annotations, Arguments, Context, ErrorCategory, Progress, Resource, Schema, SideEffect,
    StopConfirmation, Tool, ToolError, ToolKind, ToolOutput, ToolSpec, acting_file,
    parse_arguments,
};

use crate::{
    NetworkAccess, Sandbox, SandboxEnforcement, SandboxError, SandboxMode, ShellOptions,
    shell::{
        output::OutputBuffer,
        pipes::StdinFeed,
        report::{CommandReport, build_report, render_report},
        sandbox::{CommandEnd, CommandHandle, StartedCommand, acting_files::ActingFiles},
    },
};

/// The tool `run_shell`: runs a command and returns its output and exit code.
///
/// A command that fails is a normal result with an exit code. So is a command that times out: it is
/// stopped with all the processes it has started, and the result says so. Standard output and
/// standard error are one text, in the order in which they were written. The [`Sandbox`] decides
/// what the command may access; if it cannot be enforced, nothing runs.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_tools::{RunShell, ShellOptions};
/// # let dir = tempfile::tempdir()?;
/// # let workspace = dir.path();
/// let registry = Registry::new();
/// registry.register(RunShell::new(workspace, ShellOptions::default())?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunShell {
    sandbox: Sandbox,
    options: ShellOptions,
}

/// The arguments of the model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunShellInput {
    /// The command, as typed into a shell.
    command: String,
    /// The directory to run it in, below the workspace; the workspace itself if not given.
    cwd: Option<String>,
    /// The time limit in milliseconds.
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// The standard input of the command; empty if not given.
    stdin: Option<String>,
    /// Files that act later, such as .git/config or AGENTS.md, which the command has to change;
    /// relative to the workspace. They are read-only otherwise. Each call that names one needs
    /// approval.
    unlock_files: Option<Vec<String>>,
}

/// What is known of a command before it starts.
struct CommandSetting {
    acting: ActingFiles,
    enforced: SandboxEnforcement,
    cwd: PathBuf,
}

impl RunShell {
    /// Creates the tool for commands below `root`.
    ///
    /// # Errors
    ///
    /// Fails if `root` cannot be a workspace, or if a configured path does not exist.
    pub fn new(root: impl AsRef<Path>, options: ShellOptions) -> Result<Self, SandboxError> {
        Ok(Self {
            sandbox: Sandbox::new(root, &options)?,
            options,
        })
    }

    /// Creates the tool for commands in an existing sandbox.
    pub fn with_sandbox(sandbox: Sandbox, options: ShellOptions) -> Self {
        Self { sandbox, options }
    }

    /// Returns the sandbox that confines commands.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Checks everything that has to hold before the command starts.
    async fn prepare_setting(&self, input: &RunShellInput) -> Result<CommandSetting, ToolError> {
        let unlocked = self.resolve_unlocked(input.unlock_files.as_deref().unwrap_or_default())?;
        let sandbox = self.sandbox.clone();
        // The first check probes the kernel with child processes, which would block this thread.
        let look = move || {
            Sandbox::check();
            sandbox.find_acting_files(&unlocked)
        };
        let acting = tokio::task::spawn_blocking(look).await?;
        Ok(CommandSetting {
            acting,
            enforced: self.sandbox.enforcement().map_err(sandbox_tool_error)?,
            cwd: self.resolve_cwd(input.cwd.as_deref())?,
        })
    }

    async fn run_command(
        &self,
        input: RunShellInput,
        cx: &Context,
    ) -> Result<CommandReport, ToolError> {
        let CommandSetting {
            acting,
            enforced,
            cwd,
        } = self.prepare_setting(&input).await?;
        let limit = self.time_limit(input.timeout_ms, cx);
        let since = Instant::now();
        let (ours, output, errors) = pipes::output_pipe()?;
        let (stdin, feed) = pipes::input_pipe(input.stdin)?;
        let mut command = Command::new(&self.options.shell);
        command
            .arg("-c")
            .arg(&input.command)
            .stdin(stdin)
            .stdout(output)
            .stderr(errors);
        // If the call is dropped while the command starts, it is unknown whether it ran.
        let starting = cx.on_stop(|| StopConfirmation::Unconfirmed);
        let started = self.sandbox.start(command, &cwd, &acting).await;
        starting.unregister();
        let mut running = RunningCommand::new(started.map_err(sandbox_tool_error)?, cx);
        let mut reading = OutputReader {
            pipe: ours,
            kept: OutputBuffer::new(self.options.output_bytes),
            cx,
            shown: None,
        };
        let (ended, why) = running
            .watch_until_end(&mut reading, feed, limit, self.grace_period())
            .await?;
        let timed_out = match why {
            Some(CommandStopReason::Cancelled) => return Err(cancelled_error(&reading.kept)),
            Some(CommandStopReason::TimedOut) => true,
            None => false,
        };
        let report = build_report(ended, timed_out, reading.kept, since.elapsed(), enforced);
        let look = move || report.with_acting_files(&acting);
        Ok(tokio::task::spawn_blocking(look).await?)
    }

    /// Resolves the files that a call unlocks. Each has to be one that acts later by its very name:
    /// only about those does a policy ask.
    fn resolve_unlocked(&self, files: &[String]) -> Result<Vec<PathBuf>, ToolError> {
        let resolve = |file: &String| {
            let is_plain = |part| matches!(part, std::path::Component::Normal(_));
            let path = Path::new(file);
            let named =
                path.components().all(is_plain) && acting_file(&file.to_lowercase()).is_some();
            named.then(|| self.sandbox.root().join(path)).ok_or_else(|| {
                let text = format!(
                    "unlock_files: {file:?} is not the path of a file that acts later; omit it, or name one such as .git/config"
                );
                ToolError::new(text).with_category(ErrorCategory::InvalidInput)
            })
        };
        files.iter().map(resolve).collect()
    }

    /// Resolves the directory to run in; it must be below the workspace after following links.
    fn resolve_cwd(&self, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
        let root = self.sandbox.root();
        let Some(cwd) = cwd else {
            return Ok(root.to_owned());
        };
        let wrong = |why: &str| {
            let text =
                format!("cwd: {cwd:?} {why}; name a directory below the workspace, or omit cwd");
            ToolError::new(text).with_category(ErrorCategory::InvalidInput)
        };
        let real = root
            .join(cwd)
            .canonicalize()
            .map_err(|_| wrong("does not exist"))?;
        // A link that is swapped in after this check leads no further than the sandbox lets the
        // command go.
        if !real.starts_with(root) {
            Err(wrong("is outside the workspace"))
        } else if !real.is_dir() {
            Err(wrong("is not a directory"))
        } else {
            Ok(real)
        }
    }

    /// Returns the time limit of the command: the requested one, capped by the configuration.
    fn time_limit(&self, wanted: Option<u64>, cx: &Context) -> Duration {
        let wanted = wanted.map(Duration::from_millis);
        let own = wanted
            .unwrap_or(self.options.timeout.get())
            .min(self.options.longest_timeout.get());
        let Some(left) = cx.deadline.map(|deadline| deadline.since(cx.now())) else {
            return own;
        };
        // Earlier than the deadline of the call: stopping the command and reporting its output takes
        // time, and after the deadline a layer above would drop the call without the output.
        own.min(left.saturating_sub((self.grace_period() * 2).min(left / 10)))
    }

    fn grace_period(&self) -> Duration {
        self.options.grace.get()
    }
}

impl Tool for RunShell {
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new(
            "run_shell",
            describe_tool(&self.sandbox),
            Schema::for_type::<RunShellInput>(),
        );
        let mut annotations = Annotations::default()
            .with_kind(ToolKind::Execute)
            .with_idempotent(false);
        annotations.side_effect = Some(match (self.sandbox.mode, self.sandbox.network) {
            (SandboxMode::Required, NetworkAccess::Off | NetworkAccess::Loopback) => {
                SideEffect::ProcessExec
            }
            // Without an enforced sandbox there is no guarantee that it cannot reach the network.
            (SandboxMode::BestEffort | SandboxMode::Off, _) | (_, NetworkAccess::On) => {
                SideEffect::Network
            }
        });
        annotations.hints.destructive = Some(true);
        annotations.hints.open_world = Some(annotations.side_effect == Some(SideEffect::Network));
        annotations.long_running = Some("running a command".to_owned());
        // A command may touch any file, so the scheduler must not run it beside a file tool.
        let annotations = annotations.with_resource(Resource::workspace());
        spec.with_annotations(annotations)
            .with_output(Schema::for_type::<CommandReport>())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let report = self.run_command(parse_arguments(&arguments)?, &cx).await?;
        let text = render_report(&report);
        Ok(ToolOutput::from_value(report)?.with_text(text))
    }

    async fn rehearse(&self, arguments: Arguments, _: Context) -> Result<(), ToolError> {
        let input: RunShellInput = parse_arguments(&arguments)?;
        self.prepare_setting(&input).await.map(drop)
    }
}

/// Returns the description of the tool for the model.
fn describe_tool(sandbox: &Sandbox) -> String {
    let network = match sandbox.network {
        NetworkAccess::Off => "There is no network access.",
        NetworkAccess::Loopback => {
            "There is no network access except a private 127.0.0.1 that only this command can reach."
        }
        NetworkAccess::On => "The network is accessible.",
    };
    let files = match sandbox.mode {
        SandboxMode::Off => "",
        SandboxMode::Required | SandboxMode::BestEffort => {
            " Files can be written below the workspace and in $TMPDIR, which is emptied afterwards; elsewhere \
             \"Permission denied\" or \"Read-only file system\" is final. Files that act later (the configuration and \
             hooks of git, .github, .vscode, AGENTS.md, .envrc …) are read-only unless unlock_files names them, which \
             needs approval."
        }
    };
    format!(
        "Runs a command in a shell, in the workspace, and returns its output and exit code.{files} {network} No \
         process keeps running after the command has ended, not even in the background. Prompts are not answered: \
         pass flags such as --yes."
    )
}

/// A running command; dropping this kills it.
struct RunningCommand<'a> {
    started: StartedCommand,
    cx: &'a Context,
    stop: Option<toolgate_core::StopHandle>,
}

impl<'a> RunningCommand<'a> {
    /// The longest time that stopping a call blocks.
    const STOP_TIMEOUT: Duration = Duration::from_secs(1);

    fn new(started: StartedCommand, cx: &'a Context) -> Self {
        let leash = started.leash.clone();
        let stop = cx.on_stop(move || {
            if leash.kill_and_wait(Self::STOP_TIMEOUT) {
                StopConfirmation::Confirmed
            } else {
                StopConfirmation::Unconfirmed
            }
        });
        Self {
            started,
            cx,
            stop: Some(stop),
        }
    }

    /// Reads the output until the command and all its processes have ended or were killed.
    async fn watch_until_end(
        &mut self,
        reading: &mut OutputReader<'_>,
        feed: StdinFeed,
        limit: Duration,
        grace: Duration,
    ) -> Result<(CommandEnd, Option<CommandStopReason>), ToolError> {
        let patience = Box::pin(sleep(limit));
        let mut ladder = StopLadder {
            leash: self.started.leash.clone(),
            cx: self.cx,
            patience,
            grace,
            asked: false,
        };
        let (ended, why) = {
            // Drained until the end, also while stopping: a command that blocks on a full pipe could
            // not react to SIGTERM.
            let mut pipes =
                std::pin::pin!(async { tokio::join!(reading.read_to_end(), feed.write_text()).0 });
            let mut read = false;
            let mut why = None;
            loop {
                tokio::select! {
                    ended = &mut self.started.ended => break (ended, why),
                    done = &mut pipes, if !read => {
                        done.map_err(lost_error)?;
                        read = true;
                    }
                    // The first reason is reported; later steps only escalate.
                    step = ladder.take_next_step() => why = why.or(Some(step)),
                }
            }
        };
        let ended = ended.map_err(lost_error)?;
        // All processes have ended, so the pipe ends too. Without a sandbox one may have escaped and
        // still hold it, hence the timeout.
        if let Ok(read) = timeout(Self::STOP_TIMEOUT, reading.read_to_end()).await {
            read.map_err(lost_error)?;
        }
        if let Some(stop) = self.stop.take() {
            stop.unregister();
        }
        Ok((ended, why))
    }
}

/// The escalation for a command that has to end: it is asked to terminate, then killed.
struct StopLadder<'a> {
    leash: CommandHandle,
    cx: &'a Context,
    patience: Pin<Box<Sleep>>,
    grace: Duration,
    asked: bool,
}

impl StopLadder<'_> {
    /// Waits until there is a reason for the next step, and takes it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the timer is kept and no step is taken before it returns.
    async fn take_next_step(&mut self) -> CommandStopReason {
        let why = tokio::select! {
            () = &mut self.patience => CommandStopReason::TimedOut,
            // Only the first time: a cancellation stays set and would end the grace period at once.
            () = self.cx.cancelled(), if !self.asked => CommandStopReason::Cancelled,
        };
        if self.asked {
            self.leash.kill()
        } else {
            self.leash.terminate()
        }
        self.asked = true;
        self.patience
            .as_mut()
            .reset(tokio::time::Instant::now() + self.grace);
        why
    }
}

/// The reason a command was stopped.
#[derive(Clone, Copy)]
enum CommandStopReason {
    TimedOut,
    Cancelled,
}

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        // An error occurred or the call was dropped. This has no effect on a command that has ended.
        self.started.leash.kill();
    }
}

/// Collects the output and reports its last line as progress.
struct OutputReader<'a> {
    pipe: Receiver,
    kept: OutputBuffer,
    cx: &'a Context,
    shown: Option<Instant>,
}

impl OutputReader<'_> {
    const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

    async fn read_to_end(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.pipe.read(&mut buffer).await? {
                0 => return Ok(()),
                count => self.push_output(&buffer[..count]),
            }
        }
    }

    fn push_output(&mut self, bytes: &[u8]) {
        self.kept.push(bytes);
        if self
            .shown
            .is_some_and(|shown| shown.elapsed() < Self::PROGRESS_INTERVAL)
        {
            return;
        }
        self.shown = Some(Instant::now());
        let line = self.kept.last_line();
        if !line.is_empty() {
            self.cx.report_progress(Progress {
                current: Some(self.kept.total_bytes()),
                ..Progress::busy().with_message(line)
            });
        }
    }
}

fn cancelled_error(kept: &OutputBuffer) -> ToolError {
    let text = match kept.last_line() {
        line if line.is_empty() => {
            "the command was cancelled and stopped; it had printed nothing".to_owned()
        }
        line => {
            format!("the command was cancelled and stopped; the last line it printed was: {line}")
        }
    };
    ToolError::new(text).with_category(ErrorCategory::Cancelled)
}

/// Converts the error: the model learns that commands cannot run, the operator what to do about it.
fn sandbox_tool_error(error: SandboxError) -> ToolError {
    let detail = join_causes(&error);
    match error {
        SandboxError::Missing { .. } => {
            ToolError::new("commands cannot be run here, because this system cannot sandbox them; continue without them")
                .with_category(ErrorCategory::Permission)
                .with_operator_detail(format!(
                    "{detail} (hint: `sandbox = \"best-effort\"` runs commands with the restrictions that are available, \
                     `sandbox = \"off\"` without any)"
                ))
        }
        _ => ToolError::new("the command could not be started").with_operator_detail(detail),
    }
}

fn join_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", join_causes(source)),
        None => error.to_string(),
    }
}

/// Creates the error for a command whose outcome is unknown: it may have run to any point.
fn lost_error(error: impl std::error::Error) -> ToolError {
    ToolError::new("contact with the command was lost and it was stopped; its outcome is unknown")
        .with_category(ErrorCategory::Unknown)
        .with_operator_detail(error.to_string())
}
