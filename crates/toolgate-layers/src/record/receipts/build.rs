//! Builds a receipt from a call and its outcome.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value};
use toolgate_core::{
    Call, Digest, Json, JsonChange, LayerNote, NoteFields, Provenance, SettledOutcome, Status,
    ToolHints, argument_pointer, note_keys, unescape_pointer_token,
};

use crate::{
    Commitment, CommitmentKey, DigestedValue, LayerDecision, Receipt, ReceiptApproval,
    record::{
        passage::CallPassage,
        receipts::{
            bounds::{small_map, small_value},
            commitment::CommitmentWriter,
            sanitize::{RecordSanitizer, truncate_text},
        },
    },
};

/// The longest text copied from a note or a provider, in characters.
const MAX_TEXT_CHARS: usize = 2_000;

/// The most commitments that are listed.
const MAX_COMMITMENTS: usize = 64;

/// The replacement for a required text that could not be redacted.
const WITHHELD: &str = "[withheld]";

impl Receipt {
    /// Builds the receipt of a settled call.
    pub(crate) fn from_passage(
        passage: &CallPassage<'_>,
        settled: &SettledOutcome,
        keeper: &RecordSanitizer,
        key: &CommitmentKey,
    ) -> Self {
        let CallPassage {
            call,
            next,
            started_at,
            ended_at,
        } = *passage;
        let turn = call.turn();
        let annotations = call.annotations();
        let mut copy = RedactedCopier {
            keeper,
            failed: false,
        };
        let mut prints = DigestRecorder {
            key,
            call,
            commitments: Vec::new(),
        };
        let layers = copy.copy_layers(passage.layers_below());
        // Only if something changed: computing the differences is expensive.
        let touched = layers.iter().any(|layer| layer.changed)
            || call.resume_state().edited_arguments().is_some();
        let changes = if touched {
            copy.copy_changes(next.trail().provenance())
        } else {
            Vec::new()
        };
        let args = prints.digest_value(
            DigestedValue::Arguments,
            call.arguments.as_json(),
            &mut copy,
        );
        let executed = next
            .trail()
            .executed_arguments()
            .filter(|executed| *executed != call.arguments);
        let executed = executed.and_then(|executed| {
            prints.digest_value(
                DigestedValue::ExecutedArguments,
                executed.as_json(),
                &mut copy,
            )
        });
        let result = prints.digest_value(DigestedValue::Result, &settled.value, &mut copy);
        let refusal = settled
            .error
            .as_ref()
            .filter(|_| settled.status.is_refusal());
        let attempts = next.trail().attempts();
        // A layer that stops a tool settles in its place and does not name the executor it stopped.
        let ran_by = call
            .shown_tool()
            .filter(|_| attempts > 0)
            .map(|shown| shown.entry.executor.clone());
        let mut receipt = Self {
            schema_version: Self::SCHEMA_VERSION,
            receipt_uri: None,
            session_id: turn.session,
            turn_id: turn.turn,
            invocation_id: call.id,
            // The provider's id is foreign text, so it is redacted like any other.
            call_id: copy
                .copy_shared(call.provider_call_id())
                .unwrap_or_else(|| WITHHELD.into()),
            generation: call.generation,
            iteration: turn.iteration,
            emit_order: call.emit_order(),
            tool_name: call.tool.clone(),
            fingerprint: call.shown_tool().map(|shown| shown.entry.fingerprint),
            executor: settled.executor.clone().or(ran_by),
            status: settled.status,
            error_category: settled.error.as_ref().map(|error| error.category),
            attempts,
            cached: settled.cached,
            started_at,
            ended_at,
            args_digest: args.map(|(digest, _)| digest),
            args_bytes: args.map(|(_, size)| size),
            executed_args_digest: executed.map(|(digest, _)| digest),
            result_digest: result.map(|(digest, _)| digest),
            result_bytes: result.map(|(_, size)| size),
            commitments: prints.commitments,
            redaction_failed: false,
            summary: None,
            description: None,
            reason: refusal
                .and_then(|error| copy.copy_text(error.reason.as_ref().unwrap_or(&error.model))),
            kind: annotations.kind,
            hints: Some(annotations.hints).filter(|hints| *hints != ToolHints::default()),
            layers,
            changes,
            consent: None,
            approval: call_approval(call, settled),
            scope: None,
            policy_version: None,
            model: turn.model.clone(),
            provider: turn.provider.clone(),
            principal: turn.principal.clone(),
            agent_id: turn.agent_id.clone(),
            agent_name: turn.agent_name.clone(),
            labels: turn.labels.clone(),
            cost: call_cost(passage, settled),
            audit: Map::new(),
        };
        if let Some(notes) = settled.notes.fields() {
            receipt.copy_notes(notes, &mut copy);
        }
        receipt.redaction_failed = copy.failed;
        receipt
    }

    /// Copies what tools and layers have noted, redacted and bounded.
    fn copy_notes(&mut self, notes: &NoteFields, copy: &mut RedactedCopier<'_>) {
        self.summary = notes
            .summary
            .as_deref()
            .and_then(|text| copy.copy_text(text));
        self.description = notes
            .description
            .as_deref()
            .and_then(|text| copy.copy_text(text));
        self.kind = notes.kind.or(self.kind);
        self.hints = notes.hints.or(self.hints);
        self.consent.clone_from(&notes.consent);
        if let Some(consent) = &mut self.consent {
            consent.decision = truncate_text(&consent.decision, MAX_TEXT_CHARS);
        }
        self.scope = notes
            .scope
            .as_ref()
            .and_then(|scope| copy.copy_value(scope));
        self.policy_version = notes
            .policy_version
            .as_ref()
            .and_then(|version| copy.copy_shared(version));
        if !notes.metadata.is_empty() {
            self.copy_metadata(&notes.metadata, copy);
        }
    }

    fn copy_metadata(&mut self, metadata: &Map<String, Value>, copy: &mut RedactedCopier<'_>) {
        let mut kept = copy.copy_map(metadata).into_owned();
        // Noted here by earlier versions, whose outcomes may still be handed over.
        let version = note_keys::POLICY_VERSION.read_from(&kept).ok().flatten();
        if let Some(version) = version {
            kept.remove(note_keys::POLICY_VERSION.name());
            let version = || truncate_text(version, MAX_TEXT_CHARS).into();
            self.policy_version.get_or_insert_with(version);
        }
        self.audit = kept;
    }
}

/// Returns the cost of the call: the amount that a budget charged, or the tool's price if the tool
/// was started.
fn call_cost(passage: &CallPassage<'_>, settled: &SettledOutcome) -> Option<f64> {
    let amount = |cost: &f64| cost.is_finite() && *cost >= 0.0;
    let booked = settled
        .notes
        .fields()
        .and_then(|notes| notes.get(note_keys::COST).ok().flatten())
        .filter(amount);
    // A price is charged only for work that was done: not for a cached result or a dry run.
    let ran =
        passage.next.trail().attempts() > 0 && !settled.cached && settled.status != Status::DryRun;
    booked.or_else(|| {
        passage
            .call
            .annotations()
            .cost
            .filter(amount)
            .filter(|_| ran)
    })
}

/// Returns the newest decision about the call, or the standing rule that made one unnecessary.
fn call_approval(call: &Call, settled: &SettledOutcome) -> Option<ReceiptApproval> {
    let noted = settled
        .notes
        .fields()
        .and_then(|notes| notes.get(note_keys::APPROVAL_RULE).ok().flatten());
    let rule = noted.map(|rule| truncate_text(rule, MAX_TEXT_CHARS));
    let Some(answer) = call.resume_state().answers.last() else {
        return rule.map(|rule| ReceiptApproval {
            rule: Some(rule),
            ..ReceiptApproval::default()
        });
    };
    Some(ReceiptApproval {
        by: Some(answer.decision.by.name.clone()),
        with: answer.with.iter().map(|by| by.name.clone()).collect(),
        identities: answer.established_identities(),
        at: answer.decided_at,
        // A digest only: receipts are read by many, and a token could be presented again.
        token: answer
            .token
            .as_deref()
            .map(|token| Digest::of_bytes(token.as_bytes())),
        rule,
        unseen: answer.decision.unseen,
    })
}

/// The digests of a call, with the commitments that replace redacted values in them.
struct DigestRecorder<'a> {
    key: &'a CommitmentKey,
    call: &'a Call,
    commitments: Vec<Commitment>,
}

impl DigestRecorder<'_> {
    /// Returns digest and size of the redacted value, or `None` if it could not be redacted.
    fn digest_value(
        &mut self,
        within: DigestedValue,
        original: &Json,
        copy: &mut RedactedCopier<'_>,
    ) -> Option<(Digest, u64)> {
        let redacted = copy.copy_json(original)?;
        // The same allocation: nothing was redacted, and the digest is cached.
        if redacted.is_same(original) {
            return Some((original.digest(), original.size() as u64));
        }
        let mut committer = CommitmentWriter {
            keeper: copy.keeper,
            key: self.key,
            invocation: self.call.id,
            made: Vec::new(),
        };
        // Without commitments, two calls that differ only in a secret would have the same digest.
        let hashed = committer.commit_differences(original, &redacted, &mut String::new());
        for (pointer, hmac) in committer.made {
            if self.commitments.len() < MAX_COMMITMENTS {
                let pointer = copy.copy_pointer(&pointer);
                self.commitments.push(Commitment {
                    hmac,
                    pointer,
                    within,
                });
            }
        }
        let hashed = copy.note_failure(Json::new(hashed).ok())?;
        Some((hashed.digest(), hashed.size() as u64))
    }
}

/// Makes redacted copies and records whether one of them failed.
struct RedactedCopier<'a> {
    keeper: &'a RecordSanitizer,
    failed: bool,
}

impl RedactedCopier<'_> {
    /// Records a failure if there is no copy.
    fn note_failure<T>(&mut self, copy: Option<T>) -> Option<T> {
        self.failed |= copy.is_none();
        copy
    }

    fn copy_json(&mut self, json: &Json) -> Option<Json> {
        self.note_failure(self.keeper.sanitize_json(json))
    }

    fn copy_value(&mut self, value: &Value) -> Option<Value> {
        // Limited before redaction: the redactor should not have to search megabytes of notes.
        let json = Json::new(small_value(value)).ok()?;
        self.copy_json(&json).map(|kept| kept.as_value().clone())
    }

    fn copy_map<'m>(&mut self, map: &'m Map<String, Value>) -> Cow<'m, Map<String, Value>> {
        let kept = match small_map(map) {
            Cow::Borrowed(all) => self.keeper.sanitize_map(all),
            Cow::Owned(small) => self
                .keeper
                .sanitize_map(&small)
                .map(|kept| Cow::Owned(kept.into_owned())),
        };
        self.note_failure(kept).unwrap_or_default()
    }

    fn copy_text(&mut self, text: &str) -> Option<String> {
        // Redacted first and truncated afterwards: a detector does not recognise half a secret.
        self.note_failure(self.keeper.sanitize_text(text))
            .map(|kept| truncate_text(kept, MAX_TEXT_CHARS))
    }

    /// Does what [`copy_text`](Self::copy_text) does, and copies nothing if nothing has to change.
    fn copy_shared(&mut self, text: &Arc<str>) -> Option<Arc<str>> {
        // No text has more characters than bytes.
        let is_short = text.len() <= MAX_TEXT_CHARS;
        match self.note_failure(self.keeper.sanitize_text(text))? {
            Cow::Borrowed(_) if is_short => Some(text.clone()),
            kept => Some(truncate_text(kept, MAX_TEXT_CHARS).into()),
        }
    }

    /// Redacts the pointers of changes: field names come from the model and the tool, so they may
    /// be secrets too.
    fn copy_changes(&mut self, changes: Vec<Provenance>) -> Vec<Provenance> {
        let mut place = |change: JsonChange| JsonChange {
            pointer: self.copy_pointer(&change.pointer),
            ..change
        };
        let by_layer = |by: Provenance| Provenance {
            changes: by.changes.into_iter().map(&mut place).collect(),
            ..by
        };
        changes.into_iter().map(by_layer).collect()
    }

    /// Redacts a JSON pointer step by step, so that it stays a pointer.
    fn copy_pointer(&mut self, pointer: &str) -> String {
        let step = |step: &str| {
            // Unescaped for the redactor, which does not recognise a secret with `~1` in place of a
            // slash.
            let name = unescape_pointer_token(step);
            argument_pointer(&self.copy_text(&name).unwrap_or_else(|| WITHHELD.to_owned()))
        };
        // What comes before the first slash is empty.
        truncate_text(
            pointer.split('/').skip(1).map(step).collect::<String>(),
            MAX_TEXT_CHARS,
        )
    }

    /// Converts the notes of the trail, with redacted reasons.
    fn copy_layers(&mut self, notes: Vec<LayerNote>) -> Vec<LayerDecision> {
        let decision = |note: LayerNote| LayerDecision {
            duration_us: u64::try_from(note.ended_at.since(note.started_at).as_micros())
                .unwrap_or(u64::MAX),
            reason: note.reason.as_ref().and_then(|text| self.copy_shared(text)),
            name: note.name,
            band: note.band,
            status: note.status,
            answered: note.answered,
            changed: note.changed,
            attempt: note.attempt,
            error: note.error,
        };
        notes.into_iter().map(decision).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryReceipts, Receipts, SharedRedactor};
    use serde_json::json;
    use std::{collections::BTreeSet, time::Duration};
    use toolgate_core::Refusal;
    use toolgate_core::{
        Annotations, AnyLayer, ApprovalAnswer, ApprovalRequest, Arguments, CallSeed, ConsentNote,
        Decision, Next, Outcome, RedactionError, Redactor, Registry, Schema, Stack, Timestamp,
        ToolSpec, around, canonical_text, from_fn, map_call, map_outcome,
    };
    use toolgate_testkit::{
        FakeExecutor, TestClock, call_with, echo, echo_under, env_at, seed, seed_for,
    };

    #[tokio::test]
    async fn a_receipt_identifies_the_call_but_has_no_contents() {
        let kept = MemoryReceipts::default();
        let clock = TestClock::new();
        let hands = clock.clone();
        let noting = map_outcome(move |_: &Call, outcome: Outcome| {
            hands.advance(Duration::from_millis(7));
            outcome.with_notes(|notes| {
                notes.summary = Some("why".into());
                notes.consent = Some(ConsentNote {
                    decision: "approved".into(),
                    decided_by: "ann".into(),
                    decided_at: Timestamp::EPOCH,
                });
                notes.metadata.insert("policy_version".into(), "v7".into());
                notes.metadata.insert("note".into(), 1.into());
            })
        });
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(noting)
            .build()
            .expect("in order");
        let call = Call::new(CallSeed {
            env: env_at(&clock),
            ..seed("t", json!({ "text": "contents" }))
        });
        let outcome = stack.run(call.clone()).await;
        let receipt = &kept.receipts()[0];
        assert_eq!(
            (
                receipt.schema_version,
                receipt.receipt_id(),
                receipt.invocation_id
            ),
            (3, call.id, call.id)
        );
        assert_eq!(
            (receipt.session_id, receipt.turn_id),
            (call.turn().session, call.turn().turn)
        );
        assert_eq!(
            (&*receipt.call_id, receipt.status, receipt.attempts),
            ("call_1", Status::Ok, 1)
        );
        assert_eq!(
            receipt.ended_at.since(receipt.started_at),
            Duration::from_millis(7)
        );
        assert_eq!(receipt.args_digest, Some(call.arguments.digest()));
        assert_eq!(
            receipt.result_digest,
            Some(outcome.settled().expect("settled").value.digest())
        );
        assert_eq!(
            receipt.args_bytes,
            Some(r#"{"text":"contents"}"#.len() as u64)
        );
        assert_eq!(
            (
                receipt.summary.as_deref(),
                receipt.policy_version.as_deref()
            ),
            (Some("why"), Some("v7"))
        );
        assert_eq!(
            receipt
                .consent
                .as_ref()
                .map(|consent| consent.decided_by.as_str()),
            Some("ann")
        );
        assert_eq!(
            serde_json::Value::from(receipt.audit.clone()),
            json!({ "note": 1 })
        );
        let layers: Vec<_> = receipt
            .layers
            .iter()
            .map(|layer| (layer.name.as_str(), layer.duration_us))
            .collect();
        assert_eq!(
            layers,
            [("map_outcome", 7_000)],
            "the unfinished receipts layer itself is not listed"
        );
        let text = serde_json::to_string(&**receipt).expect("writes");
        assert_eq!(
            text,
            canonical_text(&**receipt).expect("writes"),
            "the fields are declared in canonical order, so no tree is needed to sort them"
        );
        assert!(!text.contains("contents"), "{text}");
        assert_eq!(
            serde_json::from_str::<Receipt>(&text).expect("reads"),
            **receipt
        );
    }

    #[tokio::test]
    async fn executed_arguments_have_their_own_digest_if_a_layer_changed_them() {
        let kept = MemoryReceipts::default();
        let given = Arguments::try_from(json!({ "n": 2 })).expect("an object");
        let handed = given.clone();
        let rewrite = map_call(move |call: Call| call.with_arguments(handed.clone()));
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(rewrite)
            .build()
            .expect("in order");
        stack.run(call_with("t", json!({ "n": 1 }))).await;
        stack.run(call_with("t", json!({ "n": 2 }))).await;
        let digests: Vec<_> = kept
            .receipts()
            .iter()
            .map(|receipt| receipt.executed_args_digest)
            .collect();
        assert_eq!(digests, [Some(given.digest()), None]);
    }

    #[tokio::test]
    async fn calls_that_differ_only_in_a_redacted_key_have_different_digests_that_reveal_nothing() {
        let kept = MemoryReceipts::default();
        let stack = echo_under(Receipts::to(kept.clone()).redact(["token"]));
        let with = |token: &str| json!({ "n": [{ "token": token, "m": 1 }] });
        for arguments in [
            with("a"),
            with("b"),
            with("a"),
            json!({ "n": [{ "m": 1 }] }),
        ] {
            stack.run(call_with("t", arguments)).await;
        }
        let receipts = kept.receipts();
        let digests: BTreeSet<_> = receipts
            .iter()
            .map(|r| (r.args_digest, r.result_digest))
            .collect();
        assert_eq!(digests.len(), 3, "the same call has the same digest");
        for (receipt, token) in receipts.iter().zip(["a", "b"]) {
            let raw = Json::new(with(token)).expect("shallow").digest();
            assert!(
                receipt.args_digest.is_some_and(|digest| digest != raw),
                "a digest of the raw value can be guessed"
            );
            let places: Vec<_> = receipt
                .commitments
                .iter()
                .map(|made| (made.within, &*made.pointer))
                .collect();
            assert_eq!(
                places,
                [
                    (DigestedValue::Arguments, "/n/0/token"),
                    (DigestedValue::Result, "/n/0/token")
                ]
            );
        }
        assert!(receipts[3].commitments.is_empty());
    }

    #[tokio::test]
    async fn without_the_key_a_commitment_is_as_good_as_random() {
        let kept = MemoryReceipts::default();
        let receipts = Receipts::to(kept.clone()).redact(["pin"]);
        for key in [
            None,
            Some(CommitmentKey::new([1; 32])),
            Some(CommitmentKey::new([2; 32])),
        ] {
            let receipts = key.map_or_else(
                || receipts.clone(),
                |key| receipts.clone().commitment_key(key),
            );
            echo_under(receipts)
                .run(call_with("t", json!({ "pin": 1234 })))
                .await;
        }
        let digests: BTreeSet<_> = kept
            .receipts()
            .iter()
            .map(|receipt| receipt.args_digest)
            .collect();
        assert_eq!(
            digests.len(),
            3,
            "a reader without the key cannot guess pins"
        );
    }

    #[tokio::test]
    async fn a_receipt_names_the_approval_but_never_has_the_token() {
        let kept = MemoryReceipts::default();
        let mut seed = seed("t", json!({}));
        let mut answer = ApprovalAnswer::for_request(
            &ApprovalRequest::for_call(&Call::new(seed.clone())),
            Decision::approve("ann").unseen(),
        );
        answer.token = Some("tg1.secret-token".into());
        answer.decided_at = Some(Timestamp::from_micros(7));
        answer.with = vec!["ben".into()];
        seed.resumed.answers.push(answer);
        let noting = map_outcome(|_: &Call, outcome: Outcome| {
            outcome.with_notes(|notes| {
                drop(
                    notes
                        .metadata
                        .insert("approval_rule".into(), "rule-7".into()),
                )
            })
        });
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(noting)
            .build()
            .expect("in order");
        stack.run(Call::new(seed)).await;
        let receipt = &kept.receipts()[0];
        let expected = ReceiptApproval {
            by: Some("ann".into()),
            with: vec!["ben".into()],
            identities: Vec::new(),
            at: Some(Timestamp::from_micros(7)),
            token: Some(Digest::of_bytes(b"tg1.secret-token")),
            rule: Some("rule-7".into()),
            unseen: true,
        };
        assert_eq!(receipt.approval.as_ref(), Some(&expected));
        assert!(
            !serde_json::to_string(&**receipt)
                .expect("writes")
                .contains("secret-token")
        );
        stack.run(call_with("t", json!({}))).await;
        let by_rule = kept.receipts()[1]
            .approval
            .clone()
            .expect("a rule approved");
        assert_eq!(
            (by_rule.by, by_rule.rule.as_deref()),
            (None, Some("rule-7"))
        );
    }

    /// Blanks out one word and fails on another.
    struct Blank;

    impl Redactor for Blank {
        fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
            let text = self.redact_text(&value.to_string())?;
            text.parse().map_err(|_| RedactionError)
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
            if text.contains("poison") {
                Err(RedactionError)
            } else {
                Ok(text.replace("hunter2", "***"))
            }
        }
    }

    #[tokio::test]
    async fn secrets_are_redacted_in_digests_texts_and_notes() {
        let kept = MemoryReceipts::default();
        let leaking = around(async |call: Call, next: Next| {
            next.note_reason("hunter2 came in");
            next.run(call).await.with_notes(|notes| {
                notes.summary = Some("used hunter2".into());
                notes.scope = Some(json!({ "stage": "hunter2" }));
                notes
                    .metadata
                    .insert("deep".into(), json!([{ "k": "hunter2" }]));
            })
        });
        let receipts = Receipts::to(kept.clone()).redactor(SharedRedactor::new(Blank));
        let stack = Stack::over(echo())
            .layer(receipts)
            .layer(leaking)
            .build()
            .expect("in order");
        stack.run(call_with("t", json!({ "k": "hunter2" }))).await;
        stack.run(call_with("t", json!({ "k": "***" }))).await;
        let receipts = kept.receipts();
        assert_ne!(
            receipts[0].args_digest, receipts[1].args_digest,
            "one of them contained a secret"
        );
        assert!(receipts[1].commitments.is_empty());
        assert_eq!(receipts[0].commitments[0].pointer, "/k");
        let text = serde_json::to_string(&receipts).expect("writes");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.contains("used ***") && text.contains("*** came in"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn values_that_cannot_be_redacted_are_withheld_and_the_receipt_is_marked() {
        let kept = MemoryReceipts::default();
        let stack = echo_under(Receipts::to(kept.clone()).redactor(SharedRedactor::new(Blank)));
        let outcome = stack.run(call_with("t", json!({ "k": "poison" }))).await;
        assert!(outcome.is_ok(), "a failed redaction does not fail the call");
        let receipt = &kept.receipts()[0];
        assert!(receipt.redaction_failed);
        assert_eq!(
            (
                receipt.args_digest,
                receipt.args_bytes,
                receipt.result_digest
            ),
            (None, None, None)
        );
    }

    #[tokio::test]
    async fn names_of_fields_and_calls_are_redacted_step_by_step() {
        let kept = MemoryReceipts::default();
        let rewriting = map_call(|call: Call| {
            let arguments = Arguments::try_from(json!({ "a/b~": { "hunter2/x": 2, "poison": 2 } }));
            call.with_arguments(arguments.expect("an object"))
        });
        let receipts = Receipts::to(kept.clone()).redactor(SharedRedactor::new(Blank));
        let stack = Stack::over(echo())
            .layer(receipts)
            .layer(rewriting)
            .build()
            .expect("in order");
        let asked = json!({ "a/b~": { "hunter2/x": 1, "poison": 1 } });
        let seed = CallSeed {
            provider_call_id: "hunter2".into(),
            ..seed("t", asked)
        };
        stack.run(Call::new(seed)).await;
        let receipt = &kept.receipts()[0];
        let places: Vec<_> = receipt.changes[0]
            .changes
            .iter()
            .map(|change| change.pointer.as_str())
            .collect();
        assert_eq!(places, ["/a~1b~0/***~1x", "/a~1b~0/[withheld]"]);
        assert_eq!((&*receipt.call_id, receipt.redaction_failed), ("***", true));
    }

    #[tokio::test]
    async fn a_receipt_has_the_real_cost_of_a_call_only() {
        let kept = MemoryReceipts::default();
        let registry = Registry::new();
        let mut priced = Annotations::read_only();
        priced.cost = Some(0.25);
        let spec = ToolSpec::new("t", "Works.", Schema::any_object()).with_annotations(priced);
        registry.register_host(spec).expect("a new name");
        let view = toolgate_testkit::plain_view(&registry);
        let run = async |below: AnyLayer| {
            let layers = vec![AnyLayer::new(Receipts::to(kept.clone())), below];
            let stack = Stack::over(FakeExecutor::new())
                .any_layers(layers)
                .build()
                .expect("in order");
            stack.run(Call::new(seed_for(&view, "t", json!({})))).await;
            kept.receipts().last().expect("written").cost
        };
        let noting = |cost: Value| {
            let note = move |_: &Call, outcome: Outcome| {
                outcome.with_notes(|notes| drop(notes.metadata.insert("cost".into(), cost.clone())))
            };
            AnyLayer::new(map_outcome(note))
        };
        let answering = |answer: fn() -> Outcome| {
            AnyLayer::new(from_fn(
                move |_: Call, _: Next| std::future::ready(answer()),
            ))
        };
        let cached = map_outcome(|_: &Call, mut outcome: Outcome| {
            outcome.settled_mut().expect("settled").cached = true;
            outcome
        });
        assert_eq!(
            run(noting(json!(0.5))).await,
            Some(0.5),
            "the charged amount"
        );
        assert_eq!(
            run(noting(json!("much"))).await,
            Some(0.25),
            "the price of what ran"
        );
        assert_eq!(run(noting(json!(-1))).await, Some(0.25));
        assert_eq!(run(AnyLayer::new(cached)).await, None);
        assert_eq!(
            run(answering(|| Outcome::refused(Refusal::DryRun, "dry run"))).await,
            None
        );
        assert_eq!(run(answering(|| Outcome::denied(None))).await, None);
        assert_eq!(run(answering(|| Outcome::ok("cached"))).await, None);
    }

    #[tokio::test]
    async fn a_receipt_is_small_whatever_a_tool_notes() {
        let kept = MemoryReceipts::default();
        let long = "x ".repeat(1_000_000);
        let noting = map_outcome(move |_: &Call, outcome: Outcome| {
            outcome.with_notes(|notes| {
                notes.summary = Some(long.clone());
                notes.description = Some(long.clone());
                notes.scope = Some(json!([long]));
                notes
                    .metadata
                    .insert("dump".into(), json!({ "deep": [long] }));
                notes.metadata.insert("policy_version".into(), json!("v7"));
                notes
                    .metadata
                    .extend((0..100_000).map(|n| (format!("a{n}"), json!(n))));
            })
        });
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(noting)
            .build()
            .expect("in order");
        stack.run(call_with("t", json!({}))).await;
        let receipt = &kept.receipts()[0];
        assert!(serde_json::to_string(&**receipt).expect("writes").len() < 100_000);
        assert_eq!(
            receipt.policy_version.as_deref(),
            Some("v7"),
            "what the policy noted is not crowded out"
        );
        assert_eq!(
            receipt.scope,
            Some(json!({ "truncated": true, "bytes": 2_000_004 }))
        );
        assert!(!receipt.redaction_failed);
    }

    #[tokio::test]
    async fn changed_arguments_are_recorded_by_pointer_and_layer() {
        let kept = MemoryReceipts::default();
        let rewriting = map_call(|call: Call| {
            let arguments = call
                .arguments
                .with_argument("n", json!(2))
                .expect("shallow");
            call.with_arguments(arguments)
        });
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(rewriting)
            .build()
            .expect("in order");
        stack.run(call_with("t", json!({ "n": 1 }))).await;
        let changes = &kept.receipts()[0].changes;
        assert_eq!(
            (changes.len(), changes[0].changes[0].pointer.as_str()),
            (1, "/n")
        );
    }
}
