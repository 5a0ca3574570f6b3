//! The project and the script of `toolgate demo`.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use toolgate::{
    Band, Call, Layer, Next, Outcome,
    gate::{CONFIG_NAME, ConfigFile, ConfigOwner, StateDir, TrustedConfigs},
};

/// The task of the demo.
pub(crate) const TASK: &str = "The tests of this project fail. Find out why and fix it.";

/// The files of the project, except those that hold a secret.
const FILES: [(&str, &str); 6] = [
    ("README.md", include_str!("project/README.md")),
    ("invoice.sh", include_str!("project/invoice.sh")),
    ("test.sh", include_str!("project/test.sh")),
    (
        "orders/single.csv",
        include_str!("project/orders/single.csv"),
    ),
    (
        "orders/several.csv",
        include_str!("project/orders/several.csv"),
    ),
    ("orders/none.csv", include_str!("project/orders/none.csv")),
];

/// The path of the model's script in the project.
const SCRIPT: &str = ".demo/script.toml";

/// The tool in the middle of which the doomed process dies.
const FATAL_TOOL: &str = "edit_file";

/// Trusts the configuration of the project, which is our own and lies where the agent works.
pub(crate) fn trust_project(root: &Path, home: &StateDir) -> toolgate::Result<()> {
    let file = ConfigFile::read(ConfigOwner::Named, root.join(CONFIG_NAME))?;
    home.create()?;
    TrustedConfigs::load(home)?.add_trust(home, &file)
}

/// Writes the project into a directory, with a secret that exists nowhere else.
///
/// The project also contains the script of the model, and its configuration names it, so that every
/// other command can resume the session like any other.
pub(crate) fn write_project(root: &Path, secret: &str) -> io::Result<()> {
    fs::create_dir_all(root.join("orders"))?;
    for (path, text) in FILES {
        fs::write(root.join(path), text)?;
        if path.ends_with(".sh") {
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o755))?;
        }
    }
    let script = root.join(SCRIPT);
    fs::create_dir_all(script.parent().unwrap_or(root))?;
    fs::write(&script, include_str!("script.toml"))?;
    // As a TOML value: the path of a temporary directory may contain a quote or a backslash.
    let model = toml::Value::from(format!("script:{}", script.display()));
    fs::write(
        root.join(CONFIG_NAME),
        format!(
            "[run]\nmodel = {model}\n\n{}",
            include_str!("project/toolgate.toml")
        ),
    )?;
    fs::write(
        root.join("shop.ini"),
        format!("[shop]\nname = Lamps and more\napi_key = {secret}\n"),
    )?;
    fs::write(root.join(".env"), format!("SHOP_API_KEY={secret}\n"))
}

/// Generates a secret that exists nowhere else.
pub(crate) fn new_secret() -> String {
    format!("sk_live_{}", uuid::Uuid::new_v4().simple())
}

/// A layer that kills the process (SIGKILL) after the edit and before its outcome is recorded.
pub(crate) struct KillerLayer;

impl Layer for KillerLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let fatal = call.tool.as_str() == FATAL_TOOL && !call.is_rehearsal();
        let outcome = next.run(call).await;
        // The worst moment there is: the file is changed, and nothing in the log says so.
        if fatal {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Bound
    }
}

#[cfg(test)]
mod tests {
    use toolgate::{
        RunEnd, Status,
        gate::{ApproveMode, ModelOptions},
    };

    use super::*;
    use crate::{
        CommandContext, CommandOutput, GateArgs,
        args::ColorMode,
        assembly::session_args::session_with_model,
        env::paths::CliPaths,
        show::screen::{CallState, SessionScreen},
    };

    /// Runs the demo without a terminal. Returns the status of each call, the final text and all
    /// messages.
    async fn play_demo(approve: ApproveMode) -> (Vec<(String, Status)>, String, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let project = dir.path().join("project");
        let secret = new_secret();
        write_project(&project, &secret).expect("written");
        let db = format!("sqlite:{}", dir.path().join("demo.db").display());
        let config = Some(project.join("toolgate.toml"));
        let paths = CliPaths {
            workspace: project.clone(),
            is_dir_named: true,
            home: StateDir::new(dir.path().join("home")).expect("absolute"),
            named: config,
            user: None,
            user_config: None,
            db,
            db_option: None,
            db_patience: None,
        };
        trust_project(&project, &paths.home).expect("trusted");
        let cx = CommandContext {
            out: CommandOutput::new(false, true, ColorMode::Never),
            paths,
        };
        let args = GateArgs {
            approve: Some(approve),
            ..GateArgs::default()
        };
        let gate = args.open_gate(&cx).await.expect("opens");
        let session =
            session_with_model(&gate, None, ModelOptions::default()).expect("a valid script");
        let session = session.build().await.expect("opens");
        let report = session.run(TASK).await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed, "{report:?}");
        let mut screen = SessionScreen::new();
        for event in gate
            .store()
            .events(session.id(), 0, 1000)
            .await
            .expect("reads")
        {
            screen.apply(&event);
        }
        let status = |call: &crate::show::screen::CallView| match call.state {
            CallState::Settled(status) => (call.invocation.tool.to_string(), status),
            state => panic!("{} is {state:?}", call.invocation.tool),
        };
        let said = format!(
            "{:?}",
            gate.store()
                .messages(session.id(), u64::MAX, 100)
                .await
                .expect("reads")
        );
        assert!(!said.contains(&secret), "the model received the secret");
        (
            screen.calls().iter().map(status).collect(),
            report.text,
            said,
        )
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_model_fixes_the_project_and_is_blocked_from_the_secrets() {
        let (calls, words, said) = play_demo(ApproveMode::Yes).await;
        let refused: Vec<_> = calls
            .iter()
            .filter(|(_, status)| *status != Status::Ok)
            .collect();
        assert_eq!(
            refused,
            [&("read_file".to_owned(), Status::Blocked)],
            "{calls:?}"
        );
        assert_eq!(calls.len(), 9);
        assert!(
            said.contains("FAIL  several: expected 5450, got 3250")
                && said.contains("ok    several: 5450"),
            "{said}"
        );
        assert!(said.contains("[redacted"), "{said}");
        assert!(words.starts_with("The test passes now."), "{words}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_an_approval_nothing_is_changed_and_the_model_says_so() {
        let (calls, words, _) = play_demo(ApproveMode::Never).await;
        assert!(
            calls.contains(&("edit_file".to_owned(), Status::Denied)),
            "{calls:?}"
        );
        assert!(words.starts_with("I have not changed anything"), "{words}");
    }
}
