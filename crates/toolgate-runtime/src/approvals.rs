//! The desk where pending approvals are listed and decided, from any process, without driving the session.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use toolgate_core::{
    Admitted, ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalRow, ApprovalState, AskClaims,
    CallId, Clock, Decision, Keyring, Post, PostCode, PostKind, Question, Record, RecordKey,
    Status, StoreError, StoreHandle, TokenError, TurnId, Verdict, Vote, claimed_approval,
};

use crate::{DispatchError, PostError, SystemClock, answering};

/// Lists pending approvals and decides on them. Cloning shares it.
///
/// It needs the store and nothing else: whoever drives the session finds the answer there, now or when it is resumed.
/// A decision is checked like one that is posted to the driver, dated, signed if there is a keyring, and durable when
/// [`Approvals::decide`] returns. What is refused is left for the log, with its code.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use toolgate_core::{ApprovalFilter, MemoryStore, StoreHandle};
/// use toolgate_runtime::Approvals;
///
/// let desk = Approvals::new(StoreHandle::new(MemoryStore::new()));
/// assert!(desk.pending(ApprovalFilter::default()).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Approvals {
    store: StoreHandle,
    keyring: Option<Keyring>,
    clock: Arc<dyn Clock>,
}

/// Which question a decision at the desk is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideOn {
    /// The one that this token went out with.
    Token(String),
    /// The one that is named.
    Question(Question),
}

/// An approval with what has been decided so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownApproval {
    /// The question and how far it has come.
    pub row: ApprovalRow,
    /// Who has approved, if it takes more than one.
    pub votes: Vec<Vote>,
}

/// A question with the place it was asked in.
struct Found {
    row: ApprovalRow,
    request: Arc<ApprovalRequest>,
}

impl Approvals {
    /// A desk over a store.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            keyring: None,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Signs and verifies with these keys.
    pub fn keyring(self, keyring: Keyring) -> Self {
        Self {
            keyring: Some(keyring),
            ..self
        }
    }

    /// Tells the time by this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    /// The approvals that `filter` wants, oldest first.
    pub async fn pending(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.store.approvals(filter).await
    }

    /// One approval, whatever has become of it.
    pub async fn show(&self, id: ApprovalId) -> Result<Option<ShownApproval>, StoreError> {
        let Some(row) = self.row(id.call()).await? else {
            return Ok(None);
        };
        // Votes are about the question as it was put, not as lists show it.
        let votes = match self.question(&row).await? {
            Some(question) => {
                answering::votes(&self.store, &question, self.keyring.as_ref()).await?
            }
            None => Vec::new(),
        };
        Ok(Some(ShownApproval { row, votes }))
    }

    /// The token that goes out with a question: proof that exactly this was asked. Nothing without keys, or if the
    /// question is not in the store.
    pub async fn token(&self, row: &ApprovalRow) -> Result<Option<String>, StoreError> {
        let Some(keyring) = &self.keyring else {
            return Ok(None);
        };
        let question = self.question(row).await?;
        Ok(question.map(|request| keyring.ask_token(&request)))
    }

    /// Decides on a question. When this returns, the decision is durable.
    ///
    /// Where it takes several, `Counted` says how many are missing; the call goes on when they have agreed.
    pub async fn decide(
        &self,
        on: impl Into<DecideOn>,
        decision: Decision,
    ) -> Result<Admitted, PostError> {
        let on = on.into();
        if decision.by.as_str().trim().is_empty() {
            return Err(PostError::Nameless);
        }
        let row = match on.call() {
            Some(call) => self.row(call).await.map_err(broken)?,
            None => None,
        };
        let Some(row) = row else {
            return Err(self.unknown(&on).into());
        };
        match self
            .take(&on, decision, row.clone())
            .await
            .map_err(broken)?
        {
            Ok(admitted) => Ok(admitted),
            Err(code) => {
                self.refuse(&row, code).await.map_err(broken)?;
                Err(code.into())
            }
        }
    }

    /// Decides on several questions, each on its own and in this order.
    pub async fn decide_many(
        &self,
        decisions: Vec<(DecideOn, Decision)>,
    ) -> Vec<Result<Admitted, PostError>> {
        let mut answers = Vec::with_capacity(decisions.len());
        for (on, decision) in decisions {
            answers.push(self.decide(on, decision).await);
        }
        answers
    }

    /// Decides as a JSON object says: `token`, or `approval_id` with `generation` and `arguments_digest`; `decision`,
    /// `by`, and what the decision needs. A word that is none of the three decisions is refused and recorded, and so is
    /// `approve` with arguments: it does not say which of the two are meant to run.
    pub async fn decide_raw(&self, json: &Value) -> Result<Admitted, PostError> {
        let on = DecideOn::read(json);
        match (on, serde_json::from_value::<Decision>(json.clone())) {
            (Some(on), Ok(decision))
                if decision.verdict != Verdict::Approve || json.get("arguments").is_none() =>
            {
                self.decide(on, decision).await
            }
            (Some(on), Ok(_) | Err(_)) => Err(self
                .refuse_unread(on.call(), PostCode::NotADecision)
                .await?
                .into()),
            (None, _) => {
                let call = json
                    .get("approval_id")
                    .and_then(Value::as_str)
                    .and_then(|id| id.parse().ok());
                Err(self
                    .refuse_unread(call.map(ApprovalId::call), PostCode::NotADecision)
                    .await?
                    .into())
            }
        }
    }

    /// Asks whoever drives the turn to stop it. Says whether there is such a turn.
    pub async fn interrupt(&self, turn: TurnId, reason: &str) -> Result<bool, StoreError> {
        let Some(Record::Requests(requests)) =
            self.store.record(&RecordKey::Requests(turn)).await?
        else {
            return Ok(false);
        };
        if self.store.record(&RecordKey::Ended(turn)).await?.is_some() {
            return Ok(false);
        }
        let post = Post::Interrupt {
            turn,
            reason: reason.to_owned(),
        };
        self.store
            .post(requests.info.session, post, Vec::new())
            .await?;
        Ok(true)
    }

    /// Writes down that something came for a call that could not be read, and passes the code on.
    pub(crate) async fn refuse_unread(
        &self,
        call: Option<CallId>,
        code: PostCode,
    ) -> Result<PostCode, PostError> {
        let row = match call {
            Some(call) => self.row(call).await.map_err(broken)?,
            None => None,
        };
        if let Some(row) = row {
            self.refuse(&row, code).await.map_err(broken)?;
        }
        Ok(code)
    }

    async fn take(
        &self,
        on: &DecideOn,
        decision: Decision,
        row: ApprovalRow,
    ) -> Result<Result<Admitted, PostCode>, StoreError> {
        let claims = match self.verified(on) {
            Ok(claims) => claims,
            Err(code) => return Ok(Err(code)),
        };
        if let Some(code) = self.closed(&row, on).await? {
            return Ok(Err(code));
        }
        let Some(request) = self.question(&row).await? else {
            return Ok(Err(PostCode::NoWaiter));
        };
        let found = Found { row, request };
        if let Err(code) = found.is_meant(on, claims.as_ref()) {
            return Ok(Err(code));
        }
        let now = self.clock.now();
        let admitted = match answering::count(
            &self.store,
            &found.request,
            &decision,
            now,
            self.keyring.as_ref(),
        )
        .await?
        {
            Ok(admitted) => admitted,
            Err(code) => return Ok(Err(code)),
        };
        match &admitted {
            Admitted::Counted { .. } => Ok(Ok(admitted)),
            Admitted::Decided { with } => {
                let answer = answering::answer(
                    &found.request,
                    decision,
                    with.clone(),
                    now,
                    self.keyring.as_ref(),
                );
                match self.leave(&found, answer).await {
                    Ok(()) => Ok(Ok(admitted)),
                    // Somebody else was first.
                    Err(StoreError::Exists { .. }) => Ok(Err(self
                        .closed(&found.row, on)
                        .await?
                        .unwrap_or(PostCode::Duplicate))),
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn leave(&self, found: &Found, answer: toolgate_core::Answer) -> Result<(), StoreError> {
        let Found { row, request } = found;
        let (call, generation) = (request.approval_id.call(), request.generation);
        let post = Post::Answer {
            turn: row.turn,
            call,
            generation,
        };
        let record = (
            RecordKey::Answer(call, generation),
            Record::Answer(Arc::new(answer)),
        );
        self.store.post(row.session, post, vec![record]).await
    }

    /// Why the question takes no decision any more, if so.
    async fn closed(
        &self,
        row: &ApprovalRow,
        on: &DecideOn,
    ) -> Result<Option<PostCode>, StoreError> {
        let call = row.request.approval_id.call();
        // The record is there before the list says so.
        let settled = match (
            row.state,
            self.store.record(&RecordKey::Outcome(call)).await?,
        ) {
            (_, Some(Record::Outcome(settled))) => Some(settled.status),
            (ApprovalState::Settled(status), _) => Some(status),
            (ApprovalState::Pending | ApprovalState::Answered, _) => None,
        };
        if let Some(status) = settled {
            let ended = self
                .store
                .record(&RecordKey::Ended(row.turn))
                .await?
                .is_some();
            return Ok(Some(match status {
                Status::Expired => PostCode::Expired,
                status if status.is_refusal() => PostCode::AlreadyDenied,
                _ if ended => PostCode::TurnClosed,
                status => PostCode::after(status),
            }));
        }
        let answer = self
            .store
            .record(&RecordKey::Answer(call, row.request.generation))
            .await?;
        let Some(Record::Answer(answer)) = answer else {
            return Ok(None);
        };
        Ok(Some(match (&answer.decision.verdict, on) {
            (Verdict::Deny { .. }, _) => PostCode::AlreadyDenied,
            (Verdict::Approve | Verdict::ApproveWithEdits { .. }, DecideOn::Token(_)) => {
                PostCode::Replayed
            }
            (Verdict::Approve | Verdict::ApproveWithEdits { .. }, DecideOn::Question(_)) => {
                PostCode::Duplicate
            }
        }))
    }

    /// What a token says, if there is one and it is ours.
    fn verified(&self, on: &DecideOn) -> Result<Option<AskClaims>, PostCode> {
        match (on, &self.keyring) {
            (DecideOn::Question(_), _) => Ok(None),
            (DecideOn::Token(token), Some(keyring)) => Ok(Some(keyring.read_ask(token)?)),
            (DecideOn::Token(_), None) => Err(TokenError::KeyGone.into()),
        }
    }

    /// The code for something about no approval that we know.
    fn unknown(&self, on: &DecideOn) -> PostCode {
        self.verified(on)
            .err()
            .unwrap_or(PostCode::UnknownInvocation)
    }

    async fn row(&self, call: CallId) -> Result<Option<ApprovalRow>, StoreError> {
        Ok(self.store.approvals(ApprovalFilter::of(call)).await?.pop())
    }

    /// The question as it was put, not as lists show it.
    async fn question(
        &self,
        row: &ApprovalRow,
    ) -> Result<Option<Arc<ApprovalRequest>>, StoreError> {
        let key = RecordKey::Question(row.request.approval_id.call(), row.request.generation);
        Ok(match self.store.record(&key).await? {
            Some(Record::Question(request)) => Some(request),
            _ => None,
        })
    }

    async fn refuse(&self, row: &ApprovalRow, code: PostCode) -> Result<(), StoreError> {
        let call = row.request.approval_id.call();
        let post = Post::Refused {
            turn: row.turn,
            call,
            what: PostKind::Decision,
            code,
        };
        self.store.post(row.session, post, Vec::new()).await
    }
}

impl Found {
    /// Whether the decision is about this very question.
    fn is_meant(&self, on: &DecideOn, claims: Option<&AskClaims>) -> Result<(), PostCode> {
        match (on, claims) {
            (DecideOn::Question(question), _) if *question == Question::from(&*self.request) => {
                Ok(())
            }
            (DecideOn::Question(_), _) => Err(PostCode::NoWaiter),
            (DecideOn::Token(_), Some(claims)) if *claims == AskClaims::of(&self.request) => Ok(()),
            (DecideOn::Token(_), _) => Err(PostCode::TokenMismatch),
        }
    }
}

impl DecideOn {
    /// Which call it is about, going by what it says.
    fn call(&self) -> Option<CallId> {
        match self {
            Self::Token(token) => claimed_approval(token).map(ApprovalId::call),
            Self::Question(question) => Some(question.approval_id.call()),
        }
    }

    fn read(json: &Value) -> Option<Self> {
        match json.get("token") {
            Some(token) => token.as_str().map(|token| Self::Token(token.to_owned())),
            None => Question::deserialize(json).ok().map(Self::Question),
        }
    }
}

impl From<&str> for DecideOn {
    fn from(token: &str) -> Self {
        Self::Token(token.to_owned())
    }
}

impl From<String> for DecideOn {
    fn from(token: String) -> Self {
        Self::Token(token)
    }
}

impl From<Question> for DecideOn {
    fn from(question: Question) -> Self {
        Self::Question(question)
    }
}

impl From<&ApprovalRequest> for DecideOn {
    fn from(request: &ApprovalRequest) -> Self {
        Self::Question(request.into())
    }
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Approvals")
            .field("keyring", &self.keyring)
            .finish_non_exhaustive()
    }
}

fn broken(error: StoreError) -> PostError {
    PostError::Turn(Box::new(DispatchError::from(error)))
}
