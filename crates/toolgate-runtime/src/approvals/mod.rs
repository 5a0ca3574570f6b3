//! The one way to decide on approval requests and to deliver external results, from any process,
//! without driving the session.

#[cfg(unix)]
pub(crate) mod key_file;
pub(crate) mod messages;
mod results;
pub(crate) mod store_approver;
pub(crate) mod voting;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    AdmittedDecision, ApprovalAnswer, ApprovalFilter, ApprovalId, ApprovalRequest,
    ApprovalRequestRef, ApprovalRow, ApprovalState, AskClaims, CallId, ChangedRequest, Clock,
    Decision, DecisionCallbacks, ImportOrigin, InputKind, Json, Keyring, LayerName, MadeDecision,
    MailboxItem, RecordKey, Redactor, RejectCode, SessionId, SettledOutcome, ShownRequest, Stack,
    Status, StoreError, StoreHandle, StoreRecord, TokenError, TurnId, Verdict, Vote,
    unverified_approval_id,
};

use crate::{SystemClock, approvals::voting::AdmittedAnswer, turn::duplicates::SettledCache};

/// Lists pending approvals, decides on them, and delivers external results. Clones share it.
///
/// It needs the store and nothing else: the input is stored with an item in the mailbox of the
/// session, and wakes its driver, in this process or another one. Without a driver, it counts when
/// the session is resumed. A decision is dated, signed if there is a keyring, and durable when
/// [`ApprovalService::decide`] returns. A rejected input is left in the mailbox with its code, for
/// the log.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use toolgate_core::{ApprovalFilter, MemoryStore, StoreHandle};
/// use toolgate_runtime::ApprovalService;
///
/// let desk = ApprovalService::new(StoreHandle::new(MemoryStore::new()));
/// assert!(desk.list_approvals(ApprovalFilter::default()).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApprovalService {
    store: StoreHandle,
    keyring: Option<Keyring>,
    clock: Arc<dyn Clock>,
    redactor: Option<Arc<dyn Redactor>>,
    /// Calls that a dispatcher has just settled.
    recent: Option<Arc<SettledCache>>,
    /// The callbacks of approval layers, by the name under which they ask.
    callbacks: Arc<[(LayerName, DecisionCallbacks)]>,
}

/// Reason why an input was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// It changed nothing; the code is the reason.
    #[error(transparent)]
    Rejected(#[from] RejectCode),
    /// The decision does not name the approver.
    #[error("a decision needs the name of the approver")]
    NoApprover,
    /// Only a signed answer counts, and this service has no keys to sign it with.
    #[error("only a signed decision counts, and there are no keys to sign it with")]
    NoKeys,
    /// The stored request was changed, so it is neither shown nor decided.
    #[error(transparent)]
    Changed(#[from] ChangedRequest),
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[from] StoreError),
}

impl DeliverError {
    /// Returns the code, if the input was rejected.
    pub fn code(&self) -> Option<RejectCode> {
        match self {
            Self::Rejected(code) => Some(*code),
            Self::NoApprover | Self::NoKeys | Self::Changed(_) | Self::Store(_) => None,
        }
    }
}

/// The approval request that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionTarget {
    /// The request that this token was issued with.
    Token(String),
    /// The request that is named.
    Question(ApprovalRequestRef),
}

/// An approval with what has been decided so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalDetails {
    /// The approval request, redacted, and its state.
    pub row: ApprovalRow,
    /// The approval request as it was stored, if it still is.
    pub request: Option<Arc<ApprovalRequest>>,
    /// The approvers so far, if several are required.
    pub votes: Vec<Vote>,
}

/// An approval request with its row in the store.
struct LocatedRequest {
    row: ApprovalRow,
    request: Arc<ApprovalRequest>,
}

impl ApprovalService {
    /// Creates an approval service on a store.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            keyring: None,
            clock: Arc::new(SystemClock::new()),
            redactor: None,
            recent: None,
            callbacks: Arc::default(),
        }
    }

    /// Creates the approval service of a dispatcher, with its keys and its clock.
    pub(crate) fn for_dispatcher(
        store: StoreHandle,
        keyring: Option<Keyring>,
        clock: Arc<dyn Clock>,
        redactor: Option<Arc<dyn Redactor>>,
        recent: Arc<SettledCache>,
    ) -> Self {
        Self {
            store,
            keyring,
            clock,
            redactor,
            recent: Some(recent),
            callbacks: Arc::default(),
        }
    }

    /// Sets the keys that sign and verify.
    pub fn keyring(self, keyring: Keyring) -> Self {
        Self {
            keyring: Some(keyring),
            ..self
        }
    }

    /// Sets the redactor, whose secret values are masked in what approvers see.
    pub fn redactor(self, redactor: impl Redactor) -> Self {
        Self {
            redactor: Some(Arc::new(redactor)),
            ..self
        }
    }

    /// Calls the callbacks of the approval layers of `stack` when a decision is made, and not only
    /// when its call is resumed.
    pub fn notify_layers(self, stack: &Stack) -> Self {
        Self {
            callbacks: stack.decision_callbacks().into(),
            ..self
        }
    }

    /// Sets the clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    /// Returns the approvals that `filter` selects, oldest first. Those of imported sessions are left
    /// out: such a session never runs.
    ///
    /// # Errors
    ///
    /// Fails if the store failed.
    pub async fn list_approvals(
        &self,
        mut filter: ApprovalFilter,
    ) -> Result<Vec<ApprovalRow>, StoreError> {
        let mut found = Vec::new();
        loop {
            let page = self.store.approvals(filter.clone()).await?;
            let is_last = page.len() < filter.limit;
            filter.after = page.last().map(|row| row.request.approval_id);
            for row in page {
                if found.len() < filter.limit && !self.is_imported(&row).await? {
                    found.push(row);
                }
            }
            if is_last || found.len() >= filter.limit {
                return Ok(found);
            }
        }
    }

    async fn is_imported(&self, row: &ApprovalRow) -> Result<bool, StoreError> {
        let origin = self.store.load_import_origin(row.session).await?;
        Ok(origin.is_some())
    }

    /// Returns one approval, whatever its state.
    ///
    /// # Errors
    ///
    /// Fails if the stored request was changed, or if the store failed.
    pub async fn find_approval(
        &self,
        id: ApprovalId,
    ) -> Result<Option<ApprovalDetails>, DeliverError> {
        let Some(row) = self.find_row(id.call_id()).await? else {
            return Ok(None);
        };
        // Votes are bound to the original request, not to the redacted one that lists show.
        let request = self.load_request(&row).await?;
        let votes = match &request {
            Some(question) => {
                voting::load_votes(&self.store, question, self.keyring.as_ref()).await?
            }
            None => Vec::new(),
        };
        Ok(Some(ApprovalDetails {
            row,
            request,
            votes,
        }))
    }

    /// Returns a request as its approver sees it: complete, with every character visible, and with
    /// the secret values masked that the redactor of this service knows.
    pub fn show_request(&self, request: &ApprovalRequest) -> ShownRequest {
        request.show(self.redactor.as_deref())
    }

    /// Returns the token that is issued with an approval request: proof that exactly this was
    /// asked. Returns nothing without keys, or if the request is not in the store.
    ///
    /// # Errors
    ///
    /// Fails if the stored request was changed, or if the store failed.
    pub async fn request_token(&self, row: &ApprovalRow) -> Result<Option<String>, DeliverError> {
        let Some(keyring) = &self.keyring else {
            return Ok(None);
        };
        let question = self.load_request(row).await?;
        Ok(question.map(|request| keyring.ask_token(&request)))
    }

    /// Decides on an approval request. When this returns, the decision is durable.
    ///
    /// Where several approvers are required, `Counted` has the number that is missing; the call
    /// resumes when they have agreed.
    ///
    /// # Errors
    ///
    /// Fails if the decision was rejected (the code is the reason), if it names no approver, if it
    /// has to be signed and there are no keys, if the stored request was changed, or if the store
    /// failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the decision may have been stored. It then counts, and a second
    /// decision is rejected as a duplicate.
    pub async fn decide(
        &self,
        on: impl Into<DecisionTarget>,
        decision: Decision,
    ) -> Result<AdmittedDecision, DeliverError> {
        let on = on.into();
        if decision.by.as_str().trim().is_empty() {
            return Err(DeliverError::NoApprover);
        }
        let row = match on.claimed_call() {
            Some(call) => self.find_listed(call).await?,
            None => None,
        };
        let Some(row) = row else {
            return Err(self.unknown_code(&on).into());
        };
        let records = self.load_call_records(&row).await;
        let is_imported = match &records {
            Ok(records) => records.is_imported,
            // A damaged record of the call does not hide the mark of its session.
            Err(_) => self.is_imported(&row).await?,
        };
        if is_imported {
            return Err(self.unknown_code(&on).into());
        }
        match self
            .accept_decision(&on, decision, row.clone(), records)
            .await?
        {
            Ok(admitted) => Ok(admitted),
            Err(code) => {
                self.reject_decision(&row, code).await?;
                Err(code.into())
            }
        }
    }

    /// Decides on several approval requests, each by itself and in this order.
    pub async fn decide_many(
        &self,
        decisions: Vec<(DecisionTarget, Decision)>,
    ) -> Vec<Result<AdmittedDecision, DeliverError>> {
        let mut answers = Vec::with_capacity(decisions.len());
        for (on, decision) in decisions {
            answers.push(self.decide(on, decision).await);
        }
        answers
    }

    /// Decides as a JSON object says: `token`, or `approval_id` with `generation` and
    /// `arguments_digest`; `decision`, `by`, and what the decision needs. A word that is none of
    /// the three decisions is rejected and recorded, and so is `approve` with arguments: it does
    /// not say which arguments are meant to run.
    ///
    /// The object comes from a client, so `by` is a claimed name, whatever else the object says. A
    /// host that has authenticated the client calls [`ApprovalService::decide`] with that identity.
    ///
    /// # Errors
    ///
    /// Fails as [`ApprovalService::decide`] does, and if the object is not a decision.
    pub async fn decide_raw(&self, json: &Value) -> Result<AdmittedDecision, DeliverError> {
        let on = DecisionTarget::from_json(json);
        match (on, serde_json::from_value::<Decision>(json.clone())) {
            (Some(on), Ok(mut decision))
                if decision.verdict != Verdict::Approve || json.get("arguments").is_none() =>
            {
                decision.by = decision.by.name.into();
                self.decide(on, decision).await
            }
            (Some(on), Ok(_) | Err(_)) => Err(self
                .reject_unparsed(on.claimed_call(), RejectCode::NotADecision)
                .await?
                .into()),
            (None, _) => {
                let call = json
                    .get("approval_id")
                    .and_then(Value::as_str)
                    .and_then(|id| id.parse().ok());
                Err(self
                    .reject_unparsed(call.map(ApprovalId::call_id), RejectCode::NotADecision)
                    .await?
                    .into())
            }
        }
    }

    /// Asks the driver of a turn to stop it. Returns false if there is no such turn or it has
    /// ended.
    ///
    /// # Errors
    ///
    /// Fails if the store failed.
    pub async fn interrupt_turn(&self, turn: TurnId, reason: &str) -> Result<bool, StoreError> {
        let Some(requests) = self.store.load_turn_requests(turn).await? else {
            return Ok(false);
        };
        if self.store.load_turn_end(turn).await?.is_some() {
            return Ok(false);
        }
        let post = MailboxItem::Interrupt {
            turn,
            reason: reason.to_owned(),
        };
        self.store
            .post_item(requests.info.session, post, Vec::new())
            .await?;
        Ok(true)
    }

    /// Records that a decision on a call could not be parsed, and returns the code.
    pub(crate) async fn reject_unparsed(
        &self,
        call: Option<CallId>,
        code: RejectCode,
    ) -> Result<RejectCode, DeliverError> {
        let row = match call {
            Some(call) => self.find_row(call).await?,
            None => None,
        };
        if let Some(row) = row {
            self.reject_decision(&row, code).await?;
        }
        Ok(code)
    }

    async fn accept_decision(
        &self,
        on: &DecisionTarget,
        decision: Decision,
        row: ApprovalRow,
        records: Result<CallRecords, StoreError>,
    ) -> Result<Result<AdmittedDecision, RejectCode>, DeliverError> {
        let claims = match self.verify_token(on) {
            Ok(claims) => claims,
            Err(code) => return Ok(Err(code)),
        };
        // Only after the token was verified: a forged one must not learn the state of the call.
        let records = records?;
        if let Some(code) = self.closed_code(&row, on, &records).await? {
            return Ok(Err(code));
        }
        let Some(request) = self.check_request(&row, records.request)? else {
            return Ok(Err(RejectCode::NoWaiter));
        };
        if request.signed && self.keyring.is_none() {
            return Err(DeliverError::NoKeys);
        }
        let found = LocatedRequest { row, request };
        if let Err(code) = found.check_target(on, claims.as_ref()) {
            return Ok(Err(code));
        }
        let now = self.clock.now();
        let keyring = self.keyring.as_ref();
        let admitted =
            voting::admit_answer(&self.store, &found.request, decision, now, keyring).await?;
        let answer = match admitted {
            Ok(AdmittedAnswer::Complete(answer)) => *answer,
            Ok(AdmittedAnswer::Counted { missing }) => {
                return Ok(Ok(AdmittedDecision::Counted { missing }));
            }
            Err(code) => return Ok(Err(code)),
        };
        let LocatedRequest { row, request } = found;
        let call = request.approval_id.call_id();
        let generation = request.generation;
        let with = answer.with.clone();
        let answer = Arc::new(answer);
        let key = RecordKey::Answer(call, generation);
        let record = StoreRecord::Answer(answer.clone());
        let post = MailboxItem::Answer {
            turn: row.turn,
            call,
            generation,
        };
        match self
            .store
            .post_item(row.session, post, vec![(key, record)])
            .await
        {
            Ok(()) => {
                self.notify_decision(row.session, &request, &answer).await;
                Ok(Ok(AdmittedDecision::Decided { with }))
            }
            // Another process has decided first; the record is written only once.
            Err(StoreError::RecordExists { .. }) => {
                let records = self.load_call_records(&row).await?;
                let code = self.closed_code(&row, on, &records).await?;
                Ok(Err(code.unwrap_or(RejectCode::Duplicate)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Calls the callback of the layer that asked, unless another process has called it.
    async fn notify_decision(
        &self,
        session: SessionId,
        request: &ApprovalRequest,
        answer: &ApprovalAnswer,
    ) {
        let asked = request.asked_by.as_ref();
        let theirs = |(name, callbacks): &&(LayerName, DecisionCallbacks)| {
            asked == Some(name) && callbacks.hears_of(&answer.decision.verdict)
        };
        let Some((layer, callbacks)) = self.callbacks.iter().find(theirs) else {
            return;
        };
        let made = MadeDecision::for_request(session, request, answer);
        // The record that the layer itself writes when it first sees the answer. If it cannot be
        // written, the layer calls the callback when the call is resumed.
        let key = format!("{layer}/{}", made.claim_key());
        let key = RecordKey::Layer(request.approval_id.call_id(), key.into());
        let at = answer.decided_at.unwrap_or_else(|| self.clock.now());
        let claim = Json::new(json!({ "at": at, "claim": "service" }));
        let claimed = match claim {
            Ok(claim) => self.store.put_json_once(key, claim).await,
            Err(_) => return,
        };
        if let Ok(None) = claimed {
            callbacks.notify(made).await;
        }
    }

    /// Returns why the request accepts no decision any more, if so.
    async fn closed_code(
        &self,
        row: &ApprovalRow,
        on: &DecisionTarget,
        records: &CallRecords,
    ) -> Result<Option<RejectCode>, StoreError> {
        let call = row.request.approval_id.call_id();
        let settled = match row.state {
            ApprovalState::Settled(status) => Some(status),
            // The record is written before the list is updated.
            ApprovalState::Pending | ApprovalState::Answered | ApprovalState::Running => {
                let recent = self.recent.as_ref();
                let recent = recent.and_then(|recent| recent.settled_status(call));
                recent.or_else(|| records.outcome.as_ref().map(|settled| settled.status))
            }
        };
        if let Some(status) = settled {
            let ended = self.store.load_turn_end(row.turn).await?.is_some();
            return Ok(Some(match status {
                Status::Expired => RejectCode::Expired,
                status if status.is_refusal() => RejectCode::AlreadyDenied,
                _ if ended => RejectCode::TurnClosed,
                status => RejectCode::after_settled(status),
            }));
        }
        let Some(answer) = &records.answer else {
            return Ok(None);
        };
        Ok(Some(match (&answer.decision.verdict, on) {
            (Verdict::Deny { .. }, _) => RejectCode::AlreadyDenied,
            // A token is good for one decision; used again it is a replay.
            (Verdict::Approve | Verdict::ApproveWithEdits { .. }, DecisionTarget::Token(_)) => {
                RejectCode::Replayed
            }
            (Verdict::Approve | Verdict::ApproveWithEdits { .. }, DecisionTarget::Question(_)) => {
                RejectCode::Duplicate
            }
        }))
    }

    /// Returns the claims of a token, if there is one and it is valid.
    fn verify_token(&self, on: &DecisionTarget) -> Result<Option<AskClaims>, RejectCode> {
        match (on, &self.keyring) {
            (DecisionTarget::Question(_), _) => Ok(None),
            (DecisionTarget::Token(token), Some(keyring)) => {
                Ok(Some(keyring.verify_ask_token(token)?))
            }
            (DecisionTarget::Token(_), None) => Err(TokenError::KeyGone.into()),
        }
    }

    /// Returns the code for a decision on an approval that does not exist.
    fn unknown_code(&self, on: &DecisionTarget) -> RejectCode {
        self.verify_token(on)
            .err()
            .unwrap_or(RejectCode::UnknownInvocation)
    }

    async fn find_row(&self, call: CallId) -> Result<Option<ApprovalRow>, StoreError> {
        match self.find_listed(call).await? {
            Some(row) if self.is_imported(&row).await? => Ok(None),
            found => Ok(found),
        }
    }

    /// Returns the row of a call in the lists, also if its session was imported.
    async fn find_listed(&self, call: CallId) -> Result<Option<ApprovalRow>, StoreError> {
        let mut rows = self.store.approvals(ApprovalFilter::for_call(call)).await?;
        // A row that was changed by hand may hold the request of another call.
        rows.retain(|row| row.request.approval_id.call_id() == call);
        Ok(rows.pop())
    }

    /// Loads the approval request as it was made, not as lists show it. Fails if either was changed
    /// in the store: what is shown and signed is what was asked.
    async fn load_request(
        &self,
        row: &ApprovalRow,
    ) -> Result<Option<Arc<ApprovalRequest>>, DeliverError> {
        let call = row.request.approval_id.call_id();
        let generation = row.request.generation;
        let stored = self.store.load_approval_request(call, generation).await?;
        self.check_request(row, stored)
    }

    /// Fails if a stored request, or its row in the lists, was changed.
    fn check_request(
        &self,
        row: &ApprovalRow,
        stored: Option<Arc<ApprovalRequest>>,
    ) -> Result<Option<Arc<ApprovalRequest>>, DeliverError> {
        if let Some(request) = &stored {
            request.check_seal(self.keyring.as_ref())?;
            request.check_listed(&row.request)?;
        }
        Ok(stored)
    }

    /// Loads what a decision on the call depends on, in one read.
    async fn load_call_records(&self, row: &ApprovalRow) -> Result<CallRecords, StoreError> {
        let mut keys = Vec::from(ImportOrigin::keys(row.session));
        // A late decision is rejected by the row alone, also if a record is damaged.
        if !matches!(row.state, ApprovalState::Settled(_)) {
            let call = row.request.approval_id.call_id();
            let generation = row.request.generation;
            keys.push(RecordKey::Outcome(call));
            keys.push(RecordKey::Answer(call, generation));
            keys.push(RecordKey::Question(call, generation));
        }
        let mut records = CallRecords::default();
        for (key, record) in keys.iter().zip(self.store.load_records(&keys).await?) {
            let Some(record) = record else { continue };
            match key {
                RecordKey::Outcome(_) => records.outcome = Some(record.into_content(key)?),
                RecordKey::Answer(..) => records.answer = Some(record.into_content(key)?),
                RecordKey::Question(..) => records.request = Some(record.into_content(key)?),
                _ => records.is_imported = true,
            }
        }
        Ok(records)
    }

    /// Returns the status a call settled with, if it did.
    async fn settled_status(&self, call: CallId) -> Result<Option<Status>, StoreError> {
        let recent = self.recent.as_ref();
        if let Some(status) = recent.and_then(|recent| recent.settled_status(call)) {
            return Ok(Some(status));
        }
        let outcome = self.store.load_outcome(call).await?;
        Ok(outcome.map(|settled| settled.status))
    }

    async fn reject_decision(&self, row: &ApprovalRow, code: RejectCode) -> Result<(), StoreError> {
        let call = row.request.approval_id.call_id();
        self.record_rejection(row.session, row.turn, call, InputKind::Decision, code)
            .await
    }

    async fn record_rejection(
        &self,
        session: SessionId,
        turn: TurnId,
        call: CallId,
        what: InputKind,
        code: RejectCode,
    ) -> Result<(), StoreError> {
        let post = MailboxItem::Refused {
            turn,
            call,
            what,
            code,
        };
        self.store.post_item(session, post, Vec::new()).await
    }
}

/// The records of a call that a decision on it depends on.
#[derive(Default)]
struct CallRecords {
    /// True if the session was imported: nothing of it is decided on.
    is_imported: bool,
    outcome: Option<Arc<SettledOutcome>>,
    answer: Option<Arc<ApprovalAnswer>>,
    request: Option<Arc<ApprovalRequest>>,
}

impl LocatedRequest {
    /// Checks whether the decision is about exactly this request.
    fn check_target(
        &self,
        on: &DecisionTarget,
        claims: Option<&AskClaims>,
    ) -> Result<(), RejectCode> {
        match (on, claims) {
            (DecisionTarget::Question(question), _)
                if *question == ApprovalRequestRef::from(&*self.request) =>
            {
                Ok(())
            }
            (DecisionTarget::Question(_), _) => Err(RejectCode::NoWaiter),
            (DecisionTarget::Token(_), Some(claims))
                if *claims == AskClaims::for_request(&self.request) =>
            {
                Ok(())
            }
            (DecisionTarget::Token(_), _) => Err(RejectCode::TokenMismatch),
        }
    }
}

impl DecisionTarget {
    /// Returns the call that it claims to be about.
    fn claimed_call(&self) -> Option<CallId> {
        match self {
            Self::Token(token) => unverified_approval_id(token).map(ApprovalId::call_id),
            Self::Question(question) => Some(question.approval_id.call_id()),
        }
    }

    fn from_json(json: &Value) -> Option<Self> {
        match json.get("token") {
            Some(token) => token.as_str().map(|token| Self::Token(token.to_owned())),
            None => ApprovalRequestRef::deserialize(json)
                .ok()
                .map(Self::Question),
        }
    }
}

impl From<&str> for DecisionTarget {
    fn from(token: &str) -> Self {
        Self::Token(token.to_owned())
    }
}

impl From<String> for DecisionTarget {
    fn from(token: String) -> Self {
        Self::Token(token)
    }
}

impl From<ApprovalRequestRef> for DecisionTarget {
    fn from(question: ApprovalRequestRef) -> Self {
        Self::Question(question)
    }
}

impl From<&ApprovalRequest> for DecisionTarget {
    fn from(request: &ApprovalRequest) -> Self {
        Self::Question(request.into())
    }
}

impl std::fmt::Debug for ApprovalService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApprovalService")
            .field("keyring", &self.keyring)
            .finish_non_exhaustive()
    }
}
