//! The right to drive a session: taken when a dispatcher is built, kept while it works, lost when another takes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolgate_core::{
    Clock, Lease, LeaseRequest, Position, SessionId, StoreError, StoreHandle, Timestamp,
};

use crate::holder::{Holder, this_process};

/// A lease together with how long it runs.
#[derive(Clone)]
pub(crate) struct Driving {
    pub(crate) lease: Lease,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    span: Duration,
}

impl Driving {
    /// How long a lease runs unless it is renewed.
    pub(crate) const SPAN: Duration = Duration::from_secs(10);

    /// Takes the lease of `session`, also from a process of this machine that is gone, and from anybody if `by_force`.
    pub(crate) async fn take(
        session: SessionId,
        store: StoreHandle,
        clock: Arc<dyn Clock>,
        span: Duration,
        by_force: bool,
    ) -> Result<Self, StoreError> {
        // Each driver has a name of its own: two in one process are two.
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
        };
        let free = |holder: &str| {
            by_force || Holder::of_driver(holder).is_some_and(|holder| holder.is_gone())
        };
        let lease = match store.lease(request.clone()).await {
            Err(StoreError::Held { holder, fence, .. }) if free(&holder) => {
                store
                    .lease(LeaseRequest {
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

    /// Where the next write goes. Every write lets the lease run on.
    pub(crate) fn position(&self, revision: u64) -> Position {
        Position {
            revision,
            fence: self.lease.fence,
            lease_until: Some(self.until()),
        }
    }

    /// Waits until the lease should be renewed if nothing is written meanwhile.
    pub(crate) async fn due(&self) {
        self.clock.sleep(self.span / 3).await;
    }

    /// Lets the lease run on. An error says that somebody else has it now.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        self.store.renew(&self.lease, self.until()).await
    }

    /// Gives the lease back.
    pub(crate) async fn release(self) -> Result<(), StoreError> {
        self.store.release(&self.lease).await
    }

    fn until(&self) -> Timestamp {
        self.clock.now().plus(self.span)
    }
}
