//! A home and a project in which the commands of a page run, in order, in one shell.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use super::{
    page::{CONFIG_NAME, GuidePage, PageCommand, PageStep},
    stub_model::start_stub_model,
};

/// Lines that a test cannot run, and why.
pub(super) const NOT_RUN: [(&str, &str); 14] = [
    (
        "cargo install --path crates/toolgate-cli --features postgres",
        "it compiles everything again",
    ),
    (
        "curl --proto '=https' -fsSL https://github.com/toolgate/toolgate/releases/latest/download/install.sh | sh",
        "it needs a release; `cargo xtask dist` runs the script",
    ),
    (
        "systemctl --user enable --now toolgate-verify.timer",
        "it changes the services of the account",
    ),
    (
        "podman build -f packaging/Containerfile -t toolgate .",
        "it needs the network and compiles everything again",
    ),
    (
        "cargo install --path crates/toolgate-cli",
        "it compiles everything again",
    ),
    (
        "cargo install --path crates/toolgate-cli --features otlp",
        "it compiles everything again",
    ),
    (
        "toolgate chat",
        "it fills a terminal; `chat_terminal.rs` tests it",
    ),
    ("ollama pull llama3.2", "it needs Ollama and the network"),
    (
        "systemctl --user daemon-reload",
        "it changes the services of the account",
    ),
    (
        "systemctl --user enable --now toolgate-nightly.timer",
        "it changes the services of the account",
    ),
    ("loginctl enable-linger", "it changes the account"),
    (
        "createdb toolgate",
        "it needs a PostgreSQL server; the tests of the store use one",
    ),
    (
        "export TOOLGATE_DB=postgres://toolgate@db.example.com/toolgate",
        "it needs a PostgreSQL server",
    ),
    (
        "install -m 600 keys ~/.local/share/toolgate/keys",
        "it needs the keys of another machine",
    ),
];

/// Lines at which the program asks at a terminal: here they get `--yes`.
pub(super) const ASKS: [&str; 2] = ["cargo run -- demo", "toolgate sessions undo 4c21"];

/// A script whose first reply makes two calls that need an approval.
const TWO_WRITES: &str = r#"
[[reply]]
calls = [
    { tool = "write_file", arguments = { path = "a.txt", content = "a" } },
    { tool = "write_file", arguments = { path = "b.txt", content = "b" } },
]
[[reply]]
repeat = "always"
text = "Done."
"#;

/// The home of a user with a project, and the program in the search path.
pub(super) struct GuidePlace {
    dir: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
    /// Ids of the page, and the ones that stand for them here.
    ids: Vec<(&'static str, String)>,
}

impl GuidePlace {
    /// Creates a place without a model.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Self {
            dir,
            variables: Vec::new(),
            ids: Vec::new(),
        };
        for directory in [place.project(), place.dir.path().join("bin")] {
            fs::create_dir_all(directory).expect("made");
        }
        let program = place.dir.path().join("bin/toolgate");
        symlink(env!("CARGO_BIN_EXE_toolgate"), program).expect("linked");
        // What the commands of the pages read.
        for (name, text) in [
            ("README.md", "# A project\n"),
            ("design.md", "1. measure\n"),
            ("docs/index.md", "# Documents\n"),
            (".env.example", "PORT=80\n"),
        ] {
            let path = place.project().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        place
    }

    /// Sets models of two providers that answer "Done.", and makes one the default.
    pub(super) fn with_model(mut self) -> Self {
        let address = start_stub_model();
        self.variables = vec![
            ("TOOLGATE_MODEL", "anthropic:claude-sonnet-4-5".to_owned()),
            ("ANTHROPIC_API_KEY", "key".to_owned()),
            ("ANTHROPIC_BASE_URL", format!("http://{address}")),
            ("OLLAMA_HOST", address.to_string()),
        ];
        self
    }

    /// Starts a session with two pending approvals, and uses their ids for those of the page.
    pub(super) fn with_pending_approvals(mut self) -> Self {
        let script = self.dir.path().join("writes.toml");
        fs::write(&script, TWO_WRITES).expect("written");
        let model = format!("script:{}", script.display());
        let run = self.run_program(&["run", "--model", &model, "write two files"]);
        assert_eq!(run.status.code(), Some(3), "{}", text_of(&run));
        let sessions = self.list_ids(&["sessions", "list", "--json"], "session");
        let approvals = self.list_ids(&["approvals", "list", "--json"], "approval_id");
        let [first, second] = &approvals[..] else {
            panic!("two approvals are pending: {approvals:?}")
        };
        self.ids = vec![
            ("4c21", sessions[0].clone()),
            ("7f3a", first.clone()),
            ("9c01", second.clone()),
        ];
        self
    }

    /// Approves the pending calls and finishes the session.
    pub(super) fn with_finished_session(self) -> Self {
        for arguments in [
            &["approvals", "approve", "--all", "--yes"][..],
            &["run", "--resume"],
        ] {
            let done = self.run_program(arguments);
            assert!(done.status.success(), "{arguments:?}: {}", text_of(&done));
        }
        self
    }

    /// Runs the commands of a page and fails at every one that does not do what the page says.
    pub(super) fn run_page(&self, page: &GuidePage) {
        let steps = page.steps();
        let script = self.dir.path().join("page.sh");
        fs::write(&script, self.shell_script(&steps)).expect("written");
        let mut shell = Command::new("sh");
        let done = self
            .isolate(&mut shell)
            .arg(&script)
            .output()
            .expect("sh runs");
        let output = text_of(&done);
        let mut rest = output.as_str();
        let mut wrong = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let Some((said, code, after)) = split_at_mark(rest, index) else {
                panic!("{}: the shell ended early:\n{rest}", page.name)
            };
            rest = after;
            if let Some(problem) = find_problem(step, said, code) {
                wrong.push(format!("{}:{problem}\n{said}", page.name));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }

    /// Writes what a page does as one script, so that variables that it exports stay set.
    fn shell_script(&self, steps: &[PageStep]) -> String {
        let mut script = "exec 2>&1\n".to_owned();
        for (index, step) in steps.iter().enumerate() {
            let lines = match step {
                // Each section of a page begins without a configuration.
                PageStep::Section => format!("rm -f {CONFIG_NAME}"),
                PageStep::File { name, text } => self.write_file(name, text),
                PageStep::Command(command) => self.runnable(command),
            };
            script += &format!("{lines}\nprintf '\\n::%d %d\\n' {index} $?\n");
        }
        script
    }

    /// Returns lines that write a file; a configuration is checked and trusted, too.
    fn write_file(&self, name: &str, text: &str) -> String {
        // Only the user's own configuration may have this section.
        let name = if text.contains("[standing_rules]") {
            "~/.config/toolgate/toolgate.toml"
        } else {
            name
        };
        let path = match name.strip_prefix("~/") {
            Some(rest) => self.home().join(rest),
            None => self.project().join(name),
        };
        let directory = path.parent().expect("a directory").display();
        let path = path.display();
        let write =
            format!("mkdir -p '{directory}'\ncat > '{path}' <<'END_OF_FILE'\n{text}END_OF_FILE");
        if name == CONFIG_NAME {
            format!("{write}\ntoolgate config check && toolgate config trust --yes")
        } else {
            write
        }
    }

    /// Returns a command of a page as it runs here.
    fn runnable(&self, command: &PageCommand) -> String {
        let text = command.command();
        if NOT_RUN.iter().any(|(line, _)| *line == text) {
            return "true".to_owned();
        }
        let yes = if ASKS.contains(&text) { " --yes" } else { "" };
        let text = text
            .replace("cargo run --release -- ", "toolgate ")
            .replace("cargo run -- ", "toolgate ")
            .replace("cargo run -- ", "toolgate ")
            .replace("=…", "=key");
        let named = |text: String, (shown, real): &(&str, String)| text.replace(shown, real);
        self.ids.iter().fold(text, named) + yes
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    fn run_program(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        self.isolate(&mut program)
            .args(arguments)
            .output()
            .expect("it runs")
    }

    fn list_ids(&self, arguments: &[&str], key: &str) -> Vec<String> {
        let listed = self.run_program(arguments);
        let id = |line: &str| {
            let value: Value = serde_json::from_str(line).expect("a line of JSON");
            value[key].as_str().expect(key).to_owned()
        };
        String::from_utf8_lossy(&listed.stdout)
            .lines()
            .map(id)
            .collect()
    }

    fn isolate<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.dir.path().join("bin");
        command
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", self.home())
            .env("TZ", "UTC")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.project())
            .stdin(Stdio::null())
    }
}

/// Splits output at the mark of a step: what comes before it, the exit code, and the rest.
fn split_at_mark(output: &str, index: usize) -> Option<(&str, i32, &str)> {
    let (said, rest) = output.split_once(&format!("\n::{index} "))?;
    let (code, rest) = rest.split_once('\n')?;
    Some((said, code.parse().ok()?, rest))
}

fn find_problem(step: &PageStep, said: &str, code: i32) -> Option<String> {
    let PageStep::Command(command) = step else {
        return (code != 0).then(|| " a file of the page cannot be used".to_owned());
    };
    let at = format!("{}: {}", command.line, command.text);
    if NOT_RUN.iter().any(|(line, _)| *line == command.command()) {
        return None;
    }
    if code != command.claimed_exit() {
        return Some(format!("{at}\nexits with {code}"));
    }
    let missing = command.missing_claim(said)?;
    Some(format!("{at}\ndoes not print: {missing}"))
}

fn text_of(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}
