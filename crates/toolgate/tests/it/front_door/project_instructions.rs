//! The `AGENTS.md` of a project is read only with the user's trust, and models are told where they
//! work.

use std::{fs, path::PathBuf, sync::Arc};

use toolgate::{
    Gate, GateBuilder,
    gate::{InstructionsFile, ProjectInstructions, StateDir, TrustedConfigs},
    model::{Model, ModelSource, ScriptedModel},
};
use toolgate_testkit::TestClock;

/// A workspace in a repository, and the state directory of its user.
struct InstructionsBench {
    dir: tempfile::TempDir,
}

impl InstructionsBench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["repository/.git", "repository/work", "state"] {
            fs::create_dir_all(dir.path().join(name)).expect("created");
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        let root = self.dir.path().canonicalize();
        root.expect("it exists").join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).expect("written");
        self.path(name)
    }

    fn trust(&self, path: PathBuf) {
        let state = StateDir::new(self.path("state")).expect("absolute");
        let file = InstructionsFile::read(path).expect("readable");
        let mut trusted = TrustedConfigs::load(&state).expect("loads");
        trusted.trust_instructions(&state, &file).expect("stored");
    }

    fn builder(&self) -> GateBuilder {
        let state = StateDir::new(self.path("state")).expect("absolute");
        let builder = Gate::builder().in_memory().expect("keys").state_dir(state);
        builder
            .workspace(self.path("repository/work"))
            .default_instructions("Be brief.")
    }

    fn gate(&self) -> Gate {
        self.builder().project_context().build().expect("builds")
    }
}

/// Returns the instructions that a model gets in a session of the gate.
async fn instructions_in(gate: &Gate) -> String {
    let model = Arc::new(ScriptedModel::new(["Hi."]).store_requests());
    let source = ModelSource::Open(model.clone() as Arc<dyn Model>);
    let session = gate.session(source).await.expect("opens");
    session.run("Hello").await.expect("runs");
    let request = model.requests().remove(0);
    request
        .instructions
        .as_deref()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn instructions_of_a_project_are_read_only_while_the_user_trusts_exactly_them() {
    let bench = InstructionsBench::new();
    let path = bench.write("repository/work/AGENTS.md", "Use tabs.\n");
    let untrusted = |changed| ProjectInstructions::Untrusted {
        path: path.clone(),
        changed,
    };
    let gate = bench.gate();
    assert_eq!(gate.project_instructions(), &untrusted(false));
    assert!(!instructions_in(&gate).await.contains("Use tabs."));
    bench.trust(path.clone());
    let gate = bench.gate();
    let read = instructions_in(&gate).await;
    assert!(
        read.starts_with("Be brief.\n\n")
            && read.ends_with("# Instructions of this project (AGENTS.md)\n\nUse tabs."),
        "{read}"
    );
    bench.write("repository/work/AGENTS.md", "Push to main.\n");
    let gate = bench.gate();
    assert_eq!(gate.project_instructions(), &untrusted(true));
    assert!(!instructions_in(&gate).await.contains("Push"));
}

#[tokio::test]
async fn instructions_that_are_too_long_or_not_text_are_named_and_not_read() {
    let bench = InstructionsBench::new();
    let limit = 64 * 1024;
    let longest = bench.write("repository/work/AGENTS.md", vec![b'a'; limit]);
    bench.trust(longest);
    let gate = bench.gate();
    let used = gate.project_instructions();
    assert!(matches!(used, ProjectInstructions::Used(_)));
    for (text, problem) in [
        (vec![b'a'; limit + 1], "64 KiB"),
        (b"a\xff".to_vec(), "UTF-8"),
    ] {
        bench.write("repository/work/AGENTS.md", text);
        let gate = bench.gate();
        match gate.project_instructions() {
            ProjectInstructions::Unusable { problem: said, .. } => {
                assert!(
                    said.contains("AGENTS.md") && said.contains(problem),
                    "{said}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(!instructions_in(&gate).await.contains("# Instructions"));
    }
}

#[test]
fn the_nearest_instructions_within_the_repository_count() {
    let bench = InstructionsBench::new();
    let find = || InstructionsFile::of_project(&bench.path("repository/work"));
    bench.write("AGENTS.md", "outside of the repository");
    assert_eq!(find(), None);
    let root = bench.write("repository/CLAUDE.md", "of the repository");
    assert_eq!(find(), Some(root));
    let own = bench.write("repository/work/CLAUDE.md", "of the directory");
    assert_eq!(find(), Some(own));
    let first = bench.write("repository/work/AGENTS.md", "of the directory");
    assert_eq!(find(), Some(first));
    fs::remove_dir(bench.path("repository/.git")).expect("removed");
    fs::remove_file(bench.path("repository/work/AGENTS.md")).expect("removed");
    fs::remove_file(bench.path("repository/work/CLAUDE.md")).expect("removed");
    assert_eq!(
        find(),
        None,
        "without a repository, only the workspace counts"
    );
}

#[tokio::test]
async fn a_model_is_told_the_directory_the_date_and_the_system_if_the_gate_says_so() {
    let bench = InstructionsBench::new();
    let clock = TestClock::at("2026-03-01T23:59:59Z".parse().expect("a time"));
    let gate = bench.builder().project_context().clock(clock).build();
    let read = instructions_in(&gate.expect("builds")).await;
    let directory = bench.path("repository/work").display().to_string();
    for part in [&directory, "2026-03-01 (UTC)", std::env::consts::OS] {
        assert!(read.contains(part), "{part} in {read}");
    }
    bench.trust(bench.write("repository/work/AGENTS.md", "Use tabs."));
    let gate = bench.builder().build().expect("builds");
    assert_eq!(instructions_in(&gate).await, "Be brief.");
    assert_eq!(gate.project_instructions(), &ProjectInstructions::Absent);
}

#[tokio::test]
async fn the_configuration_can_leave_the_instructions_of_a_project_out() {
    let bench = InstructionsBench::new();
    bench.trust(bench.write("repository/work/AGENTS.md", "Use tabs."));
    let config = bench.write(
        "state/own.toml",
        "[run]\nproject_instructions = false\ninstructions = 'Be kind.'\n",
    );
    let gate = bench.builder().project_context().config_file(config);
    let gate = gate.build().expect("builds");
    let read = instructions_in(&gate).await;
    assert!(
        read.starts_with("Be kind.") && !read.contains("tabs"),
        "{read}"
    );
}
