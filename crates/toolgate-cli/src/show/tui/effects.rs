//! Carries out the effects of the update function in tasks of their own, and reports back.

mod memory;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::mpsc, task::JoinHandle};
use toolgate::{
    Decision, Event, Gate, RunEnd, Session,
    approval::{AdmittedDecision, ApprovalRequest, ApprovalRequestRef},
    archive::{ExportFormat, ExportOptions},
    layers::{StandingRule, ToastLevel, ToastManager},
    session::{RunOptions, SessionError},
    value::{CallId, Clock, SystemClock, Timestamp},
};

use super::{SessionHit, UiEffect, UiMessage, files, opener, session_hits};
use crate::{
    CliError,
    commands::{import::import_one_file, sessions::parse_title},
    env::{signals, style},
    show::{
        entitlement::{describe_counted, describe_rejection},
        rule_proposal::describe_matches,
        screen::SessionScreen,
        stored_requests::{load_request, load_shown, rehearse_call},
        whole_texts::WholeTexts,
    },
};

/// The services that effects need.
#[derive(Clone)]
pub(super) struct EffectRunner {
    pub(super) gate: Arc<Gate>,
    pub(super) session: Session,
    pub(super) toasts: ToastManager,
    pub(super) back: mpsc::UnboundedSender<UiMessage>,
    /// The workspace, also for saved files.
    pub(super) dir: PathBuf,
    /// True once the program is about to end.
    pub(super) leaving: Arc<AtomicBool>,
}

impl EffectRunner {
    /// Sends a message to the model: in the current run, or in a new one.
    pub(super) fn send_message(&self, text: String, run: &mut Option<JoinHandle<()>>) {
        let under_way = run.as_ref().is_some_and(|run| !run.is_finished());
        let this = self.clone();
        let before = run.take();
        *run = Some(tokio::spawn(async move {
            // The run may end between the check and this call, which then fails.
            if under_way && this.session.send_message(text.as_str()).await.is_ok() {
                return wait_for_run(before).await;
            }
            // The run ended before it took the message, so the message starts the next run.
            wait_for_run(before).await;
            if this.announce_run() {
                // Who writes something else instead of deciding gives up what is undecided.
                let options = RunOptions::new().abandon_pending();
                let report = this.session.run_with(text.as_str(), options).await;
                this.finish_run(report);
            }
        }));
    }

    /// Resumes a run that was stopped.
    pub(super) fn resume_run(&self, run: &mut Option<JoinHandle<()>>) {
        let this = self.clone();
        let before = run.take();
        *run = Some(tokio::spawn(async move {
            wait_for_run(before).await;
            if this.announce_run() {
                let report = this.session.resume().await;
                this.finish_run(report);
            }
        }));
    }

    /// Announces a run, unless the program is about to end.
    fn announce_run(&self) -> bool {
        !self.leaving.load(Ordering::SeqCst) && self.back.send(UiMessage::RunStarted).is_ok()
    }

    /// Lets no new run start, and stops the current one.
    pub(super) fn stop_runs(&self) {
        // Before the interrupt: a message that waits for the run to end must not start another one.
        self.leaving.store(true, Ordering::SeqCst);
        self.session.suspend();
    }

    /// Stops what the current run does. Requests stay pending until they are decided, or the next
    /// message gives them up.
    fn stop_run(&self) {
        self.session.suspend();
    }

    fn finish_run(&self, report: Result<toolgate::RunReport, SessionError>) {
        match report {
            Ok(report) if report.end == RunEnd::Failed => {
                let why = report
                    .error
                    .map(|error| CliError::from_error(&error).to_string());
                self.show_toast(
                    ToastLevel::Error,
                    why.unwrap_or_else(|| "the run failed".to_owned()),
                );
            }
            Ok(_) => {}
            Err(error) => self.show_toast(ToastLevel::Error, CliError::from(error).to_string()),
        }
        let _ = self.back.send(UiMessage::RunEnded);
    }

    /// Carries out an effect that needs neither the terminal nor the run.
    pub(super) fn run_effect(&self, effect: UiEffect) {
        let this = self.clone();
        tokio::spawn(async move {
            match effect {
                UiEffect::Decide(question, decision) => this.decide(question, decision).await,
                UiEffect::Rule(rule, question, decision) => {
                    this.store_rule(*rule, question, decision).await
                }
                UiEffect::Preview(rule) => this.preview_rule(rule).await,
                UiEffect::Explain(question) => this.explain_call(question).await,
                UiEffect::Save(format) => this.export_session(format).await,
                UiEffect::Tell(level, text) => this.show_toast(level, text),
                UiEffect::Dismiss(toast) => this.toasts.dismiss(toast),
                UiEffect::Interrupt => this.stop_run(),
                UiEffect::CancelCall(call) => this.cancel_call(call),
                UiEffect::FindFiles(part) => this.find_files(part).await,
                UiEffect::ListSessions => this.list_sessions().await,
                UiEffect::SearchSessions(query) => this.search_sessions(&query).await,
                UiEffect::ShowHit(hit) => this.show_hit(&hit).await,
                UiEffect::Rename(title) => this.rename_session(&title).await,
                UiEffect::Import(path) => this.import_file(&path).await,
                UiEffect::Memory(argument) => this.show_memories(argument).await,
                UiEffect::Suspend => signals::raise_suspend(),
                UiEffect::Say(_)
                | UiEffect::Resume
                | UiEffect::Quit
                | UiEffect::Change(_)
                | UiEffect::Edit(..)
                | UiEffect::Copy(_) => {}
            }
        });
    }

    async fn find_files(&self, part: String) {
        match files::find_files(&self.gate, &self.dir, &part).await {
            Ok(found) => {
                let _ = self.back.send(UiMessage::FilesFound(part, found));
            }
            Err(error) => self.show_toast(ToastLevel::Error, error.to_string()),
        }
    }

    async fn list_sessions(&self) {
        let listed = opener::list_sessions(&self.gate, &self.dir, self.session.id()).await;
        let listed = listed.map_err(|error| error.to_string());
        let _ = self.back.send(UiMessage::SessionsListed(listed));
    }

    async fn search_sessions(&self, query: &str) {
        let found = session_hits::search_sessions(&self.gate, &self.dir, query).await;
        let found = found.map_err(|error| describe_problem(&error));
        let _ = self.back.send(UiMessage::HitsFound(found));
    }

    async fn show_hit(&self, hit: &SessionHit) {
        let shown = session_hits::show_hit(&self.gate, hit).await;
        let shown = shown.map_err(|error| describe_problem(&error));
        let _ = self.back.send(UiMessage::HitShown(shown));
    }

    fn cancel_call(&self, call: CallId) {
        if !self.session.cancel_call(call) {
            let text = "the call is not running in this session";
            self.show_toast(ToastLevel::Info, text.to_owned());
        }
    }

    async fn decide(&self, question: ApprovalRequestRef, decision: Decision) {
        let decided = self.session.decide(question, decision).await;
        if let Ok(AdmittedDecision::Counted { missing }) = decided {
            let service = self.gate.approvals();
            let counted = describe_counted(&service, question.approval_id, missing).await;
            self.show_toast(ToastLevel::Info, counted);
        }
        let decided = decided
            .map(drop)
            .map_err(|error| describe_rejection(&error));
        let _ = self
            .back
            .send(UiMessage::Decided(question.approval_id.call_id(), decided));
    }

    async fn store_rule(
        &self,
        rule: StandingRule,
        question: ApprovalRequestRef,
        decision: Decision,
    ) {
        // The rule comes first: if it cannot be stored, the request stays pending.
        match self.gate.standing_rules().add(rule).await {
            Ok(_) => {
                self.show_toast(
                    ToastLevel::Success,
                    "the rule is stored; `toolgate approvals rules` lists it".to_owned(),
                );
                self.decide(question, decision).await;
            }
            Err(error) => {
                let why = Err(CliError::from(error).to_string());
                let _ = self
                    .back
                    .send(UiMessage::Decided(question.approval_id.call_id(), why));
            }
        }
    }

    async fn preview_rule(&self, rule: Box<StandingRule>) {
        let matches = self.gate.standing_rules().preview(&rule).await;
        let matches = matches
            .map(|calls| describe_matches(&calls))
            .map_err(|error| error.to_string());
        let _ = self.back.send(UiMessage::Previewed(rule, matches));
    }

    async fn explain_call(&self, question: ApprovalRequestRef) {
        let text = match self.explanation_text(question).await {
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        let _ = self.back.send(UiMessage::Explained(text));
    }

    async fn explanation_text(&self, question: ApprovalRequestRef) -> Result<String, CliError> {
        let request = self.load_request(question).await?;
        let seed = rehearse_call(&self.gate, &self.session, &request, &request.arguments)?;
        let explained = toolgate::layers::explain(self.gate.stack(), seed).await;
        Ok(explained.to_string())
    }

    /// Loads the stored request: the one on the screen is redacted.
    pub(super) async fn load_request(
        &self,
        question: ApprovalRequestRef,
    ) -> Result<Arc<ApprovalRequest>, CliError> {
        load_request(&self.gate.approvals(), question.approval_id).await
    }

    /// Returns the event with the whole text of its message.
    pub(super) async fn complete_event(&self, event: Arc<Event>) -> Result<Arc<Event>, CliError> {
        let whole = WholeTexts::new(self.gate.store(), &self.gate);
        Ok(whole.complete(event).await?)
    }

    /// Loads what an approver sees of the requests that came up.
    pub(super) async fn load_shown(&self, screen: &SessionScreen) -> Vec<UiMessage> {
        let loaded = load_shown(screen, &self.gate.approvals()).await;
        let message = |(call, generation, shown)| UiMessage::Shown(call, generation, shown);
        loaded.into_iter().map(message).collect()
    }

    /// Writes the session and those of its agents to a new file, redacted.
    async fn export_session(&self, format: ExportFormat) {
        let name = file_name(&self.session, format);
        let options = ExportOptions {
            format,
            ..ExportOptions::default()
        };
        let mut text = Vec::new();
        let exporter = self.gate.exporter();
        let sessions = [self.session.id()];
        let done = exporter.export(&sessions, &options, &mut text).await;
        let written = match done {
            Ok(_) => {
                write_new_file(&self.dir.join(&name), &text).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(()) => self.show_toast(ToastLevel::Success, format!("written to {name}")),
            Err(error) => self.show_toast(
                ToastLevel::Error,
                format!("{name} could not be written: {error}"),
            ),
        }
    }

    async fn rename_session(&self, title: &str) {
        let renamed = async {
            let title = parse_title(title, &self.gate)?;
            let store = self.gate.store();
            store
                .rename_session(self.session.id(), title.clone())
                .await?;
            Ok::<_, CliError>(style::escape_controls(title.as_str()))
        };
        match renamed.await {
            Ok(title) => self.show_toast(ToastLevel::Success, format!("renamed: {title}")),
            Err(error) => self.show_toast(ToastLevel::Error, describe_problem(&error)),
        }
    }

    async fn import_file(&self, path: &str) {
        match import_one_file(&self.gate, &self.dir.join(path)).await {
            Ok(text) => self.show_toast(ToastLevel::Success, text),
            Err(error) => {
                let path = style::escape_controls(path);
                let why = describe_problem(&error);
                self.show_toast(
                    ToastLevel::Error,
                    format!("{path} cannot be imported: {why}"),
                );
            }
        }
    }

    /// Shows a toast.
    pub(super) fn show_toast(&self, level: ToastLevel, text: String) {
        self.toasts.show(toolgate::layers::Toast::new(
            level,
            "chat",
            text,
            current_time(),
        ));
    }
}

/// Returns an error with its hint in one text.
pub(super) fn describe_problem(error: &CliError) -> String {
    match error.hint_text() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

async fn wait_for_run(before: Option<JoinHandle<()>>) {
    if let Some(before) = before {
        // A run that panicked has ended as well.
        let _ = before.await;
    }
}

/// Writes a file that does not exist yet: a file of the user is never replaced.
fn write_new_file(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    file?.write_all(text)
}

/// Returns the name for a file with the session.
fn file_name(session: &Session, format: ExportFormat) -> String {
    let id = session.id().to_string();
    let short = id.rsplit('-').next().unwrap_or(&id);
    format!(
        "toolgate-{short}-{}.{}",
        current_time().as_micros() / 1_000_000,
        format.extension()
    )
}

pub(crate) fn current_time() -> Timestamp {
    SystemClock::new().now()
}
