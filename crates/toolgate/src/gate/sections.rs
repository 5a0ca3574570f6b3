//! The sections of `toolgate.toml` about runs, built-in tools and agents.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Effort, HumanDuration, RulePublicKey, TaskComplexity, ToolChoice};
use toolgate_layers::{Catalog, CommandHook, Config, ConfigError, ProgramSection};
use toolgate_runtime::{OnCap, OnFailure, RetryPolicy, RoutingConfig};

use crate::{
    Error, Result,
    gate::{
        ApproveMode, MemorySection,
        models::{SCRIPT_PROVIDER, parse_model_name},
    },
    search::SearchSection,
};

/// `[run]`: the options of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// The model, as provider:name.
    pub model: Option<String>,
    /// The address of the provider of `model`, unless `--base-url` or the variable of the provider names
    /// another one. The key of the provider is sent there.
    pub base_url: Option<String>,
    /// The system instructions, in place of the built-in text.
    pub instructions: Option<String>,
    /// False if the model does not read the `AGENTS.md` or `CLAUDE.md` of the project, which it does by
    /// default once the user trusts the file.
    pub project_instructions: Option<bool>,
    /// The handling of calls that need an approval.
    pub approve: ApproveMode,
    /// How the model of `toolgate run` works on files and the standard input: `direct` sends them
    /// along, `recursive` lets it search them and ask about pieces, whatever their size.
    pub strategy: RunStrategy,
    /// The maximum number of iterations (model requests) of a run.
    pub max_iterations: Option<u32>,
    /// What happens at that maximum: `close` asks the model once more, without tools; `fail` is an
    /// error.
    pub on_cap: OnCap,
    /// The time that a run may take. Running calls are cancelled then; pending ones stay pending.
    pub deadline: Option<HumanDuration>,
    /// What happens to the other calls of a turn when one fails: `continue`, or `abort`, which
    /// cancels those that have not started and ends the run.
    pub on_failure: OnFailure,
    /// The maximum number of calls that run at the same time; 1 runs them one after the other.
    pub max_concurrent_tools: Option<NonZeroUsize>,
    /// The tools that the model may or must call: `auto`, `none`, `required`, or
    /// `{ named = "tool" }`. A required call is required in the first iteration only.
    pub tool_choice: ToolChoice,
    /// The maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// The reasoning effort of the model.
    pub effort: Option<Effort>,
    /// The complexity of the work, for `weights` and `rules` of `[routing]`.
    pub weight: Option<TaskComplexity>,
    /// How often and after which wait a model is asked again after a temporary failure.
    pub retry: RetryPolicy,
    /// A file with prices that override the bundled ones, relative to the configuration.
    pub prices: Option<PathBuf>,
    /// Directories with skills, relative to the configuration or absolute.
    pub skills: Vec<PathBuf>,
}

/// The way in which the model of `toolgate run` works on its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStrategy {
    /// The input is part of the message.
    #[default]
    Direct,
    /// The files and the standard input are documents, which the model reads in pieces.
    Recursive,
}

/// `[routing]`: which model is asked, and which one in place of a model that fails.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RoutingSection(pub RoutingConfig);

/// `[tools]`: the built-in tools and their limits.
#[cfg(feature = "tools")]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsSection {
    /// Only these tools, by name or glob; by default all of them.
    pub only: Option<Vec<String>>,
    /// The size limits of the file tools.
    pub files: toolgate_tools::FileLimits,
    /// The options of shell commands.
    pub shell: toolgate_tools::ShellOptions,
    /// The hosts that pages may be fetched from; by default none.
    #[cfg(feature = "http")]
    pub fetch: toolgate_tools::FetchOptions,
    /// True if the model may undo changes; people always may.
    pub undo: bool,
}

/// `[hooks]`: commands that run before and after calls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksSection {
    /// Commands that run before calls, in this order. They can block a call, require approval for
    /// it or change its arguments.
    pub pre: Vec<CommandHook>,
    /// Commands that run after calls, in reverse order. They can withhold a result.
    pub post: Vec<CommandHook>,
}

impl ProgramSection for HooksSection {
    const NAME: &'static str = "hooks";
}

impl HooksSection {
    /// Reads the section.
    ///
    /// # Errors
    ///
    /// Returns the first hook that makes no sense.
    pub fn of(config: &Config) -> Result<Self> {
        let section: Self = config.section()?;
        for (list, hooks) in [("pre", &section.pre), ("post", &section.post)] {
            for (number, hook) in hooks.iter().enumerate() {
                if let Some(problem) = hook.problem() {
                    let place = format!("hooks.{list}, entry {}: {problem}", number + 1);
                    return Err(Error::configuration(place));
                }
            }
        }
        Ok(section)
    }

    /// Checks whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }
}

/// `[[agent]]`: agents that the model can delegate work to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AgentsSection(pub Vec<AgentSection>);

/// One agent of `[[agent]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSection {
    /// The name of its tool.
    pub name: String,
    /// The work to delegate to it, in words for the model.
    pub description: String,
    /// Its model, as provider:name; by default that of the run.
    #[serde(default)]
    pub model: Option<String>,
    /// Its system instructions.
    #[serde(default)]
    pub instructions: Option<String>,
    /// Its tools by name or glob; by default all of them.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// The maximum number of iterations (model requests) of one of its runs.
    #[serde(default)]
    pub max_iterations: Option<u32>,
}

/// `[standing_rules]`: whose standing rules count. Only the user's own configuration may have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StandingRulesSection {
    /// Keys of others, as `toolgate approvals rules key` prints them: rules that are signed with one
    /// of them allow calls like the user's own.
    pub trusted_keys: Vec<String>,
}

impl StandingRulesSection {
    /// Parses the keys.
    ///
    /// # Errors
    ///
    /// Fails if a text is not a key.
    pub fn parse_keys(&self) -> Result<Vec<RulePublicKey>> {
        let parse = |text: &String| {
            let key = text.parse::<RulePublicKey>();
            key.map_err(|error| {
                Error::configuration(format!("{text:?} in standing_rules.trusted_keys: {error}"))
            })
        };
        self.trusted_keys.iter().map(parse).collect()
    }
}

impl ProgramSection for StandingRulesSection {
    const NAME: &'static str = "standing_rules";
}

impl RunSection {
    /// Returns the section of a configuration, with the files that it names as seen from the
    /// directory of the configuration.
    ///
    /// # Errors
    ///
    /// Fails if the section is invalid.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let mut section: Self = config.section()?;
        if let Some(directory) = config.directory() {
            let paths = section.prices.iter_mut().chain(&mut section.skills);
            paths.for_each(|path| *path = directory.join(&path));
            section.model = section.model.map(|name| resolve_script(directory, name));
        }
        Ok(section)
    }
}

impl RoutingSection {
    /// Returns the section of a configuration; see [`RunSection::of`].
    ///
    /// # Errors
    ///
    /// Fails if the section is invalid.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let mut section: Self = config.section()?;
        if let Some(directory) = config.directory() {
            let resolve = |name: &str| resolve_script(directory, name.to_owned());
            section.0.rename_models(resolve);
        }
        Ok(section)
    }
}

impl RoutingSection {
    /// Checks that every name can be a model and that falling back can help. No model is opened.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |error: Error| {
            error
                .while_doing("the section [routing] cannot be used")
                .with_hint("a model is named provider:name, or by an alias of routing.aliases")
        };
        let checked = self.0.check_fallback();
        checked.map_err(|error| wrong(Error::from_source(error)))?;
        let mut names = self.0.models().map(parse_model_name);
        names.try_for_each(|name| name.map(drop).map_err(wrong))
    }
}

impl ProgramSection for RoutingSection {
    const NAME: &'static str = "routing";
}

impl AgentsSection {
    /// Returns the section of a configuration; see [`RunSection::of`].
    ///
    /// # Errors
    ///
    /// Fails if the section is invalid.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let mut section: Self = config.section()?;
        if let Some(directory) = config.directory() {
            for agent in &mut section.0 {
                let model = agent.model.take();
                agent.model = model.map(|name| resolve_script(directory, name));
            }
        }
        Ok(section)
    }
}

#[cfg(feature = "tools")]
impl ToolsSection {
    /// Returns the section of a configuration; see [`RunSection::of`].
    ///
    /// # Errors
    ///
    /// Fails if the section is invalid.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let mut section: Self = config.section()?;
        if let Some(directory) = config.directory() {
            let shell = &mut section.shell;
            let paths = shell.read.iter_mut().chain(&mut shell.write);
            // `~` is the home directory.
            let relative = paths.filter(|path| !path.starts_with("~"));
            relative.for_each(|path| *path = directory.join(&path));
        }
        Ok(section)
    }
}

/// Returns the name of a model, with the file of a scripted one as seen from `directory`.
pub(super) fn resolve_script(directory: &Path, name: String) -> String {
    match script_path(&name) {
        Some(path) => format!("{SCRIPT_PROVIDER}:{}", directory.join(path).display()),
        None => name,
    }
}

/// Returns the file that the name of a scripted model names.
pub(super) fn script_path(name: &str) -> Option<&str> {
    name.strip_prefix(SCRIPT_PROVIDER)?.strip_prefix(':')
}

impl ProgramSection for RunSection {
    const NAME: &'static str = "run";
}

#[cfg(feature = "tools")]
impl ProgramSection for ToolsSection {
    const NAME: &'static str = "tools";
}

impl ProgramSection for AgentsSection {
    const NAME: &'static str = "agent";
}

/// Returns the catalog of everything that the configuration of a gate can name.
pub fn gate_catalog() -> Catalog {
    let catalog = Catalog::bundled()
        .with_section::<RunSection>()
        .with_section::<RoutingSection>()
        .with_section::<StandingRulesSection>()
        .with_section::<HooksSection>()
        .with_section::<SearchSection>()
        .with_section::<MemorySection>()
        .with_section::<AgentsSection>();
    #[cfg(feature = "tools")]
    let catalog = catalog.with_section::<ToolsSection>();
    catalog
}
