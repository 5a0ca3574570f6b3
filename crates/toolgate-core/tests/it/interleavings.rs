//! Random interleavings of everything that can happen to a turn.
//!
//! `TOOLGATE_INTERLEAVINGS` sets the number of cases (100,000 in a normal run).

use std::sync::Arc;

use proptest::{prelude::*, test_runner::Config};
use toolgate_core::{
    ApprovalRequest, Arguments, Call, CallId, Digest, Event, InputKind, Invocation, LogLevel,
    Notes, Phase, Progress, RejectCode, SessionId, SettledOutcome, Status, Timestamp, ToolEvent,
    Turn, TurnEvent, TurnId, TurnInfo, TurnStep,
};
use toolgate_testkit::LifecycleChecker;
use uuid::Uuid;

/// A step that affects the call of a number, modulo the size of the turn.
#[derive(Debug, Clone, Copy)]
enum Move {
    Next,
    Start { outside: bool, attempt: u32 },
    Progress,
    Remark,
    Ask { generation: u32 },
    Settle(Status),
    Decide { approve: bool },
    Deliver(Status),
    Foreign,
    WrongTurn,
    Interrupt,
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Next),
        6 => (any::<bool>(), 1_u32..3).prop_map(|(outside, attempt)| Move::Start { outside, attempt }),
        2 => Just(Move::Progress),
        1 => Just(Move::Remark),
        4 => (0_u32..3).prop_map(|generation| Move::Ask { generation }),
        6 => status().prop_map(Move::Settle),
        5 => any::<bool>().prop_map(|approve| Move::Decide { approve }),
        5 => status().prop_map(Move::Deliver),
        1 => Just(Move::Foreign),
        1 => Just(Move::WrongTurn),
        1 => Just(Move::Interrupt),
    ]
}

/// A turn, its log, and the checker that reads the log.
struct World {
    turn: Turn,
    invocations: Vec<Arc<Invocation>>,
    /// External results that were accepted and wait for their call to leave the stack.
    delivered: Vec<Option<Status>>,
    denied: Vec<bool>,
    checker: LifecycleChecker,
    sequence: u64,
    continued: u32,
    /// Built once: an approval request costs more than everything else here.
    question: ApprovalRequest,
    digest: Digest,
}

impl World {
    fn new(size: usize) -> Self {
        let info = Arc::new(TurnInfo::new(
            SessionId::new(Uuid::from_u128(1)),
            TurnId::new(Uuid::from_u128(2)),
        ));
        let invocation = |n: usize| {
            let id = CallId::new(Uuid::from_u128(100 + n as u128));
            Arc::new(Invocation {
                id,
                call_id: n.to_string().into(),
                tool: "t".into(),
                emit_order: n as u32,
                turn: info.clone(),
            })
        };
        let invocations: Vec<_> = (0..size).map(invocation).collect();
        let turn = Turn::new(info.clone(), invocations.clone());
        let delivered = vec![None; size];
        let denied = vec![false; size];
        let checker = LifecycleChecker::new();
        let question = ApprovalRequest::for_call(&Call::detached("t", Arguments::empty()));
        let digest = Digest::of_bytes(b"");
        let sequence = 0;
        let continued = 0;
        let mut world = Self {
            turn,
            invocations,
            delivered,
            denied,
            checker,
            sequence,
            continued,
            question,
            digest,
        };
        world.write_turn(TurnEvent::TurnOpened {
            size: size as u32,
            after: None,
        });
        for n in 0..size {
            let digest = Digest::of_bytes(b"");
            let event = ToolEvent::ToolRequested {
                arguments: None,
                arguments_digest: digest,
                arguments_bytes: 0,
                executor: None,
            };
            assert!(world.apply(n, event));
        }
        world
    }

    fn write_turn(&mut self, event: TurnEvent) {
        self.sequence += 1;
        let event = Event::for_turn(
            self.sequence,
            Timestamp::EPOCH,
            self.turn.info().clone(),
            event,
        )
        .expect("valid");
        self.checker.check(&event).expect("the lifecycle holds");
    }

    /// Applies an event; the checker has to accept what the turn accepts.
    fn apply(&mut self, n: usize, event: ToolEvent) -> bool {
        if self.turn.apply(self.invocations[n].id, &event).is_err() {
            return false;
        }
        self.sequence += 1;
        let event = Event::for_invocation(
            self.sequence,
            Timestamp::EPOCH,
            self.invocations[n].clone(),
            event,
        )
        .expect("valid");
        self.checker.check(&event).expect("the lifecycle holds");
        true
    }

    fn slot(&self, n: usize) -> (Option<Phase>, u32) {
        let slot = &self.turn.slots()[n];
        (slot.phase(), slot.attempts())
    }

    fn settle(&mut self, n: usize, status: Status) -> bool {
        let (_, attempts) = self.slot(n);
        let mut settled = SettledOutcome::new(status);
        settled.attempts = attempts;
        self.apply(
            n,
            ToolEvent::from_settled(&settled, attempts > 0, None, None),
        )
    }

    fn post(&self, n: usize, kind: InputKind) -> Result<(), RejectCode> {
        self.turn
            .check_input(self.turn.info().turn, self.invocations[n].id, kind)
            .map(drop)
    }

    fn act(&mut self, n: usize, what: Move) {
        match what {
            Move::Next => self.next(),
            Move::Start { outside, attempt } => {
                let digest = self.digest;
                let event = ToolEvent::ToolExecutionStarted {
                    attempt,
                    executor: None,
                    external: outside,
                    arguments_digest: digest,
                    arguments: None,
                };
                self.apply(n, event);
            }
            Move::Progress => drop(self.apply(
                n,
                ToolEvent::ToolExecutionProgress {
                    progress: Progress::busy(),
                },
            )),
            Move::Remark => {
                self.apply(
                    n,
                    ToolEvent::ToolLog {
                        level: LogLevel::Info,
                        message: "denied".into(),
                    },
                );
                self.apply(
                    n,
                    ToolEvent::ToolCallAudit {
                        audit: Notes::default(),
                    },
                );
            }
            Move::Ask { generation } => {
                let mut request = self.question.clone();
                request.generation = generation;
                self.apply(n, ToolEvent::ToolApprovalRequested(Box::new(request)));
            }
            // A running call may end in any way; a suspended one ends after its input has arrived.
            Move::Settle(status) => {
                let waits = matches!(
                    self.slot(n).0,
                    Some(Phase::AwaitingApproval | Phase::AwaitingResult)
                );
                if !waits {
                    self.settle(n, status);
                }
            }
            Move::Decide { approve } => self.decide(n, approve),
            Move::Deliver(status) => self.deliver(n, status),
            Move::Foreign => {
                let unknown_call = CallId::new(Uuid::from_u128(7));
                let log = ToolEvent::ToolLog {
                    level: LogLevel::Info,
                    message: "x".into(),
                };
                assert!(self.turn.apply(unknown_call, &log).is_err());
                let code = self
                    .turn
                    .check_input(self.turn.info().turn, unknown_call, InputKind::Result)
                    .map(drop);
                assert_eq!(code, Err(RejectCode::UnknownInvocation));
            }
            Move::WrongTurn => {
                let other = TurnId::new(Uuid::from_u128(8));
                let code = self
                    .turn
                    .check_input(other, self.invocations[n].id, InputKind::Decision)
                    .map(drop);
                assert_eq!(code, Err(RejectCode::TurnMismatch));
            }
            Move::Interrupt => self.turn.stop(),
        }
    }

    fn decide(&mut self, n: usize, approve: bool) {
        let before = self.slot(n).0;
        match self.post(n, InputKind::Decision) {
            Ok(()) => {
                assert_eq!(before, Some(Phase::AwaitingApproval));
                if approve {
                    let event = ToolEvent::ToolApproved {
                        approver: "ann".into(),
                        established: Default::default(),
                        claimed_as: None,
                        reason: None,
                        edited: false,
                        unseen: false,
                        with: Vec::new(),
                    };
                    assert!(self.apply(n, event));
                } else {
                    self.turn
                        .mark_answered(self.invocations[n].id, RejectCode::AlreadyDenied);
                    self.denied[n] = true;
                }
            }
            Err(code) => self.check_code(n, before, code),
        }
    }

    fn deliver(&mut self, n: usize, status: Status) {
        let before = self.slot(n).0;
        match self.post(n, InputKind::Result) {
            Ok(()) => {
                assert_eq!(before, Some(Phase::AwaitingResult));
                self.turn
                    .mark_answered(self.invocations[n].id, RejectCode::Duplicate);
                self.delivered[n] = Some(status);
                assert_eq!(self.post(n, InputKind::Result), Err(RejectCode::Duplicate));
            }
            Err(code) => self.check_code(n, before, code),
        }
    }

    fn check_code(&self, n: usize, before: Option<Phase>, code: RejectCode) {
        assert_eq!(self.slot(n).0, before, "a rejected input changes nothing");
        match before {
            Some(Phase::Settled(status)) => assert_eq!(code, RejectCode::after_settled(status)),
            _ => assert!(!matches!(
                code,
                RejectCode::TurnMismatch | RejectCode::UnknownInvocation
            )),
        }
    }

    /// Performs the next step, as a driver would: an answered call leaves the stack now.
    fn next(&mut self) {
        match self.turn.next() {
            TurnStep::Run(calls) => {
                for call in calls {
                    let n = self
                        .invocations
                        .iter()
                        .position(|i| i.id == call)
                        .expect("one of ours");
                    match self.slot(n).0 {
                        Some(Phase::AwaitingResult) => {
                            let status = self.delivered[n]
                                .take()
                                .expect("only what was delivered is run again");
                            assert!(self.settle(n, status));
                        }
                        Some(Phase::AwaitingApproval) => {
                            assert!(
                                std::mem::take(&mut self.denied[n]),
                                "only what was denied is run again"
                            );
                            assert!(self.settle(n, Status::Denied));
                        }
                        phase => assert!(
                            matches!(phase, Some(Phase::Requested | Phase::Approved)),
                            "{phase:?}"
                        ),
                    }
                }
            }
            TurnStep::Continue => {
                assert!(self.turn.is_settled());
                self.continued += 1;
                self.write_turn(TurnEvent::TurnSettled);
            }
            TurnStep::Done => assert_eq!(self.continued, 1),
            TurnStep::Ask(_) | TurnStep::Wait => {
                assert!(!self.turn.is_settled() || self.continued == 1)
            }
        }
    }

    /// Ends everything and checks that it ended once.
    fn finish(mut self) {
        for n in 0..self.invocations.len() {
            if self.slot(n).0.is_some_and(|phase| !phase.is_settled()) {
                assert!(
                    self.settle(n, Status::Cancelled),
                    "what is open can always be cancelled"
                );
            }
        }
        for _ in 0..4 {
            self.next();
        }
        assert_eq!(self.continued, 1, "exactly one continuation");
        for n in 0..self.invocations.len() {
            for kind in [InputKind::Result, InputKind::Decision] {
                assert!(
                    self.post(n, kind).is_err(),
                    "no input is accepted after the end"
                );
            }
            for status in [Status::Ok, Status::Denied, Status::Cancelled] {
                assert!(!self.settle(n, status), "the first outcome stands");
            }
        }
        let size = self.invocations.len();
        let summary = self.checker.finish().expect("the lifecycle holds");
        assert_eq!((summary.ended.len(), summary.settled_turns), (size, 1));
    }
}

fn cases() -> u32 {
    std::env::var("TOOLGATE_INTERLEAVINGS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000)
}

proptest! {
    #![proptest_config(Config { cases: cases(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_interleaving_settles_each_call_once_and_continues_once(
        size in 1_usize..=12,
        steps in prop::collection::vec((any::<u8>(), moves()), 0..48),
    ) {
        let mut world = World::new(size);
        for (target, step) in steps {
            world.act(usize::from(target) % size, step);
        }
        world.finish();
    }
}
