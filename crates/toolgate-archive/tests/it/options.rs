//! What an export can leave out: calls and instructions, of our own sessions and of imported ones.

use toolgate_archive::{ExportFormat, ExportOptions, ExportRedaction, ForeignFormat};
use toolgate_core::{SessionId, StoreHandle};
use toolgate_testkit::{CountingIds, conformance::SampleSessions};

use crate::support::{SECRET, empty_store, exporter, importer};

/// A session, with words that only its instructions or only its calls have.
struct PlantedSession {
    store: StoreHandle,
    session: SessionId,
    instructions: &'static str,
    calls: Vec<&'static str>,
}

impl PlantedSession {
    async fn own() -> Self {
        let store = empty_store();
        let ids = CountingIds::new();
        let session = SampleSessions::new(&store, &ids, 3).add_session(6).await;
        Self {
            session: session.expect("stores"),
            store,
            instructions: "Answer briefly",
            calls: vec![SampleSessions::TOOL],
        }
    }

    async fn imported() -> Self {
        let store = empty_store();
        let text = include_str!("../../fixtures/claude.jsonl");
        let mut foreign = ForeignFormat::Claude.read(text, "s").expect("reads");
        foreign[0].system = vec![format!("Answer in German. {SECRET}")];
        let done = importer(&store).import_foreign(&foreign[0]).await;
        Self {
            session: done.expect("imports").session,
            store,
            instructions: "Answer in German",
            calls: vec!["Bash", "cargo test", "1 failed"],
        }
    }

    async fn export(&self, options: &ExportOptions) -> String {
        let mut file = Vec::new();
        let exporter = exporter(&self.store);
        let done = exporter.export(&[self.session], options, &mut file).await;
        done.expect("exports");
        String::from_utf8(file).expect("text")
    }
}

fn for_all(check: impl AsyncFn(&PlantedSession, ExportOptions)) {
    futures::executor::block_on(async {
        for planted in [
            PlantedSession::own().await,
            PlantedSession::imported().await,
        ] {
            for format in ExportFormat::ALL {
                let options = ExportOptions {
                    format,
                    include_metadata: true,
                    ..ExportOptions::default()
                };
                check(&planted, options).await;
            }
        }
    });
}

#[test]
fn without_calls_no_format_has_a_tool_its_arguments_or_its_result() {
    for_all(async |planted, options| {
        let whole = planted.export(&options).await;
        let options = ExportOptions {
            include_tool_calls: false,
            ..options
        };
        let part = planted.export(&options).await;
        for word in &planted.calls {
            assert!(whole.contains(word), "{word}: {whole}");
            assert!(!part.contains(word), "{word}: {part}");
        }
        assert!(part.contains(planted.instructions));
    });
}

#[test]
fn instructions_are_redacted_in_every_format_and_can_be_left_out() {
    for_all(async |planted, options| {
        let whole = planted.export(&options).await;
        assert!(whole.contains(planted.instructions), "{whole}");
        assert!(!whole.contains(SECRET), "{whole}");
        let options = ExportOptions {
            include_system: false,
            ..options
        };
        let part = planted.export(&options).await;
        assert!(!part.contains(planted.instructions), "{part}");
        assert!(planted.calls.iter().all(|word| part.contains(word)));
    });
}

#[test]
fn instructions_of_several_runs_are_shown_once() {
    futures::executor::block_on(async {
        let planted = PlantedSession::own().await;
        for format in ExportFormat::ALL {
            let options = ExportOptions {
                format,
                ..ExportOptions::default()
            };
            let mut file = Vec::new();
            let exporter = exporter(&planted.store);
            let done = exporter
                .export(&[planted.session], &options, &mut file)
                .await;
            let sessions = done.expect("exports").sessions.len();
            let text = String::from_utf8(file).expect("text");
            // Once for the session and once for each session of its agents.
            assert_eq!(
                text.matches(planted.instructions).count(),
                sessions,
                "{text}"
            );
        }
    });
}

#[test]
fn a_raw_archive_has_calls_and_instructions_whatever_is_left_out() {
    futures::executor::block_on(async {
        let planted = PlantedSession::own().await;
        let options = ExportOptions {
            format: ExportFormat::Json,
            redaction: ExportRedaction::Raw,
            include_system: false,
            include_tool_calls: false,
            include_metadata: false,
        };
        let file = planted.export(&options).await;
        assert!(file.contains(SampleSessions::INSTRUCTIONS));
        assert!(file.contains(SampleSessions::TOOL));
    });
}

#[test]
fn json_has_metadata_also_without_the_option() {
    for_all(async |planted, options| {
        let whole = planted.export(&options).await;
        let options = ExportOptions {
            include_metadata: false,
            ..options
        };
        let plain = planted.export(&options).await;
        assert_eq!(whole == plain, options.format == ExportFormat::Json);
    });
}
