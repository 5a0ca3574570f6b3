//! The evidence of what ran: signs the ledger of receipts, remembers what was signed, and verifies
//! both against the calls that settled.

mod remembered_heads;
mod report;

use std::sync::Arc;

use serde::Deserialize;
use toolgate_core::{
    AcceptedRestore, ApproverIdentity, Checkpoint, Clock, Json, Keyring, LedgerHead,
    LedgerVerifier, RecordKey, StoreHandle,
};
use toolgate_layers::{Ledger, LedgerError, LostHead};
use toolgate_runtime::SystemClock;

use self::remembered_heads::{HeadFile, remembered_address};
pub use self::{remembered_heads::RememberedHead, report::EvidenceReport};
use crate::gate::StateDir;

/// The most notes about restored backups that are loaded.
const MAX_RESTORES: usize = 1_000;

/// Signs and verifies the ledger of receipts of a store.
///
/// With a state directory, the last signed head of each ledger is remembered beside the keys, where
/// no tool and no other user of the database can reach it. A ledger that does not contain that head
/// any more was restored from a backup, or records were removed, or another database is in the place
/// of the one that was signed: it is not signed again and does not verify until a person accepts the
/// loss. A database in a new place is a new ledger.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> toolgate::Result<()> {
/// let evidence = toolgate::Gate::in_memory()?.evidence();
/// let report = evidence.verify(&[], &Default::default()).await?;
/// assert!(report.is_intact() && report.chain.counter == 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EvidenceService {
    store: StoreHandle,
    ledger: Ledger,
    keyring: Keyring,
    heads: Option<HeadFile>,
    address: Option<String>,
    clock: Arc<dyn Clock>,
}

impl EvidenceService {
    /// Creates the service for the ledger `main` of a store.
    pub fn new(store: StoreHandle, keyring: Keyring) -> Self {
        Self {
            ledger: Ledger::main(store.clone()),
            store,
            keyring,
            heads: None,
            address: None,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Remembers signed heads in this directory.
    pub fn state_dir(mut self, state: &StateDir) -> Self {
        self.heads = Some(HeadFile::new(state));
        self
    }

    /// Names the database. A database that was replaced, or lost the id of its ledger, is recognized by
    /// its address. One in memory is new each time.
    pub fn address(mut self, address: &str) -> Self {
        let is_durable = !address.contains("memory:");
        self.address = is_durable.then(|| remembered_address(address));
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Verifies the receipts since the last checkpoint, signs the head of the chain and remembers
    /// it, so that a truncated chain is detected. Returns `None` if there is no receipt yet.
    ///
    /// # Errors
    ///
    /// Fails if the store or the state directory cannot be used, if the verification fails, or with
    /// [`LedgerError::HeadLost`]: a changed chain is never signed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the checkpoint may be stored and not remembered. The next call
    /// remembers it.
    pub async fn sign_checkpoint(&self) -> Result<Option<Checkpoint>, LedgerError> {
        let head = self.ledger.head().await?;
        let is_empty = head.counter == 0;
        if let Some((_, lost)) = self.find_lost_head(head).await? {
            return Err(Box::new(lost).into());
        }
        if is_empty {
            return Ok(None);
        }
        let key = self.keyring.ledger_key();
        let checkpoint = self.ledger.sign_checkpoint(&key, self.clock.now()).await?;
        if let Some(heads) = &self.heads {
            heads.remember(self.describe_head(checkpoint.clone()).await?)?;
        }
        Ok(Some(checkpoint))
    }

    /// Verifies everything that can be: the chain, the checkpoints of our keys and of those that
    /// `trusted` adds, those that were stored `elsewhere`, the head that is remembered here, and
    /// that each settled call has its receipt. The report says what was not checked.
    ///
    /// # Errors
    ///
    /// Fails with the first record that was tampered with, with [`LedgerError::HeadLost`] if the
    /// chain is intact and the remembered head is not in it, or if the store fails.
    pub async fn verify(
        &self,
        elsewhere: &[Checkpoint],
        trusted: &LedgerVerifier,
    ) -> Result<EvidenceReport, LedgerError> {
        let verifier = self.keyring.ledger_verifier().with_keys_of(trusted);
        let chain = self.ledger.verify(elsewhere, Some(&verifier)).await?;
        let remembered = match self.find_lost_head(chain.head()).await? {
            Some((_, lost)) => return Err(Box::new(lost).into()),
            None => self.find_remembered().await?,
        };
        // The file beside the keys is only as good as its signature.
        let remembered = remembered.filter(|head| verifier.verify(&head.checkpoint).is_ok());
        let outcomes = self.ledger.compare_outcomes().await?;
        let heads = self.store.ledgers().await?;
        let others = heads.into_iter().map(|head| head.ledger);
        Ok(EvidenceReport {
            other_ledgers: others.filter(|name| name != self.ledger.name()).collect(),
            remembers: self.heads.is_some(),
            remembered: remembered.map(|head| head.checkpoint.head()),
            replaced: self.find_replaced().await?,
            restores: self.load_restores(&verifier).await?,
            chain,
            outcomes,
        })
    }

    /// Returns the signed head that the ledger lost, if so.
    ///
    /// # Errors
    ///
    /// Fails if the store or the state directory cannot be read, or if what is left of the ledger
    /// does not verify by itself.
    pub async fn lost_head(&self) -> Result<Option<LostHead>, LedgerError> {
        Ok(self.verify_rest().await?.map(|(_, lost)| lost))
    }

    /// Records that a person accepts the loss of records, because a backup was restored or the database
    /// is another one. The note
    /// is signed and stored with the ledger; from then on the head of now is remembered.
    ///
    /// Returns `None` if nothing was lost.
    ///
    /// # Errors
    ///
    /// Fails if what is left does not verify by itself: such a ledger was changed and not restored.
    pub async fn accept_restore(
        &self,
        by: ApproverIdentity,
    ) -> Result<Option<AcceptedRestore>, LedgerError> {
        let Some((remembered, lost)) = self.verify_rest().await? else {
            return Ok(None);
        };
        let now = self.clock.now();
        let key = self.keyring.ledger_key();
        let note = AcceptedRestore::sign(lost.signed, lost.found.clone(), by, now, &key);
        let value = serde_json::to_value(&note).expect("a note is plain data");
        let record = Json::new(value).expect("a note is not deep");
        let name = format!("{}{:020}-{now}", self.restore_prefix(), note.lost.counter);
        // The note is durable before the lost head is forgotten.
        self.store
            .put_json_once(RecordKey::Other(name.into()), record)
            .await?;
        let kept = Checkpoint::sign(&lost.found, now, &key);
        if let Some(heads) = &self.heads {
            heads.replace(&remembered, self.describe_head(kept).await?)?;
        }
        Ok(Some(note))
    }

    /// Verifies the ledger without the remembered head, and returns that head if it is lost.
    async fn verify_rest(&self) -> Result<Option<(RememberedHead, LostHead)>, LedgerError> {
        let verifier = self.keyring.ledger_verifier();
        let chain = self.ledger.verify(&[], Some(&verifier)).await?;
        self.find_lost_head(chain.head()).await
    }

    async fn find_lost_head(
        &self,
        found: LedgerHead,
    ) -> Result<Option<(RememberedHead, LostHead)>, LedgerError> {
        let Some(remembered) = self.find_remembered().await? else {
            return Ok(None);
        };
        let signed = remembered.checkpoint.head();
        if self.ledger.contains_head(&signed).await? {
            return Ok(None);
        }
        Ok(Some((remembered, LostHead { signed, found })))
    }

    /// Returns the head that is remembered for this ledger, or for the one that was in its place.
    async fn find_remembered(&self) -> Result<Option<RememberedHead>, LedgerError> {
        let heads = self.load_heads()?;
        let id = self.ledger.identity().await?;
        let own = heads.iter().find(|head| Some(head.id) == id);
        // A ledger that was accepted in this place stands for the earlier ones.
        if own.is_some_and(|own| own.address == self.address) {
            return Ok(own.cloned());
        }
        // Who replaces the database removes its receipts: a person has to accept that.
        let is_here =
            |head: &&RememberedHead| head.address.is_some() && head.address == self.address;
        Ok(heads.iter().rev().find(is_here).or(own).cloned())
    }

    /// Returns the heads of other ledgers that were in the place of this one.
    async fn find_replaced(&self) -> Result<Vec<RememberedHead>, LedgerError> {
        let id = self.ledger.identity().await?;
        let mut heads = self.load_heads()?;
        heads.retain(|head| {
            Some(head.id) != id && head.address.is_some() && head.address == self.address
        });
        Ok(heads)
    }

    fn load_heads(&self) -> Result<Vec<RememberedHead>, LedgerError> {
        let Some(file) = &self.heads else {
            return Ok(Vec::new());
        };
        let mut heads = file.load()?;
        heads.retain(|head| head.checkpoint.ledger == *self.ledger.name());
        Ok(heads)
    }

    async fn describe_head(&self, checkpoint: Checkpoint) -> Result<RememberedHead, LedgerError> {
        Ok(RememberedHead {
            id: self.ledger.establish_identity().await?,
            address: self.address.clone(),
            checkpoint,
        })
    }

    /// Loads the notes about restored backups. One that our keys do not verify is left out: it
    /// explains nothing.
    async fn load_restores(
        &self,
        verifier: &LedgerVerifier,
    ) -> Result<Vec<AcceptedRestore>, LedgerError> {
        let prefix = self.restore_prefix();
        let stored = self.store.list_json(&prefix, None, MAX_RESTORES).await?;
        let parse = |(_, note): (_, Json)| AcceptedRestore::deserialize(note.as_value()).ok();
        let notes = stored.into_iter().filter_map(parse);
        Ok(notes.filter(|note| note.verify(verifier).is_ok()).collect())
    }

    fn restore_prefix(&self) -> String {
        format!("restore/{}/", self.ledger.name())
    }
}

impl std::fmt::Debug for EvidenceService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvidenceService")
            .field("ledger", self.ledger.name())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
