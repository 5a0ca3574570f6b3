//! The commands, over a store in a directory: one file for sessions, approvals and receipts, one for the keys.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate::{
    Decision, SideEffect, Stack, View,
    approval::{ApprovalRequestRef, ApprovalService, KeyFile},
    layers::{Approval, Ledger, ReceiptFilter, Receipts, Validate},
    session::{Dispatcher, TurnRequest},
    stack::ToolRequest,
    store::{ApprovalFilter, SessionFilter, SqliteStore, StoreHandle},
    value::{ApprovalId, SessionId},
};

use crate::{show, tools::build_registry};

/// A directory in which calls are suspended, decided and run.
pub(crate) struct Office {
    database: SqliteStore,
    store: StoreHandle,
    keys: KeyFile,
    outbox: PathBuf,
}

impl Office {
    pub(crate) async fn open(dir: &Path) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(dir)?;
        let database = SqliteStore::open(dir.join("toolgate.db"))?;
        let store = StoreHandle::new(database.clone());
        let keys = KeyFile::load_or_create(dir.join("approval.keys"))?;
        Ok(Self {
            database,
            store,
            keys,
            outbox: dir.join("outbox.txt"),
        })
    }

    /// Builds the same stack in every process: receipts outermost, then validation, then approval.
    async fn dispatcher(
        &self,
        session: Option<SessionId>,
    ) -> Result<(Dispatcher, View), Box<dyn Error>> {
        let registry = build_registry(self.outbox.clone())?;
        let stack = Stack::over(registry.clone())
            .layer(Receipts::to_store())
            .layer(Validate::new())
            .layer(Approval::from_effect(SideEffect::Network).keyring(self.keys.keyring()))
            .build()?;
        let view = View::for_stack(&registry, &stack)?;
        let mut builder = Dispatcher::builder(stack)
            .store_handle(self.store.clone())
            .keyring(self.keys.keyring());
        if let Some(session) = session {
            builder = builder.session(session);
        }
        Ok((builder.build().await?, view))
    }

    fn approvals(&self) -> ApprovalService {
        ApprovalService::new(self.store.clone()).keyring(self.keys.keyring())
    }

    /// Runs the calls that a model might request in one message.
    pub(crate) async fn create(&self) -> Result<(), Box<dyn Error>> {
        let (dispatcher, view) = self.dispatcher(None).await?;
        let calls = vec![
            ToolRequest::from_json("call_1", "look_up", json!({ "customer": "Ada" })),
            ToolRequest::from_json(
                "call_2",
                "send_invoice",
                json!({ "customer": "Ada", "amount": 900 }),
            ),
            ToolRequest::from_json("call_3", "look_up", json!({ "customer": "Grace" })),
        ];
        let request = TurnRequest::new(view, calls).principal("assistant");
        let report = dispatcher.open_turn(request).await?.run().await?;
        show::print_report(&report);
        Ok(())
    }

    pub(crate) async fn pending(&self) -> Result<(), Box<dyn Error>> {
        let rows = self
            .approvals()
            .list_approvals(ApprovalFilter::default())
            .await?;
        if rows.is_empty() {
            println!("no approval request is pending");
        }
        rows.iter().for_each(show::print_pending);
        Ok(())
    }

    pub(crate) async fn show(&self, id: ApprovalId) -> Result<(), Box<dyn Error>> {
        let shown = self
            .approvals()
            .find_approval(id)
            .await?
            .ok_or("there is no such approval request")?;
        show::print_request(&shown.row);
        Ok(())
    }

    /// Stores a decision. It needs only the store and the key: no tool runs here.
    pub(crate) async fn decide(
        &self,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<(), Box<dyn Error>> {
        let shown = self
            .approvals()
            .find_approval(id)
            .await?
            .ok_or("there is no such approval request")?;
        let question = ApprovalRequestRef::from(&*shown.row.request);
        self.approvals().decide(question, decision).await?;
        println!("decided; `resume` acts on it");
        Ok(())
    }

    /// Resumes every turn that is not settled.
    pub(crate) async fn resume(&self) -> Result<(), Box<dyn Error>> {
        let sessions = self
            .store
            .sessions(SessionFilter {
                with_open_turns: true,
                ..SessionFilter::default()
            })
            .await?;
        if sessions.is_empty() {
            println!("no turn is left to resume");
        }
        for session in sessions {
            let (dispatcher, view) = self.dispatcher(Some(session.session)).await?;
            for run in dispatcher.recover_turns(&view).await?.runs {
                show::print_report(&run.run().await?);
            }
        }
        Ok(())
    }

    pub(crate) async fn verify(&self) -> Result<(), Box<dyn Error>> {
        let verified = Ledger::main(self.store.clone()).verify(&[], None).await?;
        println!("{} receipts, and the chain is intact", verified.counter);
        Ok(())
    }

    /// Checks the database itself for damage.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let problems = self.database.check()?;
        problems.iter().for_each(|problem| println!("{problem}"));
        if problems.is_empty() {
            println!("{} is intact", self.database.path().display());
            return Ok(());
        }
        Err(format!("{} problems found", problems.len()).into())
    }

    /// Copies the database, also while it is in use.
    pub(crate) fn backup(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        self.database.backup_to(path)?;
        println!("copied to {}", path.display());
        Ok(())
    }

    pub(crate) async fn export(&self) -> Result<(), Box<dyn Error>> {
        let everything = ReceiptFilter {
            limit: usize::MAX,
            ..ReceiptFilter::default()
        };
        Ledger::main(self.store.clone())
            .export(io::stdout().lock(), &everything)
            .await?;
        Ok(())
    }
}
