//! The inputs of the update function, and its effects.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use toolgate::{
    Arguments, Decision, Event,
    approval::{ApprovalRequestRef, ShownRequest},
    archive::ExportFormat,
    event::StreamPiece,
    layers::{StandingRule, Toast, ToastId, ToastLevel},
    value::{CallId, SessionId, Timestamp},
};

use super::session_hits::{SessionHit, SessionHits, ShownHit};

/// An input of the update function.
#[derive(Debug, Clone)]
pub enum UiMessage {
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The current time.
    Tick(Timestamp),
    /// An event of the session or of an agent.
    Event(Arc<Event>),
    /// A fragment of a reply that is still streaming.
    Piece(Arc<StreamPiece>),
    /// The toasts that are on the screen now.
    Toasts(Arc<[Toast]>),
    /// A run has started.
    RunStarted,
    /// A run has ended, successfully or not.
    RunEnded,
    /// A decision was accepted, or the reason why it was rejected.
    Decided(CallId, Result<(), String>),
    /// What an approver sees of the request with this generation, or why it cannot be shown.
    Shown(CallId, u32, Result<Arc<ShownRequest>, String>),
    /// The edited arguments and what an approver sees of them; `None` if nothing was changed.
    Edited(
        ApprovalRequestRef,
        Result<Option<(Arguments, Arc<ShownRequest>)>, String>,
    ),
    /// The explanation of a call, layer by layer.
    Explained(String),
    /// The text about the past approval requests that a standing rule would have answered.
    Previewed(Box<StandingRule>, Result<Vec<String>, String>),
    /// The files whose paths fit what was written after `@`.
    FilesFound(String, Vec<String>),
    /// The sessions of the directory, newest first, or why they cannot be listed.
    SessionsListed(Result<Vec<SessionChoice>, String>),
    /// The hits of a search over all sessions, or why there are none.
    HitsFound(Result<SessionHits, String>),
    /// A hit with what is near it, or why it cannot be shown.
    HitShown(Result<ShownHit, String>),
    /// The answer to `/memory`.
    MemoriesListed(String),
    /// The program was asked to end.
    Terminate,
}

/// A session to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChoice {
    /// Its id.
    pub session: SessionId,
    /// The time of its last use, for people.
    pub used: String,
    /// Its first message.
    pub about: String,
}

/// Another session, or another model for this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// A new session.
    Begin,
    /// An earlier session.
    Resume(SessionId),
    /// This session with another model.
    UseModel(String),
}

/// An action for the driver to carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum UiEffect {
    /// Send this message to the model: in a new run, or in the current one.
    Say(String),
    /// Resume a stopped run.
    Resume,
    /// Stop the run.
    Interrupt,
    /// Leave.
    Quit,
    /// Decide on a call.
    Decide(ApprovalRequestRef, Decision),
    /// Store a standing rule, then decide.
    Rule(Box<StandingRule>, ApprovalRequestRef, Decision),
    /// Find what a standing rule would have answered.
    Preview(Box<StandingRule>),
    /// Open these arguments in an editor, or those of the stored request.
    Edit(ApprovalRequestRef, Option<Arguments>),
    /// Explain what each layer decides about the call of a request.
    Explain(ApprovalRequestRef),
    /// Copy this to the clipboard.
    Copy(String),
    /// Export the session to a file.
    Save(ExportFormat),
    /// Show a toast.
    Tell(ToastLevel, String),
    /// Dismiss a toast.
    Dismiss(ToastId),
    /// Stop one call.
    CancelCall(CallId),
    /// Find files of the workspace whose paths fit this.
    FindFiles(String),
    /// List the sessions of the directory.
    ListSessions,
    /// Search all sessions.
    SearchSessions(String),
    /// Load a hit with what is near it.
    ShowHit(Box<SessionHit>),
    /// Give the session this title.
    Rename(String),
    /// Import the file with this path.
    Import(String),
    /// List, find, add, change or forget memories, as the words after `/memory` say.
    Memory(String),
    /// Continue with another session or model.
    Change(SessionChange),
    /// Suspend the program.
    Suspend,
}
