//! The cost of the terminal UI: a frame of a long session, and a frame after one more event.

use std::{hint::black_box, sync::Arc, time::Instant};

use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;
use toolgate::{
    Event, RunEnd,
    event::{Cost, Invocation, SessionEvent, ToolEvent},
    model::{FinishReason, Usage},
    stack::TurnInfo,
    value::{CallId, Digest, Json, SessionId, Timestamp, TurnId},
};
use toolgate_cli::show::tui::{ChatApp, ChatSetup, UiMessage, draw, update};
use uuid::Uuid;

use crate::{
    BenchOptions,
    measure::{CostGoal, CostRow, median},
};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 2] = ["frames", crate::program::PART];

/// Events of the long session.
const EVENTS: u64 = 10_000;
/// The size of the screen.
const SIZE: (u16, u16) = (120, 40);
/// The limit for a frame, in microseconds.
const MOST: f64 = 5_000.0;

const REPLY: &str = "# What I found\n\nThe sum in `src/lib.rs` is **wrong** in more than one place, and here are enough \
                     words for a paragraph that has to be wrapped.\n\n```rust\nfn add(a: i32, b: i32) -> i32 {\n    a - \
                     b\n}\n```\n\n- first this\n- then that\n";

pub(crate) fn rows(options: &BenchOptions) -> Vec<CostRow> {
    if !options.wants("frames") {
        return Vec::new();
    }
    let (short, again, after, resized) = measured(options.rounds, 10);
    let (long, long_again, long_after, long_resized) = measured(options.rounds, EVENTS);
    let row = |name: &str, value: f64, floor: f64| {
        let name = format!("{name}, session of {EVENTS} events, {}×{}", SIZE.0, SIZE.1);
        CostRow::new(name, value, "us", Some(floor), "the same with 10 events")
            .aiming(CostGoal::ValueAtMost(MOST))
    };
    vec![
        row("first frame", long, short),
        row("frame", long_again, again),
        row("one more event, and a frame", long_after, after),
        row("frame after the width has changed", long_resized, resized),
    ]
}

/// Measures, in microseconds, the first frame, one more, one after another event, and one at
/// another width.
fn measured(rounds: usize, events: u64) -> (f64, f64, f64, f64) {
    let [mut first, mut again, mut after, mut resized] = [const { Vec::new() }; 4];
    let mut session = SessionEvents::new();
    let before: Vec<Arc<Event>> = (0..events).map(|_| session.next()).collect();
    let mut app = ChatApp::new(session.setup());
    for event in before {
        update(&mut app, UiMessage::Event(event));
    }
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).expect("a test terminal");
    for _ in 0..rounds.max(3) * 10 {
        let mut fresh = app.clone();
        first.push(timed(|| frame(&mut terminal, &mut fresh)));
        again.push(timed(|| frame(&mut terminal, &mut fresh)));
        let event = session.next();
        after.push(timed(|| {
            update(&mut fresh, UiMessage::Event(event.clone()));
            frame(&mut terminal, &mut fresh);
        }));
        let mut narrow =
            Terminal::new(TestBackend::new(SIZE.0 - 20, SIZE.1)).expect("a test terminal");
        resized.push(timed(|| frame(&mut narrow, &mut fresh)));
    }
    (median(first), median(again), median(after), median(resized))
}

fn frame(terminal: &mut Terminal<TestBackend>, app: &mut ChatApp) {
    terminal
        .draw(|frame| draw(black_box(app), frame))
        .expect("a test terminal cannot fail");
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e6
}

/// Builds a long session: messages, tool calls, replies.
struct SessionEvents {
    turn: Arc<TurnInfo>,
    sequence: u64,
    call: Option<Arc<Invocation>>,
}

impl SessionEvents {
    fn new() -> Self {
        let turn = TurnInfo::new(
            SessionId::new(Uuid::from_u128(1)),
            TurnId::new(Uuid::from_u128(2)),
        );
        Self {
            turn: Arc::new(turn),
            sequence: 0,
            call: None,
        }
    }

    fn setup(&self) -> ChatSetup {
        let project = "/shop".to_owned();
        let model = "scripted:captain".to_owned();
        ChatSetup {
            session: self.turn.session,
            me: "ann".into(),
            project,
            model,
            previous: None,
            tools: toolgate::View::without_tools(),
        }
    }

    fn next(&mut self) -> Arc<Event> {
        self.sequence += 1;
        let number = self.sequence;
        let at = Timestamp::from_micros(self.sequence.cast_signed() * 1_000);
        let event = match number % 8 {
            1 => self.around(
                at,
                SessionEvent::UserMessage {
                    message: number,
                    text: said(number),
                    text_bytes: None,
                    steering: false,
                },
            ),
            2 => self.around(
                at,
                SessionEvent::InferenceStarted {
                    attempt: 1,
                    messages: number,
                    tools: 10,
                },
            ),
            3 => {
                let id = CallId::new(Uuid::from_u128(1_000 + u128::from(number)));
                let call_id = format!("c{number}");
                let tool = "read_file".into();
                let turn = self.turn.clone();
                self.call = Some(Arc::new(Invocation {
                    id,
                    call_id: call_id.into(),
                    tool,
                    emit_order: 0,
                    turn,
                }));
                let arguments =
                    Json::new(json!({ "path": format!("src/file_{number}.rs"), "limit": 200 }))
                        .ok();
                let arguments_digest = Digest::of_bytes(b"");
                let executor = None;
                self.tool(
                    at,
                    ToolEvent::ToolRequested {
                        arguments,
                        arguments_digest,
                        arguments_bytes: 40,
                        executor,
                    },
                )
            }
            4 => {
                let arguments_digest = Digest::of_bytes(b"");
                let executor = None;
                let started = ToolEvent::ToolExecutionStarted {
                    attempt: 1,
                    executor,
                    external: false,
                    arguments_digest,
                    arguments: None,
                };
                self.tool(at, started)
            }
            5 => self.tool(
                at,
                ToolEvent::ToolLog {
                    level: toolgate::stack::LogLevel::Info,
                    message: "reading".to_owned(),
                },
            ),
            6 => {
                let result = Json::new(json!({ "text": "fn add(a: i32, b: i32) -> i32 {}" })).ok();
                let result_digest = Digest::of_bytes(b"");
                let attempts = 1;
                let cached = false;
                let duration_ms = 12;
                self.tool(
                    at,
                    ToolEvent::ToolExecutionSucceeded {
                        result,
                        result_digest,
                        result_bytes: 40,
                        model_bytes: 40,
                        model_text: None,
                        attempts,
                        cached,
                        duration_ms,
                    },
                )
            }
            7 => {
                let usage = Some(Usage::default());
                let cost = Cost::NanoUsd(1_000);
                let text = Some(REPLY.to_owned());
                let finish = FinishReason::Stop;
                self.around(
                    at,
                    SessionEvent::InferenceFinished {
                        message: number,
                        text,
                        text_bytes: None,
                        calls: 0,
                        finish,
                        usage,
                        cost,
                    },
                )
            }
            _ => {
                let usage = Usage::default();
                let cost = Cost::NanoUsd(1_000);
                self.around(
                    at,
                    SessionEvent::RunEnded {
                        end: RunEnd::Completed,
                        error: None,
                        iterations: 1,
                        usage,
                        cost,
                    },
                )
            }
        };
        Arc::new(event)
    }

    fn around(&self, at: Timestamp, event: SessionEvent) -> Event {
        Event::for_run(self.sequence, at, self.turn.clone(), event).expect("valid")
    }

    fn tool(&self, at: Timestamp, event: ToolEvent) -> Event {
        let call = self.call.clone().expect("a call was asked for before");
        Event::for_invocation(self.sequence, at, call, event).expect("valid")
    }
}

fn said(number: u64) -> Option<String> {
    Some(format!(
        "Question {number}: why does the test fail, and what would have to change for it to pass?"
    ))
}
