//! The observable state of a session: its log, records, approvals, receipts and effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use toolgate_core::{
    AccountRow, ApprovalFilter, ApprovalState, CallId, Digest, Event, LedgerHead, LedgerName,
    SessionId, SettledOutcome, Status, StoreError, StoreHandle, ToolName, TurnEvent, TurnId,
};

use super::{
    ConversationSnapshot, EffectLog, LoggedEffect, accounts::load_accounts, child::notices_path,
};
use crate::LifecycleChecker;

/// A session as the store and the effect log show it at one moment.
#[derive(Debug, Clone, Default)]
pub struct SessionSnapshot {
    /// The digest of each event, in order.
    pub log: Vec<Digest>,
    /// The turns in the order in which they were opened.
    pub turns: Vec<TurnSnapshot>,
    /// The calls of all turns, in the order in which they were requested.
    pub calls: Vec<CallSnapshot>,
    /// The calls whose approval is listed as pending.
    pub pending: BTreeSet<CallId>,
    /// The calls with a stored decision that no driver has acted on yet.
    pub answered: BTreeSet<CallId>,
    /// The number of receipts of each call.
    pub receipts: BTreeMap<CallId, u32>,
    /// The conversation.
    pub talk: ConversationSnapshot,
    /// The sessions of agents, by the calls that they work on.
    pub inner: BTreeMap<CallId, SessionSnapshot>,
    /// The accounts.
    pub accounts: Vec<AccountRow>,
    /// The effects of tools.
    pub effects: Vec<LoggedEffect>,
    /// The callbacks that were called.
    pub notices: Vec<LoggedEffect>,
    /// Contradictions, whatever the scenario was.
    pub broken: Vec<String>,
}

/// The observed state of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSnapshot {
    /// The turn's id.
    pub turn: TurnId,
    /// True if it is settled as a whole.
    pub settled: bool,
    /// The turn that continued it.
    pub successor: Option<TurnId>,
}

/// The observed state of a call.
#[derive(Debug, Clone)]
pub struct CallSnapshot {
    /// The call's id.
    pub id: CallId,
    /// The position of its turn, counted from 0.
    pub turn: usize,
    /// Its position in the turn.
    pub emit_order: u32,
    /// The tool's name.
    pub tool: ToolName,
    /// The types of its events, without those that only inform.
    pub life: Vec<&'static str>,
    /// The outcome, once it is settled.
    pub outcome: Option<Arc<SettledOutcome>>,
}

impl CallSnapshot {
    /// Returns the status, if it is settled.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|settled| settled.status)
    }

    /// Returns the number of its approval requests.
    pub fn approval_request_count(&self) -> usize {
        self.life
            .iter()
            .filter(|word| **word == APPROVAL_REQUESTED)
            .count()
    }

    /// Returns its label in reports.
    pub fn label(&self) -> String {
        format!(
            "turn {} call {} ({})",
            self.turn + 1,
            self.emit_order + 1,
            self.tool
        )
    }
}

pub(super) const APPROVAL_REQUESTED: &str = "tool_approval_requested";
pub(super) const APPROVED: &str = "tool_approved";
pub(super) const STARTED: &str = "tool_execution_started";

impl SessionSnapshot {
    /// Inspects a session. Contradictions are noted in [`SessionSnapshot::broken`].
    ///
    /// # Errors
    /// If the store or the effect log cannot be read.
    pub async fn inspect(
        store: &StoreHandle,
        session: SessionId,
        effects: &EffectLog,
        chains: &mut LedgerChains,
    ) -> Result<Self, StoreError> {
        loop {
            let seen = Self::inspect_once(store, session, effects, chains).await?;
            // A database may still be working on a request of a process that was just killed. If
            // the log has grown, the parts are not of the same moment, and all are read again.
            if store.revision(session).await? == seen.log.len() as u64 {
                return Ok(seen);
            }
        }
    }

    /// Returns this session and those of agents in it.
    pub fn all_sessions(&self) -> Vec<&Self> {
        std::iter::once(self)
            .chain(self.inner.values().flat_map(Self::all_sessions))
            .collect()
    }

    async fn inspect_once(
        store: &StoreHandle,
        session: SessionId,
        effects: &EffectLog,
        chains: &mut LedgerChains,
    ) -> Result<Self, StoreError> {
        let events = store.events(session, 0, 1_000_000).await?;
        let mut seen = Self {
            log: events.iter().map(|event| event_digest(event)).collect(),
            ..Self::default()
        };
        if let Err(violation) = LifecycleChecker::check_all(events.iter().map(|event| &**event)) {
            seen.broken
                .push(format!("the lifecycle is broken: {violation}"));
        }
        events.iter().for_each(|event| seen.apply_event(event));
        for turn in &mut seen.turns {
            turn.successor = store.load_successor(turn.turn).await?;
        }
        seen.load_outcomes(store).await?;
        seen.load_approvals(store, session).await?;
        let (talk, broken) =
            ConversationSnapshot::load_conversation(store, session, &events, effects).await?;
        seen.talk = talk;
        seen.accounts = load_accounts(store, session).await?;
        seen.broken
            .extend(broken.into_iter().chain(seen.conversation_violations()));
        seen.load_agent_sessions(store, effects, chains).await?;
        chains.read_new_entries(store).await?;
        seen.receipts = seen
            .calls
            .iter()
            .map(|call| (call.id, chains.receipt_count(call.id)))
            .collect();
        seen.broken.extend(chains.broken.iter().cloned());
        let failed = |error: std::io::Error| StoreError::Backend(Box::new(error));
        seen.effects = effects.read_effects().map_err(failed)?;
        seen.notices = EffectLog::open_at(notices_path(effects.path()))
            .read_effects()
            .map_err(failed)?;
        Ok(seen)
    }

    /// Inspects the sessions of agents, which have the ids of the calls that they work on.
    fn load_agent_sessions<'a>(
        &'a mut self,
        store: &'a StoreHandle,
        effects: &'a EffectLog,
        chains: &'a mut LedgerChains,
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
                let session = id.agent_session();
                // Only the call of an agent has a session with its id.
                if store.revision(session).await? == 0 {
                    continue;
                }
                let inner = Self::inspect(store, session, effects, chains).await?;
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

    fn apply_event(&mut self, event: &Event) {
        let turn = event.turn_info().turn;
        match (event.as_turn(), event.as_tool()) {
            (Some(TurnEvent::TurnOpened { .. }), _) => {
                self.turns.push(TurnSnapshot {
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
                    let life = Vec::new();
                    let outcome = None;
                    let id = head.id;
                    let emit_order = head.emit_order;
                    let tool = head.tool.clone();
                    self.calls.push(CallSnapshot {
                        id,
                        turn: at,
                        emit_order,
                        tool,
                        life,
                        outcome,
                    });
                }
                let informs = [
                    "tool_execution_progress",
                    "tool_call_audit",
                    "tool_files_changed",
                    "tool_toast",
                    "tool_log",
                ]
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

    async fn load_outcomes(&mut self, store: &StoreHandle) -> Result<(), StoreError> {
        for call in &mut self.calls {
            call.outcome = store.load_outcome(call.id).await?;
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

    async fn load_approvals(
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
            let call = row.request.approval_id.call_id();
            match row.state {
                ApprovalState::Pending => {
                    self.pending.insert(call);
                }
                ApprovalState::Answered | ApprovalState::Running => {
                    let answer = store.load_answer(call, row.request.generation);
                    if answer.await?.is_some() {
                        self.answered.insert(call);
                    }
                }
                ApprovalState::Settled(_) => {}
            }
        }
        for call in &self.calls {
            let asked = call
                .life
                .last()
                .is_some_and(|word| *word == APPROVAL_REQUESTED);
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

/// A reader of a store's chains that reads each entry once.
#[derive(Debug, Default)]
pub struct LedgerChains {
    heads: BTreeMap<LedgerName, LedgerHead>,
    receipts: BTreeMap<CallId, u32>,
    /// The violations in the chains.
    pub broken: Vec<String>,
}

impl LedgerChains {
    /// Reads new entries and checks that they continue the chain.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read_new_entries(&mut self, store: &StoreHandle) -> Result<(), StoreError> {
        for end in store.ledgers().await? {
            let start = || LedgerHead::start_of(end.ledger.clone());
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
                self.count_receipt(&entry.body);
            }
            // Another process may have sealed more since the heads were read.
            if head.counter < end.counter || (head.counter == end.counter && head.hash != end.hash)
            {
                self.broken
                    .push(format!("ledger {} does not reach its end", end.ledger));
            }
            self.heads.insert(end.ledger, head);
        }
        Ok(())
    }

    /// Returns the number of receipts of a call.
    pub fn receipt_count(&self, call: CallId) -> u32 {
        self.receipts.get(&call).copied().unwrap_or(0)
    }

    fn count_receipt(&mut self, body: &str) {
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

fn event_digest(event: &Event) -> Digest {
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
