//! A call that a policy asks about never runs without approval, whatever the stack around it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use serde_json::json;
use toolgate_core::{
    AnyLayer, ApprovalAnswer, ApprovalRequest, Arguments, Band, Call, CallSeed, Decision, Digest,
    HookAction, Hooks, Layer, LayerExt, Matcher, Next, SideEffect, Stack, Suspension, from_fn,
    map_call,
};
use toolgate_layers::{
    Approval, CatchPanic, DryRun, Idempotency, IdempotencyOptions, LoopGuard, LoopGuardOptions,
    Policy, PolicyOptions, Retry, RetryOptions, Scope, Timeout, Validate,
};
use toolgate_testkit::{FakeExecutor, seed};

/// A layer of a random stack.
#[derive(Debug, Clone, Copy)]
enum Piece {
    AskingPolicy,
    LenientPolicy,
    ApprovalWhenRequired,
    ApprovalFromEffect,
    ApprovalForOthers,
    ScopeLayer,
    ValidateLayer,
    LoopGuardLayer,
    IdempotencyLayer,
    RetryLayer,
    TimeoutLayer,
    DryRunForOthers,
    CatchPanicLayer,
    ReplacingHook,
    /// Changes the arguments.
    Rewrite(Band),
    /// Stores the first call that passes.
    KeepCall(Band),
    /// Passes on the stored call instead of its own.
    ReplayCall(Band),
    /// Stores the first `next` it gets, and runs every later call with it.
    KeepNext(Band),
    /// Runs `next` twice, one after the other.
    Twice(Band),
    /// Runs `next` twice at the same time.
    AtOnce(Band),
}

/// The call that the layers of a stack have stored, also from earlier entries of the call.
type KeptCall = Arc<Mutex<Option<Call>>>;

fn parse_policy(text: &str) -> Policy {
    Policy::new(toml::from_str::<PolicyOptions>(text).expect(text)).expect(text)
}

fn other_arguments() -> Arguments {
    Arguments::parse(r#"{"n":"other"}"#).expect("object")
}

impl Piece {
    fn build(self, kept: &KeptCall) -> AnyLayer {
        let kept = kept.clone();
        match self {
            Self::AskingPolicy => AnyLayer::new(parse_policy("default = 'ask'")),
            Self::LenientPolicy => AnyLayer::new(parse_policy("default = 'allow'")),
            Self::ApprovalWhenRequired => AnyLayer::new(Approval::when_required()),
            Self::ApprovalFromEffect => {
                AnyLayer::new(Approval::from_effect(SideEffect::WorkspaceWrite))
            }
            Self::ApprovalForOthers => {
                AnyLayer::new(Approval::when_required().on(Matcher::name("y")))
            }
            Self::ScopeLayer => AnyLayer::new(Scope::only(["x"])),
            Self::ValidateLayer => AnyLayer::new(Validate::new()),
            Self::LoopGuardLayer => {
                AnyLayer::new(LoopGuard::new(&LoopGuardOptions::default()).expect("valid"))
            }
            Self::IdempotencyLayer => {
                AnyLayer::new(Idempotency::new(&IdempotencyOptions::default()).expect("valid"))
            }
            Self::RetryLayer => AnyLayer::new(Retry::new(RetryOptions::default()).expect("valid")),
            Self::TimeoutLayer => AnyLayer::new(Timeout::after(Duration::from_secs(60))),
            Self::DryRunForOthers => AnyLayer::new(DryRun::only(["y"]).expect("valid")),
            Self::CatchPanicLayer => AnyLayer::new(CatchPanic),
            Self::ReplacingHook => AnyLayer::new(Hooks::new().before("*", async |_| {
                HookAction::Replace(Arguments::parse(r#"{"n":"hook"}"#).expect("object"))
            })),
            Self::Rewrite(band) => place(
                map_call(|call| call.with_arguments(other_arguments())),
                band,
            ),
            Self::KeepCall(band) => {
                let keep = move |call: Call| {
                    let mut slot = kept.lock().expect("no panic");
                    slot.get_or_insert_with(|| call.clone());
                    call
                };
                place(map_call(keep), band)
            }
            Self::ReplayCall(band) => {
                let replay =
                    move |call: Call| kept.lock().expect("no panic").clone().unwrap_or(call);
                place(map_call(replay), band)
            }
            Self::KeepNext(band) => {
                let kept = Mutex::new(None);
                let run = move |call: Call, next: Next| {
                    let mut slot = kept.lock().expect("no panic");
                    slot.get_or_insert(next).clone().run(call)
                };
                place(from_fn(run), band)
            }
            Self::Twice(band) => {
                let run = async |call: Call, next: Next| {
                    next.clone().run(call.clone()).await;
                    next.run(call).await
                };
                place(from_fn(run), band)
            }
            Self::AtOnce(band) => {
                let run = async |call: Call, next: Next| {
                    let first = next.clone().run(call.clone());
                    futures::join!(first, next.run(call)).1
                };
                place(from_fn(run), band)
            }
        }
    }
}

fn place(layer: impl Layer, band: Band) -> AnyLayer {
    AnyLayer::new(layer.in_band(band))
}

/// An answer to an approval request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Approve,
    ApproveWithEdits,
    Deny,
    /// An approval that another layer asked for.
    ForAnotherLayer,
    /// An approval of other arguments.
    ForOtherArguments,
}

impl Answer {
    /// Returns the answer, and the arguments that it approves.
    fn give(self, request: &ApprovalRequest) -> (ApprovalAnswer, Option<Digest>) {
        let edited = || Arguments::parse(r#"{"n":"edited"}"#).expect("object");
        let approve = Decision::approve("ann");
        let mut asked = request.clone();
        match self {
            Self::Approve => {
                let digest = request.arguments.digest();
                (ApprovalAnswer::for_request(request, approve), Some(digest))
            }
            Self::ApproveWithEdits => {
                let decision = Decision::approve_with_edits("ann", edited());
                let digest = edited().digest();
                (ApprovalAnswer::for_request(request, decision), Some(digest))
            }
            Self::Deny => {
                let decision = Decision::deny("ann", None);
                (ApprovalAnswer::for_request(request, decision), None)
            }
            Self::ForAnotherLayer => {
                asked.asked_by = Some("another".into());
                (ApprovalAnswer::for_request(&asked, approve), None)
            }
            Self::ForOtherArguments => {
                asked.arguments_digest = Digest::of_bytes(b"unseen");
                (ApprovalAnswer::for_request(&asked, approve), None)
            }
        }
    }
}

/// Builds the stack in the order of `pieces`, or with each layer in its band.
fn build_stack(pieces: &[Piece], by_band: bool, executor: FakeExecutor) -> Stack {
    let kept = KeptCall::default();
    let mut layers: Vec<AnyLayer> = pieces.iter().map(|piece| piece.build(&kept)).collect();
    if by_band {
        layers.sort_by_key(AnyLayer::stack_rank);
    }
    let mut builder = Stack::over(executor);
    for (at, layer) in layers.into_iter().enumerate() {
        let name = format!("layer {at}");
        builder = builder.layer(layer.named(&name));
        if !by_band {
            builder = builder.allow_out_of_band(&name);
        }
    }
    builder.build().expect("allowed")
}

/// Runs a call until it settles or there is no answer left; returns the arguments that ran, and
/// those that were approved before.
async fn run_call(stack: &Stack, executor: &FakeExecutor, answers: &[Answer]) -> Vec<Digest> {
    let mut seed = seed("x", json!({ "n": 1 }));
    let mut answers = answers.iter();
    let mut approved = BTreeSet::new();
    loop {
        let entry = CallSeed {
            attempts_before: u32::try_from(executor.seen().len()).expect("few"),
            ..seed.clone()
        };
        let outcome = stack.run(Call::new(entry)).await;
        let ran = executor
            .seen()
            .iter()
            .map(|call| call.arguments.digest())
            .collect::<Vec<_>>();
        for digest in &ran {
            assert!(approved.contains(digest), "it ran without approval");
        }
        let request = match outcome.suspension() {
            Some(Suspension::Decision(request)) => request,
            Some(Suspension::Result) | None => return ran,
        };
        let Some(answer) = answers.next() else {
            return ran;
        };
        let (answer, digest) = answer.give(request);
        approved.extend(digest);
        seed.resumed.answers.push(answer);
        seed.generation += 1;
    }
}

fn any_piece() -> impl Strategy<Value = Piece> {
    use Piece::*;
    let band = || prop::sample::select(Band::ALL.to_vec());
    let bundled = vec![
        AskingPolicy,
        LenientPolicy,
        ApprovalForOthers,
        ScopeLayer,
        ValidateLayer,
        LoopGuardLayer,
        IdempotencyLayer,
        RetryLayer,
        TimeoutLayer,
        DryRunForOthers,
        CatchPanicLayer,
        ReplacingHook,
    ];
    prop_oneof![
        4 => prop::sample::select(bundled),
        3 => prop::sample::select(vec![ApprovalWhenRequired, ApprovalFromEffect]),
        1 => band().prop_map(Rewrite),
        1 => band().prop_map(KeepCall),
        1 => band().prop_map(ReplayCall),
        1 => band().prop_map(KeepNext),
        1 => band().prop_map(Twice),
        1 => band().prop_map(AtOnce),
    ]
}

fn any_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        4 => Just(Answer::Approve),
        1 => Just(Answer::ApproveWithEdits),
        1 => Just(Answer::Deny),
        1 => Just(Answer::ForAnotherLayer),
        1 => Just(Answer::ForOtherArguments),
    ]
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn with_policy(mut pieces: Vec<Piece>, at: prop::sample::Index) -> Vec<Piece> {
    pieces.insert(at.index(pieces.len() + 1), Piece::AskingPolicy);
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_a_policy_asks_about_runs_only_with_the_arguments_that_were_approved(
        pieces in prop::collection::vec(any_piece(), 0..8),
        at: prop::sample::Index,
        by_band: bool,
        answers in prop::collection::vec(any_answer(), 0..5),
    ) {
        let pieces = with_policy(pieces, at);
        let executor = FakeExecutor::new();
        let stack = build_stack(&pieces, by_band, executor.clone());
        block_on(run_call(&stack, &executor, &answers));
    }

    #[test]
    fn without_an_approval_layer_nothing_runs_that_a_policy_asks_about(
        pieces in prop::collection::vec(any_piece(), 0..8),
        at: prop::sample::Index,
        by_band: bool,
    ) {
        use Piece::{ApprovalFromEffect, ApprovalWhenRequired};
        let mut pieces = with_policy(pieces, at);
        pieces.retain(|piece| !matches!(piece, ApprovalFromEffect | ApprovalWhenRequired));
        let executor = FakeExecutor::new();
        let stack = build_stack(&pieces, by_band, executor.clone());
        let ran = block_on(run_call(&stack, &executor, &[Answer::Approve]));
        prop_assert_eq!(ran, []);
    }
}

#[tokio::test]
async fn an_approved_call_runs_in_the_same_random_stacks() {
    use Piece::*;
    let approvals = [ApprovalWhenRequired, ApprovalFromEffect];
    for approval in approvals {
        let executor = FakeExecutor::new();
        let pieces = [
            ScopeLayer,
            AskingPolicy,
            KeepCall(Band::Decide),
            LenientPolicy,
            approval,
            ApprovalForOthers,
            RetryLayer,
            Twice(Band::Repeat),
            TimeoutLayer,
        ];
        let stack = build_stack(&pieces, true, executor.clone());
        let ran = run_call(&stack, &executor, &[Answer::Approve]).await;
        assert_eq!(ran.len(), 2, "{approval:?}");
    }
}
