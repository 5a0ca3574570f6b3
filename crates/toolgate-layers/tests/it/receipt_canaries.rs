//! No secret, and no digest from which a secret could be guessed, is in a receipt.

use serde_json::{Value, json};
use toolgate_core::{Call, CallSeed, Digest, Json, Outcome, Stack, map_outcome};
use toolgate_layers::{
    CommitmentKey, DigestedValue, Ledger, ReceiptFilter, Receipts, SecretScanner, SharedRedactor,
};
use toolgate_testkit::{echo, seed};

/// Secrets with few possible values, by field. The program configures `pin` and `birthday`.
const SECRETS: [(&str, &str); 4] = [
    ("pin", "4711"),
    ("birthday", "1990-01-01"),
    ("password", "hunter2"),
    ("api_key", "yes-or-no-7"),
];

/// Returns the digests that an attacker who guesses values would compute.
fn guessed_digests(field: &str, secret: &str) -> Vec<Digest> {
    let values = [
        json!(secret),
        json!({ field: secret }),
        json!({ field: secret, "n": 1 }),
        json!([secret]),
    ];
    let digests = values
        .iter()
        .map(|value| Json::new(value.clone()).expect("shallow").digest());
    digests
        .chain([Digest::of_bytes(secret.as_bytes())])
        .collect()
}

#[tokio::test]
async fn neither_a_secret_nor_a_digest_of_one_is_in_a_receipt_and_its_owner_can_prove_it() {
    let key = CommitmentKey::new([3; 32]);
    let receipts = Receipts::to_store()
        .redact(["pin", "birthday"])
        .commitment_key(key.clone());
    let receipts = receipts.redactor(SharedRedactor::new(SecretScanner::standard()));
    let telling = map_outcome(|call: &Call, outcome: Outcome| {
        let arguments = call.arguments.as_json().as_value().clone();
        outcome.with_notes(|notes| drop(notes.metadata.insert("arguments".into(), arguments)))
    });
    let stack = Stack::over(echo())
        .layer(receipts)
        .layer(telling)
        .build()
        .expect("in order");
    for (n, (field, secret)) in SECRETS.into_iter().enumerate() {
        let id = format!("{:032x}", n + 1).parse().expect("an id");
        let call = Call::new(CallSeed {
            id,
            ..seed("t", json!({ field: secret, "n": 1 }))
        });
        stack.run(call.clone()).await;
        let ledger = Ledger::main(call.env().store().clone());
        let sealed = ledger
            .find_receipt(call.id)
            .await
            .expect("reads")
            .expect("there");
        let text = serde_json::to_string(&sealed.receipt).expect("writes");
        assert!(!text.contains(secret), "{text}");
        for guess in guessed_digests(field, secret) {
            let hex = guess.to_string().trim_start_matches("sha256:").to_owned();
            assert!(!text.contains(&hex), "{field} can be guessed: {text}");
        }
        for within in [DigestedValue::Arguments, DigestedValue::Result] {
            let pointer = format!("/{field}");
            assert!(
                key.opens(&sealed.receipt, within, &pointer, &Value::from(secret)),
                "{text}"
            );
            assert!(!key.opens(&sealed.receipt, within, &pointer, &Value::from("guess")));
            assert!(!CommitmentKey::new([4; 32]).opens(
                &sealed.receipt,
                within,
                &pointer,
                &Value::from(secret)
            ));
        }
        let page = ledger
            .list_receipts(&ReceiptFilter::default())
            .await
            .expect("reads");
        assert_eq!(page.receipts.len(), 1, "each call has its own store here");
    }
}
