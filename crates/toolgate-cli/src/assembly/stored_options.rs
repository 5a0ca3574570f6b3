//! The options of a session, stored with it: resuming it needs none of them again.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate::{
    Gate,
    gate::{ApproveMode, is_provider},
    session::DispatchError,
    store::{RecordKey, SessionFilter, StoreHandle},
    value::{Json, SessionId, serialized_word},
};

use crate::{
    CliError, CommandContext, GateArgs, SessionArgs,
    env::{ids, paths},
    show::agent_sessions,
};

/// The variable that names the model.
pub(crate) const MODEL_VARIABLE: &str = "TOOLGATE_MODEL";

/// The variable that names the address of the model's provider.
pub(crate) const ADDRESS_VARIABLE: &str = "TOOLGATE_BASE_URL";

/// The placeholder for the session of this directory that was used last.
pub(crate) const LAST_SESSION: &str = "last";

/// The most changes of options that are read of one session.
const MAX_CHANGES: usize = 10_000;

/// The options that a session was started or last resumed with, besides its directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct StoredOptions {
    /// The configuration that was named, as an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<PathBuf>,
    #[serde(flatten)]
    args: SessionArgs,
}

/// A session to resume: its directory and its options.
#[derive(Debug)]
pub(crate) struct ResumedSession {
    pub(crate) id: SessionId,
    /// The context in the directory of the session, with its configuration.
    pub(crate) cx: CommandContext,
    /// The options given now, completed by those of the session.
    pub(crate) args: SessionArgs,
    /// True if the session has no run: it is a call that the user made by hand.
    pub(crate) is_single_call: bool,
}

impl ResumedSession {
    /// Finds the session that `named` means, a part of an id or `last`, in any directory.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, if its directory is gone or `-C` names another one, or if
    /// it needs a configuration that cannot be verified.
    pub(crate) async fn find(
        cx: &CommandContext,
        named: &str,
        given: &SessionArgs,
    ) -> Result<Self, CliError> {
        let store = cx.open_store().await?;
        let id = find_resumed_session(cx, &store, named).await?;
        // The session of an agent is resumed through the one that delegated to it.
        let id = agent_sessions::root_session(&store, id).await?;
        // Before anything else: the directory of another machine may not exist here.
        if let Some(origin) = store.load_import_origin(id).await? {
            let format = origin.format;
            return Err(DispatchError::Imported {
                session: id,
                format,
            }
            .into());
        }
        let mut cx = cx.in_directory_of(&store, id).await?;
        let stored = load_options(&cx, &store, id).await?;
        let args = given.resumed_from(stored.args);
        cx.paths.named = cx.paths.named.or(stored.config);
        let row = store.sessions(SessionFilter::for_session(id)).await?.pop();
        Ok(Self {
            id,
            cx,
            args,
            is_single_call: row.is_some_and(|row| row.last_run.is_none()),
        })
    }

    /// Tells the user what is resumed, and with which options.
    pub(crate) fn print_note(&self) -> Result<(), CliError> {
        if self.cx.out.is_json() {
            return Ok(());
        }
        let options = self.args.describe();
        let options: String = options.iter().map(|option| format!(" {option}")).collect();
        let note = format!(
            "resumes session {} in {}{}{options}",
            ids::short_id(self.id),
            self.cx.paths.workspace.display(),
            if options.is_empty() { "" } else { " with" },
        );
        let note = crate::env::style::dim(note);
        self.cx.out.print_wrapped_note(&note, "  ")
    }
}

impl CommandContext {
    /// Returns the context in the directory that a session works in: what a model has read in one
    /// directory must not be written to another.
    ///
    /// # Errors
    ///
    /// Fails if the directory is gone, or if `-C` names another one.
    pub(crate) async fn in_directory_of(
        &self,
        store: &StoreHandle,
        session: SessionId,
    ) -> Result<Self, CliError> {
        let mut cx = self.clone();
        let Some(there) = ids::workspace_of(store, session).await? else {
            return Ok(cx);
        };
        let problem = format!(
            "session {} works in {}",
            ids::short_id(session),
            there.display()
        );
        if cx.paths.is_dir_named && there != cx.paths.workspace {
            return Err(CliError::usage(problem)
                .with_hint("leave out -C: a session continues in its own directory"));
        }
        if !there.is_dir() {
            return Err(
                CliError::new(format!("{problem}, which is no longer there")).with_hint(
                    "restore the directory, or start a new session with `toolgate run \"…\"`",
                ),
            );
        }
        cx.paths.workspace = there;
        Ok(cx)
    }
}

impl SessionArgs {
    /// Stores the directory and the options of a session, before its first message: `--resume` finds
    /// them also after a crash.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot write, or if the keys cannot be loaded.
    pub(crate) async fn store_for(
        &self,
        cx: &CommandContext,
        gate: &Gate,
        session: SessionId,
    ) -> Result<(), CliError> {
        let store = gate.store();
        let mut args = self.clone();
        let model = args.model.as_deref().or(gate.default_model());
        args.model = model.map(absolute_model).transpose()?;
        let config = cx.paths.named.as_deref();
        let config = config.map(std::path::absolute).transpose()?;
        let options = Json::new(serde_json::to_value(StoredOptions { config, args })?)
            .map_err(|error| CliError::from_error(&error))?;
        let earlier = load_records(store, session).await?;
        if earlier
            .last()
            .is_some_and(|(_, record)| record["options"] == *options.as_value())
        {
            return Ok(());
        }
        let name = format!("{}{:06}", records_prefix(session), earlier.len());
        // Anyone who can write to the database could add an --allow otherwise.
        let seal = cx
            .load_keys()?
            .keyring()
            .seal_record(&name, options.digest());
        let record = json!({ "options": options.as_value(), "seal": seal });
        let record = Json::new(record).map_err(|error| CliError::from_error(&error))?;
        store
            .put_json_once(RecordKey::Other(name.into()), record)
            .await?;
        Ok(())
    }

    /// Returns these options, completed by those of the session that is resumed. Rules add up.
    fn resumed_from(&self, stored: Self) -> Self {
        let named = unless_from_variable(self.model.as_ref(), MODEL_VARIABLE);
        let address = unless_from_variable(self.base_url.as_ref(), ADDRESS_VARIABLE);
        // An address holds for the provider of its model: no key of another one may be sent there.
        let stored_address = stored.base_url.filter(|_| named.is_none());
        let has_model = named.is_some() || stored.model.is_some();
        let variable_address = self.base_url.clone().filter(|_| !has_model);
        Self {
            model: named.or(stored.model).or_else(|| self.model.clone()),
            base_url: address.or(stored_address).or(variable_address),
            max_iterations: self.max_iterations.or(stored.max_iterations),
            budget: self.budget.or(stored.budget),
            deadline: self.deadline.or(stored.deadline),
            stop_on_failure: self.stop_on_failure || stored.stop_on_failure,
            no_retry: self.no_retry || stored.no_retry,
            weight: self.weight.or(stored.weight),
            strategy: self.strategy.or(stored.strategy),
            take_over: self.take_over,
            yes: self.yes,
            gate: GateArgs {
                approve: self.gate.approve.or(stored.gate.approve),
                allow: joined(stored.gate.allow, &self.gate.allow),
                deny: joined(stored.gate.deny, &self.gate.deny),
            },
        }
    }

    /// Returns the options as they are written on the command line.
    fn describe(&self) -> Vec<String> {
        let mut options = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            options.extend(value.map(|value| format!("{name} {}", paths::quote_word(&value))));
        };
        add("--model", self.model.clone());
        add("--base-url", self.base_url.clone());
        add(
            "--max-iterations",
            self.max_iterations.map(|n| n.to_string()),
        );
        add(
            "--budget",
            self.budget.map(|nanos| format!("{}", nanos as f64 / 1e9)),
        );
        add("--deadline", self.deadline.map(|limit| limit.to_string()));
        add(
            "--strategy",
            self.strategy.map(|strategy| serialized_word(&strategy)),
        );
        add("--approve", self.gate.approve.map(|mode| mode.to_string()));
        for call in &self.gate.allow {
            add("--allow", Some(call.clone()));
        }
        for call in &self.gate.deny {
            add("--deny", Some(call.clone()));
        }
        options
    }

    /// Removes what could widen what a session may do.
    fn without_permissions(mut self) -> Self {
        self.gate.allow.clear();
        // Keys are sent there.
        self.base_url = None;
        let is_strict = |mode: &ApproveMode| matches!(mode, ApproveMode::Ask | ApproveMode::Never);
        self.gate.approve = self.gate.approve.filter(is_strict);
        self
    }
}

/// Returns a value that was given as an option, not with the variable of the option: what a session was
/// started with goes before a variable.
fn unless_from_variable(value: Option<&String>, variable: &str) -> Option<String> {
    let variable = std::env::var(variable).ok();
    value
        .filter(|value| Some(*value) != variable.as_ref())
        .cloned()
}

/// Joins two lists of rules; a rule that is in both counts once.
fn joined(mut stored: Vec<String>, given: &[String]) -> Vec<String> {
    let added = given.iter().filter(|call| !stored.contains(call));
    let added: Vec<String> = added.cloned().collect();
    stored.extend(added);
    stored
}

/// Returns the name of a model that means the same in every directory.
fn absolute_model(name: &str) -> std::io::Result<String> {
    match name.strip_prefix("script:") {
        Some(path) => Ok(format!("script:{}", paths::absolute_path(path)?)),
        None => Ok(name.to_owned()),
    }
}

fn records_prefix(session: SessionId) -> String {
    format!("session-options/{session}/")
}

async fn load_records(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Vec<(String, serde_json::Value)>, CliError> {
    let records = store
        .list_json(&records_prefix(session), None, MAX_CHANGES)
        .await?;
    let records = records.into_iter();
    Ok(records
        .map(|(name, record)| (name.to_string(), record.as_value().clone()))
        .collect())
}

/// Loads the options of a session; of those that cannot be verified, only what narrows.
async fn load_options(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<StoredOptions, CliError> {
    let Some((name, record)) = load_records(store, session).await?.pop() else {
        return Ok(StoredOptions {
            args: model_of_last_run(store, session).await?,
            ..StoredOptions::default()
        });
    };
    let options = record["options"].clone();
    let digest = Json::new(options.clone())
        .map_err(|error| CliError::from_error(&error))?
        .digest();
    let stored: StoredOptions = serde_json::from_value(options)?;
    let seal = record["seal"].as_str().unwrap_or_default();
    if cx
        .load_keys()?
        .keyring()
        .check_record_seal(seal, &name, digest)
        .is_ok()
    {
        return Ok(stored);
    }
    cx.out.print_note(
        "the options of this session were stored with other keys, or changed since: --allow and --approve have to be given again",
    )?;
    match stored.config {
        // Its rules may be stricter than those that would apply without it.
        Some(config) if cx.paths.named.is_none() => {
            let problem = format!(
                "the session was started with --config {}, and that cannot be verified",
                config.display()
            );
            Err(CliError::usage(problem).with_hint(format!("add --config {}", config.display())))
        }
        _ => Ok(StoredOptions {
            config: None,
            args: stored.args.without_permissions(),
        }),
    }
}

/// Returns the model of a session that another program has run.
async fn model_of_last_run(
    store: &StoreHandle,
    session: SessionId,
) -> Result<SessionArgs, CliError> {
    let row = store
        .sessions(SessionFilter::for_session(session))
        .await?
        .pop();
    let Some(last) = row.and_then(|row| row.last_run) else {
        return Ok(SessionArgs::default());
    };
    let run = store.load_run(session, last.run).await?;
    // A model of the program itself, such as a script, cannot be opened by its name.
    let is_ours = |model: &String| {
        let provider = model.split_once(':').map_or("", |(provider, _)| provider);
        provider != "script" && is_provider(provider)
    };
    Ok(SessionArgs {
        model: run.map(|run| run.model.clone()).filter(is_ours),
        ..SessionArgs::default()
    })
}

async fn find_resumed_session(
    cx: &CommandContext,
    store: &StoreHandle,
    named: &str,
) -> Result<SessionId, CliError> {
    if named == LAST_SESSION {
        let last = ids::last_session(store, &cx.paths.workspace).await?;
        return last.ok_or_else(|| {
            CliError::usage(format!("there is no session of {} yet", cx.paths.workspace.display()))
                .with_hint("start one with `toolgate run \"…\"`; `toolgate sessions list` lists those of all directories")
        });
    }
    let found = ids::find_session(store, named).await;
    found.map_err(|error| {
        // `--resume "fix it"` takes the task for the id of a session.
        if named.contains(' ') {
            error.with_hint(
                "to send a message to the last session: toolgate run --resume last \"…\"",
            )
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(approve: Option<ApproveMode>, allow: &[&str], deny: &[&str]) -> SessionArgs {
        let strings = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect();
        SessionArgs {
            gate: GateArgs {
                approve,
                allow: strings(allow),
                deny: strings(deny),
            },
            ..SessionArgs::default()
        }
    }

    #[test]
    fn options_given_now_replace_stored_ones_and_rules_add_up() {
        let stored = SessionArgs {
            model: Some("ollama:a".to_owned()),
            max_iterations: Some(3),
            ..rules(Some(ApproveMode::Yes), &["a", "b"], &["c"])
        };
        let given = SessionArgs {
            model: Some("ollama:b".to_owned()),
            ..rules(None, &["b", "d"], &[])
        };
        let resumed = given.resumed_from(stored.clone());
        assert_eq!(resumed.model.as_deref(), Some("ollama:b"));
        assert_eq!(resumed.max_iterations, Some(3));
        assert_eq!(
            resumed.gate,
            rules(Some(ApproveMode::Yes), &["a", "b", "d"], &["c"]).gate
        );
        assert_eq!(SessionArgs::default().resumed_from(stored.clone()), stored);
    }

    #[test]
    fn options_that_cannot_be_verified_only_narrow() {
        for (mode, stays) in [
            (ApproveMode::Yes, false),
            (ApproveMode::AutoEdit, false),
            (ApproveMode::Never, true),
        ] {
            let left = rules(Some(mode), &["a"], &["b"]).without_permissions();
            assert_eq!(left, rules(Some(mode).filter(|_| stays), &[], &["b"]));
        }
    }
}
