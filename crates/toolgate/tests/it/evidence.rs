//! The evidence of a gate over a SQLite file: what it remembers, and what a lost record does.

use std::{fs, path::Path};

use serde_json::json;
use toolgate::{
    Gate,
    gate::StateDir,
    ledger::{AcceptedRestore, EvidenceReport, LedgerError, LedgerVerifier},
    session::TurnRequest,
    stack::ToolRequest,
    tool,
};
use toolgate_testkit::authenticated;

/// Looks.
#[tool(read_only)]
async fn look() -> &'static str {
    "seen"
}

struct EvidencePlace {
    dir: tempfile::TempDir,
}

impl EvidencePlace {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Opens a gate over a database, with the state of one user.
    async fn open(&self, database: &str) -> Gate {
        let state = StateDir::new(self.path("state")).expect("absolute");
        let gate = Gate::builder()
            .state_dir(state)
            .address(format!("sqlite:{}", self.path(database).display()))
            .tool(look)
            .open()
            .await;
        gate.expect("opens")
    }

    /// Makes calls in a new session, and signs.
    async fn make_calls(&self, database: &str, count: usize) {
        let gate = self.open(database).await;
        let dispatcher = gate.dispatcher(None).await.expect("opens");
        for _ in 0..count {
            let request = ToolRequest::from_json("", "look", json!({}));
            let turn = TurnRequest::new(gate.view().expect("a view"), vec![request]);
            let run = dispatcher.open_turn(turn).await.expect("opens");
            run.run().await.expect("runs");
        }
    }

    async fn sign(&self, database: &str) -> Result<u64, LedgerError> {
        let signed = self.open(database).await.sign_checkpoint().await?;
        Ok(signed.map_or(0, |checkpoint| checkpoint.counter))
    }

    async fn verify(&self, database: &str) -> Result<EvidenceReport, LedgerError> {
        let evidence = self.open(database).await.evidence();
        evidence.verify(&[], &LedgerVerifier::default()).await
    }

    async fn accept(&self, database: &str) -> Option<AcceptedRestore> {
        let evidence = self.open(database).await.evidence();
        let accepted = evidence.accept_restore(authenticated("ann")).await;
        accepted.expect("stored")
    }

    fn remove(&self, database: &str) {
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.path(&format!("{database}{ending}")));
        }
    }

    /// Copies a database as a backup would: the file is complete when no process has it open.
    fn copy(&self, from: &str, to: &str) {
        self.remove(to);
        for ending in ["", "-wal", "-shm"] {
            let from = self.path(&format!("{from}{ending}"));
            if Path::new(&from).exists() {
                fs::copy(from, self.path(&format!("{to}{ending}"))).expect("copied");
            }
        }
    }
}

/// Returns the numbers of records that were signed and that are there.
fn lost(error: LedgerError) -> (u64, u64) {
    match error {
        LedgerError::HeadLost(lost) => (lost.signed.counter, lost.found.counter),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_restored_backup_is_reported_until_a_person_accepts_it() {
    let place = EvidencePlace::new();
    place.make_calls("a.db", 2).await;
    assert_eq!(place.sign("a.db").await.expect("signs"), 2);
    place.copy("a.db", "backup.db");
    place.make_calls("a.db", 3).await;
    assert_eq!(place.sign("a.db").await.expect("signs"), 5);
    assert_eq!(
        place.verify("a.db").await.expect("intact").confirmed(),
        Some(5)
    );
    place.copy("backup.db", "a.db");
    assert_eq!(
        lost(place.verify("a.db").await.expect_err("restored")),
        (5, 2)
    );
    // New calls do not hide it, not even as many as were lost, and nothing is signed over it.
    place.make_calls("a.db", 3).await;
    assert_eq!(
        lost(place.sign("a.db").await.expect_err("not signed")),
        (5, 5)
    );
    assert_eq!(
        lost(place.verify("a.db").await.expect_err("restored")),
        (5, 5)
    );
    let note = place.accept("a.db").await.expect("something was lost");
    assert_eq!((note.lost.counter, note.kept.counter), (5, 5));
    let report = place.verify("a.db").await.expect("accepted");
    assert!(report.is_intact() && !report.is_unsigned());
    assert_eq!(report.restores, [note]);
    assert_eq!(place.accept("a.db").await, None);
    // The next loss is reported again.
    place.make_calls("a.db", 1).await;
    assert_eq!(place.sign("a.db").await.expect("signs"), 6);
    place.copy("backup.db", "a.db");
    assert_eq!(
        lost(place.verify("a.db").await.expect_err("restored")),
        (6, 2)
    );
}

#[tokio::test]
async fn a_database_in_a_new_place_is_a_new_ledger() {
    let place = EvidencePlace::new();
    place.make_calls("a.db", 3).await;
    place.sign("a.db").await.expect("signs");
    for other in ["b.db", "c.db"] {
        place.make_calls(other, 1).await;
        assert_eq!(place.sign(other).await.expect("signs"), 1);
        let report = place.verify(other).await.expect("intact");
        assert!(report.is_intact() && report.replaced.is_empty());
    }
}

#[tokio::test]
async fn a_replaced_database_does_not_verify_until_a_person_accepts_it() {
    let place = EvidencePlace::new();
    place.make_calls("a.db", 3).await;
    place.sign("a.db").await.expect("signs");
    place.make_calls("b.db", 2).await;
    place.sign("b.db").await.expect("signs");
    // Nothing, a new database, and one that is known in another place.
    place.remove("a.db");
    assert_eq!(lost(place.verify("a.db").await.expect_err("gone")), (3, 0));
    place.make_calls("a.db", 1).await;
    let signed = place.sign("a.db").await;
    assert_eq!(lost(signed.expect_err("another one")), (3, 1));
    place.remove("a.db");
    place.copy("b.db", "a.db");
    assert_eq!(lost(place.verify("a.db").await.expect_err("b")), (3, 2));
    place.verify("b.db").await.expect("where it was");

    place.remove("a.db");
    place.make_calls("a.db", 1).await;
    let note = place.accept("a.db").await.expect("something was lost");
    assert_eq!((note.lost.counter, note.kept.counter), (3, 1));
    assert!(place.verify("a.db").await.expect("accepted").is_intact());
    assert_eq!(place.sign("a.db").await.expect("signs"), 1);
}

#[tokio::test]
async fn records_that_other_processes_append_are_no_loss() {
    let place = EvidencePlace::new();
    place.make_calls("a.db", 2).await;
    let first = place.open("a.db").await;
    let second = place.open("a.db").await;
    first.sign_checkpoint().await.expect("signs");
    for _ in 0..3 {
        place.make_calls("a.db", 2).await;
        let report = place.verify("a.db").await.expect("intact");
        assert!(report.is_intact());
        second.sign_checkpoint().await.expect("signs");
        first.sign_checkpoint().await.expect("signs");
    }
    let report = place.verify("a.db").await.expect("intact");
    assert_eq!((report.confirmed(), report.outcomes.matched), (Some(8), 8));
}

#[tokio::test]
async fn an_unsigned_ledger_is_told_from_a_signed_one() {
    let place = EvidencePlace::new();
    place.make_calls("a.db", 2).await;
    let report = place.verify("a.db").await.expect("consistent");
    assert!(report.is_intact() && report.is_unsigned());
    let said = report.not_checked().join("\n");
    assert!(said.contains("records from 1 on are not signed"), "{said}");
    assert!(
        said.contains("no signed head of this ledger is remembered"),
        "{said}"
    );
    place.sign("a.db").await.expect("signs");
    let report = place.verify("a.db").await.expect("intact");
    assert!(
        !report.is_unsigned() && report.not_checked().is_empty(),
        "{report:?}"
    );
}
