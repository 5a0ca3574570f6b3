//! What the terminal UI costs: a frame of a long session, and a frame after one more event.

use std::{hint::black_box, sync::Arc, time::Instant};

use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;
use toolgate::{
    CallId, Cost, Digest, Event, Finish, Invocation, Json, LoopEvent, RunEnd, SessionId, Timestamp,
    ToolEvent, TurnId, TurnInfo, Usage,
};
use toolgate_cli::tui::{App, Msg, Setup, draw, update};
use uuid::Uuid;

use crate::{
    Options,
    measure::{Goal, Row, median},
};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 2] = ["frames", crate::program::PART];

/// Events of the long session.
const EVENTS: u64 = 10_000;
/// The size of the screen.
const SIZE: (u16, u16) = (120, 40);
/// What a frame may cost, in microseconds.
const MOST: f64 = 5_000.0;

const REPLY: &str = "# What I found\n\nThe sum in `src/lib.rs` is **wrong** in more than one place, and here are enough \
                     words for a paragraph that has to be wrapped.\n\n```rust\nfn add(a: i32, b: i32) -> i32 {\n    a - \
                     b\n}\n```\n\n- first this\n- then that\n";

pub(crate) fn rows(options: &Options) -> Vec<Row> {
    if !options.wants("frames") {
        return Vec::new();
    }
    let (short, again, after, resized) = measured(options.rounds, 10);
    let (long, long_again, long_after, long_resized) = measured(options.rounds, EVENTS);
    let row = |name: &str, value: f64, floor: f64| {
        let name = format!("{name}, session of {EVENTS} events, {}×{}", SIZE.0, SIZE.1);
        Row::new(name, value, "us", Some(floor), "the same with 10 events")
            .aiming(Goal::ValueAtMost(MOST))
    };
    vec![
        row("first frame", long, short),
        row("frame", long_again, again),
        row("one more event, and a frame", long_after, after),
        row("frame after the width has changed", long_resized, resized),
    ]
}

/// Microseconds of the first frame, of one more, of one after another event, and of one at another width.
fn measured(rounds: usize, events: u64) -> (f64, f64, f64, f64) {
    let [mut first, mut again, mut after, mut resized] = [const { Vec::new() }; 4];
    let mut session = Events::new();
    let before: Vec<Arc<Event>> = (0..events).map(|_| session.next()).collect();
    let mut app = App::new(session.setup());
    for event in before {
        update(&mut app, Msg::Event(event));
    }
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).expect("a test terminal");
    for _ in 0..rounds.max(3) * 10 {
        let mut fresh = app.clone();
        first.push(timed(|| frame(&mut terminal, &mut fresh)));
        again.push(timed(|| frame(&mut terminal, &mut fresh)));
        let event = session.next();
        after.push(timed(|| {
            update(&mut fresh, Msg::Event(event.clone()));
            frame(&mut terminal, &mut fresh);
        }));
        let mut narrow =
            Terminal::new(TestBackend::new(SIZE.0 - 20, SIZE.1)).expect("a test terminal");
        resized.push(timed(|| frame(&mut narrow, &mut fresh)));
    }
    (median(first), median(again), median(after), median(resized))
}

fn frame(terminal: &mut Terminal<TestBackend>, app: &mut App) {
    terminal
        .draw(|frame| draw(black_box(app), frame))
        .expect("a test terminal cannot fail");
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e6
}

/// A session that goes on and on: something is said, a tool runs, the model replies.
struct Events {
    turn: Arc<TurnInfo>,
    sequence: u64,
    call: Option<Arc<Invocation>>,
}

impl Events {
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

    fn setup(&self) -> Setup {
        let (project, model) = ("/shop".to_owned(), "scripted:captain".to_owned());
        Setup {
            session: self.turn.session,
            me: "ann".into(),
            project,
            model,
        }
    }

    fn next(&mut self) -> Arc<Event> {
        self.sequence += 1;
        let (number, at) = (
            self.sequence,
            Timestamp::from_micros(self.sequence.cast_signed() * 1_000),
        );
        let event = match number % 8 {
            1 => self.around(
                at,
                LoopEvent::UserMessage {
                    message: number,
                    text: said(number),
                    steering: false,
                },
            ),
            2 => self.around(
                at,
                LoopEvent::InferenceStarted {
                    attempt: 1,
                    messages: number,
                    tools: 10,
                },
            ),
            3 => {
                let (id, call_id) = (
                    CallId::new(Uuid::from_u128(1_000 + u128::from(number))),
                    format!("c{number}"),
                );
                let (tool, turn) = ("read_file".into(), self.turn.clone());
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
                let (arguments_digest, executor) = (Digest::of_bytes(b""), None);
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
                let (arguments_digest, executor) = (Digest::of_bytes(b""), None);
                let started = ToolEvent::ToolExecutionStarted {
                    attempt: 1,
                    executor,
                    external: false,
                    arguments_digest,
                };
                self.tool(at, started)
            }
            5 => self.tool(
                at,
                ToolEvent::ToolLog {
                    level: toolgate::LogLevel::Info,
                    message: "reading".to_owned(),
                },
            ),
            6 => {
                let result = Json::new(json!({ "text": "fn add(a: i32, b: i32) -> i32 {}" })).ok();
                let (result_digest, attempts, cached, duration_ms) =
                    (Digest::of_bytes(b""), 1, false, 12);
                self.tool(
                    at,
                    ToolEvent::ToolExecutionSucceeded {
                        result,
                        result_digest,
                        result_bytes: 40,
                        model_bytes: 40,
                        attempts,
                        cached,
                        duration_ms,
                    },
                )
            }
            7 => {
                let (usage, cost) = (Some(Usage::default()), Cost::NanoUsd(1_000));
                let (text, finish) = (Some(REPLY.to_owned()), Finish::Stop);
                self.around(
                    at,
                    LoopEvent::InferenceFinished {
                        message: number,
                        text,
                        calls: 0,
                        finish,
                        usage,
                        cost,
                    },
                )
            }
            _ => {
                let (usage, cost) = (Usage::default(), Cost::NanoUsd(1_000));
                self.around(
                    at,
                    LoopEvent::RunEnded {
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

    fn around(&self, at: Timestamp, event: LoopEvent) -> Event {
        Event::around(self.sequence, at, self.turn.clone(), event).expect("valid")
    }

    fn tool(&self, at: Timestamp, event: ToolEvent) -> Event {
        let call = self.call.clone().expect("a call was asked for before");
        Event::tool(self.sequence, at, call, event).expect("valid")
    }
}

fn said(number: u64) -> Option<String> {
    Some(format!(
        "Question {number}: why does the test fail, and what would have to change for it to pass?"
    ))
}
