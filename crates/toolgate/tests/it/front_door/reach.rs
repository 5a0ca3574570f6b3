//! What a gate stands on lies out of the reach of its agent, or is trusted by its content.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use toolgate::{
    Gate, GateBuilder,
    approval::{KeyKind, Keyring, SecretKey},
    gate::{ConfigFile, ConfigOwner, StateDir, TrustedConfigs},
};

/// A workspace, a directory of the user, and a state directory.
struct ReachBench {
    dir: tempfile::TempDir,
}

impl ReachBench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["work/skills/a", "user/skills/a", "state", "shared"] {
            fs::create_dir_all(dir.path().join(name)).expect("created");
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it exists")
            .join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).expect("written");
        self.path(name)
    }

    fn state(&self) -> StateDir {
        StateDir::new(self.path("state")).expect("absolute")
    }

    fn builder(&self) -> GateBuilder {
        let builder = Gate::builder().in_memory().expect("keys");
        builder
            .state_dir(self.state())
            .workspace(self.path("work"))
            .builtin_tools()
    }

    /// Opens the gate with a named configuration.
    fn open(&self, config: &str) -> Result<Gate, toolgate::Error> {
        self.builder().config_file(self.path(config)).build()
    }

    fn trust(&self, config: &str) {
        let file = ConfigFile::read(ConfigOwner::Named, self.path(config)).expect("readable");
        let mut trusted = TrustedConfigs::load(&self.state()).expect("loads");
        trusted.add_trust(&self.state(), &file).expect("stored");
    }
}

const SKILL: &str = "---\nname: a\ndescription: Does it.\n---\nDo it.\n";

#[test]
fn a_named_configuration_in_the_reach_of_the_agent_needs_trust() {
    let bench = ReachBench::new();
    bench.write("work/skills/a/SKILL.md", SKILL);
    bench.write("work/mine.toml", "[run]\napprove = 'yes'");
    bench.write("work/prices.toml", "");
    symlink(bench.path("work/mine.toml"), bench.path("user/link.toml")).expect("linked");
    let work = bench.path("work").display().to_string();
    let shared = bench.path("shared").display().to_string();
    bench.write(
        "user/skills.toml",
        &format!("[run]\nskills = ['{work}/skills']"),
    );
    bench.write(
        "user/script.toml",
        &format!("[run]\nmodel = 'script:{work}/model.toml'"),
    );
    bench.write("user/up.toml", "[run]\nskills = ['../work/skills']");
    bench.write(
        "shared/own.toml",
        &format!("[tools.shell]\nwrite = ['{shared}']"),
    );
    for config in [
        "work/mine.toml",
        "user/link.toml",
        "user/skills.toml",
        "user/script.toml",
        "user/up.toml",
        "shared/own.toml",
    ] {
        let error = bench.open(config).expect_err(config);
        assert!(error.to_string().contains("is not trusted yet"), "{error}");
        bench.trust(config);
        bench.open(config).expect(config);
    }
    bench.write("work/skills/a/SKILL.md", &SKILL.replace("Do it", "Do evil"));
    for config in ["user/skills.toml", "user/up.toml"] {
        let error = bench.open(config).expect_err(config);
        assert!(error.to_string().contains("has changed since"), "{error}");
    }
    bench.write("user/other.toml", "[run]\napprove = 'yes'");
    bench.open("user/other.toml").expect("out of reach");
}

#[test]
fn names_in_a_configuration_are_resolved_from_its_directory() {
    let bench = ReachBench::new();
    bench.write("user/skills/a/SKILL.md", SKILL);
    bench.write("user/prices.toml", "as_of = '2026-01-01'\n[[price]]\n");
    bench.write(
        "user/toolgate.toml",
        "[run]\nskills = ['skills']\nmodel = 'script:model.toml'\n[tools.shell]\nread = ['skills']",
    );
    let gate = bench.open("user/toolgate.toml").expect("found beside it");
    assert_eq!(gate.run_section().skills, [bench.path("user/skills")]);
    let script = format!("script:{}", bench.path("user/model.toml").display());
    assert_eq!(gate.run_section().model.as_deref(), Some(script.as_str()));
    bench.write("user/toolgate.toml", "[run]\nprices = 'none.toml'");
    let error = bench.open("user/toolgate.toml").expect_err("no such file");
    let expected = bench.path("user/none.toml").display().to_string();
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn the_keys_of_a_gate_are_redacted_wherever_they_occur() {
    let key = SecretKey::new(
        "k1".parse().expect("an id"),
        KeyKind::HmacSha256,
        [0xa7; 32],
    );
    let ring = Keyring::new(key);
    let bench = ReachBench::new();
    for without_layer in [false, true] {
        let builder = Gate::builder()
            .store(toolgate::store::MemoryStore::new())
            .keyring(ring.clone())
            .state_dir(bench.state());
        let builder = if without_layer {
            builder.without_layer("redact")
        } else {
            builder
        };
        let gate = builder.build().expect("builds");
        let texts: Vec<String> = ring.secret_texts().collect();
        assert!(texts.len() >= 4);
        for text in texts {
            let shown = gate.redact_text(&format!("see {text} there"));
            assert!(!shown.contains(&text), "{shown}");
            assert!(
                shown.starts_with("see ") && shown.ends_with(" there"),
                "{shown}"
            );
        }
    }
}

#[tokio::test]
async fn a_gate_whose_keys_or_database_commands_can_read_is_not_opened() {
    let bench = ReachBench::new();
    let shared = bench.path("shared").display().to_string();
    bench.write(
        "user/a.toml",
        &format!("[tools.shell]\nread = ['{shared}']"),
    );
    symlink(bench.path("shared"), bench.path("user/link")).expect("linked");
    for (state, database) in [
        ("shared/keys", "user/t.db"),
        ("user/link/keys", "user/t.db"),
        ("state", "shared/t.db"),
        ("state", "user/link/t.db"),
        ("state", "work/t.db"),
    ] {
        let opened = Gate::builder()
            .state_dir(StateDir::new(bench.path(state)).expect("absolute"))
            .address(format!("sqlite:{}", bench.path(database).display()))
            .workspace(bench.path("work"))
            .builtin_tools()
            .config_file(bench.path("user/a.toml"))
            .open()
            .await;
        let error = opened.expect_err(state);
        assert!(
            error.to_string().contains("the agent could reach it"),
            "{error}"
        );
        assert!(error.hint().is_some());
        assert!(!bench.path(database).exists() && !bench.path(state).join("keys").exists());
    }
}
