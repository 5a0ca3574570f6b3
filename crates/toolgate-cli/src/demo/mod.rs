//! The project and the script of `toolgate demo`.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use toolgate::{AnyLayer, Band, Call, Layer, Next, Outcome};

use crate::paths::CONFIG_NAME;

/// What the person asks for.
pub(crate) const TASK: &str = "The tests of this project fail. Find out why and mend it.";

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

/// Where the script of the model is.
const SCRIPT: &str = ".demo/script.toml";

/// The tool in the middle of which the doomed process dies.
const FATAL: &str = "edit_file";

/// Writes the project into a directory, with a secret that exists nowhere else.
///
/// The script of the model lies in it, too, and its configuration names it: every other command can go on with the
/// session like with any other.
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

/// A secret that exists nowhere else.
pub(crate) fn new_secret() -> String {
    format!("sk_live_{}", uuid::Uuid::new_v4().simple())
}

/// Kills the process (SIGKILL) when the edit has happened and nobody knows yet: the worst moment there is.
pub(crate) fn killer() -> AnyLayer {
    AnyLayer::new(Killer)
}

struct Killer;

impl Layer for Killer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let fatal = call.tool.as_str() == FATAL && !call.is_rehearsal();
        let outcome = next.run(call).await;
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
    use toolgate::{RunEnd, Status};

    use super::*;
    use crate::{
        Cx, Gate, GateArgs, Out,
        args::Color,
        paths::Paths,
        screen::{CallState, Screen},
        settings::ApproveMode,
    };

    /// Runs the demo with nobody at the keyboard: what each call came to, the last words, and everything that was said.
    async fn play(approve: ApproveMode) -> (Vec<(String, Status)>, String, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let (project, secret) = (dir.path().join("project"), new_secret());
        write_project(&project, &secret).expect("written");
        let db = format!("sqlite:{}", dir.path().join("demo.db").display());
        let config = Some(project.join("toolgate.toml"));
        let paths = Paths {
            workspace: project.clone(),
            home: dir.path().join("home"),
            named: config,
            user: None,
            user_config: None,
            db,
        };
        let cx = Cx {
            out: Out::new(false, true, Color::Never),
            paths,
        };
        let args = GateArgs {
            approve: Some(approve),
            ..GateArgs::default()
        };
        let gate = Gate::open(&cx, &args).await.expect("opens");
        let session = gate
            .session(gate.model(None).expect("a valid script"), None)
            .expect("set up");
        let session = session.build().await.expect("opens");
        let report = session.run(TASK).await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed, "{report:?}");
        let mut screen = Screen::new();
        for event in gate
            .store
            .events(session.id(), 0, 1000)
            .await
            .expect("reads")
        {
            screen.apply(&event);
        }
        let status = |call: &crate::screen::CallView| match call.state {
            CallState::Settled(status) => (call.invocation.tool.to_string(), status),
            state => panic!("{} is {state:?}", call.invocation.tool),
        };
        let said = format!(
            "{:?}",
            gate.store
                .messages(session.id(), u64::MAX, 100)
                .await
                .expect("reads")
        );
        assert!(!said.contains(&secret), "the secret went to the model");
        (
            screen.calls().iter().map(status).collect(),
            report.text,
            said,
        )
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_model_mends_the_project_and_is_refused_the_secrets() {
        let (calls, words, said) = play(ApproveMode::Yes).await;
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
        let (calls, words, _) = play(ApproveMode::Never).await;
        assert!(
            calls.contains(&("edit_file".to_owned(), Status::Denied)),
            "{calls:?}"
        );
        assert!(words.starts_with("I have not changed anything"), "{words}");
    }
}
