//! Approval tokens: only the genuine ones verify, and no edit of one does.

use std::sync::LazyLock;

use serde_json::json;
use toolgate_core::{
    ApprovalAnswer, ApprovalRequest, Decision, KeyKind, Keyring, SecretKey, Timestamp,
    unverified_approval_id,
};
use toolgate_testkit::call_with;

use crate::{FuzzTarget, InputTrace, targets::edits::apply_edits};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("tokens", run, WORDS);

const WORDS: &[&str] = &[
    "tg1.", "tg2.", "k1", "k2", ".", "=", "==", "-", "_", "+", "/", "A", "e30", "bnVsbA",
];

/// Two keys, the tokens of each, and the request that they are about.
struct TokenWorld {
    ring: Keyring,
    request: ApprovalRequest,
    asks: Vec<String>,
    grants: Vec<String>,
}

static WORLD: LazyLock<TokenWorld> = LazyLock::new(|| {
    let key = |id: &str, kind| SecretKey::new(id.parse().expect("an id"), kind, [7; 32]);
    let request = ApprovalRequest::for_call(&call_with("pay", json!({ "amount": 12 })))
        .expiring_at(Timestamp::from_micros(1_000_000));
    let mut answer = ApprovalAnswer::for_request(&request, Decision::approve("ann"));
    answer.decided_at = Some(Timestamp::from_micros(500));
    let rings = [("k1", KeyKind::HmacSha256), ("k2", KeyKind::Ed25519)]
        .map(|(id, kind)| Keyring::new(key(id, kind)));
    TokenWorld {
        asks: rings.iter().map(|ring| ring.ask_token(&request)).collect(),
        grants: rings
            .iter()
            .filter_map(|ring| ring.grant_token(&request, &answer))
            .collect(),
        ring: Keyring::new(key("k1", KeyKind::HmacSha256)).verifying(key("k2", KeyKind::Ed25519)),
        request,
    }
});

fn run(data: &[u8]) -> InputTrace {
    let world = &*WORLD;
    let genuine: Vec<&String> = world.asks.iter().chain(&world.grants).collect();
    // The first byte chooses a genuine token to edit; most others are a token of the input's own.
    let token = match data.split_first() {
        Some((first, edits)) if *first < 16 => apply_edits(
            genuine[usize::from(*first) % genuine.len()].as_bytes(),
            edits,
        ),
        _ => data.to_vec(),
    };
    let token = String::from_utf8_lossy(&token);
    let asked = world
        .ring
        .check_ask_token(&token, &world.request, Timestamp::EPOCH);
    let granted = world.ring.verify_grant_token(&token);
    assert_eq!(
        asked.is_ok(),
        world.asks.iter().any(|ask| *ask == token),
        "a token that was not issued verifies, or one that was does not"
    );
    assert_eq!(
        granted.is_ok(),
        world.grants.iter().any(|grant| *grant == token),
        "an answer that was not signed verifies, or one that was does not"
    );
    let claimed = unverified_approval_id(&token);
    let words = [asked.err(), granted.err()].map(|error| error.map(|error| error.to_string()));
    InputTrace::of((words, claimed.is_some()))
}
