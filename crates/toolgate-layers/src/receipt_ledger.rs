//! The chain of receipts in a store: list, show, verify and sign it.

use std::sync::atomic::{AtomicU64, Ordering};

use toolgate_core::{
    CallId, Checkpoint, Digest, DoubtfulCheckpoint, Json, LedgerCheck, LedgerHead, LedgerKey,
    LedgerName, LedgerVerifier, Principal, Record, RecordKey, SealedEntry, SessionId, Status,
    StoreError, StoreHandle, Tampered, Tampering, Timestamp, ToolName, Verified,
};

use crate::{Receipt, receipt_store::receipt_uri};

/// How many entries are read at once.
pub(crate) const PAGE: usize = 500;

/// A chain of receipts in a store. Cloning shares the store.
///
/// ```
/// use toolgate_core::{LedgerKey, Timestamp};
/// use toolgate_layers::{Ledger, ReceiptFilter, Receipts};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let call = call("echo");
/// echo_under(Receipts::to_store()).run(call.clone()).await;
/// let (ledger, key) = (Ledger::main(call.env().store().clone()), LedgerKey::from_bytes(&[7; 32]));
/// ledger.checkpoint(&key, Timestamp::EPOCH).await?;
/// assert_eq!(ledger.verify(&[], Some(&key.verifier())).await?.signed, Some(1));
/// let page = ledger.list(&ReceiptFilter { tool: Some("echo".into()), ..ReceiptFilter::default() }).await?;
/// assert_eq!(page.receipts[0].receipt.invocation_id, call.id);
/// # Ok::<(), toolgate_layers::LedgerError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Ledger {
    store: StoreHandle,
    name: LedgerName,
}

/// Why a ledger could not be read, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It is not as it was written.
    #[error(transparent)]
    Tampered(#[from] Box<Tampered>),
    /// The store could not answer.
    #[error("the ledger could not be read from the store or written to it")]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error("the file of the ledger could not be read or written")]
    Io(#[from] std::io::Error),
    /// A line of a file that is no record is not what it should be.
    #[error("line {line} of the file: {what}")]
    Line {
        /// Which line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Which receipts are listed. Everything that is given has to fit.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiptFilter {
    /// Only calls that ended then or later.
    pub from: Option<Timestamp>,
    /// Only calls that ended before then.
    pub until: Option<Timestamp>,
    /// Only calls of this tool.
    pub tool: Option<ToolName>,
    /// Only calls that ended like this.
    pub status: Option<Status>,
    /// Only calls of this session.
    pub session: Option<SessionId>,
    /// Only calls on which this person decided.
    pub approver: Option<Principal>,
    /// Only receipts behind this number.
    pub after: u64,
    /// At most this many.
    pub limit: usize,
}

/// Some receipts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiptPage {
    /// Those that fit.
    pub receipts: Vec<SealedReceipt>,
    /// Where to go on, if there may be more.
    pub next: Option<u64>,
}

/// A receipt and its place in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedReceipt {
    /// Its number.
    pub counter: u64,
    /// The hash of its entry.
    pub hash: Digest,
    /// Where it is kept, as outcomes say it.
    pub uri: String,
    /// The receipt.
    pub receipt: Receipt,
}

impl Default for ReceiptFilter {
    fn default() -> Self {
        let (from, until, tool, status, session, approver) = (None, None, None, None, None, None);
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
    /// Whether a receipt is wanted, wherever it stands.
    pub fn wants(&self, receipt: &Receipt) -> bool {
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
    /// The ledger of this name.
    pub fn new(store: StoreHandle, name: LedgerName) -> Self {
        Self { store, name }
    }

    /// The ledger `main`.
    pub fn main(store: StoreHandle) -> Self {
        Self::new(store, LedgerName::main())
    }

    /// What it is called.
    pub fn name(&self) -> &LedgerName {
        &self.name
    }

    /// Lists receipts, oldest first. A record that is no receipt is an error that names it.
    pub async fn list(&self, filter: &ReceiptFilter) -> Result<ReceiptPage, LedgerError> {
        let (mut receipts, mut after) = (Vec::new(), filter.after);
        while receipts.len() < filter.limit {
            let entries = self.entries(after).await?;
            let Some(last) = entries.last() else {
                return Ok(ReceiptPage {
                    receipts,
                    next: None,
                });
            };
            after = last.counter;
            for entry in entries {
                let sealed = self.read(&entry)?;
                if filter.wants(&sealed.receipt) {
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

    /// The receipt of an invocation. The newest are looked through first.
    pub async fn show(&self, invocation: CallId) -> Result<Option<SealedReceipt>, LedgerError> {
        let heads = self.store.ledgers().await?;
        let mut end = heads
            .iter()
            .find(|head| head.ledger == self.name)
            .map_or(0, |head| head.counter);
        let wanted = invocation.to_string();
        while end > 0 {
            let start = end.saturating_sub(PAGE as u64);
            let entries = self.store.entries(&self.name, start, PAGE).await?;
            // Looking for the text first is cheaper than reading every receipt.
            for entry in entries
                .iter()
                .rev()
                .filter(|entry| entry.body.contains(&wanted))
            {
                let sealed = self.read(entry)?;
                if sealed.receipt.invocation_id == invocation {
                    return Ok(Some(sealed));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Goes through the whole ledger and says where it was tampered with, if it was.
    ///
    /// With a verifier it is held against the checkpoints in the store and against those that were kept elsewhere. The
    /// latter also show what whoever can write to the store could hide: that the end of the ledger and the checkpoints
    /// about it were removed.
    pub async fn verify(
        &self,
        elsewhere: &[Checkpoint],
        verifier: Option<&LedgerVerifier>,
    ) -> Result<Verified, LedgerError> {
        let mut check = match verifier {
            None => LedgerCheck::of(self.name.clone()),
            Some(verifier) => {
                let stored = self.checkpoints().await?;
                LedgerCheck::against(self.name.clone(), stored.iter().chain(elsewhere), verifier)?
            }
        };
        self.feed(&mut check).await?;
        Ok(check.finish()?)
    }

    /// Signs where the ledger stands, keeps the checkpoint in the store and returns it, to be kept elsewhere as well.
    ///
    /// What came since the last checkpoint by this key is verified first: nobody signs what was tampered with. If nothing
    /// came, that checkpoint is returned. Where one by another key is kept already, the new one is only returned.
    pub async fn checkpoint(
        &self,
        key: &LedgerKey,
        now: Timestamp,
    ) -> Result<Checkpoint, LedgerError> {
        let last = self.last_by(key).await?;
        let from = last
            .as_ref()
            .map_or_else(|| LedgerHead::start(self.name.clone()), Checkpoint::head);
        if from.counter > 0 {
            self.stands_at(&from).await?;
        }
        let mut check = LedgerCheck::behind(from);
        self.feed(&mut check).await?;
        if let Some(last) = last.filter(|last| last.counter == check.head().counter) {
            return Ok(last);
        }
        let checkpoint = Checkpoint::sign(check.head(), now, key);
        let value = serde_json::to_value(&checkpoint).expect("a checkpoint is plain data");
        let record = Record::Json(Json::new(value).expect("a checkpoint is not deep"));
        let place = format!("{}{:020}", self.prefix(), checkpoint.counter);
        match self
            .store
            .once(RecordKey::Other(place.into()), record)
            .await?
        {
            // Somebody else was faster; if it was one of us, both have signed the same place.
            Some(there) => {
                let there = self.read_checkpoint(&there, checkpoint.counter)?;
                Ok(if key.verifier().verify(&there).is_ok() {
                    there
                } else {
                    checkpoint
                })
            }
            None => Ok(checkpoint),
        }
    }

    /// The last checkpoint in the store that was signed with this key. What others have signed vouches for nothing here.
    async fn last_by(&self, key: &LedgerKey) -> Result<Option<Checkpoint>, LedgerError> {
        let verifier = key.verifier();
        for checkpoint in self.checkpoints().await?.into_iter().rev() {
            match verifier.verify(&checkpoint) {
                Ok(()) => return Ok(Some(checkpoint)),
                Err(DoubtfulCheckpoint::UnknownKey(_)) => {}
                Err(doubt @ DoubtfulCheckpoint::Forged) => {
                    let (ledger, counter) = (self.name.clone(), checkpoint.counter);
                    return Err(Box::new(Tampered {
                        ledger,
                        counter,
                        what: Tampering::Checkpoint(doubt),
                    })
                    .into());
                }
            }
        }
        Ok(None)
    }

    /// The checkpoints in the store, oldest first. They are read, not believed.
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>, LedgerError> {
        let prefix = self.prefix();
        let (mut checkpoints, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list(&prefix, after.as_deref(), PAGE).await?;
            for (place, record) in &page {
                // A ledger whose name goes on behind a slash has the same beginning.
                let number = place
                    .strip_prefix(&*prefix)
                    .filter(|rest| rest.len() == 20)
                    .map(str::parse);
                if let Some(Ok(counter)) = number {
                    checkpoints.push(self.read_checkpoint(record, counter)?);
                }
            }
            match page.last() {
                Some((place, _)) => after = Some(place.to_string()),
                None => return Ok(checkpoints),
            }
        }
    }

    /// Up to [`PAGE`] entries behind number `after`.
    pub(crate) async fn entries(&self, after: u64) -> Result<Vec<SealedEntry>, LedgerError> {
        Ok(self.store.entries(&self.name, after, PAGE).await?)
    }

    /// Feeds everything behind the place where `check` stands.
    async fn feed(&self, check: &mut LedgerCheck) -> Result<(), LedgerError> {
        // Counted here: entries that were tampered with may bear any number.
        let mut read = check.head().counter;
        loop {
            let entries = self.entries(read).await?;
            if entries.is_empty() {
                return Ok(());
            }
            read += entries.len() as u64;
            for entry in &entries {
                check.feed(entry)?;
            }
        }
    }

    /// Makes sure that the ledger still has the entry that was signed.
    pub(crate) async fn stands_at(&self, head: &LedgerHead) -> Result<(), LedgerError> {
        let entry = self
            .store
            .entries(&self.name, head.counter - 1, 1)
            .await?
            .pop();
        let what = match entry {
            Some(entry) if entry.head() == *head => return Ok(()),
            Some(_) => Tampering::NotAsSigned { since: 0 },
            None => Tampering::Truncated(head.counter),
        };
        Err(Box::new(Tampered {
            ledger: self.name.clone(),
            counter: head.counter,
            what,
        })
        .into())
    }

    pub(crate) fn read(&self, entry: &SealedEntry) -> Result<SealedReceipt, LedgerError> {
        let receipt: Receipt =
            serde_json::from_str(&entry.body).map_err(|_| self.unreadable(entry.counter))?;
        let uri = receipt_uri(&self.name, receipt.invocation_id);
        Ok(SealedReceipt {
            counter: entry.counter,
            hash: entry.hash,
            uri,
            receipt,
        })
    }

    fn read_checkpoint(&self, record: &Record, counter: u64) -> Result<Checkpoint, LedgerError> {
        let Record::Json(json) = record else {
            return Err(self.unreadable(counter).into());
        };
        serde_json::from_value(json.as_value().clone()).map_err(|_| self.unreadable(counter).into())
    }

    fn unreadable(&self, counter: u64) -> Box<Tampered> {
        Box::new(Tampered {
            ledger: self.name.clone(),
            counter,
            what: Tampering::Unreadable,
        })
    }

    fn prefix(&self) -> String {
        format!("checkpoint/{}/", self.name)
    }
}

/// Signs a ledger every so many receipts, for whoever drives a session to call after a turn.
#[derive(Debug)]
pub struct Checkpoints {
    ledger: Ledger,
    key: LedgerKey,
    every: u64,
    /// The number of the last entry that was signed, and one more; 0 if it is not known yet.
    signed: AtomicU64,
}

impl Checkpoints {
    /// Signs when at least `n` receipts have come since the last checkpoint; at least one.
    pub fn every(n: u64, ledger: Ledger, key: LedgerKey) -> Self {
        Self {
            ledger,
            key,
            every: n.max(1),
            signed: AtomicU64::new(0),
        }
    }

    /// Signs if it is time. Asking costs one read where it is not.
    pub async fn sign_if_due(&self, now: Timestamp) -> Result<Option<Checkpoint>, LedgerError> {
        let signed = match self.signed.load(Ordering::Relaxed).checked_sub(1) {
            Some(signed) => signed,
            None => self
                .ledger
                .last_by(&self.key)
                .await?
                .map_or(0, |last| last.counter),
        };
        self.signed.store(signed + 1, Ordering::Relaxed);
        let due = self
            .ledger
            .store
            .entries(&self.ledger.name, signed + self.every - 1, 1)
            .await?;
        if due.is_empty() {
            return Ok(None);
        }
        let checkpoint = self.ledger.checkpoint(&self.key, now).await?;
        self.signed.store(checkpoint.counter + 1, Ordering::Relaxed);
        Ok(Some(checkpoint))
    }
}

#[cfg(test)]
#[path = "receipt_ledger_tests.rs"]
mod tests;
