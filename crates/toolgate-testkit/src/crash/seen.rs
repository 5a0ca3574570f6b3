//! What can be seen of a session from outside: its log, its records, its approvals, its receipts, its effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use toolgate_core::{
    AccountRow, ApprovalFilter, ApprovalState, CallId, Digest, Event, LedgerHead, LedgerName,
    Record, RecordKey, SessionId, Settled, Status, StoreError, StoreHandle, ToolName, TurnEvent,
    TurnId,
};

use super::{Effect, EffectLog, Talk, accounts::accounts_of, child::notices_of};
use crate::LifecycleChecker;

/// A session as the store and the effect log show it at one moment.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The digest of each event, in order.
    pub log: Vec<Digest>,
    /// The turns in the order in which they were opened.
    pub turns: Vec<SeenTurn>,
    /// The calls of all turns, in the order in which they were requested.
    pub calls: Vec<SeenCall>,
    /// The calls whose approval is listed as pending.
    pub pending: BTreeSet<CallId>,
    /// The calls about which a decision was left that nobody has acted on yet.
    pub answered: BTreeSet<CallId>,
    /// How many receipts each call has.
    pub receipts: BTreeMap<CallId, u32>,
    /// What was said.
    pub talk: Talk,
    /// The sessions of agents, by the calls that they work on.
    pub inner: BTreeMap<CallId, Seen>,
    /// What was spent.
    pub accounts: Vec<AccountRow>,
    /// What tools did.
    pub effects: Vec<Effect>,
    /// Which callbacks were called.
    pub notices: Vec<Effect>,
    /// What does not fit together, whatever the scenario was.
    pub broken: Vec<String>,
}

/// A turn as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTurn {
    /// Which turn.
    pub turn: TurnId,
    /// Whether it is settled as a whole.
    pub settled: bool,
    /// The turn that continued it.
    pub successor: Option<TurnId>,
}

/// A call as it was seen.
#[derive(Debug, Clone)]
pub struct SeenCall {
    /// Which call.
    pub id: CallId,
    /// The place of its turn, counted from 0.
    pub turn: usize,
    /// Its place in the turn.
    pub emit_order: u32,
    /// Which tool.
    pub tool: ToolName,
    /// The words of its events, without those that only inform.
    pub life: Vec<&'static str>,
    /// The outcome, once it is settled.
    pub outcome: Option<Arc<Settled>>,
}

impl SeenCall {
    /// How it settled, if it did.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|settled| settled.status)
    }

    /// How often somebody was asked about it.
    pub fn asked(&self) -> usize {
        self.life.iter().filter(|word| **word == ASKED).count()
    }

    /// What it is called in a report.
    pub fn label(&self) -> String {
        format!(
            "turn {} call {} ({})",
            self.turn + 1,
            self.emit_order + 1,
            self.tool
        )
    }
}

pub(super) const ASKED: &str = "tool_approval_requested";
pub(super) const APPROVED: &str = "tool_approved";
pub(super) const STARTED: &str = "tool_execution_started";

impl Seen {
    /// Looks at a session. What is wrong by itself is noted in [`Seen::broken`].
    ///
    /// A database may still be doing what a process asked for just before it was killed. So that all parts are of the
    /// same moment, this looks again while the log grows.
    pub async fn look(
        store: &StoreHandle,
        session: SessionId,
        effects: &EffectLog,
        chains: &mut Chains,
    ) -> Result<Self, StoreError> {
        loop {
            let seen = Self::glance(store, session, effects, chains).await?;
            if store.revision(session).await? == seen.log.len() as u64 {
                return Ok(seen);
            }
        }
    }

    /// This session and those of agents in it.
    pub fn sessions(&self) -> Vec<&Self> {
        std::iter::once(self)
            .chain(self.inner.values().flat_map(Self::sessions))
            .collect()
    }

    async fn glance(
        store: &StoreHandle,
        session: SessionId,
        effects: &EffectLog,
        chains: &mut Chains,
    ) -> Result<Self, StoreError> {
        let events = store.events(session, 0, 1_000_000).await?;
        let mut seen = Self {
            log: events.iter().map(|event| digest(event)).collect(),
            ..Self::default()
        };
        if let Err(violation) = LifecycleChecker::check_all(events.iter().map(|event| &**event)) {
            seen.broken
                .push(format!("the lifecycle is broken: {violation}"));
        }
        events.iter().for_each(|event| seen.take(event));
        for turn in &mut seen.turns {
            if let Some(Record::Turn(next)) = store.record(&RecordKey::Successor(turn.turn)).await?
            {
                turn.successor = Some(next);
            }
        }
        seen.read_outcomes(store).await?;
        seen.read_approvals(store, session).await?;
        let (talk, broken) = Talk::read(store, session, &events, effects).await?;
        (seen.talk, seen.accounts) = (talk, accounts_of(store, session).await?);
        seen.broken
            .extend(broken.into_iter().chain(seen.broken_talk()));
        seen.read_inner(store, effects, chains).await?;
        chains.follow(store).await?;
        seen.receipts = seen
            .calls
            .iter()
            .map(|call| (call.id, chains.receipts(call.id)))
            .collect();
        seen.broken.extend(chains.broken.iter().cloned());
        let failed = |error: std::io::Error| StoreError::Backend(Box::new(error));
        seen.effects = effects.read().map_err(failed)?;
        seen.notices = EffectLog::at(notices_of(effects.path()))
            .read()
            .map_err(failed)?;
        Ok(seen)
    }

    /// Looks at the sessions of agents, which are named after the calls that they work on.
    fn read_inner<'a>(
        &'a mut self,
        store: &'a StoreHandle,
        effects: &'a EffectLog,
        chains: &'a mut Chains,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            if self.talk.messages.is_empty() {
                return Ok(());
            }
            for (id, label) in self
                .calls
                .iter()
                .map(|call| (call.id, call.label()))
                .collect::<Vec<_>>()
            {
                let session = SessionId::new(id.uuid());
                if store.revision(session).await? == 0 {
                    continue;
                }
                let inner = Self::look(store, session, effects, chains).await?;
                let broken = inner
                    .broken
                    .iter()
                    .map(|broken| format!("in the session of {label}: {broken}"));
                self.broken.extend(broken);
                self.inner.insert(id, inner);
            }
            Ok(())
        }
        .boxed()
    }

    fn take(&mut self, event: &Event) {
        let turn = event.turn_info().turn;
        match (event.as_turn(), event.as_tool()) {
            (Some(TurnEvent::TurnOpened { .. }), _) => {
                self.turns.push(SeenTurn {
                    turn,
                    settled: false,
                    successor: None,
                });
            }
            (Some(TurnEvent::TurnSettled), _) => {
                self.turns
                    .iter_mut()
                    .filter(|seen| seen.turn == turn)
                    .for_each(|seen| seen.settled = true);
            }
            (_, Some((head, tool))) => {
                if tool.name() == "tool_requested" {
                    let at = self
                        .turns
                        .iter()
                        .position(|seen| seen.turn == turn)
                        .unwrap_or(usize::MAX);
                    let (life, outcome) = (Vec::new(), None);
                    let (id, emit_order, tool) = (head.id, head.emit_order, head.tool.clone());
                    self.calls.push(SeenCall {
                        id,
                        turn: at,
                        emit_order,
                        tool,
                        life,
                        outcome,
                    });
                }
                let informs = ["tool_execution_progress", "tool_call_audit", "tool_log"]
                    .contains(&tool.name());
                let call = self
                    .calls
                    .iter_mut()
                    .find(|call| call.id == head.id)
                    .filter(|_| !informs);
                call.into_iter()
                    .for_each(|call| call.life.push(tool.name()));
            }
            _ => {}
        }
    }

    async fn read_outcomes(&mut self, store: &StoreHandle) -> Result<(), StoreError> {
        for call in &mut self.calls {
            if let Some(Record::Outcome(settled)) =
                store.record(&RecordKey::Outcome(call.id)).await?
            {
                call.outcome = Some(settled);
            }
            let ended = call.life.last().is_some_and(|word| is_terminal(word));
            if ended != call.outcome.is_some() {
                let (has, lacks) = if ended {
                    ("an end in the log", "outcome")
                } else {
                    ("an outcome", "end in the log")
                };
                self.broken
                    .push(format!("{} has {has} and no {lacks}", call.label()));
            }
        }
        Ok(())
    }

    async fn read_approvals(
        &mut self,
        store: &StoreHandle,
        session: SessionId,
    ) -> Result<(), StoreError> {
        let filter = ApprovalFilter {
            session: Some(session),
            pending: false,
            limit: 10_000,
            ..Default::default()
        };
        for row in store.approvals(filter).await? {
            let call = row.request.approval_id.call();
            let answer = RecordKey::Answer(call, row.request.generation);
            match row.state {
                ApprovalState::Pending => self.pending.insert(call),
                ApprovalState::Answered if store.record(&answer).await?.is_some() => {
                    self.answered.insert(call)
                }
                ApprovalState::Answered | ApprovalState::Settled(_) => false,
            };
        }
        for call in &self.calls {
            let asked = call.life.last().is_some_and(|word| *word == ASKED);
            let listed = self.pending.contains(&call.id);
            if listed && !asked {
                self.broken.push(format!(
                    "the approval of {} is still listed as pending",
                    call.label()
                ));
            }
            if asked && !listed && !self.answered.contains(&call.id) {
                self.broken.push(format!(
                    "the approval of {} is neither pending nor answered",
                    call.label()
                ));
            }
        }
        Ok(())
    }
}

/// Follows the chains of a store, reading each entry once.
#[derive(Debug, Default)]
pub struct Chains {
    heads: BTreeMap<LedgerName, LedgerHead>,
    receipts: BTreeMap<CallId, u32>,
    /// What is wrong with the chains.
    pub broken: Vec<String>,
}

impl Chains {
    /// Reads what is new and checks that it continues what was there.
    pub async fn follow(&mut self, store: &StoreHandle) -> Result<(), StoreError> {
        for end in store.ledgers().await? {
            let start = || LedgerHead::start(end.ledger.clone());
            let mut head = self.heads.get(&end.ledger).cloned().unwrap_or_else(start);
            if head == end {
                continue;
            }
            for entry in store.entries(&end.ledger, head.counter, 1_000_000).await? {
                if !entry.follows(&head) {
                    self.broken.push(format!(
                        "entry {} of ledger {} breaks the chain",
                        entry.counter, end.ledger
                    ));
                }
                head = entry.head();
                self.count(&entry.body);
            }
            // Others may have sealed more since the ends were read.
            if head.counter < end.counter || (head.counter == end.counter && head.hash != end.hash)
            {
                self.broken
                    .push(format!("ledger {} does not reach its end", end.ledger));
            }
            self.heads.insert(end.ledger, head);
        }
        Ok(())
    }

    /// How many receipts a call has.
    pub fn receipts(&self, call: CallId) -> u32 {
        self.receipts.get(&call).copied().unwrap_or(0)
    }

    fn count(&mut self, body: &str) {
        let receipt: Value = serde_json::from_str(body).unwrap_or_default();
        let call = receipt
            .get("invocation_id")
            .and_then(Value::as_str)
            .and_then(|id| id.parse().ok());
        if let Some(call) = call {
            *self.receipts.entry(call).or_default() += 1;
        }
    }
}

fn digest(event: &Event) -> Digest {
    Digest::of_bytes(&serde_json::to_vec(event).expect("events are plain data"))
}

fn is_terminal(word: &str) -> bool {
    let ends = [
        "tool_denied",
        "tool_execution_succeeded",
        "tool_execution_failed",
        "tool_execution_interrupted",
    ];
    ends.contains(&word) || word == "tool_skipped"
}
