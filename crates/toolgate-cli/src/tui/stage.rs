//! A stage for tests of the terminal UI: events as a session would send them, keys as a person would press them, and
//! the screen as text.

use std::{collections::HashMap, sync::Arc};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use serde_json::{Value, json};
use toolgate::{
    ApprovalRequest, Call, CallId, CallSeed, Cost, Digest, Event, Finish, Invocation, Json,
    LoopEvent, RunEnd, SessionId, Timestamp, ToolEvent, TurnId, TurnInfo, Usage,
    layers::{Toast, ToastLevel},
};
use uuid::Uuid;

use super::{App, Effect, Msg, Setup, draw, update};

/// A UI on a stage.
pub(super) struct Stage {
    pub(super) app: App,
    /// Everything that was to be done so far.
    pub(super) effects: Vec<Effect>,
    calls: HashMap<CallId, Arc<Invocation>>,
    sequence: u64,
    at: i64,
    /// Whose events come next.
    turn: Arc<TurnInfo>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let session = SessionId::new(Uuid::from_u128(1));
        let setup = Setup {
            session,
            me: "ann".into(),
            project: "/shop".to_owned(),
            model: "scripted:captain".to_owned(),
        };
        let turn = Arc::new(TurnInfo::new(session, TurnId::new(Uuid::from_u128(2))));
        let (app, calls) = (App::new(setup), HashMap::new());
        Self {
            app,
            effects: Vec::new(),
            calls,
            sequence: 0,
            at: 1_750_000_000_000_000,
            turn,
        }
    }

    /// Events of this agent come next; of the main one without a name.
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

    pub(super) fn put(&mut self, msg: Msg) -> Vec<Effect> {
        let effects = update(&mut self.app, msg);
        self.effects.extend(effects.clone());
        effects
    }

    fn next(&mut self) -> (u64, Timestamp) {
        (self.sequence, self.at) = (self.sequence + 1, self.at + 250_000);
        (self.sequence, Timestamp::from_micros(self.at))
    }

    pub(super) fn around(&mut self, event: LoopEvent) -> &mut Self {
        let (sequence, at) = self.next();
        let event = Event::around(sequence, at, self.turn.clone(), event).expect("valid");
        self.put(Msg::Event(Arc::new(event)));
        self
    }

    pub(super) fn tool(&mut self, call: CallId, event: ToolEvent) -> &mut Self {
        let (sequence, at) = self.next();
        let event = Event::tool(sequence, at, self.calls[&call].clone(), event).expect("valid");
        self.put(Msg::Event(Arc::new(event)));
        self
    }

    pub(super) fn said(&mut self, text: &str) -> &mut Self {
        self.put(Msg::RunBegan);
        self.around(LoopEvent::UserMessage {
            message: 1,
            text: Some(text.to_owned()),
            steering: false,
        })
    }

    pub(super) fn replied(&mut self, text: &str) -> &mut Self {
        let usage = Some(Usage {
            input: 1_200,
            output: 34,
            ..Usage::default()
        });
        self.around(LoopEvent::InferenceStarted {
            attempt: 1,
            messages: 1,
            tools: 4,
        });
        self.around(LoopEvent::InferenceFinished {
            message: 2,
            text: Some(text.to_owned()),
            calls: 0,
            finish: Finish::Stop,
            usage,
            cost: Cost::NanoUsd(4_200_000),
        })
    }

    /// So many replies, one after the other.
    pub(super) fn counted(&mut self, replies: u32) {
        for number in 0..replies {
            self.replied(&format!("number {number}"));
        }
    }

    pub(super) fn ended(&mut self, end: RunEnd) -> &mut Self {
        let (usage, cost) = (Usage::default(), Cost::Unknown);
        self.around(LoopEvent::RunEnded {
            end,
            error: None,
            iterations: 1,
            usage,
            cost,
        });
        self.put(Msg::RunOver);
        self
    }

    pub(super) fn call(&mut self, number: u128, tool: &str, arguments: Value) -> CallId {
        let id = CallId::new(Uuid::from_u128(1_000 + number));
        let (call_id, turn) = (format!("c{number}").into(), self.turn.clone());
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
        let (arguments_digest, executor) = (Digest::of_bytes(b""), None);
        let arguments = Json::new(arguments).ok();
        self.tool(
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

    /// A question about the call, with something to show.
    pub(super) fn asked(
        &mut self,
        call: CallId,
        arguments: Value,
        shown: Option<&str>,
    ) -> ApprovalRequest {
        let seed = toolgate_testkit::seed(self.calls[&call].tool.as_str(), arguments);
        let seed = CallSeed { id: call, ..seed };
        let mut request = ApprovalRequest::about(&Call::new(seed)).because("it changes files");
        request.shown = shown.map(Value::from);
        self.tool(
            call,
            ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
        );
        request
    }

    pub(super) fn started(&mut self, call: CallId) -> &mut Self {
        let (arguments_digest, executor) = (Digest::of_bytes(b""), None);
        self.tool(
            call,
            ToolEvent::ToolExecutionStarted {
                attempt: 1,
                executor,
                external: false,
                arguments_digest,
            },
        )
    }

    pub(super) fn done(&mut self, call: CallId, result: Value) -> &mut Self {
        let (result_digest, result) = (Digest::of_bytes(b""), Json::new(result).ok());
        self.tool(
            call,
            ToolEvent::ToolExecutionSucceeded {
                result,
                result_digest,
                result_bytes: 2,
                model_bytes: 2,
                attempts: 1,
                cached: false,
                duration_ms: 1_250,
            },
        )
    }

    /// A call of a tool that waits for a decision about these arguments.
    pub(super) fn waiting(
        &mut self,
        number: u128,
        tool: &str,
        arguments: Value,
    ) -> (CallId, ApprovalRequest) {
        let call = self.call(number, tool, arguments.clone());
        let request = self.asked(call, arguments, None);
        (call, request)
    }

    pub(super) fn toast(&mut self, level: ToastLevel, text: &str) -> &mut Self {
        let toast = Toast::new(level, "run_shell", text, Timestamp::from_micros(self.at));
        self.put(Msg::Toasts([toast].into()));
        self
    }

    /// Presses keys by name: `y`, `Enter`, `Ctrl-P`.
    pub(super) fn press(&mut self, keys: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for name in keys.split_whitespace() {
            effects.extend(self.put(Msg::Key(key(name))));
        }
        effects
    }

    /// Writes text.
    pub(super) fn write(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            self.put(Msg::Key(KeyEvent::new(
                KeyCode::Char(c),
                KeyModifiers::NONE,
            )));
        }
        self
    }

    /// The screen as text.
    pub(super) fn screen(&mut self, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a test terminal");
        terminal
            .draw(|frame| draw(&mut self.app, frame))
            .expect("draws");
        let buffer = terminal.backend().buffer().clone();
        let mut text = String::new();
        for y in 0..rows {
            let (mut row, mut x) = (String::new(), 0);
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

fn key(name: &str) -> KeyEvent {
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

/// A question and a reply with some of everything that Markdown has.
pub(super) fn conversation() -> Stage {
    let mut stage = Stage::new();
    stage.said("Why does the test fail?");
    let read = stage.call(1, "read_file", json!({ "path": "src/lib.rs" }));
    stage.started(read).done(read, json!("fn add() {}"));
    let search = stage.call(
        2,
        "search_text",
        json!({ "pattern": "add(", "path": "src" }),
    );
    stage.started(search);
    stage.tool(
        search,
        ToolEvent::ToolExecutionFailed {
            status: toolgate::Status::ExecutorError,
            error: "the pattern is not closed: add(".to_owned(),
            category: toolgate::ErrorCategory::of(toolgate::Status::ExecutorError),
            attempts: 1,
            duration_ms: 12,
        },
    );
    stage.replied("# Found it\n\nThe sum is **wrong**:\n\n```rust\nfn add(a: i32, b: i32) -> i32 { a - b }\n```\n\n- use `+`\n- run the tests");
    stage.ended(RunEnd::Completed);
    stage
}
