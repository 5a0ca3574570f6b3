//! The logs of sessions, and the leases that guard them.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{Event, LedgerDraft, RecordKey, SessionId, StoreError, StoreRecord, Timestamp};

/// The logs of sessions, and the right to write them.
///
/// A session is its log of events, numbered from 1 without gaps. Appending names the last number
/// the writer knows and the fence of its lease; if the log is longer or another process holds a
/// newer lease, nothing is written. This keeps two processes from driving one session. The batch
/// is the one atomic write: records, ledger entries and consumed mailbox items are written with
/// the events they belong to. Leases are here because they fence appends.
pub trait EventStore: Send + Sync + 'static {
    /// Appends a batch atomically, if the log of `session` is at the position `at`.
    ///
    /// Returns the number of the last event afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] or [`StoreError::Conflict`] if another process wrote or took the
    /// lease, [`StoreError::RecordExists`] if a record exists; then nothing was written. After another
    /// error it is unknown whether the batch was written.
    fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Reads up to `limit` events after number `after`, oldest first.
    fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Event>>, StoreError>> + Send;

    /// Returns the number of the last event of a session; 0 if there is none.
    fn revision(&self, session: SessionId) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Grants the exclusive right to drive a session. An earlier holder's writes are rejected from
    /// then on.
    ///
    /// Granted if the session has no lease, the holder is the same, or the request names the lease
    /// that it replaces. A lease that has expired is not replaced by itself: only the caller can
    /// check whether its holder is alive.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, and whether the lease has expired.
    fn acquire_lease(
        &self,
        request: LeaseRequest,
    ) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Extends a lease, if it is still the newest.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] if there is a newer lease.
    fn renew_lease(
        &self,
        lease: &Lease,
        term: LeaseTerm,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Releases a lease. If it is not the newest, nothing happens and this is not an error.
    fn release_lease(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The end of a log as a writer knows it, and the fence under which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// The number of the last event.
    pub revision: u64,
    /// The fence of the writer's lease; 0 for a session that was never leased.
    pub fence: u64,
    /// The term for which the write also renews the lease.
    pub lease_term: Option<LeaseTerm>,
}

impl LogPosition {
    /// Creates the position at the end of a log that was never leased.
    pub const fn unleased(revision: u64) -> Self {
        Self {
            revision,
            fence: 0,
            lease_term: None,
        }
    }

    /// Checks whether a writer with this position may append to the log of `session`, which is at
    /// `revision` with the newest `fence`.
    pub const fn check_writable(
        self,
        session: SessionId,
        revision: u64,
        fence: u64,
    ) -> Result<(), StoreError> {
        // The fence first: a driver that lost its lease must stop, while one with an old revision
        // may load the log and retry.
        if self.fence != fence {
            return Err(StoreError::Fenced {
                session,
                found: fence,
            });
        }
        if self.revision != revision {
            return Err(StoreError::Conflict {
                session,
                found: revision,
            });
        }
        Ok(())
    }

    /// Checks that events with these numbers continue the log.
    pub fn check_sequence(self, numbers: impl Iterator<Item = u64>) -> Result<(), StoreError> {
        for (expected, found) in (self.revision..).zip(numbers) {
            if found != expected + 1 {
                return Err(StoreError::SequenceGap { expected, found });
            }
        }
        Ok(())
    }
}

/// A batch that is written atomically.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    /// Events, in order.
    pub events: Vec<Arc<Event>>,
    /// Records that must not exist yet. A key that is given twice counts as one that exists.
    pub records: Vec<(RecordKey, StoreRecord)>,
    /// Entries for the ends of chains.
    pub entries: Vec<LedgerDraft>,
    /// The number up to which this batch consumes mailbox items.
    pub taken_posts: Option<u64>,
}

impl WriteBatch {
    /// Checks whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        // Destructured, so that a new field cannot be forgotten here.
        let Self {
            events,
            records,
            entries,
            taken_posts,
        } = self;
        events.is_empty() && records.is_empty() && entries.is_empty() && taken_posts.is_none()
    }
}

/// The term of a lease: it begins when the lease is granted or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerm {
    /// The time by the clock of the process. A store that many machines share has a clock of its
    /// own and ignores it.
    pub now: Timestamp,
    /// The time until the lease expires, unless it is renewed.
    pub span: Duration,
}

impl LeaseTerm {
    /// Returns the time at which the lease expires, by the clock of the process.
    pub fn expiry(self) -> Timestamp {
        self.expiry_after(self.now)
    }

    /// Returns the time at which the lease expires if it begins at `now`.
    pub fn expiry_after(self, now: Timestamp) -> Timestamp {
        now.plus(self.span)
    }
}

/// A request to drive a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The session.
    pub session: SessionId,
    /// The requesting process, named so that others can check whether it is alive.
    pub holder: Arc<str>,
    /// The term of the lease; it can be renewed.
    pub term: LeaseTerm,
    /// The fence of the lease that is replaced, because its holder is lost or was asked about.
    pub instead_of: Option<u64>,
    /// The session whose call started this one, if it is the session of an agent. The first lease
    /// that names it sets it for good.
    pub parent: Option<SessionId>,
    /// The directory that the session works in. The first lease that names it sets it for good.
    pub directory: Option<Arc<str>>,
}

impl LeaseRequest {
    /// Checks that the request is granted for a session with the lease `held` and this `fence`, at
    /// the time `now` of the store.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, if there is one.
    pub fn check_granted(
        &self,
        held: Option<&(Arc<str>, Timestamp)>,
        fence: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // `instead_of` names the fence that was seen: if another process replaced the lost holder
        // in the meantime, its lease stays.
        let held =
            held.filter(|(holder, _)| *holder != self.holder && self.instead_of != Some(fence));
        match held {
            Some(held) => Err(Lease::held_error(self.session, held, fence, now)),
            None => Ok(()),
        }
    }
}

/// The right to drive a session. Each new one has a higher fence and ends the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The number of the lease; writes with a lower one are rejected.
    pub fence: u64,
    /// The number of the session's last event when the lease was granted.
    pub revision: u64,
}

impl Lease {
    /// Checks that no process holds the lease of `session`, given the lease `held` and its `fence`.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, and whether the lease has expired at the time `now`.
    pub fn check_free(
        session: SessionId,
        held: Option<&(Arc<str>, Timestamp)>,
        fence: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // Also an expired one: its holder may be stopped and continue. Only the caller can check that.
        match held {
            Some(held) => Err(Self::held_error(session, held, fence, now)),
            None => Ok(()),
        }
    }

    fn held_error(
        session: SessionId,
        (holder, until): &(Arc<str>, Timestamp),
        fence: u64,
        now: Timestamp,
    ) -> StoreError {
        StoreError::LeaseHeld {
            session,
            holder: holder.clone(),
            until: *until,
            is_expired: *until <= now,
            fence,
        }
    }
}
