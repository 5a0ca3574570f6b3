//! A stage for tests of the terminal UI: events as a session would send them, keys as a user would
//! press them, and the screen as text.

use std::{collections::HashMap, sync::Arc};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use serde_json::{Value, json};
use toolgate::{
    Call, Event, RunEnd, View,
    approval::ApprovalRequest,
    event::{Cost, Invocation, SessionEvent, ToolEvent},
    layers::{Toast, ToastLevel},
    model::{FinishReason, Usage},
    stack::{CallSeed, TurnInfo},
    value::{CallId, Digest, Json, SessionId, Timestamp, TurnId},
};
use uuid::Uuid;

use super::{ChatApp, ChatSetup, UiEffect, UiMessage, draw, update};

/// A UI under test.
pub(super) struct UiStage {
    pub(super) app: ChatApp,
    /// All effects so far.
    pub(super) effects: Vec<UiEffect>,
    calls: HashMap<CallId, Arc<Invocation>>,
    sequence: u64,
    at: i64,
    /// The session and turn of the next events.
    turn: Arc<TurnInfo>,
    /// The size of the last screen.
    size: (u16, u16),
}

impl UiStage {
    pub(super) fn new() -> Self {
        let session = SessionId::new(Uuid::from_u128(1));
        let setup = ChatSetup {
            session,
            me: "ann".into(),
            project: "/shop".to_owned(),
            model: "scripted:captain".to_owned(),
            previous: None,
            tools: View::default(),
        };
        let turn = Arc::new(TurnInfo::new(session, TurnId::new(Uuid::from_u128(2))));
        let app = ChatApp::new(setup);
        let calls = HashMap::new();
        Self {
            app,
            effects: Vec::new(),
            calls,
            sequence: 0,
            at: 1_750_000_000_000_000,
            turn,
            size: (100, 40),
        }
    }

    /// Sends the next events as this agent; as the main session without a name.
    pub(super) fn agent(&mut self, name: Option<&str>) -> &mut Self {
        let number = name.map_or(1, |name| 100 + u128::from(name.as_bytes()[0]));
        let mut turn = TurnInfo::new(
            SessionId::new(Uuid::from_u128(number)),
            TurnId::new(Uuid::from_u128(number + 1)),
        );
        turn.agent_name = name.map(Into::into);
        self.turn = Arc::new(turn);
        self
    }

    pub(super) fn apply_message(&mut self, msg: UiMessage) -> Vec<UiEffect> {
        let effects = update(&mut self.app, msg);
        self.effects.extend(effects.clone());
        effects
    }

    fn next_position(&mut self) -> (u64, Timestamp) {
        self.sequence += 1;
        self.at += 250_000;
        (self.sequence, Timestamp::from_micros(self.at))
    }

    pub(super) fn apply_loop_event(&mut self, event: SessionEvent) -> &mut Self {
        let (sequence, at) = self.next_position();
        let event = Event::for_run(sequence, at, self.turn.clone(), event).expect("valid");
        self.apply_message(UiMessage::Event(Arc::new(event)));
        self
    }

    pub(super) fn apply_tool_event(&mut self, call: CallId, event: ToolEvent) -> &mut Self {
        let (sequence, at) = self.next_position();
        let event =
            Event::for_invocation(sequence, at, self.calls[&call].clone(), event).expect("valid");
        self.apply_message(UiMessage::Event(Arc::new(event)));
        self
    }

    pub(super) fn user_message(&mut self, text: &str) -> &mut Self {
        self.apply_message(UiMessage::RunStarted);
        self.apply_loop_event(SessionEvent::UserMessage {
            message: 1,
            text: Some(text.to_owned()),
            text_bytes: None,
            steering: false,
        })
    }

    pub(super) fn model_reply(&mut self, text: &str) -> &mut Self {
        let usage = Some(Usage {
            input: 1_200,
            output: 34,
            ..Usage::default()
        });
        self.apply_loop_event(SessionEvent::InferenceStarted {
            attempt: 1,
            messages: 1,
            tools: 4,
        });
        self.apply_loop_event(SessionEvent::InferenceFinished {
            message: 2,
            text: Some(text.to_owned()),
            text_bytes: None,
            calls: 0,
            finish: FinishReason::Stop,
            usage,
            cost: Cost::NanoUsd(4_200_000),
        })
    }

    /// Adds this many replies, one after the other.
    pub(super) fn model_replies(&mut self, replies: u32) {
        for number in 0..replies {
            self.model_reply(&format!("number {number}"));
        }
    }

    pub(super) fn end_run(&mut self, end: RunEnd) -> &mut Self {
        let usage = Usage::default();
        let cost = Cost::Unknown;
        self.apply_loop_event(SessionEvent::RunEnded {
            end,
            error: None,
            iterations: 1,
            usage,
            cost,
        });
        self.apply_message(UiMessage::RunEnded);
        self
    }

    pub(super) fn request_call(&mut self, number: u128, tool: &str, arguments: Value) -> CallId {
        let id = CallId::new(Uuid::from_u128(1_000 + number));
        let call_id = format!("c{number}").into();
        let turn = self.turn.clone();
        self.calls.insert(
            id,
            Arc::new(Invocation {
                id,
                call_id,
                tool: tool.into(),
                emit_order: 0,
                turn,
            }),
        );
        let arguments_digest = Digest::of_bytes(b"");
        let executor = None;
        let arguments = Json::new(arguments).ok();
        self.apply_tool_event(
            id,
            ToolEvent::ToolRequested {
                arguments,
                arguments_digest,
                arguments_bytes: 9,
                executor,
            },
        );
        id
    }

    /// Adds an approval request for the call, with a preview.
    pub(super) fn request_approval(
        &mut self,
        call: CallId,
        arguments: Value,
        shown: Option<&str>,
    ) -> ApprovalRequest {
        let seed = toolgate_testkit::seed(self.calls[&call].tool.as_str(), arguments);
        let seed = CallSeed { id: call, ..seed };
        let mut request =
            ApprovalRequest::for_call(&Call::new(seed)).with_reason("it changes files");
        request.shown = shown.map(Value::from);
        self.ask_about(&request);
        request
    }

    /// Adds an approval request, and what an approver sees of it.
    pub(super) fn ask_about(&mut self, request: &ApprovalRequest) {
        self.apply_tool_event(
            request.approval_id.call_id(),
            ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
        );
        self.load_request(request);
    }

    /// Adds what an approver sees of a request, as the driver does when it is loaded.
    pub(super) fn load_request(&mut self, request: &ApprovalRequest) {
        let call = request.approval_id.call_id();
        let shown = Ok(Arc::new(request.show(None)));
        self.apply_message(UiMessage::Shown(call, request.generation, shown));
    }

    /// Approves a call, after which approval can be requested again.
    pub(super) fn approve_call(&mut self, call: CallId) -> &mut Self {
        self.approve_by(call, &["ann"])
    }

    /// Approves a call with the votes of these approvers, the one who decided last first.
    pub(super) fn approve_by(&mut self, call: CallId, approvers: &[&str]) -> &mut Self {
        self.apply_tool_event(
            call,
            ToolEvent::ToolApproved {
                approver: approvers[0].into(),
                established: Default::default(),
                claimed_as: None,
                reason: None,
                edited: false,
                unseen: false,
                with: approvers[1..].iter().map(|name| (*name).into()).collect(),
            },
        )
    }

    pub(super) fn start_call(&mut self, call: CallId) -> &mut Self {
        let arguments_digest = Digest::of_bytes(b"");
        let executor = None;
        self.apply_tool_event(
            call,
            ToolEvent::ToolExecutionStarted {
                attempt: 1,
                executor,
                external: false,
                arguments_digest,
                arguments: None,
            },
        )
    }

    pub(super) fn succeed_call(&mut self, call: CallId, result: Value) -> &mut Self {
        let result_digest = Digest::of_bytes(b"");
        let result = Json::new(result).ok();
        self.apply_tool_event(
            call,
            ToolEvent::ToolExecutionSucceeded {
                result,
                result_digest,
                result_bytes: 2,
                model_bytes: 2,
                model_text: None,
                attempts: 1,
                cached: false,
                duration_ms: 1_250,
            },
        )
    }

    /// Adds a call with a pending approval request about these arguments.
    pub(super) fn pending_call(
        &mut self,
        number: u128,
        tool: &str,
        arguments: Value,
    ) -> (CallId, ApprovalRequest) {
        let call = self.request_call(number, tool, arguments.clone());
        let request = self.request_approval(call, arguments, None);
        (call, request)
    }

    pub(super) fn show_toast(&mut self, level: ToastLevel, text: &str) -> &mut Self {
        let toast = Toast::new(level, "run_shell", text, Timestamp::from_micros(self.at));
        self.apply_message(UiMessage::Toasts([toast].into()));
        self
    }

    /// Presses keys by name: `y`, `Enter`, `Ctrl-P`.
    pub(super) fn press_keys(&mut self, keys: &str) -> Vec<UiEffect> {
        let mut effects = Vec::new();
        for name in keys.split_whitespace() {
            // What a decision is about has to be on the screen first.
            if self.app.screen.pending_calls().next().is_some() {
                self.render_screen(self.size.0, self.size.1);
            }
            effects.extend(self.apply_message(UiMessage::Key(parse_key(name))));
        }
        effects
    }

    /// Types text.
    pub(super) fn type_text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            self.apply_message(UiMessage::Key(KeyEvent::new(
                KeyCode::Char(c),
                KeyModifiers::NONE,
            )));
        }
        self
    }

    /// Returns the screen as text.
    pub(super) fn render_screen(&mut self, columns: u16, rows: u16) -> String {
        self.size = (columns, rows);
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a test terminal");
        terminal
            .draw(|frame| draw(&mut self.app, frame))
            .expect("draws");
        let buffer = terminal.backend().buffer().clone();
        let mut text = String::new();
        for y in 0..rows {
            let mut row = String::new();
            let mut x = 0;
            while x < columns {
                let symbol = buffer[(x, y)].symbol();
                row.push_str(symbol);
                x += u16::try_from(unicode_width::UnicodeWidthStr::width(symbol).max(1))
                    .expect("narrow");
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

fn parse_key(name: &str) -> KeyEvent {
    let (modifiers, name) = match name.split_once('-') {
        Some(("Ctrl", name)) => (KeyModifiers::CONTROL, name),
        Some(("Alt", name)) => (KeyModifiers::ALT, name),
        _ => (KeyModifiers::NONE, name),
    };
    let code = match name {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Tab" => KeyCode::Tab,
        "Up" => KeyCode::Up,
        "Down" => KeyCode::Down,
        "Right" => KeyCode::Right,
        "PgUp" => KeyCode::PageUp,
        "PgDn" => KeyCode::PageDown,
        "Home" => KeyCode::Home,
        "End" => KeyCode::End,
        "F1" => KeyCode::F(1),
        "Backspace" => KeyCode::Backspace,
        letter if modifiers.is_empty() => KeyCode::Char(letter.chars().next().expect("a letter")),
        letter => KeyCode::Char(
            letter
                .chars()
                .next()
                .expect("a letter")
                .to_ascii_lowercase(),
        ),
    };
    KeyEvent::new(code, modifiers)
}

/// Builds a conversation with a reply that has some of everything in Markdown.
pub(super) fn sample_conversation() -> UiStage {
    let mut stage = UiStage::new();
    stage.user_message("Why does the test fail?");
    let read = stage.request_call(1, "read_file", json!({ "path": "src/lib.rs" }));
    stage
        .start_call(read)
        .succeed_call(read, json!("fn add() {}"));
    let search = stage.request_call(
        2,
        "search_text",
        json!({ "pattern": "add(", "path": "src" }),
    );
    stage.start_call(search);
    stage.apply_tool_event(
        search,
        ToolEvent::ToolExecutionFailed {
            status: toolgate::Status::ExecutorError,
            error: "the pattern is not closed: add(".to_owned(),
            category: toolgate::stack::ErrorCategory::for_status(toolgate::Status::ExecutorError),
            attempts: 1,
            duration_ms: 12,
        },
    );
    stage.model_reply("# Found it\n\nThe sum is **wrong**:\n\n```rust\nfn add(a: i32, b: i32) -> i32 { a - b }\n```\n\n- use `+`\n- run the tests");
    stage.end_run(RunEnd::Completed);
    stage
}
