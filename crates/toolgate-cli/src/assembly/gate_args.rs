//! The options of the gate on the command line, and the gate that they describe.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Serialize};
use toolgate::{Config, Gate, GateBuilder, gate::ApproveMode, store::StoreHandle};

use crate::{CliError, CommandContext, assembly::rules, env::style};

/// The options of the gate, which override the configuration.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "The gate")]
#[serde(default)]
pub struct GateArgs {
    /// Set what happens to calls that need an approval
    #[arg(long, value_name = "MODE", value_parser = approve_mode_parser())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approve: Option<ApproveMode>,
    /// Allow these calls: a tool, or tool(pattern) for a command, path or domain
    #[arg(long, value_name = "CALL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Block these calls, whatever else allows them
    #[arg(long, value_name = "CALL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// The system instructions, unless the configuration has others.
pub const INSTRUCTIONS: &str = "\
You work in a project directory with the tools you are given. Paths are relative to that directory. Look before you \
change anything, make the smallest change that does what was asked, and check it. Independent calls can be made at \
once. A call may be blocked or need an approval; its result says so and what to do next. When you are done, say in a \
few sentences what you did and what you found.";

/// Parses a mode, and lists all of them with their summaries in the help.
fn approve_mode_parser() -> impl TypedValueParser<Value = ApproveMode> {
    let values =
        ApproveMode::ALL.map(|mode| PossibleValue::new(mode.as_str()).help(mode.summary()));
    PossibleValuesParser::new(values).try_map(|word| word.parse::<ApproveMode>())
}

impl GateArgs {
    /// Opens the gate of a command: the configuration in effect, the database and the keys.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid or not trusted, if the store or the keys cannot be
    /// opened, or if either lies inside the workspace.
    pub async fn open_gate(&self, cx: &CommandContext) -> Result<Gate, CliError> {
        Ok(self.gate_builder(cx)?.open().await?)
    }

    /// Checks that the tools which these options and the configuration name exist: an option is
    /// rejected, and the user is warned about the configuration.
    ///
    /// # Errors
    ///
    /// Fails if `--allow` or `--deny` names a tool that does not exist.
    pub(crate) fn check_tools(&self, cx: &CommandContext, gate: &Gate) -> Result<(), CliError> {
        rules::check_tools(self, gate)?;
        for unknown in gate.unknown_tools()? {
            let text = style::escape_controls(&unknown.to_string());
            cx.out
                .print_note(format_args!("{}: {text}", style::warn("warning")))?;
        }
        Ok(())
    }

    /// Returns the builder of the gate, for a command that adds something to it.
    ///
    /// # Errors
    ///
    /// Fails if the configuration cannot be read, or if an option is invalid.
    pub fn gate_builder(&self, cx: &CommandContext) -> Result<GateBuilder, CliError> {
        let builder = self.configured_builder(cx)?.address(&cx.paths.db);
        Ok(match cx.paths.db_patience {
            Some(patience) => builder.store_patience(patience),
            None => builder,
        })
    }

    /// Returns the builder of the gate over a store that is open already.
    ///
    /// # Errors
    ///
    /// Fails like [`GateArgs::gate_builder`].
    pub fn gate_builder_over(
        &self,
        cx: &CommandContext,
        store: StoreHandle,
    ) -> Result<GateBuilder, CliError> {
        Ok(self.configured_builder(cx)?.store(store))
    }

    fn configured_builder(&self, cx: &CommandContext) -> Result<GateBuilder, CliError> {
        let builder = self.apply_to(cx.gate_builder())?.environment_overrides();
        let builder = builder.trust_rule_keys(cx.trusted_rule_keys()?);
        Ok(match cx.paths.read_config()? {
            Some(file) => builder.found_config(file),
            None => builder,
        })
    }

    /// Builds the gate of a configuration over a store in memory, without the user's keys, so that
    /// nothing is persisted or signed.
    ///
    /// # Errors
    ///
    /// Fails if a tool or a layer cannot be built.
    pub fn preview_gate(&self, cx: &CommandContext, config: Config) -> Result<Gate, CliError> {
        let builder = self.apply_to(cx.gate_builder())?;
        Ok(builder.config(config).in_memory()?.build()?)
    }

    /// Builds the preview of the configuration in effect; see [`GateArgs::preview_gate`].
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid or not trusted.
    pub fn open_preview(&self, cx: &CommandContext) -> Result<Gate, CliError> {
        self.preview_gate(cx, cx.load_config()?)
    }

    fn apply_to(&self, builder: GateBuilder) -> Result<GateBuilder, CliError> {
        let rules = rules::parse_rules(self)?;
        let builder = rules.into_iter().fold(builder, GateBuilder::rule);
        Ok(match self.approve {
            Some(mode) => builder.approve(mode),
            None => builder,
        })
    }
}
