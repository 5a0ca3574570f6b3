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
    Clock, Lease, LeaseRequest, LogPosition, SessionId, StoreError, StoreHandle, Timestamp,
};

use crate::lease::holder::{LeaseHolder, this_process};

/// A lease together with its duration.
#[derive(Clone)]
pub(crate) struct SessionLease {
    pub(crate) lease: Lease,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    span: Duration,
}

impl SessionLease {
    /// Default duration of a lease without renewal.
    pub(crate) const SPAN: Duration = Duration::from_secs(10);

    /// Takes the lease of `session`, also from a process of this machine that is gone, and from any
    /// holder if `by_force`.
    pub(crate) async fn acquire(
        session: SessionId,
        store: StoreHandle,
        clock: Arc<dyn Clock>,
        span: Duration,
        by_force: bool,
        parent: Option<SessionId>,
    ) -> Result<Self, StoreError> {
        // Each driver has a name of its own: two in one process must not share a lease.
        static DRIVERS: AtomicU64 = AtomicU64::new(0);
        let driver = DRIVERS.fetch_add(1, Ordering::Relaxed);
        let now = clock.now();
        let until = now.plus(span);
        let holder = format!("driver {driver} in {}", this_process()).into();
        let request = LeaseRequest {
            session,
            holder,
            now,
            until,
            instead_of: None,
            parent,
        };
        let free = |holder: &str| {
            by_force || LeaseHolder::parse_driver(holder).is_some_and(|holder| holder.is_gone())
        };
        let lease = match store.acquire_lease(request.clone()).await {
            Err(StoreError::LeaseHeld { holder, fence, .. }) if free(&holder) => {
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
        })
    }

    /// Returns the position of the next write. Every write extends the lease.
    pub(crate) fn write_position(&self, revision: u64) -> LogPosition {
        LogPosition {
            revision,
            fence: self.lease.fence,
            lease_until: Some(self.next_expiry()),
        }
    }

    /// Waits until the lease should be renewed if nothing is written meanwhile.
    pub(crate) async fn wait_until_due(&self) {
        self.clock.sleep(self.span / 3).await;
    }

    /// Extends the lease. It fails if another process has it now.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        self.store
            .renew_lease(&self.lease, self.next_expiry())
            .await
    }

    /// Releases the lease.
    pub(crate) async fn release(self) -> Result<(), StoreError> {
        self.store.release_lease(&self.lease).await
    }

    fn next_expiry(&self) -> Timestamp {
        self.clock.now().plus(self.span)
    }
}
