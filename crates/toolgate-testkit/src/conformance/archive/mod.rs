//! The suite for exporting and importing sessions, on any store.

mod sample;

use std::io::Cursor;

use toolgate_archive::{
    ExportFormat, ExportOptions, ExportRedaction, Exporter, ImportError, ImportState, Importer,
};
use toolgate_core::{
    ErasureNames, HiddenSessions, IdSource, ImportOrigin, MemoryStore, SessionFilter, SessionId,
    Store, StoreHandle, Timestamp,
};

use super::{ConformanceReport, ensure};
pub use sample::SampleSessions;

/// Runs the suite for archives. The store may hold anything already; every rule uses fresh ids from
/// `ids`.
pub async fn check_archive(store: impl Store, ids: &dyn IdSource) -> ConformanceReport {
    let store = StoreHandle::new(store);
    let mut report = ConformanceReport::default();
    report.add_result(
        "a_raw_archive_is_the_same_after_an_import",
        round_trips(&store, ids).await,
    );
    report.add_result(
        "a_refused_archive_leaves_nothing",
        refuses_changes(&store, ids).await,
    );
    report.add_result(
        "repeating_an_import_changes_nothing",
        repeats_without_effect(&store, ids).await,
    );
    report.add_result(
        "receipts_never_enter_our_ledger",
        keeps_ledgers_apart(&store, ids).await,
    );
    report.add_result(
        "hidden_sessions_and_their_names_survive",
        keeps_attributes(&store, ids).await,
    );
    report
}

/// Exports sessions as a raw archive.
///
/// # Errors
///
/// Fails with the text of the error of the export.
pub async fn export_raw(store: &StoreHandle, sessions: &[SessionId]) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let options = ExportOptions {
        format: ExportFormat::Json,
        redaction: ExportRedaction::Raw,
        ..ExportOptions::default()
    };
    let exporter = Exporter::new(store.clone());
    let done = exporter.export(sessions, &options, &mut file).await;
    done.map_err(|error| error.to_string())?;
    Ok(file)
}

fn importer(store: &StoreHandle) -> Importer {
    Importer::new(store.clone(), Timestamp::from_micros(1_767_225_700_000_000))
}

/// Creates two sessions with agents in a store of their own, and exports them.
async fn sample_archive(
    ids: &dyn IdSource,
    seed: u64,
) -> Result<(Vec<SessionId>, Vec<u8>), String> {
    let source = StoreHandle::new(MemoryStore::new());
    let mut sample = SampleSessions::new(&source, ids, seed);
    let failed = |error: toolgate_core::StoreError| error.to_string();
    let first = sample.add_session(5).await.map_err(failed)?;
    sample.sign_ledger().await.map_err(failed)?;
    let second = sample.add_session(2).await.map_err(failed)?;
    let sessions = vec![first, second];
    let file = export_raw(&source, &sessions).await?;
    Ok((sessions, file))
}

async fn round_trips(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    for seed in 0..4 {
        let (sessions, file) = sample_archive(ids, seed).await?;
        let imported = importer(store).import_archive(Cursor::new(&file)).await;
        let imported = imported.map_err(|error| error.to_string())?;
        ensure(
            imported.iter().all(|one| one.state == ImportState::Added),
            format!("{imported:?}"),
        )?;
        let again = export_raw(store, &sessions).await?;
        ensure(again == file, first_difference(&file, &again))?;
        let other = StoreHandle::new(MemoryStore::new());
        let moved = importer(&other).import_archive(Cursor::new(&again)).await;
        moved.map_err(|error| error.to_string())?;
        let third = export_raw(&other, &sessions).await?;
        ensure(third == file, first_difference(&file, &third))?;
    }
    Ok(())
}

fn first_difference(left: &[u8], right: &[u8]) -> String {
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pair = (lines(left), lines(right));
    let mut both = pair.0.lines().zip(pair.1.lines()).enumerate();
    match both.find(|(_, (a, b))| a != b) {
        Some((number, (a, b))) => format!("line {}:\n{a}\n{b}", number + 1),
        None => "one is longer".to_owned(),
    }
}

async fn refuses_changes(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (sessions, file) = sample_archive(ids, 7).await?;
    let lines: Vec<_> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let mut bad: Vec<Vec<u8>> = Vec::new();
    for at in (0..lines.len()).step_by(7) {
        bad.push(lines[..at].concat());
        let mut swapped = lines.clone();
        swapped.swap(at, (at + 1) % lines.len());
        bad.push(swapped.concat());
    }
    let cut = file.len() / 2;
    bad.push(file[..cut].to_vec());
    bad.push([&file[..], b"{}\n"].concat());
    for (number, file) in bad.iter().enumerate() {
        let found = importer(store).import_archive(Cursor::new(file)).await;
        ensure(
            matches!(
                found,
                Err(ImportError::Line { .. } | ImportError::Truncated { .. })
            ),
            format!("file {number} was not refused: {found:?}"),
        )?;
    }
    for session in sessions {
        is_absent(store, session).await?;
    }
    Ok(())
}

/// Checks that a store has nothing of a session.
async fn is_absent(store: &StoreHandle, session: SessionId) -> Result<(), String> {
    let failed = |error: toolgate_core::StoreError| error.to_string();
    let mut names = ErasureNames::default();
    names.add_session(session);
    let records = store
        .records_named(&names, None, 10)
        .await
        .map_err(failed)?;
    ensure(records.is_empty(), format!("there is {}", records.len()))?;
    let revision = store.revision(session).await.map_err(failed)?;
    ensure(revision == 0, "there are events")
}

async fn repeats_without_effect(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (sessions, file) = sample_archive(ids, 11).await?;
    for state in [ImportState::Added, ImportState::Unchanged] {
        let done = importer(store).import_archive(Cursor::new(&file)).await;
        let done = done.map_err(|error| error.to_string())?;
        ensure(
            done.iter().all(|one| one.state == state),
            format!("{done:?}"),
        )?;
    }
    // Another file with one of the sessions.
    let part = export_raw(store, &sessions[..1]).await?;
    let found = importer(store).import_archive(Cursor::new(&part)).await;
    ensure(
        matches!(found, Err(ImportError::Exists { .. })),
        format!("{found:?}"),
    )
}

async fn keeps_ledgers_apart(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let failed = |error: toolgate_core::StoreError| error.to_string();
    let before = store.ledgers().await.map_err(failed)?;
    let (sessions, file) = sample_archive(ids, 13).await?;
    let done = importer(store).import_archive(Cursor::new(&file)).await;
    done.map_err(|error| error.to_string())?;
    let after = store.ledgers().await.map_err(failed)?;
    ensure(before == after, format!("{before:?} became {after:?}"))?;
    let origin = store
        .load_import_origin(sessions[0])
        .await
        .map_err(failed)?;
    let format = origin.map(|origin| origin.format);
    ensure(
        format.as_deref() == Some(ImportOrigin::ARCHIVE),
        format!("marked {format:?}"),
    )?;
    let verified = importer(store).verify_receipts(sessions[0], None).await;
    let verified = verified.map_err(|error| error.to_string())?;
    ensure(
        verified.iter().any(|ledger| ledger.receipts > 0),
        format!("{verified:?}"),
    )
}

async fn keeps_attributes(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let failed = |error: toolgate_core::StoreError| error.to_string();
    let source = StoreHandle::new(MemoryStore::new());
    let mut sample = SampleSessions::new(&source, ids, 17);
    let session = sample.add_session(3).await.map_err(failed)?;
    let at = Timestamp::from_micros(1_767_225_800_000_000);
    source
        .hide_session(session, Some(at))
        .await
        .map_err(failed)?;
    let mut file = export_raw(&source, &[session]).await?;
    // An agent that began to work after its session was hidden is not hidden.
    let agents = SessionFilter {
        hidden: HiddenSessions::Included,
        ..SessionFilter::default()
    };
    let agents = source.sessions(agents).await.map_err(failed)?;
    if let Some(agent) = agents.iter().find(|row| row.parent == Some(session)) {
        let shown = source.hide_session(agent.session, None).await;
        shown.map_err(failed)?;
        file = export_raw(&source, &[session]).await?;
    }
    let done = importer(store).import_archive(Cursor::new(&file)).await;
    done.map_err(|error| error.to_string())?;
    let again = export_raw(store, &[session]).await?;
    ensure(again == file, first_difference(&file, &again))?;
    let filter = SessionFilter {
        hidden: HiddenSessions::Only,
        ..SessionFilter::for_session(session)
    };
    let row = store.sessions(filter).await.map_err(failed)?.pop();
    let row = row.ok_or("it is not hidden")?;
    ensure(
        row.title
            .is_some_and(|title| title.as_str() == "A name that it was given"),
        "it lost its name",
    )?;
    ensure(row.directory.is_some(), "it lost its directory")
}
