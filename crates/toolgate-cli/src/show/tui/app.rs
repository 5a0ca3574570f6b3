//! The state of the terminal UI. Only `update` changes it, and what is drawn follows from it alone.

use std::{collections::HashSet, sync::Arc};

use ratatui::text::Line;
use toolgate::{
    Arguments, View,
    approval::{ApprovalRequest, ApprovalRequestRef, ApproverIdentity, ShownRequest},
    layers::Toast,
    value::{CallId, SessionId, Timestamp},
};

use super::{
    completion::InputCompletion,
    input::MessageInput,
    message::SessionChoice,
    search::ConversationSearch,
    session_hits::SessionHits,
    transcript::{Transcript, TranscriptSource, VisibleLine},
};
use crate::show::{
    keys::KeyContext,
    rule_proposal::RuleProposal,
    screen::{AgentView, CallState, CallView, SessionScreen},
};

/// The state of the terminal UI.
#[derive(Debug, Clone)]
pub struct ChatApp {
    pub(crate) setup: ChatSetup,
    pub(crate) screen: SessionScreen,
    pub(crate) focus: PanelFocus,
    pub(crate) window: Option<OverlayWindow>,
    pub(crate) input: MessageInput,
    /// The choices for the word that is being written.
    pub(crate) completion: Option<InputCompletion>,
    /// The position of the agent whose conversation is shown.
    pub(crate) agent: usize,
    pub(crate) transcripts: Vec<Transcript>,
    /// The call that is selected in the conversation.
    pub(crate) call: Option<CallId>,
    /// The call that is selected among the pending approvals.
    pub(crate) approval: Option<CallId>,
    /// Calls whose decision was sent and is not in the log yet.
    pub(crate) deciding: Vec<CallId>,
    /// The requests that were on the screen in full, with their generations.
    pub(crate) seen: HashSet<(CallId, u32)>,
    pub(crate) toasts: Arc<[Toast]>,
    pub(crate) search: Option<ConversationSearch>,
    /// True while this process drives a run.
    pub(crate) at_work: bool,
    /// True if Ctrl-C was the last key.
    pub(crate) stopping: bool,
    /// True if the models' reasoning is shown.
    pub(crate) thinking: bool,
    pub(crate) now: Timestamp,
    pub(crate) laid_out: LayoutCache,
}

/// The facts that are fixed when the UI starts.
#[derive(Debug, Clone)]
pub struct ChatSetup {
    /// The session of the conversation.
    pub session: SessionId,
    /// The user at the keyboard, who decides.
    pub me: ApproverIdentity,
    /// The project's name in standing rules.
    pub project: String,
    /// The model's display name.
    pub model: String,
    /// The session that this one was begun from, with `/clear`.
    pub previous: Option<SessionId>,
    /// The tools, whose annotations say what a call works on.
    pub tools: View,
}

/// The panel that receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PanelFocus {
    Message,
    Approvals,
    Conversation,
    Agents,
}

/// A window over everything else.
#[derive(Debug, Clone)]
pub(crate) enum OverlayWindow {
    /// The key bindings.
    Help { scroll: usize },
    /// A text to read.
    Text {
        title: String,
        text: String,
        scroll: usize,
    },
    /// Everything about a call.
    Detail { call: CallId, scroll: usize },
    /// The command palette.
    Palette { filter: String, selected: usize },
    /// The sessions to choose from.
    Sessions {
        choices: Vec<SessionChoice>,
        filter: String,
        selected: usize,
    },
    /// Search over all sessions: the field, the hits of the last search, and the selected one.
    Hits {
        words: String,
        found: SessionHits,
        selected: usize,
    },
    /// The search field.
    Search { words: String },
    /// The reason of a denial.
    Deny {
        question: ApprovalRequestRef,
        tool: String,
        reason: String,
    },
    /// All pending requests, which the user has to confirm together.
    ApproveAll {
        questions: Vec<ApprovalRequestRef>,
        scroll: usize,
    },
    /// Edited arguments that the user has to confirm.
    Edited {
        question: ApprovalRequestRef,
        arguments: Arguments,
        shown: Arc<ShownRequest>,
        scroll: usize,
    },
    /// A standing rule that the user has to confirm.
    Always(Box<RuleConfirmation>),
}

/// A standing rule that the user has to confirm.
#[derive(Debug, Clone)]
pub(crate) struct RuleConfirmation {
    pub(crate) proposal: RuleProposal,
    /// The past approval requests that it would have answered, once they are known.
    pub(crate) preview: Option<Result<Vec<String>, String>>,
}

/// The result of the last layout, for scrolling by pages and for drawing.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayoutCache {
    pub(crate) height: usize,
    pub(crate) lines: Vec<VisibleLine>,
    pub(crate) window: Vec<Line<'static>>,
    pub(crate) window_height: usize,
    /// The rows of the window that were on the screen, from the first one on without a gap.
    pub(crate) window_seen: usize,
    /// The settled call that the window was laid out for, and the width.
    pub(crate) settled: Option<(CallId, usize)>,
}

impl ChatApp {
    /// Creates the state before the first event.
    pub fn new(setup: ChatSetup) -> Self {
        Self {
            setup,
            screen: SessionScreen::new(),
            focus: PanelFocus::Message,
            window: None,
            input: MessageInput::new("Write a message. Enter sends it, ? shows the keys."),
            completion: None,
            agent: 0,
            transcripts: vec![Transcript::default()],
            call: None,
            approval: None,
            deciding: Vec::new(),
            seen: HashSet::new(),
            toasts: Arc::from([]),
            search: None,
            at_work: false,
            stopping: false,
            thinking: false,
            now: Timestamp::EPOCH,
            laid_out: LayoutCache::default(),
        }
    }

    /// Returns the folded events.
    pub fn screen(&self) -> &SessionScreen {
        &self.screen
    }

    /// Returns the place that receives keys.
    pub(crate) fn key_context(&self) -> KeyContext {
        match (&self.window, self.focus) {
            (Some(_), _) => KeyContext::Window,
            (None, PanelFocus::Message) if self.input.is_empty() => KeyContext::EmptyMessage,
            (None, PanelFocus::Message) => KeyContext::Message,
            (None, PanelFocus::Approvals) => KeyContext::Approvals,
            (None, PanelFocus::Conversation) => KeyContext::Conversation,
            (None, PanelFocus::Agents) => KeyContext::Agents,
        }
    }

    /// Checks whether something on the screen changes with time alone.
    pub(crate) fn is_animated(&self) -> bool {
        self.at_work || !self.toasts.is_empty() || self.screen.open_calls().next().is_some()
    }

    /// Returns the agent whose conversation is shown, if there is one.
    pub(crate) fn focused_agent(&self) -> Option<&AgentView> {
        self.screen.agents().get(self.agent)
    }

    /// Returns the call that the next decision is about, with its approval request.
    pub(crate) fn selected_approval(&self) -> Option<(&CallView, &Arc<ApprovalRequest>)> {
        let chosen = self
            .screen
            .pending_calls()
            .find(|call| Some(call.invocation.id) == self.approval);
        let call = chosen.or_else(|| self.screen.pending_calls().next())?;
        Some((call, call.question.as_ref()?))
    }

    /// Returns the call to show details of.
    pub(crate) fn detail_target(&self) -> Option<CallId> {
        match self.focus {
            PanelFocus::Approvals => self.selected_approval().map(|(call, _)| call.invocation.id),
            PanelFocus::Message | PanelFocus::Conversation | PanelFocus::Agents => {
                let last = || self.calls_here().last();
                self.call
                    .or_else(last)
                    .or_else(|| self.selected_approval().map(|(call, _)| call.invocation.id))
            }
        }
    }

    /// Returns the calls of the conversation that is shown, in order.
    pub(crate) fn calls_here(&self) -> impl DoubleEndedIterator<Item = CallId> + '_ {
        let items = self
            .focused_agent()
            .map(|agent| agent.items.as_slice())
            .unwrap_or_default();
        items.iter().filter_map(|item| match item {
            crate::show::screen::ConversationItem::Call(id) => Some(*id),
            _ => None,
        })
    }

    /// Returns the display name of an agent.
    pub(crate) fn agent_title(&self, agent: &AgentView) -> String {
        match &agent.name {
            Some(name) => super::text::one_line(name),
            None => "main".to_owned(),
        }
    }

    /// Checks whether the call's approval is pending and no decision was sent.
    pub(crate) fn is_undecided(&self, call: CallId) -> bool {
        !self.deciding.contains(&call)
            && self
                .screen
                .call(call)
                .is_some_and(|call| call.state == CallState::Pending)
    }

    /// Checks whether the request was on the screen in full.
    pub(crate) fn is_seen(&self, request: &ApprovalRequest) -> bool {
        let key = (request.approval_id.call_id(), request.generation);
        self.seen.contains(&key)
    }

    /// Checks whether every row of the window was on the screen.
    pub(crate) fn is_window_seen(&self) -> bool {
        self.laid_out.window_seen >= self.laid_out.window.len()
    }

    /// Runs `act` on the conversation that is shown.
    pub(crate) fn with_transcript<T>(
        &mut self,
        act: impl FnOnce(&mut Transcript, TranscriptSource<'_>) -> T,
    ) -> Option<T> {
        let agent = self.screen.agents().get(self.agent)?;
        let source = TranscriptSource {
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
