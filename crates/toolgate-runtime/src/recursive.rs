//! The recursive strategy: a coordinator that works over a context too large for any prompt.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;
use toolgate_core::{Model, RegisterError, Registry, SessionId, StoreError, Weight};

use crate::{
    Documents, RecursiveLimits, Round, Turned,
    recursive_delegate::{Delegate, DelegateBatch},
    recursive_state::RunState,
    recursive_tools::{Note, Peek, Search, SetAnswer, Slice},
};

/// Lets a model answer a question about [`Documents`] that it cannot read as a whole.
///
/// The model that drives the session, the coordinator, does not see the documents. It looks at them with `peek`,
/// `search` and `slice`, lets other models read pieces with `delegate` and `delegate_batch`, keeps what matters with
/// `note`, and ends the run with `set_answer`. Which model reads a piece depends on how heavy the coordinator says the
/// question is.
///
/// Rounds, tokens and time are [limited](RecursiveLimits). The coordinator is told when 75 % and 90 % of one are used;
/// at the end of one, the run is completed with the best answer so far, which says that it is incomplete. Besides,
/// every question is paid for out of the budgets of the session. Everything found out is kept in the store: a run that
/// goes on in another process asks no question twice that was answered.
///
/// It is a [`Strategy`](crate::Strategy) and a set of tools; give the first to a session and
/// [install](Self::install) the others in its registry. Sessions may share one.
#[derive(Clone)]
pub struct Recursive(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) documents: Documents,
    pub(crate) models: Models,
    pub(crate) limits: RecursiveLimits,
    pub(crate) pieces: Pieces,
    /// A copy of what the store has, for the sessions that were seen last.
    runs: Mutex<LruCache<SessionId, Arc<RunState>>>,
}

/// How large pieces may be, and how many are read at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) slice: usize,
    pub(crate) delegate: usize,
    pub(crate) answer_tokens: u32,
    pub(crate) at_a_time: usize,
}

/// Who is asked, by how heavy the question is.
pub(crate) struct Models {
    usual: Arc<dyn Model>,
    by_weight: HashMap<Weight, Arc<dyn Model>>,
}

impl Models {
    pub(crate) fn of(&self, weight: Weight) -> &Arc<dyn Model> {
        self.by_weight.get(&weight).unwrap_or(&self.usual)
    }
}

/// Puts a recursive strategy together.
#[must_use = "a strategy is made by `build`"]
pub struct RecursiveBuilder {
    documents: Documents,
    models: Models,
    limits: RecursiveLimits,
    pieces: Pieces,
}

impl Recursive {
    /// Starts a strategy over `documents`; `model` is asked by `delegate`. The weight is part of the request, so that a
    /// model that chooses among others can go by it.
    pub fn builder(documents: impl Into<Documents>, model: impl Model) -> RecursiveBuilder {
        RecursiveBuilder {
            documents: documents.into(),
            models: Models {
                usual: Arc::new(model),
                by_weight: HashMap::new(),
            },
            limits: RecursiveLimits::default(),
            pieces: Pieces {
                slice: 16 * 1024,
                delegate: 256 * 1024,
                answer_tokens: 1024,
                at_a_time: 4,
            },
        }
    }

    /// Adds its tools to a registry.
    pub fn install(&self, registry: &Registry) -> Result<(), RegisterError> {
        registry.register(Peek(self.clone()))?;
        registry.register(Search(self.clone()))?;
        registry.register(Slice(self.clone()))?;
        registry.register(Delegate(self.clone()))?;
        registry.register(DelegateBatch(self.clone()))?;
        registry.register(Note(self.clone()))?;
        registry.register(SetAnswer(self.clone()))?;
        Ok(())
    }

    /// The run that a round belongs to, taken up from the store if it is not known here.
    pub(crate) async fn begin(&self, round: &Round<'_>) -> Result<Arc<RunState>, StoreError> {
        if let Some(known) = self
            .known(round.session)
            .filter(|known| known.run == round.run)
        {
            return Ok(known);
        }
        let state = RunState::begin(
            round.store,
            (round.session, round.run),
            round.now,
            round.spending.clone(),
        );
        let state = Arc::new(state.await?);
        let documents = self.0.documents.clone();
        // Here and not in the first tool that needs it: gigabytes take a while, and other work runs on this thread. If it
        // cannot be done now, it is done then.
        let _ = tokio::task::spawn_blocking(move || documents.index()).await;
        self.0.runs().put(round.session, state.clone());
        Ok(state)
    }

    /// The run that a round belonged to.
    pub(crate) fn under_way(&self, turned: &Turned<'_>) -> Option<Arc<RunState>> {
        self.known(turned.session)
            .filter(|known| known.run == turned.run)
    }

    /// The run of a session. Every round is prepared before its calls run, also when it is taken up again.
    pub(crate) fn known(&self, session: SessionId) -> Option<Arc<RunState>> {
        self.0.runs().get(&session).cloned()
    }

    /// Lets go of a run that is over; what it has found out stays in the store.
    pub(crate) fn forget(&self, session: SessionId) {
        self.0.runs().pop(&session);
    }
}

impl Inner {
    const SESSIONS: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

    // The map holds whole entries only, so a poisoned lock hides nothing.
    fn runs(&self) -> MutexGuard<'_, LruCache<SessionId, Arc<RunState>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecursiveBuilder {
    /// Lets `model` answer questions of this weight.
    pub fn model(mut self, weight: Weight, model: impl Model) -> Self {
        self.models.by_weight.insert(weight, Arc::new(model));
        self
    }

    /// How many rounds the coordinator may have. The session has a limit of its own, which should not be lower.
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.limits.iterations = rounds;
        self
    }

    /// How many tokens the coordinator and everybody it asks may use.
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.limits.tokens = tokens;
        self
    }

    /// How much time a run may take, waiting for people included.
    pub fn max_time(mut self, time: std::time::Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// How many bytes the coordinator may read at once.
    pub fn slice_bytes(mut self, bytes: usize) -> Self {
        self.pieces.slice = bytes.max(64);
        self
    }

    /// How many bytes a model that is asked may be given to read.
    pub fn delegate_bytes(mut self, bytes: usize) -> Self {
        self.pieces.delegate = bytes.max(64);
        self
    }

    /// How many tokens a model that is asked may answer with.
    pub fn answer_tokens(mut self, tokens: u32) -> Self {
        self.pieces.answer_tokens = tokens.max(1);
        self
    }

    /// How many models `delegate_batch` asks at a time.
    pub fn at_a_time(mut self, models: usize) -> Self {
        self.pieces.at_a_time = models.max(1);
        self
    }

    /// The strategy.
    pub fn build(self) -> Recursive {
        let Self {
            documents,
            models,
            limits,
            pieces,
        } = self;
        let runs = Mutex::new(LruCache::new(Inner::SESSIONS));
        Recursive(Arc::new(Inner {
            documents,
            models,
            limits,
            pieces,
            runs,
        }))
    }
}

impl fmt::Debug for Recursive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Recursive");
        out.field("documents", &self.0.documents)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}
