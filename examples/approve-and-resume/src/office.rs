//! The commands, over a store in a directory: one file for sessions, approvals and receipts, one for the keys.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate::{
    ApprovalFilter, ApprovalId, Approvals, Decision, Dispatcher, KeyFile, Question, SessionFilter,
    SessionId, SideEffect, Stack, StoreHandle, ToolRequest, TurnRequest, View,
    layers::{Approval, Ledger, ReceiptFilter, Receipts, Validate},
    store::SqliteStore,
};

use crate::{show, tools::tools};

/// A directory in which calls wait, are decided on and run.
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

    /// The same stack in every process: receipts outermost, then validation, then the person.
    async fn dispatcher(
        &self,
        session: Option<SessionId>,
    ) -> Result<(Dispatcher, View), Box<dyn Error>> {
        let registry = tools(self.outbox.clone())?;
        let stack = Stack::over(registry.clone())
            .layer(Receipts::to_store())
            .layer(Validate::new())
            .layer(Approval::from_effect(SideEffect::Network).keyring(self.keys.keyring()))
            .build()?;
        let view = View::under(&registry, &stack)?;
        let mut builder = Dispatcher::builder(stack)
            .store_handle(self.store.clone())
            .keyring(self.keys.keyring());
        if let Some(session) = session {
            builder = builder.session(session);
        }
        Ok((builder.build().await?, view))
    }

    fn desk(&self) -> Approvals {
        Approvals::new(self.store.clone()).keyring(self.keys.keyring())
    }

    /// What a model might ask for in one message.
    pub(crate) async fn create(&self) -> Result<(), Box<dyn Error>> {
        let (dispatcher, view) = self.dispatcher(None).await?;
        let calls = vec![
            ToolRequest::json("call_1", "look_up", json!({ "customer": "Ada" })),
            ToolRequest::json(
                "call_2",
                "send_invoice",
                json!({ "customer": "Ada", "amount": 900 }),
            ),
            ToolRequest::json("call_3", "look_up", json!({ "customer": "Grace" })),
        ];
        let request = TurnRequest::new(view, calls).principal("assistant");
        let report = dispatcher.open(request).await?.run().await?;
        show::report(&report);
        Ok(())
    }

    pub(crate) async fn pending(&self) -> Result<(), Box<dyn Error>> {
        let rows = self.desk().pending(ApprovalFilter::default()).await?;
        if rows.is_empty() {
            println!("nothing waits for a decision");
        }
        rows.iter().for_each(show::line);
        Ok(())
    }

    pub(crate) async fn show(&self, id: ApprovalId) -> Result<(), Box<dyn Error>> {
        let shown = self
            .desk()
            .show(id)
            .await?
            .ok_or("there is no such approval")?;
        show::question(&shown.row);
        Ok(())
    }

    /// Needs nothing but the store and the key: no tool is run here.
    pub(crate) async fn decide(
        &self,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<(), Box<dyn Error>> {
        let shown = self
            .desk()
            .show(id)
            .await?
            .ok_or("there is no such approval")?;
        let question = Question::from(&*shown.row.request);
        self.desk().decide(question, decision).await?;
        println!("decided; `resume` acts on it");
        Ok(())
    }

    /// Takes up every turn that is not settled, wherever it was left.
    pub(crate) async fn resume(&self) -> Result<(), Box<dyn Error>> {
        let sessions = self
            .store
            .sessions(SessionFilter {
                with_open_turns: true,
                ..SessionFilter::default()
            })
            .await?;
        if sessions.is_empty() {
            println!("nothing is left to do");
        }
        for session in sessions {
            let (dispatcher, view) = self.dispatcher(Some(session.session)).await?;
            for run in dispatcher.recover(&view).await?.runs {
                show::report(&run.run().await?);
            }
        }
        Ok(())
    }

    pub(crate) async fn verify(&self) -> Result<(), Box<dyn Error>> {
        let verified = Ledger::main(self.store.clone()).verify(&[], None).await?;
        println!("{} receipts, and the chain is whole", verified.counter);
        Ok(())
    }

    /// Looks for damage in the database itself.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let problems = self.database.check()?;
        problems.iter().for_each(|problem| println!("{problem}"));
        if problems.is_empty() {
            println!("{} is whole", self.database.path().display());
            return Ok(());
        }
        Err(format!("{} problems were found", problems.len()).into())
    }

    /// Copies the database while it may be in use.
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
