//! Random sessions with everything that a session can have.

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};
use toolgate_core::{
    AcceptedCall, ApprovalAnswer, ApprovalId, ApprovalRequest, CallId, Checkpoint, Cost, Decision,
    Event, FinishReason, IdSource, Invocation, Json, Labels, LeaseRequest, LeaseTerm, LedgerDraft,
    LedgerKey, LedgerName, LogPosition, Message, MessagePart, MessageRecord, PartContent,
    RecordKey, Role, RunEnd, RunInstructions, RunRecord, SessionEvent, SessionId, SessionTitle,
    SettledOutcome, Status, StoreError, StoreHandle, StoreRecord, Timestamp, ToolAnswer, ToolEvent,
    ToolRequest, TurnEvent, TurnId, TurnInfo, TurnRequests, Usage, WriteBatch,
};

use crate::fakes::call_with;

/// Builds sessions of random size and content.
pub struct SampleSessions<'a> {
    store: &'a StoreHandle,
    ids: &'a dyn IdSource,
    random: Rng,
    at: i64,
}

/// Texts that a careless format would damage.
const TEXTS: [&str; 9] = [
    "the key is sk-verysecret",
    "What is in this directory?",
    "",
    "line\nbreak\r\n and \u{0} and \u{1b}[31m",
    "`````` ``` <script>alert(1)</script> <!-- toolgate:",
    "日本語 and é and 👩‍👩‍👧 and \u{202e}",
    "{\"link\":\"sha256:00\"}",
    "0.1 1e400 -0 9007199254740993",
    "\\u0000 \\\" \\n",
];

impl<'a> SampleSessions<'a> {
    /// The instructions of each session. They have a secret.
    pub const INSTRUCTIONS: &'static str = "Answer briefly. The key is sk-verysecret.";

    /// The tool of each call. No other text has its name.
    pub const TOOL: &'static str = "read_file";

    /// Creates a builder whose sessions depend on `seed` and the ids.
    pub fn new(store: &'a StoreHandle, ids: &'a dyn IdSource, seed: u64) -> Self {
        Self {
            store,
            ids,
            random: Rng::with_seed(seed),
            at: 1_767_225_600_000_000,
        }
    }

    /// Stores a session with `turns` turns, some with approvals, outputs, agents and receipts.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn add_session(&mut self, turns: u32) -> Result<SessionId, StoreError> {
        let session = SessionId::from_source(self.ids);
        self.fill_session(session, None, turns, 2).await?;
        let title = SessionTitle::new("A name that it was given").expect("it has letters");
        self.store.rename_session(session, title).await?;
        Ok(session)
    }

    async fn fill_session(
        &mut self,
        session: SessionId,
        parent: Option<SessionId>,
        turns: u32,
        depth: u32,
    ) -> Result<(), StoreError> {
        let request = LeaseRequest {
            session,
            holder: "sample".into(),
            term: LeaseTerm {
                now: Timestamp::from_micros(self.at),
                span: std::time::Duration::from_secs(60),
            },
            instead_of: None,
            parent,
            directory: Some("/home/ann/project".into()),
        };
        let lease = self.store.acquire_lease(request).await?;
        let mut revision = 0;
        let mut messages = 0;
        for number in 0..turns {
            let mut turn = SampleTurn::new(self, session, number, revision, messages);
            turn.write();
            let calls = turn.calls.clone();
            let batch = turn.batch;
            messages = turn.messages;
            let at = LogPosition {
                revision,
                fence: lease.fence,
                lease_term: None,
            };
            revision = self.store.append(session, at, batch).await?;
            self.store_bytes(session, &calls).await?;
            if depth > 0
                && let Some(call) = calls.first().filter(|_| self.random.bool())
            {
                let agent = call.agent_session();
                Box::pin(self.fill_session(agent, Some(session), 1, depth - 1)).await?;
            }
        }
        self.store.release_lease(&lease).await
    }

    /// Stores an output and an old version of a file for each call.
    async fn store_bytes(
        &mut self,
        session: SessionId,
        calls: &[CallId],
    ) -> Result<(), StoreError> {
        for call in calls {
            let size = self.random.usize(0..3_000);
            let bytes: Vec<u8> = (0..size).map(|_| self.random.u8(..)).collect();
            let digest = self.store.put_blob(Bytes::from(bytes)).await?;
            let key = RecordKey::Other(format!("output/{session}/{digest}").into());
            self.store.put_json_once(key, Json::from("size")).await?;
            let undo = json!({ "files": [{ "before": { "digest": digest, "size": size } }] });
            let key = RecordKey::Other(format!("undo/{call}").into());
            self.store.put_json_once(key, json_of(undo)).await?;
        }
        Ok(())
    }

    /// Adds receipts of another session to the ledger, and signs its end.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn sign_ledger(&mut self) -> Result<LedgerKey, StoreError> {
        let other = SessionId::from_source(self.ids);
        let entry = receipt_of(other, CallId::from_source(self.ids));
        let heads = self.store.seal_entries(vec![entry]).await?;
        let key = LedgerKey::from_bytes(&[7; 32]);
        for head in heads {
            let checkpoint = Checkpoint::sign(&head, Timestamp::from_micros(self.at), &key);
            let name = format!("checkpoint/{}/{:020}", head.ledger, head.counter);
            let value = serde_json::to_value(checkpoint).expect("plain data");
            let key = RecordKey::Other(name.into());
            self.store.put_json_once(key, json_of(value)).await?;
        }
        Ok(key)
    }

    fn text(&mut self) -> String {
        let text = TEXTS[self.random.usize(..TEXTS.len())];
        text.repeat(self.random.usize(1..4))
    }

    fn tick(&mut self) -> Timestamp {
        self.at += self.random.i64(1..5_000_000);
        Timestamp::from_micros(self.at)
    }
}

/// One turn that is being built.
struct SampleTurn<'a, 'b> {
    sample: &'a mut SampleSessions<'b>,
    info: Arc<TurnInfo>,
    sequence: u64,
    messages: u64,
    batch: WriteBatch,
    calls: Vec<CallId>,
}

impl<'a, 'b> SampleTurn<'a, 'b> {
    fn new(
        sample: &'a mut SampleSessions<'b>,
        session: SessionId,
        number: u32,
        revision: u64,
        messages: u64,
    ) -> Self {
        let mut info = TurnInfo::new(session, TurnId::from_source(sample.ids));
        info.iteration = number;
        info.run = Some(0);
        info.model = Some("m".into());
        info.labels = Labels::new([("tenant", "acme")]).expect("valid");
        Self {
            sample,
            info: Arc::new(info),
            sequence: revision,
            messages,
            batch: WriteBatch::default(),
            calls: Vec::new(),
        }
    }

    fn write(&mut self) {
        let text = self.sample.text();
        let number = self.add_message(Message::user(text.clone()));
        self.add_run_event(SessionEvent::UserMessage {
            message: number,
            text: Some(text),
            text_bytes: None,
            steering: false,
        });
        let instructions = match self.info.iteration {
            0 => RunInstructions::Text(SampleSessions::INSTRUCTIONS.into()),
            _ => RunInstructions::SameAs(0),
        };
        let run = RunRecord {
            model: "p:m".into(),
            instructions: Some(instructions),
            ..RunRecord::default()
        };
        let key = RecordKey::Run(self.info.session, number);
        self.batch
            .records
            .push((key, StoreRecord::Run(Arc::new(run))));
        let count = self.sample.random.u32(0..4);
        self.write_reply(count);
        (0..count).for_each(|order| self.write_call(order));
        self.write_results(count);
        self.add_run_event(SessionEvent::RunEnded {
            end: RunEnd::Completed,
            error: None,
            iterations: 1,
            usage: Usage::default(),
            cost: Cost::NanoUsd(5),
        });
    }

    fn write_reply(&mut self, count: u32) {
        let mut parts = vec![MessagePart::from_text(self.sample.text())];
        for order in 0..count {
            let arguments = self.arguments();
            let request =
                ToolRequest::from_json(&format!("c{order}"), SampleSessions::TOOL, arguments);
            parts.push(PartContent::Call(request).into());
        }
        let calls = parts.iter().skip(1).filter_map(|part| match &part.content {
            PartContent::Call(request) => Some(request.clone()),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        let number = self.add_message(Message::new(Role::Assistant, parts));
        self.add_run_event(SessionEvent::InferenceFinished {
            message: number,
            text: Some("reply".into()),
            text_bytes: None,
            calls: count,
            finish: FinishReason::Stop,
            usage: Some(Usage::default()),
            cost: Cost::Unknown,
        });
        if count == 0 {
            return;
        }
        self.calls = calls
            .iter()
            .map(|_| CallId::from_source(self.sample.ids))
            .collect();
        let accepted = calls
            .into_iter()
            .zip(&self.calls)
            .map(|(request, id)| AcceptedCall {
                id: *id,
                call_id: request.provider_call_id.as_str().into(),
                request,
                ran: None,
            });
        let requests = TurnRequests {
            info: self.info.clone(),
            after_sequence: self.sequence,
            calls: accepted.collect(),
        };
        let key = RecordKey::Requests(self.info.turn);
        self.batch
            .records
            .push((key, StoreRecord::Requests(Arc::new(requests))));
        self.add_turn_event(TurnEvent::TurnOpened {
            size: count,
            after: None,
        });
    }

    fn write_call(&mut self, order: u32) {
        let id = self.calls[order as usize];
        let arguments = json_of(self.arguments());
        self.add_tool_event(
            order,
            ToolEvent::ToolRequested {
                arguments_digest: arguments.digest(),
                arguments_bytes: arguments.size() as u64,
                arguments: Some(arguments),
                executor: None,
            },
        );
        if self.sample.random.bool() {
            self.write_approval(order, id);
        }
        let mut outcome = SettledOutcome::new(Status::Ok);
        // Every other result is null, which events cannot tell from none.
        outcome.value =
            json_of(json!({ "text": self.sample.text(), "n": self.sample.random.f64() }));
        if order % 2 == 1 {
            outcome.value = Json::null();
        }
        let result = outcome.value.clone();
        let key = RecordKey::Outcome(id);
        self.batch
            .records
            .push((key, StoreRecord::Outcome(Arc::new(outcome))));
        let key = RecordKey::Layer(id, "some/layer".into());
        self.batch
            .records
            .push((key, StoreRecord::Json(result.clone())));
        self.add_tool_event(
            order,
            ToolEvent::ToolExecutionSucceeded {
                result_digest: result.digest(),
                result_bytes: result.size() as u64,
                result: Some(result),
                model_bytes: 3,
                model_text: None,
                attempts: 1,
                cached: false,
                duration_ms: 12,
            },
        );
        self.batch.entries.push(receipt_of(self.info.session, id));
    }

    fn write_approval(&mut self, order: u32, id: CallId) {
        let mut request = ApprovalRequest::for_call(&call_with(SampleSessions::TOOL, json!({})));
        request.approval_id = ApprovalId::for_call(id);
        let answer = ApprovalAnswer::for_request(&request, Decision::approve("ann"));
        let vote = RecordKey::Other(format!("vote/{}/0/ann", ApprovalId::for_call(id)).into());
        self.batch.records.extend([
            (
                RecordKey::Question(id, 0),
                StoreRecord::Question(Arc::new(request.clone())),
            ),
            (
                RecordKey::Answer(id, 0),
                StoreRecord::Answer(Arc::new(answer)),
            ),
            (vote, StoreRecord::Json(Json::from("yes"))),
        ]);
        self.add_tool_event(order, ToolEvent::ToolApprovalRequested(Box::new(request)));
        self.add_tool_event(
            order,
            ToolEvent::ToolApproved {
                approver: "ann".into(),
                established: Default::default(),
                claimed_as: None,
                reason: None,
                edited: false,
                unseen: false,
                with: Vec::new(),
            },
        );
    }

    fn write_results(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        let parts = (0..count).map(|order| {
            let answer = ToolAnswer {
                call_id: format!("c{order}"),
                tool: SampleSessions::TOOL.into(),
                text: self.sample.text(),
                is_error: self.sample.random.bool(),
                media: Vec::new(),
            };
            PartContent::Result(answer).into()
        });
        let parts = parts.collect();
        self.add_message(Message::new(Role::Tool, parts));
        self.add_turn_event(TurnEvent::TurnSettled);
        let turn = self.info.turn;
        self.batch
            .records
            .push((RecordKey::Ended(turn), StoreRecord::Turn(turn)));
    }

    fn arguments(&mut self) -> Value {
        let number = self.sample.random.f64() * 1e10;
        json!({ "path": self.sample.text(), "number": number, "wide": self.sample.random.u64(..) })
    }

    fn add_message(&mut self, message: Message) -> u64 {
        let number = self.messages;
        self.messages += 1;
        let record = MessageRecord::new(self.info.turn, 0, 0, Arc::new(message));
        let key = RecordKey::Message(self.info.session, number);
        self.batch
            .records
            .push((key, StoreRecord::Message(Arc::new(record))));
        number
    }

    fn add_run_event(&mut self, event: SessionEvent) {
        let at = self.next_time();
        let event = Event::for_run(self.sequence, at, self.info.clone(), event);
        self.batch.events.push(Arc::new(event.expect("valid")));
    }

    fn add_turn_event(&mut self, event: TurnEvent) {
        let at = self.next_time();
        let event = Event::for_turn(self.sequence, at, self.info.clone(), event);
        self.batch.events.push(Arc::new(event.expect("valid")));
    }

    fn add_tool_event(&mut self, order: u32, event: ToolEvent) {
        let at = self.next_time();
        let invocation = Invocation {
            id: self.calls[order as usize],
            call_id: format!("c{order}").into(),
            tool: SampleSessions::TOOL.into(),
            emit_order: order,
            turn: self.info.clone(),
        };
        let event = Event::for_invocation(self.sequence, at, Arc::new(invocation), event);
        self.batch.events.push(Arc::new(event.expect("valid")));
    }

    fn next_time(&mut self) -> Timestamp {
        self.sequence += 1;
        self.sample.tick()
    }
}

/// Returns the entry of a receipt, with the one field that tells whose it is.
fn receipt_of(session: SessionId, call: CallId) -> LedgerDraft {
    let body = json!({ "invocation_id": call, "session_id": session });
    LedgerDraft {
        ledger: LedgerName::main(),
        body: toolgate_core::canonical_json(&body).into(),
    }
}

fn json_of(value: Value) -> Json {
    Json::new(value).expect("it is not nested deeply")
}
