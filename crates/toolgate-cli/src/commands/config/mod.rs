//! `toolgate config`: checks, shows, writes and trusts `toolgate.toml`.

mod check;
mod entries;
mod show;
mod trust;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::{Config, gate::gate_catalog};

use crate::{
    CliError, CommandContext, Exit,
    commands::init::{self, InitArgs},
    env::style,
    show::render::TextTable,
};

/// Checks, shows, writes and trusts the configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config init                       write a toolgate.toml to start from
  toolgate config check                      report what is wrong with it, and where
  toolgate config show                       the options in effect, and their sources")]
pub struct ConfigArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// A subcommand of `toolgate config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report what is wrong with a configuration, with the line and the nearest valid word
    Check(ConfigCheckArgs),
    /// Print the options in effect, and the source of each
    Show(ConfigShowArgs),
    /// Print the JSON Schema of toolgate.toml, for editors
    Schema(ConfigSchemaArgs),
    /// Write a toolgate.toml to start from, like `toolgate init`
    Init(InitArgs),
    /// Trust the configuration of this project, or its AGENTS.md, as it is now
    Trust(ConfigTrustArgs),
    /// Revoke trust in the configuration of this project, or in its AGENTS.md
    Untrust(ConfigUntrustArgs),
    /// Print where the configuration, the database and the keys are
    Path(ConfigPathArgs),
}

/// Checks a configuration: every key and value, every layer, and their order. It need not be
/// trusted for that.
#[derive(Debug, Args)]
#[command(after_help = "\
Without FILE, the configuration in effect here is checked, with environment variables.

Examples:
  toolgate config check
  toolgate config check ci/toolgate.toml
  TOOLGATE_LAYERS__TIMEOUT__MAX=5s toolgate config check")]
pub struct ConfigCheckArgs {
    /// The file to check
    pub file: Option<PathBuf>,
}

/// Prints every option in effect, and its source: a file, a variable, or a default.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config show
  toolgate config show --changed             only what a file or a variable sets
  toolgate config show --json | jq -c 'select(.from == \"variable\")'")]
pub struct ConfigShowArgs {
    /// Leave out options that have their default
    #[arg(long)]
    pub changed: bool,
}

/// Prints the JSON Schema of toolgate.toml. Editors complete and check the file with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config schema > toolgate.schema.json
  echo '#:schema ./toolgate.schema.json' | cat - toolgate.toml")]
pub struct ConfigSchemaArgs {}

/// Shows the configuration of this project, or its AGENTS.md, and trusts it if you agree, until it
/// changes.
#[derive(Debug, Args)]
#[command(after_help = "\
A project brings its own toolgate.toml, which can loosen the gate, and its own AGENTS.md or CLAUDE.md,
which instructs the model. Each is used only after you trust it.

Examples:
  toolgate config trust
  toolgate config trust AGENTS.md            let the model read the instructions of the project
  toolgate config trust ../other/toolgate.toml
  toolgate config trust --yes                without confirmation, for scripts")]
pub struct ConfigTrustArgs {
    /// The file, instead of that of this project
    pub file: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Revokes trust in the configuration of this project, or in its AGENTS.md. It is not used until it is
/// trusted again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config untrust
  toolgate config untrust AGENTS.md
  toolgate config untrust ../other/toolgate.toml")]
pub struct ConfigUntrustArgs {
    /// The file, instead of that of this project
    pub file: Option<PathBuf>,
}

/// Prints the paths of the configuration in effect, the user's configuration, the database and the
/// keys.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config path
  $EDITOR \"$(toolgate config path --json | jq -r .config)\"")]
pub struct ConfigPathArgs {}

/// Runs the subcommand.
pub(crate) fn run(args: &ConfigArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    match &args.command {
        ConfigCommand::Check(args) => check::check_config(args, cx),
        ConfigCommand::Show(args) => show::show_config(args, cx),
        ConfigCommand::Schema(ConfigSchemaArgs {}) => print_schema(cx),
        ConfigCommand::Init(args) => init::run(args, cx),
        ConfigCommand::Trust(args) => trust::run_trust(args, cx),
        ConfigCommand::Untrust(args) => trust::run_untrust(args, cx),
        ConfigCommand::Path(ConfigPathArgs {}) => print_paths(cx),
    }
}

fn print_schema(cx: &CommandContext) -> Result<Exit, CliError> {
    let schema = Config::json_schema(&gate_catalog());
    if cx.out.is_json() {
        cx.out.print_json(&schema)?
    } else {
        cx.out.print_line(serde_json::to_string_pretty(&schema)?)?
    }
    Ok(Exit::Done)
}

fn print_paths(cx: &CommandContext) -> Result<Exit, CliError> {
    let paths = &cx.paths;
    let found = paths.find_config();
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "config": found.as_ref().map(|(_, path)| path),
            "owner": found.as_ref().map(|(owner, _)| owner),
            "user_config": paths.user_config,
            "workspace": paths.workspace,
            "home": paths.home.path(),
            "database": paths.display_db(),
            "keys": paths.home.path().join("keys"),
        }))?;
        return Ok(Exit::Done);
    }
    let mut table = TextTable::for_output();
    let mut line = |name: &str, value: String| table.add_row([style::dim(name), value.into()]);
    line(
        "configuration",
        found.map_or_else(
            || "none; defaults apply".to_owned(),
            |(_, path)| display_path(&path),
        ),
    );
    line(
        "user's",
        paths
            .user_config
            .as_deref()
            .map_or_else(|| "none".to_owned(), display_path),
    );
    line("workspace", display_path(&paths.workspace));
    line("home", display_path(paths.home.path()));
    line("database", paths.display_db());
    line("keys", display_path(&paths.home.path().join("keys")));
    cx.out.print_line(table)?;
    Ok(Exit::Done)
}

fn display_path(path: &std::path::Path) -> String {
    style::escape_controls(&path.display().to_string())
}
