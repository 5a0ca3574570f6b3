//! The commands, over a store in a directory: one file for sessions, approvals and receipts,
//! one for the keys.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate::{
    Decision, Gate,
    approval::ApprovalRequestRef,
    gate::StateDir,
    ledger::ReceiptFilter,
    session::TurnRequest,
    stack::ToolRequest,
    store::{ApprovalFilter, SessionFilter, SqliteStore, StoreHandle},
    value::ApprovalId,
};

use crate::{
    show,
    tools::{look_up, send_invoice},
};

/// A directory in which calls are suspended, decided and run.
pub(crate) struct Office {
    database: SqliteStore,
    gate: Gate,
}

impl Office {
    /// Opens the same gate in every process: reading is allowed, sending needs an approval.
    pub(crate) fn open(dir: &Path) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(dir)?;
        let database = SqliteStore::open(dir.join("toolgate.db"))?;
        let outbox: PathBuf = dir.join("outbox.txt");
        let gate = Gate::builder()
            .store(StoreHandle::new(database.clone()))
            .state_dir(StateDir::new(dir)?)
            .tool(look_up)
            .tool(send_invoice.with_state(outbox))
            .build()?;
        Ok(Self { database, gate })
    }

    /// Runs the calls that a model might request in one message.
    pub(crate) async fn create(&self) -> Result<(), Box<dyn Error>> {
        let dispatcher = self.gate.dispatcher(None).await?;
        let calls = vec![
            ToolRequest::from_json("call_1", "look_up", json!({ "customer": "Ada" })),
            ToolRequest::from_json(
                "call_2",
                "send_invoice",
                json!({ "customer": "Ada", "amount": 900 }),
            ),
            ToolRequest::from_json("call_3", "look_up", json!({ "customer": "Grace" })),
        ];
        let request = TurnRequest::new(self.gate.view()?, calls).principal("assistant");
        let report = dispatcher.open_turn(request).await?.run().await?;
        show::print_report(&report);
        Ok(())
    }

    pub(crate) async fn pending(&self) -> Result<(), Box<dyn Error>> {
        let rows = self
            .gate
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
        let approvals = self.gate.approvals();
        let found = approvals.find_approval(id).await?;
        let found = found.ok_or("there is no such approval request")?;
        // The row is redacted; an approver sees the stored request.
        let request = found
            .request
            .ok_or("the approval request is no longer stored")?;
        show::print_request(&found.row, &approvals.show_request(&request));
        Ok(())
    }

    /// Stores a decision. It needs only the store and the key: no tool runs here.
    pub(crate) async fn decide(
        &self,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<(), Box<dyn Error>> {
        let shown = self
            .gate
            .approvals()
            .find_approval(id)
            .await?
            .ok_or("there is no such approval request")?;
        let question = ApprovalRequestRef::from(&*shown.row.request);
        self.gate.approvals().decide(question, decision).await?;
        println!("decided; `resume` acts on it");
        Ok(())
    }

    /// Resumes every turn that is not settled.
    pub(crate) async fn resume(&self) -> Result<(), Box<dyn Error>> {
        let sessions = self
            .gate
            .store()
            .sessions(SessionFilter {
                with_open_turns: true,
                ..SessionFilter::default()
            })
            .await?;
        if sessions.is_empty() {
            println!("no turn is left to resume");
        }
        for session in sessions {
            let dispatcher = self.gate.dispatcher(Some(session.session)).await?;
            for run in dispatcher.recover_turns(&self.gate.view()?).await?.runs {
                show::print_report(&run.run().await?);
            }
        }
        Ok(())
    }

    pub(crate) async fn verify(&self) -> Result<(), Box<dyn Error>> {
        let verified = self.gate.ledger().verify(&[], None).await?;
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
        self.gate
            .ledger()
            .export(io::stdout().lock(), &everything)
            .await?;
        Ok(())
    }
}
