//! The lease of a session: the right to drive it. Taken when a dispatcher is built, renewed while
//! it works, lost when another process takes it.

pub(crate) mod holder;
mod mailbox;
pub(crate) mod renewal;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolgate_core::{
    Clock, Lease, LeaseRequest, LeaseTerm, LogPosition, SessionId, StoreError, StoreHandle,
};

use crate::lease::holder::{LeaseHolder, LiveDriver, is_holder_replaceable};

/// A lease together with its duration.
#[derive(Clone)]
pub(crate) struct SessionLease {
    pub(crate) lease: Lease,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    span: Duration,
    /// Other drivers of this process see from it whether this one still exists.
    _live: Arc<LiveDriver>,
}

/// What the first lease of a session says about it for good.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionOrigin {
    /// The session whose call started it.
    pub(crate) parent: Option<SessionId>,
    /// The directory that it works in.
    pub(crate) directory: Option<Arc<str>>,
}

impl SessionLease {
    /// Default duration of a lease without renewal.
    pub(crate) const SPAN: Duration = Duration::from_secs(10);

    /// Takes the lease of `session`: also from a holder that has ended, or that cannot be seen from
    /// here and whose lease has expired; and from any holder if `by_force`.
    ///
    /// A holder on this machine that runs or was stopped keeps the lease, even if it has expired.
    pub(crate) async fn acquire(
        session: SessionId,
        store: StoreHandle,
        clock: Arc<dyn Clock>,
        span: Duration,
        by_force: bool,
        origin: SessionOrigin,
    ) -> Result<Self, StoreError> {
        // Each driver has a name of its own: two in one process must not share a lease.
        static DRIVERS: AtomicU64 = AtomicU64::new(0);
        let driver = DRIVERS.fetch_add(1, Ordering::Relaxed);
        let now = clock.now();
        let live = Arc::new(LiveDriver::register(driver));
        let request = LeaseRequest {
            session,
            holder: LeaseHolder::for_driver(driver, now).stored_name().into(),
            term: LeaseTerm { now, span },
            instead_of: None,
            parent: origin.parent,
            directory: origin.directory,
        };
        let is_free =
            |holder: &str, is_expired: bool| by_force || is_holder_replaceable(holder, is_expired);
        let lease = match store.acquire_lease(request.clone()).await {
            Err(StoreError::LeaseHeld {
                holder,
                fence,
                is_expired,
                ..
            }) if is_free(&holder, is_expired) => {
                // The fence names the lease that was seen: if another process takes it first, this
                // request fails.
                store
                    .acquire_lease(LeaseRequest {
                        instead_of: Some(fence),
                        ..request
                    })
                    .await?
            }
            answer => answer?,
        };
        Ok(Self {
            lease,
            store,
            clock,
            span,
            _live: live,
        })
    }

    /// Returns the position of the next write. Every write extends the lease.
    pub(crate) fn write_position(&self, revision: u64) -> LogPosition {
        LogPosition {
            revision,
            fence: self.lease.fence,
            lease_term: Some(self.next_term()),
        }
    }

    /// Returns how long the lease lasts without renewal.
    pub(crate) fn span(&self) -> Duration {
        self.span
    }

    /// Waits until the lease should be renewed if nothing is written meanwhile.
    pub(crate) async fn wait_until_due(&self) {
        self.clock.sleep(self.span / 3).await;
    }

    /// Extends the lease. It fails if another process has it now.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        self.store.renew_lease(&self.lease, self.next_term()).await
    }

    /// Releases the lease.
    pub(crate) async fn release(self) -> Result<(), StoreError> {
        self.store.release_lease(&self.lease).await
    }

    fn next_term(&self) -> LeaseTerm {
        LeaseTerm {
            now: self.clock.now(),
            span: self.span,
        }
    }
}
