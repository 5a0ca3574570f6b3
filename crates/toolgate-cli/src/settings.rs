//! The sections of `toolgate.toml` that are about the command line: how agents run, and which tools they have.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate::{
    Effort,
    layers::{Catalog, Section},
};
use toolgate_tools::{FetchOptions, FileLimits, ShellOptions};

/// `[run]`: how an agent runs unless the command line says otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// The model, as provider:name.
    pub model: Option<String>,
    /// What the model is told before everything else, in place of the built-in text.
    pub instructions: Option<String>,
    /// Who is asked about calls that need an approval.
    pub approve: ApproveMode,
    /// How many rounds a run may have.
    pub max_iterations: Option<u32>,
    /// How much the model may write in one reply.
    pub max_tokens: Option<u32>,
    /// How much the model should think.
    pub effort: Option<Effort>,
    /// A file with prices that count before the bundled ones.
    pub prices: Option<PathBuf>,
    /// Directories with skills, from the workspace or absolute.
    pub skills: Vec<PathBuf>,
}

/// What happens to calls that need an approval.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum ApproveMode {
    /// Ask about every call that no rule allows, also about those that only read
    Ask,
    /// Calls that only read go ahead, others are asked about
    #[default]
    AutoRead,
    /// Changes of files in the workspace go ahead too
    AutoEdit,
    /// Nobody is asked: what needs an approval is denied
    Never,
    /// Everything that no rule denies goes ahead
    Yes,
}

/// `[tools]`: which built-in tools there are, and how far they reach.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsSection {
    /// Only these tools, by name or glob; all of them unless said.
    pub only: Option<Vec<String>>,
    /// How large a file the file tools take on.
    pub files: FileLimits,
    /// How commands are run.
    pub shell: ShellOptions,
    /// Which hosts pages are fetched from; none unless said.
    pub fetch: FetchOptions,
    /// Whether the model may take changes back; people always may.
    pub undo: bool,
}

/// `[[agent]]`: agents that the model can delegate work to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AgentsSection(pub Vec<AgentSection>);

/// One agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSection {
    /// What it is called, as a tool.
    pub name: String,
    /// What to delegate to it, in words for the model.
    pub description: String,
    /// Its model, as provider:name; that of the run unless given.
    #[serde(default)]
    pub model: Option<String>,
    /// What it is told before everything else.
    #[serde(default)]
    pub instructions: Option<String>,
    /// Its tools by name or glob; all of them unless given.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// How many rounds it may have.
    #[serde(default)]
    pub max_iterations: Option<u32>,
}

impl Section for RunSection {
    const NAME: &'static str = "run";
}

impl Section for ToolsSection {
    const NAME: &'static str = "tools";
}

impl Section for AgentsSection {
    const NAME: &'static str = "agent";
}

/// Everything that the file of a command line can name.
pub fn catalog() -> Catalog {
    Catalog::bundled()
        .section::<RunSection>()
        .section::<ToolsSection>()
        .section::<AgentsSection>()
}
