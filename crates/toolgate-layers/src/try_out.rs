//! Tools and calls that the tests of several layers share.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Call, CallSeed, Outcome, Registry, Schema, SessionId, ToolError, ToolSpec,
    TurnInfo, View,
};
use toolgate_testkit::{TestClock, env_at, seed_for};

/// A view of `look`, which only reads, and `change`, which may do anything.
pub(crate) fn tools() -> View {
    let registry = Registry::new();
    for (name, annotations) in [
        ("look", Annotations::read_only()),
        ("change", Annotations::default()),
    ] {
        let spec =
            ToolSpec::new(name, "A tool.", Schema::any_object()).with_annotations(annotations);
        registry.register_host(spec).expect("a good spec");
    }
    View::of(&registry)
}

/// What a call of one of these tools is made from.
pub(crate) fn seed_at(clock: &TestClock, tool: &str, arguments: Value) -> CallSeed {
    CallSeed {
        env: env_at(clock),
        ..seed_for(&tools(), tool, arguments)
    }
}

/// A call of one of these tools.
pub(crate) fn call_at(clock: &TestClock, tool: &str, arguments: Value) -> Call {
    Call::new(seed_at(clock, tool, arguments))
}

/// Call number `n`: with an id of its own, in a turn of its own.
pub(crate) fn nth(clock: &TestClock, n: u128, tool: &str, arguments: Value) -> CallSeed {
    let turn = TurnInfo::new(session(1), format!("{n:032x}").parse().expect("an id"));
    let id = format!("{n:032x}").parse().expect("an id");
    CallSeed {
        id,
        turn: Arc::new(turn),
        ..seed_at(clock, tool, arguments)
    }
}

/// The same call in another session.
pub(crate) fn in_session(seed: CallSeed, n: u128) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.session = session(n);
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

fn session(n: u128) -> SessionId {
    format!("{n:032x}").parse().expect("an id")
}

/// The same call by another principal.
pub(crate) fn by(seed: CallSeed, principal: &str) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.principal = Some(principal.into());
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

/// An outcome that is worth another attempt.
pub(crate) fn busy() -> Outcome {
    Outcome::failed(ToolError::transient("the server is busy"))
}

/// Arguments that tell calls apart.
pub(crate) fn numbered(n: u64) -> Value {
    json!({ "n": n })
}
