//! What comes in to the update function, and what it wants done.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use toolgate::{
    Arguments, CallId, Decision, Event, Piece, Question, Timestamp, ToolName,
    layers::{AllowRule, Toast, ToastId, ToastLevel},
};

/// Something that came in.
#[derive(Debug, Clone)]
pub enum Msg {
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The time, now and then.
    Tick(Timestamp),
    /// An event of the session or of an agent.
    Event(Arc<Event>),
    /// A piece of a reply.
    Piece(Arc<Piece>),
    /// The messages that are to be on the screen now.
    Toasts(Arc<[Toast]>),
    /// A run has begun.
    RunBegan,
    /// A run is over, one way or the other.
    RunOver,
    /// A decision was taken in, or why not.
    Decided(CallId, Result<(), String>),
    /// What came out of the editor: nothing if nothing was changed.
    Edited(Question, Result<Option<Arguments>, String>),
    /// What each layer makes of a call.
    Explained(String),
    /// What a standing rule would have answered, newest last, by name of the rule.
    Previewed(String, Result<Vec<String>, String>),
    /// Somebody asks the program to end.
    Terminate,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Say this to the model: in a new run, or in the one that is under way.
    Say(String),
    /// Go on with a run that was stopped.
    GoOn,
    /// Stop the run.
    Interrupt,
    /// Leave.
    Quit,
    /// Decide on a call.
    Decide(Question, Decision),
    /// Keep a standing rule, then decide.
    Rule(Box<AllowRule>, Question, Decision),
    /// Say what a standing rule would have answered.
    Preview(Box<AllowRule>),
    /// Let somebody change these arguments in an editor.
    Edit(Question, ToolName, Arguments),
    /// Say what each layer makes of such a call.
    Explain(ToolName, Arguments),
    /// Put this into the clipboard.
    Copy(String),
    /// Write this to a file.
    Save(String),
    /// Show a message for a while.
    Tell(ToastLevel, String),
    /// Take a message off the screen.
    Dismiss(ToastId),
}
