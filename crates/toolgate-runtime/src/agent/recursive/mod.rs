//! The recursive strategy: a coordinator that works over a context too large for any prompt.

pub(crate) mod billing;
mod delegate;
pub(crate) mod documents;
pub(crate) mod state;
mod strategy;
mod tools;

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;
use toolgate_core::{Model, RegisterError, Registry, SessionId, StoreError, TaskComplexity};

use crate::{
    Documents, RecursiveLimits, RequestContext, TurnContext,
    agent::recursive::{
        delegate::{DelegateBatchTool, DelegateTool},
        state::RecursiveRun,
        tools::{NoteTool, PeekTool, SearchTool, SetAnswerTool, SliceTool},
    },
};

/// Lets a model answer a question about [`Documents`] that it cannot read as a whole.
///
/// The model that drives the session, the coordinator, does not see the documents. It looks at them
/// with `peek`, `search` and `slice`, lets other models read pieces with `delegate` and
/// `delegate_batch`, stores findings with `note`, and ends the run with `set_answer`. The model
/// that reads a piece depends on the complexity that the coordinator gives the question.
///
/// Iterations, tokens and time are [limited](RecursiveLimits). The coordinator is told when 75 %
/// and 90 % of one are used. When a limit is reached, the run is completed with the best answer so
/// far, which says that it is incomplete. In addition, every question is charged to the budgets of
/// the session. All findings are stored: a run that is resumed in another process repeats no
/// question that was answered.
///
/// It is a [`Strategy`](crate::Strategy) and a set of tools; give the first to a session and
/// [install](Self::install) the others in its registry. Sessions may share one.
#[derive(Clone)]
pub struct RecursiveStrategy(pub(crate) Arc<RecursiveShared>);

pub(crate) struct RecursiveShared {
    pub(crate) documents: Documents,
    pub(crate) models: QuestionModels,
    pub(crate) limits: RecursiveLimits,
    pub(crate) pieces: PieceLimits,
    /// A cache of what the store has, for the sessions that were seen last.
    runs: Mutex<LruCache<SessionId, Arc<RecursiveRun>>>,
}

/// Limits on the size of pieces, and on how many are read at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceLimits {
    pub(crate) slice: usize,
    pub(crate) delegate: usize,
    pub(crate) answer_tokens: u32,
    pub(crate) at_a_time: usize,
}

/// The models to ask, by the complexity of the question.
pub(crate) struct QuestionModels {
    usual: Arc<dyn Model>,
    by_weight: HashMap<TaskComplexity, Arc<dyn Model>>,
}

impl QuestionModels {
    pub(crate) fn for_weight(&self, weight: TaskComplexity) -> &Arc<dyn Model> {
        self.by_weight.get(&weight).unwrap_or(&self.usual)
    }
}

/// Builder of a [`RecursiveStrategy`] strategy.
#[must_use = "a strategy is created by `build`"]
pub struct RecursiveBuilder {
    documents: Documents,
    models: QuestionModels,
    limits: RecursiveLimits,
    pieces: PieceLimits,
}

impl RecursiveStrategy {
    /// Creates a builder of a strategy over `documents`; `model` is asked by `delegate`. The
    /// complexity is part of the request, so that a router can use it.
    pub fn builder(documents: impl Into<Documents>, model: impl Model) -> RecursiveBuilder {
        RecursiveBuilder {
            documents: documents.into(),
            models: QuestionModels {
                usual: Arc::new(model),
                by_weight: HashMap::new(),
            },
            limits: RecursiveLimits::default(),
            pieces: PieceLimits {
                slice: 16 * 1024,
                delegate: 256 * 1024,
                answer_tokens: 1024,
                at_a_time: 4,
            },
        }
    }

    /// Adds its tools to a registry.
    pub fn install(&self, registry: &Registry) -> Result<(), RegisterError> {
        registry.register(PeekTool(self.clone()))?;
        registry.register(SearchTool(self.clone()))?;
        registry.register(SliceTool(self.clone()))?;
        registry.register(DelegateTool(self.clone()))?;
        registry.register(DelegateBatchTool(self.clone()))?;
        registry.register(NoteTool(self.clone()))?;
        registry.register(SetAnswerTool(self.clone()))?;
        Ok(())
    }

    /// Returns the run that an iteration belongs to, loaded from the store if it is not cached
    /// here.
    pub(crate) async fn load_run(
        &self,
        request_context: &RequestContext<'_>,
    ) -> Result<Arc<RecursiveRun>, StoreError> {
        if let Some(known) = self
            .cached_run(request_context.session)
            .filter(|known| known.run == request_context.run)
        {
            return Ok(known);
        }
        let state = RecursiveRun::begin_or_resume(
            request_context.store,
            request_context.session,
            request_context.run,
            request_context.now,
            request_context.spending.clone(),
        );
        let state = Arc::new(state.await?);
        let documents = self.0.documents.clone();
        // Here and not in the first tool that needs it: gigabytes take a while, and other work runs
        // on this thread. If it fails now, it is repeated then.
        let _ = tokio::task::spawn_blocking(move || documents.index_lines()).await;
        self.0
            .lock_runs()
            .put(request_context.session, state.clone());
        Ok(state)
    }

    /// Returns the run that an iteration belonged to, if it is cached.
    pub(crate) fn current_run(&self, turned: &TurnContext<'_>) -> Option<Arc<RecursiveRun>> {
        self.cached_run(turned.session)
            .filter(|known| known.run == turned.run)
    }

    /// Returns the run of a session. Every iteration is prepared before its calls run, also when it
    /// is resumed.
    pub(crate) fn cached_run(&self, session: SessionId) -> Option<Arc<RecursiveRun>> {
        self.0.lock_runs().get(&session).cloned()
    }

    /// Removes a run that has ended from the cache; its findings stay in the store.
    pub(crate) fn forget_run(&self, session: SessionId) {
        self.0.lock_runs().pop(&session);
    }
}

impl RecursiveShared {
    const SESSIONS: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

    // A poisoned lock is used anyway: the map has whole entries only.
    fn lock_runs(&self) -> MutexGuard<'_, LruCache<SessionId, Arc<RecursiveRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecursiveBuilder {
    /// Sets the model that answers questions of this complexity.
    pub fn model(mut self, weight: TaskComplexity, model: impl Model) -> Self {
        self.models.by_weight.insert(weight, Arc::new(model));
        self
    }

    /// Sets how many iterations the coordinator may have. The session has a limit of its own, which
    /// should not be lower.
    pub fn max_iterations(mut self, iterations: u32) -> Self {
        self.limits.iterations = iterations;
        self
    }

    /// Sets how many tokens the coordinator and the models it asks may use.
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.limits.tokens = tokens;
        self
    }

    /// Sets how much time a run may take, including the wait for approvers.
    pub fn max_time(mut self, time: std::time::Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// Sets how many bytes the coordinator may read at once.
    pub fn slice_bytes(mut self, bytes: usize) -> Self {
        self.pieces.slice = bytes.max(64);
        self
    }

    /// Sets how many bytes a model may be given to read.
    pub fn delegate_bytes(mut self, bytes: usize) -> Self {
        self.pieces.delegate = bytes.max(64);
        self
    }

    /// Sets how many tokens a model may answer with.
    pub fn answer_tokens(mut self, tokens: u32) -> Self {
        self.pieces.answer_tokens = tokens.max(1);
        self
    }

    /// Sets how many models `delegate_batch` asks at a time.
    pub fn at_a_time(mut self, models: usize) -> Self {
        self.pieces.at_a_time = models.max(1);
        self
    }

    /// Returns the strategy.
    pub fn build(self) -> RecursiveStrategy {
        let Self {
            documents,
            models,
            limits,
            pieces,
        } = self;
        let runs = Mutex::new(LruCache::new(RecursiveShared::SESSIONS));
        RecursiveStrategy(Arc::new(RecursiveShared {
            documents,
            models,
            limits,
            pieces,
            runs,
        }))
    }
}

impl fmt::Debug for RecursiveStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RecursiveStrategy");
        out.field("documents", &self.0.documents)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}
