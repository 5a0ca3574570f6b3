//! Tools and calls that the tests of several layers share.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Call, CallSeed, Outcome, Registry, Schema, SessionId, ToolError, ToolSpec,
    TurnInfo, View,
};
use toolgate_testkit::{TestClock, env_at, seed_for};

/// Returns a view of `look`, which only reads, and `change`, which may have any effect.
pub(crate) fn test_tools() -> View {
    let registry = Registry::new();
    for (name, annotations) in [
        ("look", Annotations::read_only()),
        ("change", Annotations::default()),
    ] {
        let spec =
            ToolSpec::new(name, "A tool.", Schema::any_object()).with_annotations(annotations);
        registry.register_host(spec).expect("a good spec");
    }
    toolgate_testkit::plain_view(&registry)
}

/// Returns the seed of a call to one of these tools.
pub(crate) fn seed_at(clock: &TestClock, tool: &str, arguments: Value) -> CallSeed {
    CallSeed {
        env: env_at(clock),
        ..seed_for(&test_tools(), tool, arguments)
    }
}

/// Returns a call to one of these tools.
pub(crate) fn call_at(clock: &TestClock, tool: &str, arguments: Value) -> Call {
    Call::new(seed_at(clock, tool, arguments))
}

/// Returns the seed of call number `n`, with its own id and its own turn.
pub(crate) fn nth_seed(clock: &TestClock, n: u128, tool: &str, arguments: Value) -> CallSeed {
    let turn = TurnInfo::new(session_id(1), format!("{n:032x}").parse().expect("an id"));
    let id = format!("{n:032x}").parse().expect("an id");
    CallSeed {
        id,
        turn: Arc::new(turn),
        ..seed_at(clock, tool, arguments)
    }
}

/// Moves the call to another session.
pub(crate) fn in_session(seed: CallSeed, n: u128) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.session = session_id(n);
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

fn session_id(n: u128) -> SessionId {
    format!("{n:032x}").parse().expect("an id")
}

/// Moves the call to another principal.
pub(crate) fn by_principal(seed: CallSeed, principal: &str) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.principal = Some(principal.into());
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

/// Returns a transient failure, which may be retried.
pub(crate) fn busy_outcome() -> Outcome {
    Outcome::failed(ToolError::transient("the server is busy"))
}

/// Returns arguments that distinguish calls.
pub(crate) fn numbered_arguments(n: u64) -> Value {
    json!({ "n": n })
}
