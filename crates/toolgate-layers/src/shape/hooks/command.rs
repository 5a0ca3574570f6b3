//! Hooks that are commands: a program of the user reads the call as JSON and decides with its exit
//! code or with JSON.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{Arguments, Call, HookAction, Hooks, Json, Outcome, SettledOutcome, note_keys};

use super::{
    process::{HookExit, HookFiles, HookProcess},
    reading::HookReading,
};
use crate::{HumanDuration, SharedRedactor, record::receipts::sanitize::truncate_text};

/// One command hook, as `[[hooks.pre]]` and `[[hooks.post]]` describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandHook {
    /// The tool by name, or `*` for every tool.
    #[serde(default = "every_tool")]
    pub tool: String,
    /// The command: a text for `sh -c`, or a list of program and arguments, which needs no shell.
    pub command: HookCommandLine,
    /// The files that it runs, relative to the directory of the configuration. They are found in the
    /// command; they have to be named if they depend on variables or substitutions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<PathBuf>>,
    /// The longest time it may take.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// What follows if it fails: it cannot be started, exceeds its time, ends with another exit code
    /// than 0 or 2, or answers what is not understood.
    #[serde(default)]
    pub on_failure: HookFailure,
}

/// The command of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HookCommandLine {
    /// A text for `sh -c`.
    Shell(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// What follows if a hook fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookFailure {
    /// Before a call, the call does not run; after a call, its result is withheld.
    #[default]
    Block,
    /// The call continues, and its notes say that the hook failed.
    Warn,
}

fn every_tool() -> String {
    "*".to_owned()
}

fn default_timeout() -> HumanDuration {
    Duration::from_secs(10).into()
}

impl CommandHook {
    /// The longest time limit.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(600);

    /// Returns the problem with the hook, if there is one.
    pub fn problem(&self) -> Option<&'static str> {
        let timeout = self.timeout.get();
        let is_empty = match &self.command {
            HookCommandLine::Shell(text) => text.trim().is_empty(),
            HookCommandLine::Program(words) => words.first().is_none_or(String::is_empty),
        };
        match () {
            () if is_empty => Some("`command` is empty"),
            () if self.tool.trim().is_empty() => Some("`tool` is empty; use `*` for every tool"),
            () if self.tool != "*" && self.tool.contains(['*', '?', '[', ',', ' ']) => {
                Some("`tool` is one tool by its name, or `*` for every tool")
            }
            () if self.files.is_none() && !self.reading().is_certain => Some(
                "`command` does not say which files it runs; list them in `files`, or write `files = []` if there are none",
            ),
            () if timeout.is_zero() => Some("`timeout` is 0s, so the hook would always fail"),
            () if timeout > Self::MAX_TIMEOUT => Some("`timeout` is longer than 10m"),
            () => None,
        }
    }

    /// Returns the files in `directory`, in directories that the command enters or names, or with a
    /// path of their own, that the hook names. Their content is part of what a user trusts.
    pub fn named_files(&self, directory: &Path) -> Vec<PathBuf> {
        let reading = self.reading();
        let mut found = Vec::new();
        for from in reading.directories_in(directory) {
            let files = reading.words.iter().map(|word| from.join(word));
            found.extend(files.filter(|file| file.is_file()));
        }
        let listed = self.files.iter().flatten();
        // A listed file that is missing is no file to trust: the hook will not run.
        found.extend(listed.map(|file| directory.join(file)));
        found.sort();
        found.dedup();
        found
    }

    fn reading(&self) -> HookReading {
        HookReading::of(&self.command)
    }

    fn process(&self, directory: &Path) -> HookProcess {
        let words = match &self.command {
            HookCommandLine::Shell(text) => vec!["sh".into(), "-c".into(), text.clone()],
            HookCommandLine::Program(words) => words.clone(),
        };
        HookProcess {
            words,
            directory: directory.to_owned(),
            timeout: self.timeout.get(),
            files: HookFiles::remember(self.named_files(directory)),
        }
    }
}

/// The command hooks of a configuration, with what they need to run.
#[derive(Debug, Clone)]
pub struct CommandHooks {
    directory: Arc<Path>,
    redactor: Option<SharedRedactor>,
}

impl CommandHooks {
    /// Runs hooks in `directory`. `redactor` redacts what hooks after calls read.
    pub fn new(directory: impl Into<PathBuf>, redactor: Option<SharedRedactor>) -> Self {
        Self {
            directory: directory.into().into(),
            redactor,
        }
    }

    /// Adds a hook that runs before calls. It can block a call, require approval for it or change
    /// its arguments, which all deciding layers see afterwards; it cannot allow what they deny.
    pub fn add_pre(&self, hooks: &Hooks, hook: CommandHook) {
        let process = hook.process(&self.directory);
        let directory = self.directory.clone();
        hooks.add_before(&hook.tool, move |call: Call| {
            let process = process.clone();
            let input = call_input("PreToolUse", &call, call.arguments.as_json(), &directory);
            async move { decide_before(process.run(input).await, hook.on_failure) }
        });
    }

    /// Adds a hook that runs after calls. It can withhold a result.
    pub fn add_post(&self, hooks: &Hooks, hook: CommandHook) {
        let process = hook.process(&self.directory);
        let this = self.clone();
        hooks.add_after(&hook.tool, move |call: Call, mut outcome: Outcome| {
            let process = process.clone();
            let input = outcome
                .settled()
                .and_then(|settled| this.outcome_input(&call, settled));
            async move {
                let exit = match input {
                    Some(input) => process.run(input).await,
                    None => HookExit::Failed("its input could not be redacted".to_owned()),
                };
                if let Some(settled) = outcome.settled_mut() {
                    apply_after(settled, exit, hook.on_failure);
                }
                outcome
            }
        });
    }

    /// Returns what a hook after a call reads, redacted; `None` if that fails.
    fn outcome_input(&self, call: &Call, settled: &SettledOutcome) -> Option<Value> {
        let redact = |value: &Json| match &self.redactor {
            Some(redactor) => redactor.redacted_json(value),
            None => Some(value.clone()),
        };
        let arguments = redact(call.arguments.as_json())?;
        let response = redact(&settled.value)?;
        let mut input = call_input("PostToolUse", call, &arguments, &self.directory);
        input["tool_response"] = response.as_value().clone();
        input["status"] = json!(settled.status);
        // What the model reads was redacted further in; a program's own layer may have changed it.
        input["model_text"] = redact(&Json::from(&*settled.model_text()))?
            .as_value()
            .clone();
        Some(input)
    }
}

/// Returns what every hook reads. The names are those of other coding agents.
fn call_input(event: &str, call: &Call, arguments: &Json, directory: &Path) -> Value {
    json!({
        "hook_event_name": event,
        "session_id": call.turn().session,
        "turn_id": call.turn().turn,
        "tool_use_id": call.id,
        "tool_name": call.tool,
        "tool_input": arguments,
        "cwd": directory,
    })
}

/// Returns what the answer of a hook before a call means.
fn decide_before(exit: HookExit, on_failure: HookFailure) -> HookAction {
    let block = |reason: String| HookAction::Abort {
        reason,
        result: None,
    };
    let is_changed = matches!(exit, HookExit::Changed(_));
    let answer = match exit {
        HookExit::Answered(text) => parse_answer(&text),
        HookExit::Blocked(reason) => Ok(HookAnswer::Block(reason)),
        HookExit::Failed(problem) | HookExit::Changed(problem) => Err(problem),
    };
    match (answer, on_failure) {
        // Never only a warning: the author of the changed script must not decide.
        (Err(problem), _) if is_changed => block(problem),
        (Ok(HookAnswer::Continue), _) => HookAction::Continue,
        (Ok(HookAnswer::Block(reason)), _) => block(reason),
        (Ok(HookAnswer::Ask(reason)), _) => HookAction::RequireApproval { reason },
        (Ok(HookAnswer::Replace(arguments)), _) => HookAction::Replace(arguments),
        (Err(problem), HookFailure::Block) => block(format!("the hook failed: {problem}")),
        (Err(problem), HookFailure::Warn) => HookAction::Warn {
            problem: format!("a hook failed: {problem}"),
        },
    }
}

/// Applies the answer of a hook after a call. The status stays: what was done is done.
fn apply_after(settled: &mut SettledOutcome, exit: HookExit, on_failure: HookFailure) {
    let is_changed = matches!(exit, HookExit::Changed(_));
    let answer = match exit {
        HookExit::Answered(text) => parse_answer(&text),
        HookExit::Blocked(reason) => Ok(HookAnswer::Block(reason)),
        HookExit::Failed(problem) | HookExit::Changed(problem) => Err(problem),
    };
    let reason = match answer {
        Ok(HookAnswer::Continue | HookAnswer::Ask(_) | HookAnswer::Replace(_)) => return,
        Ok(HookAnswer::Block(reason)) => reason,
        Err(problem) => {
            let text = format!("a hook failed: {problem}");
            settled
                .notes
                .fields_mut()
                .insert(note_keys::HOOK_FAILED, &*text);
            if on_failure == HookFailure::Warn && !is_changed {
                return;
            }
            text
        }
    };
    settled.value = Json::null();
    let text = format!("The call was made, but its result is withheld by a hook: {reason}");
    settled.text = Some(text.into());
}

/// The answer of a hook.
#[derive(Debug, PartialEq)]
enum HookAnswer {
    Continue,
    Block(String),
    Ask(String),
    Replace(Arguments),
}

/// The longest reason of a hook that is used, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// Parses the output of a hook that ended with 0. No output means that it has nothing to say.
fn parse_answer(text: &str) -> Result<HookAnswer, String> {
    if text.trim().is_empty() {
        return Ok(HookAnswer::Continue);
    }
    let value: Value =
        serde_json::from_str(text).map_err(|_| "its output is not JSON".to_owned())?;
    if !value.is_object() {
        return Err("its output is not a JSON object".to_owned());
    }
    let answer: HookOutput = serde_json::from_value(value)
        .map_err(|error| format!("its output is not understood: {error}"))?;
    answer.decide()
}

/// The output of a hook, with the names of other coding agents. What is not understood is an error: it
/// could be a refusal.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct HookOutput {
    r#continue: Option<bool>,
    stop_reason: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    hook_specific_output: Option<OwnOutput>,
    // For the screens of other agents.
    #[serde(rename = "suppressOutput")]
    _suppress_output: Option<bool>,
    #[serde(rename = "systemMessage")]
    _system_message: Option<String>,
}

/// The part of the output that is about the event.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct OwnOutput {
    #[serde(rename = "hookEventName")]
    _hook_event_name: Option<String>,
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Value>,
    #[serde(rename = "additionalContext")]
    _additional_context: Option<String>,
}

impl HookOutput {
    /// Returns the strictest of the decisions.
    fn decide(self) -> Result<HookAnswer, String> {
        let own = self.hook_specific_output.unwrap_or_default();
        let words = [
            own.permission_decision,
            self.permission_decision,
            self.decision,
        ];
        let mut strictest = 0;
        for word in words.into_iter().flatten() {
            strictest = strictest.max(match word.as_str() {
                "allow" | "approve" => 0,
                "ask" => 1,
                "deny" | "block" => 2,
                // Fails closed: an unknown word is not permission.
                other => return Err(format!("it decided `{}`", truncate_text(other, 40))),
            });
        }
        if self.r#continue == Some(false) {
            strictest = 2;
        }
        let reason = own
            .permission_decision_reason
            .or(self.permission_decision_reason)
            .or(self.reason)
            .or(self.stop_reason)
            .unwrap_or_default();
        let reason = truncate_text(reason.trim(), MAX_REASON_CHARS);
        match (strictest, own.updated_input) {
            (2, _) => Ok(HookAnswer::Block(reason)),
            (1, Some(_)) => Err("`ask` and `updatedInput` cannot be combined".to_owned()),
            (1, None) if reason.is_empty() => {
                Ok(HookAnswer::Ask("a hook asks for approval".to_owned()))
            }
            (1, None) => Ok(HookAnswer::Ask(reason)),
            // It has nothing against the call; policy and approvers still decide.
            (_, None) => Ok(HookAnswer::Continue),
            (_, Some(updated)) => Arguments::try_from(updated)
                .map(HookAnswer::Replace)
                .map_err(|_| "`updatedInput` is not an object".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Stack, Status};
    use toolgate_testkit::{FakeExecutor, call_with, echo_under};

    fn hook(command: &str) -> CommandHook {
        CommandHook {
            tool: "*".into(),
            command: HookCommandLine::Shell(command.into()),
            files: None,
            timeout: Duration::from_secs(30).into(),
            on_failure: HookFailure::Block,
        }
    }

    async fn run_pre(hook: CommandHook) -> Outcome {
        let hooks = Hooks::new();
        CommandHooks::new(std::env::temp_dir(), None).add_pre(&hooks, hook);
        let call = call_with("pay", json!({ "amount": 7 }));
        echo_under(hooks).run(call).await
    }

    fn text(outcome: &Outcome) -> String {
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned()
    }

    #[tokio::test]
    async fn a_hook_reads_the_call_and_decides_with_its_exit_code() {
        assert!(run_pre(hook("grep -q '\"amount\":7'")).await.is_ok());
        let blocked = run_pre(hook("echo 'too much' >&2; exit 2")).await;
        assert_eq!(blocked.status(), Some(Status::Blocked));
        assert_eq!(text(&blocked), "aborted by hook: too much");
        let program = CommandHook {
            command: HookCommandLine::Program(vec!["false".into()]),
            ..hook("")
        };
        let failed = run_pre(program).await;
        assert_eq!(failed.status(), Some(Status::Blocked));
        assert!(text(&failed).contains("exit code 1"), "{}", text(&failed));
    }

    #[tokio::test]
    async fn a_failing_hook_blocks_unless_it_is_configured_to_warn() {
        let failing = [
            hook("exit 1"),
            hook("echo not json"),
            hook(r#"echo '{"decision":"ALLOW"}'"#),
            CommandHook {
                timeout: Duration::from_millis(50).into(),
                ..hook("sleep 60")
            },
            CommandHook {
                command: HookCommandLine::Program(vec!["/no/such/program".into()]),
                ..hook("")
            },
        ];
        for failing in failing {
            let outcome = run_pre(failing.clone()).await;
            assert_eq!(outcome.status(), Some(Status::Blocked), "{failing:?}");
            let warned = CommandHook {
                on_failure: HookFailure::Warn,
                ..failing
            };
            let outcome = run_pre(warned).await;
            let settled = outcome.settled().expect("settled");
            assert_eq!(settled.status, Status::Ok);
            let note = settled
                .notes
                .fields()
                .and_then(|fields| fields.get(note_keys::HOOK_FAILED).ok().flatten());
            assert!(note.is_some(), "the failure is noted");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_not_understood_is_no_permission() {
        for answer in [
            r#"{"permissionDecision":"deny"}"#,
            r#"{"continue":false,"stopReason":"no"}"#,
            r#""deny""#,
            "false",
            "[]",
            "null",
            r#"{"decision":true}"#,
            r#"{"hookSpecificOutput":"deny"}"#,
            r#"{"hookSpecificOutput":{"permissionDecision":["deny"]}}"#,
            r#"{"Decision":"block"}"#,
            r#"{"decision":"block","hookSpecificOutput":{"permissionDecision":"allow"}}"#,
            r#"{"decision":"approve","hookSpecificOutput":{"permissionDecision":"deny"}}"#,
            r#"{"hookSpecificOutput":{"permissionDecision":"ask","updatedInput":{"amount":1}}}"#,
        ] {
            let outcome = run_pre(hook(&format!("echo '{answer}'"))).await;
            assert_eq!(outcome.status(), Some(Status::Blocked), "{answer}");
        }
        for answer in [r#"{"continue":true}"#, r#"{"decision":"approve"}"#, "{}"] {
            let outcome = run_pre(hook(&format!("echo '{answer}'"))).await;
            assert!(outcome.is_ok(), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_script_that_has_changed_since_the_hook_was_added_is_not_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("check.sh");
        for on_failure in [HookFailure::Block, HookFailure::Warn] {
            std::fs::write(&script, "exit 0").expect("writes");
            let hooks = Hooks::new();
            let hook = CommandHook {
                on_failure,
                ..hook("sh check.sh")
            };
            CommandHooks::new(dir.path(), None).add_pre(&hooks, hook);
            let stack = echo_under(hooks);
            let run = async || stack.run(call_with("pay", json!({}))).await;
            assert!(run().await.is_ok());
            std::fs::write(&script, "touch ran; exit 0").expect("writes");
            assert_eq!(run().await.status(), Some(Status::Blocked));
            assert!(!dir.path().join("ran").exists());
            std::fs::remove_file(&script).expect("deleted");
            assert_eq!(run().await.status(), Some(Status::Blocked));
        }
    }

    #[tokio::test]
    async fn a_hook_changes_arguments_but_cannot_allow_what_is_denied_further_in() {
        let updated = r#"echo '{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"amount":1}}}'"#;
        let outcome = run_pre(hook(updated)).await;
        assert_eq!(outcome.settled().expect("settled").value["amount"], 1);
        let hooks = Hooks::new();
        CommandHooks::new(std::env::temp_dir(), None).add_pre(&hooks, hook(updated));
        let deny = toolgate_core::from_fn(async |_, _| Outcome::denied(None));
        let stack = Stack::over(FakeExecutor::new()).layer(hooks).layer(deny);
        let stack = stack.build().expect("in order");
        let outcome = stack.run(call_with("pay", json!({ "amount": 7 }))).await;
        assert_eq!(outcome.status(), Some(Status::Denied));
    }

    #[tokio::test]
    async fn a_hook_that_asks_needs_an_approver_and_without_one_nothing_runs() {
        let ask = r#"echo '{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"it pays"}}'"#;
        let outcome = run_pre(hook(ask)).await;
        assert_eq!(
            outcome.status(),
            Some(Status::Blocked),
            "{}",
            text(&outcome)
        );
    }

    #[tokio::test]
    async fn a_hook_after_a_call_reads_redacted_data_and_can_withhold_the_result() {
        let redactor = SharedRedactor::new(crate::redact_fn(|value: &Json| {
            let text = value.to_string().replace("hunter2", "***");
            text.parse()
                .map(Some)
                .map_err(|_| toolgate_core::RedactionError)
        }));
        let run = async |command: &str| {
            let hooks = Hooks::new();
            let redactor = Some(redactor.clone());
            CommandHooks::new(std::env::temp_dir(), redactor).add_post(&hooks, hook(command));
            let call = call_with("pay", json!({ "word": "hunter2" }));
            echo_under(hooks).run(call).await
        };
        let seen = run("! grep -q hunter2 || exit 2").await;
        assert_eq!(seen.settled().expect("settled").value["word"], "hunter2");
        let withheld = run(r#"echo '{"decision":"block","reason":"not for models"}'"#).await;
        let settled = withheld.settled().expect("settled");
        assert_eq!(
            (settled.status, settled.value.is_null()),
            (Status::Ok, true)
        );
        assert!(text(&withheld).ends_with("by a hook: not for models"));
        let failed = run("exit 3").await;
        assert!(failed.settled().expect("settled").value.is_null());
    }

    #[tokio::test]
    async fn a_hook_gets_no_variable_of_ours_and_its_output_is_bounded() {
        // Cargo sets this one for tests.
        assert!(
            run_pre(hook("test -z \"$CARGO_MANIFEST_DIR\" && test -n \"$PATH\""))
                .await
                .is_ok()
        );
        let flood = run_pre(hook("yes; exit 0")).await;
        assert_eq!(flood.status(), Some(Status::Blocked));
    }

    #[test]
    fn the_files_that_a_command_names_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("scripts/more")).expect("created");
        for file in ["check.sh", "scripts/deep.sh", "scripts/more/last.sh"] {
            std::fs::write(dir.path().join(file), "exit 0").expect("writes");
        }
        for command in [
            "./check.sh --strict",
            "sh 'check.sh'",
            "A=1 check.sh|cat",
            "cd scripts && ./deep.sh",
            "cd ./scripts; sh deep.sh",
            "(cd scripts/more && . ./last.sh)",
            "cd scripts && cd more && ./last.sh",
            "test -n \"$PATH\" && ./check.sh",
            "if true; then ./check.sh; fi",
            "sh -c 'cd scripts && ./deep.sh'",
            "exec < check.sh",
        ] {
            let hook = hook(command);
            assert_eq!(hook.problem(), None, "{command}");
            assert_eq!(hook.named_files(dir.path()).len(), 1, "{command}");
        }
        assert!(hook("grep -q x").named_files(dir.path()).is_empty());
        let program = CommandHook {
            command: HookCommandLine::Program(
                ["sh", "-c", "cd scripts && ./deep.sh"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            ..hook("")
        };
        assert_eq!(program.named_files(dir.path()).len(), 1);
    }

    #[test]
    fn a_command_that_does_not_say_which_files_it_runs_has_to_list_them() {
        let dir = tempfile::tempdir().expect("a directory");
        for command in [
            "\"$DIR/check.sh\"",
            "$(which check.sh)",
            "cd $DIR && ./check.sh",
            "cd \"$(git rev-parse --show-toplevel)\" && ./check.sh",
            "python3 ${X:-check.py}",
            "sh `cat name`",
            "for f in a b; do ./$f; done",
            "cat \"$F\" | sh",
            "eval \"$X\"",
            "./check*.sh",
            "cd - && ./check.sh",
            "cd && ./check.sh",
        ] {
            let unread = hook(command);
            let problem = unread.problem().expect(command);
            assert!(problem.contains("`files`"), "{problem}");
            let listed = CommandHook {
                files: Some(vec!["scripts/check.sh".into()]),
                ..unread
            };
            assert_eq!(listed.problem(), None, "{command}");
            let file = dir.path().join("scripts/check.sh");
            assert_eq!(listed.named_files(dir.path()), [file], "{command}");
        }
    }

    #[tokio::test]
    async fn a_script_behind_cd_or_in_the_list_is_not_run_after_it_was_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("scripts/deep/check.sh");
        std::fs::create_dir_all(dir.path().join("scripts/deep")).expect("created");
        let listed = |command: &str| CommandHook {
            files: Some(vec!["scripts/deep/check.sh".into()]),
            ..hook(command)
        };
        let in_words = |words: &[&str]| CommandHook {
            command: HookCommandLine::Program(words.iter().map(|it| (*it).to_owned()).collect()),
            ..hook("")
        };
        for hook in [
            hook("cd scripts/deep && sh ./check.sh"),
            hook("cd scripts; cd deep; sh check.sh"),
            hook("(cd ./scripts/../scripts/deep && . ./check.sh)"),
            hook("if cd scripts/deep; then sh < check.sh; fi"),
            hook("sh -c 'cd scripts/deep && sh check.sh'"),
            hook("command cd scripts && command cd deep && sh check.sh"),
            hook("env -C scripts/deep sh check.sh"),
            in_words(&["sh", "-c", "cd scripts/deep && sh check.sh"]),
            in_words(&["env", "-C", "scripts/deep", "sh", "check.sh"]),
            listed("D=scripts; sh \"$D/deep/check.sh\""),
            listed("sh scripts/*/check.sh"),
            listed("cd \"$(echo scripts/deep)\" && sh check.sh"),
        ] {
            let command = hook.command.clone();
            assert_eq!(hook.problem(), None, "{command:?}");
            std::fs::write(&script, "exit 0").expect("writes");
            let hooks = Hooks::new();
            CommandHooks::new(dir.path(), None).add_pre(&hooks, hook);
            let stack = echo_under(hooks);
            let first = stack.run(call_with("pay", json!({}))).await;
            assert!(first.is_ok(), "{command:?}: {}", text(&first));
            std::fs::write(
                &script,
                format!("touch {}/ran; exit 0", dir.path().display()),
            )
            .expect("writes");
            let changed = stack.run(call_with("pay", json!({}))).await;
            assert_eq!(changed.status(), Some(Status::Blocked), "{command:?}");
            assert!(!dir.path().join("ran").exists(), "{command:?}");
        }
    }
}
