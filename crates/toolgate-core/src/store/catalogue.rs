//! The lists that a store derives from its logs, and what happens to whole sessions.

use std::future::Future;

use crate::{
    ApprovalFilter, ApprovalRow, ErasedSessions, SessionFilter, SessionId, SessionRow,
    SessionTitle, StoreError, Timestamp, TurnFilter, TurnRow,
};

/// The lists of sessions, turns and approvals, and hiding and erasing sessions.
///
/// A store derives the lists from the events in the write that appends them ([`RowChange`]), so
/// they can be queried without reading a log.
///
/// [`RowChange`]: crate::RowChange
pub trait CatalogueStore: Send + Sync + 'static {
    /// Lists sessions in the order of the filter. Hidden ones are left out unless the filter asks
    /// for them.
    fn sessions(
        &self,
        filter: SessionFilter,
    ) -> impl Future<Output = Result<Vec<SessionRow>, StoreError>> + Send;

    /// Lists turns, oldest first.
    fn turns(
        &self,
        filter: TurnFilter,
    ) -> impl Future<Output = Result<Vec<TurnRow>, StoreError>> + Send;

    /// Lists approvals, oldest first.
    fn approvals(
        &self,
        filter: ApprovalFilter,
    ) -> impl Future<Output = Result<Vec<ApprovalRow>, StoreError>> + Send;

    /// Hides a session and those of its agents, or shows them again. Nothing is deleted, and a
    /// caller that knows the id can still use a hidden session. A session that does not exist is
    /// not an error.
    fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Replaces the title of a session. A session that does not exist is not an error.
    fn rename_session(
        &self,
        session: SessionId,
        title: SessionTitle,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes a session and those of its agents, all or nothing: events, messages, records of
    /// turns and calls, approvals, mailbox items and leases. A session that does not exist is not
    /// an error.
    ///
    /// Amounts still reserved are booked as spent, because the actual amounts can no longer be
    /// known. What stays: ledger chains, which contain digests and must be complete; accounts;
    /// blobs, because another session may have stored the same bytes; standing rules and the marks
    /// of used tokens; and the fence of the newest lease, so that an old driver cannot write to the
    /// session.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, if one of them has a lease, and whether it has expired
    /// at the time `now`, or at the time of a store that has a clock of its own; then nothing was
    /// deleted. A caller that knows that the holder has ended takes the lease and releases it.
    fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> impl Future<Output = Result<ErasedSessions, StoreError>> + Send;
}
