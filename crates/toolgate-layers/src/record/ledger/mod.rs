//! The chain of receipts in a store, with listing, verification and signing.

pub(crate) mod export;
mod identity;
pub(crate) mod mirror;
pub(crate) mod outcomes;

use std::sync::atomic::{AtomicU64, Ordering};

use toolgate_core::{
    CallId, Checkpoint, CheckpointError, Digest, Json, LedgerHead, LedgerKey, LedgerName,
    LedgerVerification, LedgerVerifier, Principal, RecordKey, SealedEntry, SessionId, Status,
    StoreError, StoreHandle, StoreRecord, TamperKind, TamperedLedger, Timestamp, ToolName,
    VerifiedLedger,
};

use crate::{Receipt, record::receipts::store::receipt_uri};

/// The number of entries that are read at once.
pub(crate) const PAGE_SIZE: usize = 500;

/// A tamper-evident chain of receipts in a store. Clones share the store.
///
/// ```
/// use toolgate_core::{LedgerKey, Timestamp};
/// use toolgate_layers::{Ledger, ReceiptFilter, Receipts};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let call = call("echo");
/// echo_under(Receipts::to_store()).run(call.clone()).await;
/// let ledger = Ledger::main(call.env().store().clone());
/// let key = LedgerKey::from_bytes(&[7; 32]);
/// ledger.sign_checkpoint(&key, Timestamp::EPOCH).await?;
/// assert_eq!(ledger.verify(&[], Some(&key.to_verifier())).await?.signed, Some(1));
/// let page = ledger.list_receipts(&ReceiptFilter { tool: Some("echo".into()), ..ReceiptFilter::default() }).await?;
/// assert_eq!(page.receipts[0].receipt.invocation_id, call.id);
/// # Ok::<(), toolgate_layers::LedgerError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Ledger {
    store: StoreHandle,
    name: LedgerName,
}

/// The error for a ledger that could not be read or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Verification failed: the ledger is not as it was written.
    #[error(transparent)]
    Tampered(#[from] Box<TamperedLedger>),
    /// The ledger is intact, but does not contain a head that was signed before.
    #[error(transparent)]
    HeadLost(#[from] Box<LostHead>),
    /// The store failed.
    #[error("the ledger could not be read from the store or written to it: {0}")]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error("the file of the ledger could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// A line of a file is not what the format requires at its position.
    #[error("line {line} of the file: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The problem.
        what: &'static str,
    },
}

/// A signed head that is not in the ledger any more: a backup was restored, or records were removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "ledger {}: record {} was signed here and is not in the ledger any more, which now ends at record {}: a backup was restored, or records were removed",
    .signed.ledger, .signed.counter, .found.counter
)]
pub struct LostHead {
    /// The head that was signed.
    pub signed: LedgerHead,
    /// The head of the ledger now.
    pub found: LedgerHead,
}

/// A filter for receipts. A receipt has to match every field that is set.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiptFilter {
    /// Only calls that ended at this time or later.
    pub from: Option<Timestamp>,
    /// Only calls that ended before this time.
    pub until: Option<Timestamp>,
    /// Only calls of this tool.
    pub tool: Option<ToolName>,
    /// Only calls with this status.
    pub status: Option<Status>,
    /// Only calls of this session.
    pub session: Option<SessionId>,
    /// Only calls that this approver decided on.
    pub approver: Option<Principal>,
    /// Only receipts after this number.
    pub after: u64,
    /// The maximum number of receipts.
    pub limit: usize,
}

/// One page of receipts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiptPage {
    /// The receipts that match.
    pub receipts: Vec<SealedReceipt>,
    /// The number to continue after, if there may be more.
    pub next: Option<u64>,
}

/// A receipt and its position in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedReceipt {
    /// The receipt's number in the ledger.
    pub counter: u64,
    /// The hash of the receipt's entry.
    pub hash: Digest,
    /// The receipt's URI, as outcomes have it.
    pub uri: String,
    /// The receipt.
    pub receipt: Receipt,
}

impl Default for ReceiptFilter {
    fn default() -> Self {
        let from = None;
        let until = None;
        let tool = None;
        let status = None;
        let session = None;
        let approver = None;
        Self {
            from,
            until,
            tool,
            status,
            session,
            approver,
            after: 0,
            limit: 100,
        }
    }
}

impl ReceiptFilter {
    /// Checks whether a receipt matches, whatever its position.
    pub fn matches(&self, receipt: &Receipt) -> bool {
        self.from.is_none_or(|from| receipt.ended_at >= from)
            && self.until.is_none_or(|until| receipt.ended_at < until)
            && self
                .tool
                .as_ref()
                .is_none_or(|tool| receipt.tool_name == *tool)
            && self.status.is_none_or(|status| receipt.status == status)
            && self
                .session
                .is_none_or(|session| receipt.session_id == session)
            && self
                .approver
                .as_ref()
                .is_none_or(|approver| receipt.is_approved_by(approver))
    }
}

impl Ledger {
    /// Returns the ledger with this name.
    pub fn new(store: StoreHandle, name: LedgerName) -> Self {
        Self { store, name }
    }

    /// Returns the ledger `main`.
    pub fn main(store: StoreHandle) -> Self {
        Self::new(store, LedgerName::main())
    }

    /// Returns the ledger's name.
    pub fn name(&self) -> &LedgerName {
        &self.name
    }

    /// Returns receipts that match `filter`, oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or with the number of an entry that is not a receipt.
    pub async fn list_receipts(&self, filter: &ReceiptFilter) -> Result<ReceiptPage, LedgerError> {
        let mut receipts = Vec::new();
        let mut after = filter.after;
        while receipts.len() < filter.limit {
            let entries = self.read_entries(after).await?;
            let Some(last) = entries.last() else {
                return Ok(ReceiptPage {
                    receipts,
                    next: None,
                });
            };
            after = last.counter;
            for entry in entries {
                let sealed = self.parse_receipt(&entry)?;
                if filter.matches(&sealed.receipt) {
                    receipts.push(sealed);
                }
                if receipts.len() == filter.limit {
                    return Ok(ReceiptPage {
                        receipts,
                        next: Some(entry.counter),
                    });
                }
            }
        }
        Ok(ReceiptPage {
            receipts,
            next: Some(after),
        })
    }

    /// Returns the receipt of an invocation, searching the newest entries first.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if the entry is not a receipt.
    pub async fn find_receipt(
        &self,
        invocation: CallId,
    ) -> Result<Option<SealedReceipt>, LedgerError> {
        let heads = self.store.ledgers().await?;
        let mut end = heads
            .iter()
            .find(|head| head.ledger == self.name)
            .map_or(0, |head| head.counter);
        let wanted = invocation.to_string();
        while end > 0 {
            let start = end.saturating_sub(PAGE_SIZE as u64);
            let entries = self.store.entries(&self.name, start, PAGE_SIZE).await?;
            // A text search first: it is cheaper than parsing every receipt.
            for entry in entries
                .iter()
                .rev()
                .filter(|entry| entry.body.contains(&wanted))
            {
                let sealed = self.parse_receipt(entry)?;
                if sealed.receipt.invocation_id == invocation {
                    return Ok(Some(sealed));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Verifies the whole ledger.
    ///
    /// With a verifier, the chain is compared with the checkpoints in the store and with those that
    /// were stored elsewhere. Only the latter reveal that an attacker with write access to the
    /// store has deleted the end of the ledger together with its checkpoints.
    ///
    /// # Errors
    ///
    /// Fails with the first entry that was tampered with, or if the store fails.
    pub async fn verify(
        &self,
        elsewhere: &[Checkpoint],
        verifier: Option<&LedgerVerifier>,
    ) -> Result<VerifiedLedger, LedgerError> {
        // Before the entries: those that other processes add meanwhile come after it.
        let recorded = self.head().await?;
        let mut check = match verifier {
            None => LedgerVerification::from_start(self.name.clone()),
            Some(verifier) => {
                let stored = self.checkpoints().await?;
                LedgerVerification::with_checkpoints(
                    self.name.clone(),
                    stored.iter().chain(elsewhere),
                    verifier,
                )?
            }
        };
        self.feed_check(&mut check).await?;
        let verified = check.finish()?;
        // The store has the number of the last entry beside the entries: its next one follows it.
        if !self.contains_head(&recorded).await? {
            return Err(Box::new(TamperedLedger {
                ledger: self.name.clone(),
                counter: verified.counter.min(recorded.counter) + 1,
                what: TamperKind::Truncated(recorded.counter),
            })
            .into());
        }
        Ok(verified)
    }

    /// Signs the head of the ledger, stores the checkpoint and returns it, so that the caller can
    /// store it elsewhere too.
    ///
    /// All entries since the last checkpoint by this key are verified first, so that a tampered
    /// ledger is never signed. Without new entries, that checkpoint is returned. A checkpoint by
    /// another key for the same entry stays beside the new one.
    ///
    /// # Errors
    ///
    /// Fails if verification fails or the store fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the checkpoint either stored or not; a repeated call returns the
    /// stored one.
    pub async fn sign_checkpoint(
        &self,
        key: &LedgerKey,
        now: Timestamp,
    ) -> Result<Checkpoint, LedgerError> {
        let last = self.last_checkpoint_by(key).await?;
        let from = last
            .as_ref()
            .map_or_else(|| LedgerHead::start_of(self.name.clone()), Checkpoint::head);
        // Without this check, a ledger that has lost this entry and all later ones would look
        // unchanged.
        if from.counter > 0 {
            self.check_head(&from).await?;
        }
        // Only entries after the last checkpoint: what it covers was verified when it was signed.
        let mut check = LedgerVerification::after_head(from);
        self.feed_check(&mut check).await?;
        if let Some(last) = last.filter(|last| last.counter == check.head().counter) {
            return Ok(last);
        }
        let checkpoint = Checkpoint::sign(check.head(), now, key);
        let value = serde_json::to_value(&checkpoint).expect("a checkpoint is plain data");
        let record = StoreRecord::Json(Json::new(value).expect("a checkpoint is not deep"));
        // Padded to 20 digits, so that the store lists checkpoints in numeric order.
        let place = format!("{}{:020}", self.checkpoint_prefix(), checkpoint.counter);
        // The second name is for our key only: a checkpoint by another key, which anyone with
        // access to the store can write, must not keep ours out.
        let own = format!("{place}/{}", checkpoint.key);
        for place in [place, own] {
            let key_of_place = RecordKey::Other(place.into());
            let there = self
                .store
                .put_record_once(key_of_place, record.clone())
                .await?;
            let Some(there) = there else {
                return Ok(checkpoint);
            };
            // Another process stored one first. If it has our key, both have signed the same entry.
            let there = self.parse_checkpoint(&there, checkpoint.counter)?;
            if key.to_verifier().verify(&there).is_ok() {
                return Ok(there);
            }
        }
        Err(self.unreadable_record(checkpoint.counter).into())
    }

    /// Returns the last checkpoint in the store that was signed with this key. Other keys prove
    /// nothing to its owner.
    async fn last_checkpoint_by(&self, key: &LedgerKey) -> Result<Option<Checkpoint>, LedgerError> {
        let verifier = key.to_verifier();
        for checkpoint in self.checkpoints().await?.into_iter().rev() {
            match verifier.verify(&checkpoint) {
                Ok(()) => return Ok(Some(checkpoint)),
                Err(CheckpointError::UnknownKey(_)) => {}
                // It claims our key: skipping it would let a forger choose where verification
                // starts.
                Err(doubt @ CheckpointError::Forged) => {
                    let ledger = self.name.clone();
                    let counter = checkpoint.counter;
                    return Err(Box::new(TamperedLedger {
                        ledger,
                        counter,
                        what: TamperKind::Checkpoint(doubt),
                    })
                    .into());
                }
            }
        }
        Ok(None)
    }

    /// Returns the checkpoints in the store, oldest first. Their signatures are not verified.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if a record is not a checkpoint.
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>, LedgerError> {
        let prefix = self.checkpoint_prefix();
        let mut checkpoints = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .store
                .list_records(&prefix, after.as_deref(), PAGE_SIZE)
                .await?;
            for (place, record) in &page {
                if let Some(counter) = place.strip_prefix(&*prefix).and_then(parse_place) {
                    checkpoints.push(self.parse_checkpoint(record, counter)?);
                }
            }
            match page.last() {
                Some((place, _)) => after = Some(place.to_string()),
                None => return Ok(checkpoints),
            }
        }
    }

    /// Returns up to [`PAGE`] entries after number `after`.
    pub(crate) async fn read_entries(&self, after: u64) -> Result<Vec<SealedEntry>, LedgerError> {
        Ok(self.store.entries(&self.name, after, PAGE_SIZE).await?)
    }

    /// Feeds all entries after the head of `check` to it.
    async fn feed_check(&self, check: &mut LedgerVerification) -> Result<(), LedgerError> {
        // Counted here, not read from the entries: tampered entries may have any number.
        let mut read = check.head().counter;
        loop {
            let entries = self.read_entries(read).await?;
            if entries.is_empty() {
                return Ok(());
            }
            read += entries.len() as u64;
            for entry in &entries {
                check.verify_entry(entry)?;
            }
        }
    }

    /// Returns the head of the ledger.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn head(&self) -> Result<LedgerHead, LedgerError> {
        let heads = self.store.ledgers().await?;
        let found = heads.into_iter().find(|head| head.ledger == self.name);
        Ok(found.unwrap_or_else(|| LedgerHead::start_of(self.name.clone())))
    }

    /// Checks whether `head` is in the ledger, at its end or before it.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn contains_head(&self, head: &LedgerHead) -> Result<bool, LedgerError> {
        if head.counter == 0 {
            return Ok(*head == LedgerHead::start_of(self.name.clone()));
        }
        let there = self.store.entries(&self.name, head.counter - 1, 1).await?;
        Ok(there.first().is_some_and(|entry| entry.head() == *head))
    }

    /// Checks that the ledger still has the entry that was signed.
    pub(crate) async fn check_head(&self, head: &LedgerHead) -> Result<(), LedgerError> {
        let entry = self
            .store
            .entries(&self.name, head.counter - 1, 1)
            .await?
            .pop();
        let what = match entry {
            Some(entry) if entry.head() == *head => return Ok(()),
            // `since` 0: it is unknown which of the entries before was changed.
            Some(_) => TamperKind::SignatureMismatch { since: 0 },
            None => TamperKind::Truncated(head.counter),
        };
        Err(Box::new(TamperedLedger {
            ledger: self.name.clone(),
            counter: head.counter,
            what,
        })
        .into())
    }

    /// Parses the receipt in an entry.
    pub(crate) fn parse_receipt(&self, entry: &SealedEntry) -> Result<SealedReceipt, LedgerError> {
        let receipt: Receipt =
            serde_json::from_str(&entry.body).map_err(|_| self.unreadable_record(entry.counter))?;
        let uri = receipt_uri(&self.name, receipt.invocation_id);
        Ok(SealedReceipt {
            counter: entry.counter,
            hash: entry.hash,
            uri,
            receipt,
        })
    }

    /// Parses a stored checkpoint.
    fn parse_checkpoint(
        &self,
        record: &StoreRecord,
        counter: u64,
    ) -> Result<Checkpoint, LedgerError> {
        let StoreRecord::Json(json) = record else {
            return Err(self.unreadable_record(counter).into());
        };
        serde_json::from_value(json.as_value().clone())
            .map_err(|_| self.unreadable_record(counter).into())
    }

    /// Creates the error for a record that cannot be parsed.
    fn unreadable_record(&self, counter: u64) -> Box<TamperedLedger> {
        Box::new(TamperedLedger {
            ledger: self.name.clone(),
            counter,
            what: TamperKind::Unreadable,
        })
    }

    /// Returns the key prefix of the ledger's checkpoints in the store.
    fn checkpoint_prefix(&self) -> String {
        format!("checkpoint/{}/", self.name)
    }
}

/// Returns the number in the name of a checkpoint: bare, or with the digest of a key. The names of a
/// ledger `main/x` have the prefix of `main` too, and neither form.
fn parse_place(rest: &str) -> Option<u64> {
    let number = match rest.split_once('/') {
        Some((number, key)) => key.parse::<Digest>().ok().map(|_| number)?,
        None => rest,
    };
    (number.len() == 20).then(|| number.parse().ok())?
}

/// Signs a ledger after a number of receipts. The driver of a session calls it after a turn.
#[derive(Debug)]
pub struct CheckpointSchedule {
    ledger: Ledger,
    key: LedgerKey,
    every: u64,
    /// The number of the last signed entry plus one; 0 if it is not known yet.
    signed: AtomicU64,
}

impl CheckpointSchedule {
    /// Creates a schedule that signs after at least `n` receipts since the last checkpoint; `n` is
    /// at least one.
    pub fn every(n: u64, ledger: Ledger, key: LedgerKey) -> Self {
        Self {
            ledger,
            key,
            every: n.max(1),
            signed: AtomicU64::new(0),
        }
    }

    /// Signs if a checkpoint is due. If not, the check costs one read of the store.
    ///
    /// # Errors
    ///
    /// Fails as [`Ledger::sign_checkpoint`] does.
    pub async fn sign_if_due(&self, now: Timestamp) -> Result<Option<Checkpoint>, LedgerError> {
        let signed = match self.signed.load(Ordering::Relaxed).checked_sub(1) {
            Some(signed) => signed,
            None => self
                .ledger
                .last_checkpoint_by(&self.key)
                .await?
                .map_or(0, |last| last.counter),
        };
        // Relaxed is enough: the value only saves reads, and a repeated signature returns the
        // stored checkpoint.
        self.signed.store(signed + 1, Ordering::Relaxed);
        let due = self
            .ledger
            .store
            .entries(&self.ledger.name, signed + self.every - 1, 1)
            .await?;
        if due.is_empty() {
            return Ok(None);
        }
        let checkpoint = self.ledger.sign_checkpoint(&self.key, now).await?;
        self.signed.store(checkpoint.counter + 1, Ordering::Relaxed);
        Ok(Some(checkpoint))
    }
}

#[cfg(test)]
mod tests;
