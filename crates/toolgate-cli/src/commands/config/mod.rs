//! `toolgate config`: checks, shows, writes and trusts `toolgate.toml`.

mod check;
mod entries;
mod init;
mod show;
mod trust;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::Config;

use crate::{CliError, Cx, Exit, config_file::ConfigFile, settings, style, table::Table};

/// Checks, shows, writes and trusts the configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config init                       write a toolgate.toml to begin with
  toolgate config check                      say what is wrong with it, and where
  toolgate config show                       what counts here, and where each part comes from")]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong with a configuration, with the line and the nearest valid word
    Check(CheckArgs),
    /// Print what counts here, and where each part comes from
    Show(ShowArgs),
    /// Print the JSON Schema of toolgate.toml, for editors
    Schema(SchemaArgs),
    /// Write a toolgate.toml to begin with
    Init(InitArgs),
    /// Let the configuration of this project count, as it is now
    Trust(TrustArgs),
    /// Let the configuration of this project count no more
    Untrust(UntrustArgs),
    /// Print where the configuration, the database and the keys are
    Path(PathArgs),
}

/// Checks a configuration: every key and value, every layer, and their order. It need not be trusted for that.
#[derive(Debug, Args)]
#[command(after_help = "\
Without FILE, the configuration that counts here is checked, with the variables of the environment.

Examples:
  toolgate config check
  toolgate config check ci/toolgate.toml
  TOOLGATE_LAYERS__TIMEOUT__MAX_MS=5000 toolgate config check")]
pub struct CheckArgs {
    /// The file to check
    pub file: Option<PathBuf>,
}

/// Prints every option that counts here, and where it comes from: a file, a variable, or a default.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config show
  toolgate config show --changed             only what a file or a variable says
  toolgate config show --json | jq -c 'select(.from == \"variable\")'")]
pub struct ShowArgs {
    /// Leave out what is as it is by default
    #[arg(long)]
    pub changed: bool,
}

/// Prints the JSON Schema of toolgate.toml. Editors complete and check the file with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config schema > toolgate.schema.json
  echo '#:schema ./toolgate.schema.json' | cat - toolgate.toml")]
pub struct SchemaArgs {}

/// Writes a toolgate.toml in which everything is explained and nothing is switched on, and trusts it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config init                       for this project
  toolgate config init --user                for all projects that have none
  toolgate config init ci/toolgate.toml --force")]
pub struct InitArgs {
    /// Where to write it, instead of the directory that agents work in
    pub file: Option<PathBuf>,
    /// Write the one of the user, for all projects that have none
    #[arg(long, conflicts_with = "file")]
    pub user: bool,
    /// Replace the file that is there
    #[arg(long)]
    pub force: bool,
}

/// Shows the configuration of this project and lets it count if you agree, as long as it stays as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
A project brings its toolgate.toml along, and it can loosen the gate. So it counts only once you have read it.

Examples:
  toolgate config trust
  toolgate config trust ../other/toolgate.toml
  toolgate config trust --yes                where nobody can be asked")]
pub struct TrustArgs {
    /// The file, instead of that of this project
    pub file: Option<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Lets the configuration of this project count no more. Commands refuse it until it is trusted again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config untrust
  toolgate config untrust ../other/toolgate.toml")]
pub struct UntrustArgs {
    /// The file, instead of that of this project
    pub file: Option<PathBuf>,
}

/// Prints where things are: the configuration that counts, the user's, the database, the keys.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate config path
  $EDITOR \"$(toolgate config path --json | jq -r .config)\"")]
pub struct PathArgs {}

/// Does what was asked for with the configuration.
pub(crate) fn run(args: &ConfigArgs, cx: &Cx) -> Result<Exit, CliError> {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args, cx),
        ConfigCommand::Show(args) => show::run(args, cx),
        ConfigCommand::Schema(SchemaArgs {}) => schema(cx),
        ConfigCommand::Init(args) => init::run(args, cx),
        ConfigCommand::Trust(args) => trust::trust(args, cx),
        ConfigCommand::Untrust(args) => trust::untrust(args, cx),
        ConfigCommand::Path(PathArgs {}) => path(cx),
    }
}

fn schema(cx: &Cx) -> Result<Exit, CliError> {
    let schema = Config::json_schema(&settings::catalog());
    match cx.out.is_json() {
        true => cx.out.json(&schema)?,
        false => cx.out.line(serde_json::to_string_pretty(&schema)?)?,
    }
    Ok(Exit::Done)
}

fn path(cx: &Cx) -> Result<Exit, CliError> {
    let paths = &cx.paths;
    let found = ConfigFile::find(paths);
    if cx.out.is_json() {
        cx.out.json(&json!({
            "config": found.as_ref().map(|(_, path)| path),
            "owner": found.as_ref().map(|(owner, _)| owner),
            "user_config": paths.user_config,
            "workspace": paths.workspace,
            "home": paths.home,
            "database": paths.shown_db(),
            "keys": paths.home.join("keys"),
        }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new();
    let mut line = |name: &str, value: String| table.row([style::dim(name).to_string(), value]);
    line(
        "configuration",
        found.map_or_else(
            || "none; all is as by default".to_owned(),
            |(_, path)| shown(&path),
        ),
    );
    line(
        "of the user",
        paths
            .user_config
            .as_deref()
            .map_or_else(|| "nowhere".to_owned(), shown),
    );
    line("workspace", shown(&paths.workspace));
    line("home", shown(&paths.home));
    line("database", paths.shown_db());
    line("keys", shown(&paths.home.join("keys")));
    cx.out.line(table)?;
    Ok(Exit::Done)
}

fn shown(path: &std::path::Path) -> String {
    style::plain(&path.display().to_string())
}
