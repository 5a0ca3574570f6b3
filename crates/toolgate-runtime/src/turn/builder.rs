//! Builds a dispatcher: its parts, its limits, and the lease of its session.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use hashbrown::HashMap;
use tokio::sync::oneshot;
use toolgate_core::{
    AnyLayer, Approver, Clock, DynApprover, IdSource, Keyring, Layer, MemoryStore, Redactor,
    SessionId, Stack, StoreHandle,
};

use crate::{
    Bus, DispatchError, Dispatcher, Journal, OnFailure, SystemClock, TimeOrderedIds,
    lease::{SessionLease, SessionOrigin},
    turn::{DispatcherShared, duplicates::SettledCache},
};

/// Builder of a [`Dispatcher`].
#[must_use = "a dispatcher is made by `build`"]
pub struct DispatcherBuilder {
    stack: Stack,
    session: Option<SessionId>,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    bus: Bus,
    approver: Option<Arc<dyn DynApprover>>,
    redactor: Option<Arc<dyn Redactor>>,
    keyring: Option<Keyring>,
    max_concurrent: usize,
    max_calls: usize,
    on_failure: OnFailure,
    grace: Duration,
    late: (usize, Duration),
    lease: Duration,
    by_force: bool,
    origin: SessionOrigin,
}

impl Dispatcher {
    /// Creates a builder of a dispatcher that sends calls through `stack`.
    pub fn builder(stack: Stack) -> DispatcherBuilder {
        DispatcherBuilder {
            stack,
            session: None,
            store: StoreHandle::new(MemoryStore::new()),
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(TimeOrderedIds),
            bus: Bus::default(),
            approver: None,
            redactor: None,
            keyring: None,
            max_concurrent: Self::DEFAULT_CONCURRENCY,
            max_calls: Self::MAX_CALLS,
            on_failure: OnFailure::Continue,
            grace: Duration::from_secs(2),
            late: (SettledCache::CAPACITY, SettledCache::KEEP),
            lease: SessionLease::SPAN,
            by_force: false,
            origin: SessionOrigin::default(),
        }
    }
}

impl DispatcherBuilder {
    /// Copies store, clock, bus, approver, keys and limits from another dispatcher.
    pub(crate) fn share_parts_of(mut self, other: &Dispatcher) -> Self {
        let DispatcherShared {
            store,
            clock,
            ids,
            bus,
            approver,
            redactor,
            keyring,
            max_concurrent,
            max_calls,
            ..
        } = &*other.0;
        let DispatcherShared {
            on_failure, grace, ..
        } = &*other.0;
        self.store = store.clone();
        self.clock = clock.clone();
        self.ids = ids.clone();
        self.bus = bus.clone();
        self.approver = approver.clone();
        self.redactor = redactor.clone();
        self.keyring = keyring.clone();
        self.max_concurrent = *max_concurrent;
        self.max_calls = *max_calls;
        self.on_failure = *on_failure;
        self.grace = *grace;
        self
    }

    /// Sets the session whose call started this one.
    pub(crate) fn parent(mut self, parent: SessionId) -> Self {
        self.origin.parent = Some(parent);
        self
    }

    /// Sets the directory that the session works in, as lists of sessions show it. It is stored with
    /// a new session; one that has a directory keeps it.
    pub fn directory(mut self, directory: &std::path::Path) -> Self {
        self.origin.directory = Some(directory.display().to_string().into());
        self
    }

    /// Sets the session. By default, a new one is created.
    pub fn session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets the store for events and records. By default, they are kept in memory.
    pub fn store(mut self, store: impl Into<StoreHandle>) -> Self {
        self.store = store.into();
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the source of ids.
    pub fn ids(mut self, ids: impl IdSource) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Sets the bus on which events are published.
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// Sets the approver, who is asked at once when a call needs a decision. Without one, the turn
    /// suspends.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the redactor, which removes secrets from what events show.
    pub fn redactor(mut self, redactor: impl Redactor) -> Self {
        self.redactor = Some(Arc::new(redactor));
        self
    }

    /// Sets the keys that sign every accepted decision, so that the layer that asked can tell it
    /// from a forged one.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// Sets how many calls of a turn run at the same time; 1 runs them one after the other.
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls;
        self
    }

    /// Sets how many calls of a turn are made; by default 1,000. The calls after them are rejected,
    /// and the model is told.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Sets what happens to the other calls of a turn when one call fails.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets how long running calls may take to stop after an interruption.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how many settled invocations are cached and for how long. Older ones are looked up in
    /// the store.
    pub fn remember_settled(mut self, number: usize, keep: Duration) -> Self {
        self.late = (number, keep);
        self
    }

    /// Sets how long the lease is valid after the last write or renewal. It is renewed while a turn
    /// is driven.
    pub fn lease(mut self, span: Duration) -> Self {
        self.lease = span;
        self
    }

    /// Takes the lease even if another process holds it. The other process stops at its next write;
    /// calls that it runs at that moment may settle as `outcome_unknown`.
    pub fn take_over(mut self) -> Self {
        self.by_force = true;
        self
    }

    /// Loads the session from the store and takes its lease.
    ///
    /// The lease of a process of this machine that has ended is taken over, and so is the expired
    /// lease of a process that cannot be seen from here. A process of this machine that runs or was
    /// stopped keeps its lease; see [`take_over`](Self::take_over). No dispatcher is needed
    /// to decide on approval requests of a session that another process drives.
    ///
    /// # Errors
    ///
    /// Fails if another process holds the lease (the error names the holder), if the store fails, or
    /// if a layer of the stack verifies approvals with keys that this dispatcher does not sign with.
    pub async fn build(self) -> Result<Dispatcher, DispatchError> {
        self.check_keys()?;
        let session = self
            .session
            .unwrap_or_else(|| SessionId::from_source(&*self.ids));
        let store = self.store.clone();
        // Before the lease: what an imported session says about calls and decisions was not checked
        // here, so resuming it could run a call that no gate has decided on.
        if self.session.is_some()
            && let Some(origin) = store.load_import_origin(session).await?
        {
            let format = origin.format;
            return Err(DispatchError::Imported { session, format });
        }
        let clock = self.clock.clone();
        let driving = SessionLease::acquire(
            session,
            store.clone(),
            clock.clone(),
            self.lease,
            self.by_force,
            self.origin,
        )
        .await?;
        let journal = Journal::with_lease(driving, store, self.bus.clone(), clock);
        let late = SettledCache::new(self.late.0, self.late.1, self.clock.clone());
        let (kept, gone) = oneshot::channel();
        let shared = Arc::new(DispatcherShared {
            stack: self.stack,
            session,
            store: self.store,
            clock: self.clock,
            ids: self.ids,
            journal,
            bus: self.bus,
            approver: self.approver,
            max_concurrent: self.max_concurrent,
            max_calls: self.max_calls,
            on_failure: self.on_failure,
            grace: self.grace,
            late: Arc::new(late),
            redactor: self.redactor,
            keyring: self.keyring,
            open: Mutex::new(HashMap::new()),
            ending: Mutex::new(HashMap::new()),
            inputs: tokio::sync::Mutex::new(()),
            posts_seen: AtomicU64::new(0),
            runs: AtomicUsize::new(0),
            keeper: Arc::default(),
            _kept: kept,
        });
        // With a weak reference: the task must not keep the dispatcher, and with it the lease,
        // alive.
        tokio::spawn(crate::lease::renewal::run_renewal(
            Arc::downgrade(&shared),
            gone,
        ));
        Ok(Dispatcher(shared))
    }

    /// Checks that every approval this dispatcher signs counts for the layers that verify it.
    /// Otherwise they would ask for approval again and again.
    fn check_keys(&self) -> Result<(), DispatchError> {
        let signs_for = |verifier: &Keyring| {
            let own = self.keyring.as_ref();
            own.is_some_and(|own| own.signs_for(verifier))
        };
        let unfit = |layer: &AnyLayer| layer.approval_keys().is_some_and(|keys| !signs_for(keys));
        match self.stack.any_layers().into_iter().find(unfit) {
            Some(layer) => Err(DispatchError::KeysDiffer {
                layer: layer.name(),
            }),
            None => Ok(()),
        }
    }
}
