//! Everything that the terminal UI knows. It changes in `update` only, and what is drawn follows from it alone.

use std::sync::Arc;

use ratatui::text::Line;
use toolgate::{
    ApprovalRequest, Arguments, CallId, Principal, Question, SessionId, Timestamp, ToolName,
    layers::{AllowRule, Toast},
};

use super::{
    input::Input,
    keys::Place,
    search::Search,
    transcript::{Source, Transcript},
};
use crate::screen::{AgentView, CallState, CallView, Screen};

/// What the terminal UI knows.
#[derive(Debug, Clone)]
pub struct App {
    pub(crate) setup: Setup,
    pub(crate) screen: Screen,
    pub(crate) focus: Focus,
    pub(crate) window: Option<Window>,
    pub(crate) input: Input,
    /// Whose conversation is shown.
    pub(crate) agent: usize,
    pub(crate) transcripts: Vec<Transcript>,
    /// The call that is selected in the conversation.
    pub(crate) call: Option<CallId>,
    /// The call that is selected among those that wait for a decision.
    pub(crate) approval: Option<CallId>,
    /// Calls whose decision is on its way.
    pub(crate) deciding: Vec<CallId>,
    pub(crate) toasts: Arc<[Toast]>,
    pub(crate) search: Option<Search>,
    /// Whether this process has a run under way.
    pub(crate) at_work: bool,
    /// Whether Ctrl-C was the last key.
    pub(crate) stopping: bool,
    /// Whether it is shown what models think.
    pub(crate) thinking: bool,
    pub(crate) now: Timestamp,
    pub(crate) laid_out: LaidOut,
}

/// What was settled before the UI began.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The session that is talked to.
    pub session: SessionId,
    /// Who sits at the keyboard.
    pub me: Principal,
    /// The project, as standing rules call it.
    pub project: String,
    /// The model, as people call it.
    pub model: String,
}

/// Which panel keys go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Message,
    Approvals,
    Conversation,
    Agents,
}

/// A window over everything else.
#[derive(Debug, Clone)]
pub(crate) enum Window {
    /// The keys.
    Help { scroll: usize },
    /// Something to read.
    Text {
        title: String,
        text: String,
        scroll: usize,
    },
    /// Everything about a call.
    Detail { call: CallId, scroll: usize },
    /// All commands.
    Palette { filter: String, selected: usize },
    /// Words to look for.
    Search { words: String },
    /// Why a call is denied.
    Deny {
        question: Question,
        tool: String,
        reason: String,
    },
    /// Arguments that came out of the editor, to be looked at again.
    Edited {
        question: Question,
        tool: ToolName,
        arguments: Arguments,
        scroll: usize,
    },
    /// A standing rule, before it is kept.
    Always(Box<Always>),
}

/// A standing rule, before it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Always {
    pub(crate) question: Question,
    pub(crate) rule: AllowRule,
    /// Arguments that the rule leaves open.
    pub(crate) open: Vec<String>,
    /// What it would have answered in the past, once that is known.
    pub(crate) preview: Option<Result<Vec<String>, String>>,
}

/// What the last layout came to, for moving by pages and for drawing.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaidOut {
    pub(crate) height: usize,
    pub(crate) lines: Vec<(usize, Line<'static>)>,
    pub(crate) window: Vec<Line<'static>>,
    pub(crate) window_height: usize,
    /// The settled call that the window was laid out for, and how wide.
    pub(crate) settled: Option<(CallId, usize)>,
}

impl App {
    /// Before anything has happened.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            screen: Screen::new(),
            focus: Focus::Message,
            window: None,
            input: Input::new("Write a message. Enter sends it, F1 shows the keys."),
            agent: 0,
            transcripts: vec![Transcript::default()],
            call: None,
            approval: None,
            deciding: Vec::new(),
            toasts: Arc::from([]),
            search: None,
            at_work: false,
            stopping: false,
            thinking: false,
            now: Timestamp::EPOCH,
            laid_out: LaidOut::default(),
        }
    }

    /// What there is to show.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Where keys go to.
    pub(crate) fn place(&self) -> Place {
        match (&self.window, self.focus) {
            (Some(_), _) => Place::Window,
            (None, Focus::Message) => Place::Message,
            (None, Focus::Approvals) => Place::Approvals,
            (None, Focus::Conversation) => Place::Conversation,
            (None, Focus::Agents) => Place::Agents,
        }
    }

    /// Whether something on the screen changes with time alone.
    pub(crate) fn moves(&self) -> bool {
        self.at_work || !self.toasts.is_empty() || self.screen.open_calls().next().is_some()
    }

    /// The agent whose conversation is shown, if anything has happened.
    pub(crate) fn focused(&self) -> Option<&AgentView> {
        self.screen.agents().get(self.agent)
    }

    /// The call that the next decision is about, and the question.
    pub(crate) fn asked(&self) -> Option<(&CallView, &Arc<ApprovalRequest>)> {
        let chosen = self
            .screen
            .pending()
            .find(|call| Some(call.invocation.id) == self.approval);
        let call = chosen.or_else(|| self.screen.pending().next())?;
        Some((call, call.question.as_ref()?))
    }

    /// The call that is meant when somebody wants to see everything about one.
    pub(crate) fn meant(&self) -> Option<CallId> {
        match self.focus {
            Focus::Approvals => self.asked().map(|(call, _)| call.invocation.id),
            Focus::Message | Focus::Conversation | Focus::Agents => {
                let last = || self.calls_here().last();
                self.call
                    .or_else(last)
                    .or_else(|| self.asked().map(|(call, _)| call.invocation.id))
            }
        }
    }

    /// The calls of the conversation that is shown, in order.
    pub(crate) fn calls_here(&self) -> impl DoubleEndedIterator<Item = CallId> + '_ {
        let items = self
            .focused()
            .map(|agent| agent.items.as_slice())
            .unwrap_or_default();
        items.iter().filter_map(|item| match item {
            crate::screen::Item::Call(id) => Some(*id),
            _ => None,
        })
    }

    /// What an agent is called.
    pub(crate) fn name_of(&self, agent: &AgentView) -> String {
        match &agent.name {
            Some(name) => super::text::one_line(name),
            None => "main".to_owned(),
        }
    }

    /// Whether the call still waits for a decision that is not on its way.
    pub(crate) fn is_open(&self, call: CallId) -> bool {
        !self.deciding.contains(&call)
            && self
                .screen
                .call(call)
                .is_some_and(|call| call.state == CallState::Asked)
    }

    /// Does something with the conversation that is shown.
    pub(crate) fn with_transcript<T>(
        &mut self,
        act: impl FnOnce(&mut Transcript, Source<'_>) -> T,
    ) -> Option<T> {
        let agent = self.screen.agents().get(self.agent)?;
        let source = Source {
            screen: &self.screen,
            agent,
            now: self.now,
            thinking: self.thinking,
        };
        self.transcripts
            .get_mut(self.agent)
            .map(|transcript| act(transcript, source))
    }
}
