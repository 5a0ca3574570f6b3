//! Carries out what the update function wants done, each beside the UI, and reports back what came of it.

use std::{
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::mpsc, task::JoinHandle};
use toolgate::{
    ApprovalState, Clock, Decision, Question, RunEnd, Session, SessionError, SystemClock,
    Timestamp, ToolName, ToolRequest, View,
    layers::{AllowRule, MatchedCall, RuleBook, ToastLevel, ToastManager},
};

use super::{Effect, Msg};
use crate::{CliError, Gate};

/// What it takes to carry out effects.
#[derive(Clone)]
pub(super) struct Carrier {
    pub(super) gate: Arc<Gate>,
    pub(super) session: Session,
    pub(super) toasts: ToastManager,
    pub(super) back: mpsc::UnboundedSender<Msg>,
    /// Where files go that somebody saves.
    pub(super) dir: PathBuf,
    /// Whether the program is about to end.
    pub(super) leaving: Arc<AtomicBool>,
}

impl Carrier {
    /// Says something to the model: in the run that is under way, or in a new one.
    pub(super) fn say(&self, text: String, run: &mut Option<JoinHandle<()>>) {
        let under_way = run.as_ref().is_some_and(|run| !run.is_finished());
        let (this, before) = (self.clone(), run.take());
        *run = Some(tokio::spawn(async move {
            if under_way && this.session.say(text.as_str()).await.is_ok() {
                return wait_for(before).await;
            }
            // The run ended in the meantime and took no notice: this begins the next one.
            wait_for(before).await;
            if this.begin() {
                let report = this.session.run(text.as_str()).await;
                this.over(report);
            }
        }));
    }

    /// Goes on with a run that was stopped.
    pub(super) fn go_on(&self, run: &mut Option<JoinHandle<()>>) {
        let (this, before) = (self.clone(), run.take());
        *run = Some(tokio::spawn(async move {
            wait_for(before).await;
            if this.begin() {
                let report = this.session.resume().await;
                this.over(report);
            }
        }));
    }

    /// Says that a run begins, unless the program is about to end.
    fn begin(&self) -> bool {
        !self.leaving.load(Ordering::SeqCst) && self.back.send(Msg::RunBegan).is_ok()
    }

    /// Lets no run begin any more, and stops the one that is under way.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.session.interrupt();
    }

    fn over(&self, report: Result<toolgate::RunReport, SessionError>) {
        match report {
            Ok(report) if report.end == RunEnd::Failed => {
                let why = report.error.map(|error| CliError::of(&error).to_string());
                self.tell(
                    ToastLevel::Error,
                    why.unwrap_or_else(|| "the run failed".to_owned()),
                );
            }
            Ok(_) => {}
            Err(error) => self.tell(ToastLevel::Error, CliError::from(error).to_string()),
        }
        let _ = self.back.send(Msg::RunOver);
    }

    /// Carries out what needs neither the terminal nor the run.
    pub(super) fn carry(&self, effect: Effect) {
        let this = self.clone();
        tokio::spawn(async move {
            match effect {
                Effect::Decide(question, decision) => this.decide(question, decision).await,
                Effect::Rule(rule, question, decision) => {
                    this.keep(*rule, question, decision).await
                }
                Effect::Preview(rule) => this.preview(*rule).await,
                Effect::Explain(tool, arguments) => this.explain(tool, arguments).await,
                Effect::Save(text) => this.save(&text),
                Effect::Tell(level, text) => this.tell(level, text),
                Effect::Dismiss(toast) => this.toasts.dismiss(toast),
                Effect::Interrupt => drop(this.session.interrupt()),
                Effect::Say(_)
                | Effect::GoOn
                | Effect::Quit
                | Effect::Edit(..)
                | Effect::Copy(_) => {}
            }
        });
    }

    async fn decide(&self, question: Question, decision: Decision) {
        let decided = self.session.decide(question, decision).await;
        let decided = decided
            .map(drop)
            .map_err(|error| CliError::from(error).to_string());
        let _ = self
            .back
            .send(Msg::Decided(question.approval_id.call(), decided));
    }

    async fn keep(&self, rule: AllowRule, question: Question, decision: Decision) {
        match self.book().add(rule).await {
            Ok(()) => {
                self.tell(
                    ToastLevel::Success,
                    "the rule holds; `toolgate approvals rules` lists it".to_owned(),
                );
                self.decide(question, decision).await;
            }
            Err(error) => {
                let why = Err(CliError::from(error).to_string());
                let _ = self
                    .back
                    .send(Msg::Decided(question.approval_id.call(), why));
            }
        }
    }

    async fn preview(&self, rule: AllowRule) {
        let matches = self.book().preview(&rule).await;
        let line =
            |call: &MatchedCall| format!("{} {} {}", call.asked_at, call.tool, became(call.state));
        let matches = matches
            .map(|calls| calls.iter().map(line).collect())
            .map_err(|error| error.to_string());
        let _ = self.back.send(Msg::Previewed(rule.id, matches));
    }

    fn book(&self) -> RuleBook {
        self.gate
            .parts
            .get()
            .unwrap_or_else(|| RuleBook::new(self.gate.store.clone()))
    }

    async fn explain(&self, tool: ToolName, arguments: toolgate::Arguments) {
        let request = ToolRequest {
            provider_call_id: "explain".to_owned(),
            tool: tool.to_string(),
            arguments: toolgate::RawArguments::Text(
                serde_json::to_string(arguments.as_map()).unwrap_or_default(),
            ),
        };
        let text = match View::under(&self.gate.registry, &self.gate.stack) {
            Ok(view) => {
                let seed = self.session.dispatcher().rehearsal(&view, &request);
                toolgate::explain(&self.gate.stack, seed).await.to_string()
            }
            Err(error) => CliError::from(error).to_string(),
        };
        let _ = self.back.send(Msg::Explained(text));
    }

    fn save(&self, text: &str) {
        let name = file_name(&self.session);
        let path = self.dir.join(&name);
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path);
        match written.and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => self.tell(ToastLevel::Success, format!("written to {name}")),
            Err(error) => self.tell(
                ToastLevel::Error,
                format!("{name} could not be written: {error}"),
            ),
        }
    }

    /// Shows a message for a while.
    pub(super) fn tell(&self, level: ToastLevel, text: String) {
        self.toasts
            .show(toolgate::layers::Toast::new(level, "chat", text, now()));
    }
}

/// What became of a question, in a word.
fn became(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "waits",
        ApprovalState::Answered => "answered",
        ApprovalState::Settled(status) => status.as_str(),
    }
}

async fn wait_for(before: Option<JoinHandle<()>>) {
    if let Some(before) = before {
        // A run that panicked is over as well.
        let _ = before.await;
    }
}

/// What a file with the conversation is called.
fn file_name(session: &Session) -> String {
    let id = session.id().to_string();
    let short = id.rsplit('-').next().unwrap_or(&id);
    format!("toolgate-{short}-{}.md", now().as_micros() / 1_000_000)
}

pub(super) fn now() -> Timestamp {
    SystemClock::new().now()
}
