//! Names of tools in rules and options, compared with the tools that there are.

use std::fmt;

use globset::Glob;
use toolgate_core::ToolName;

use crate::{
    Approval, Config, ConfigError, DryRun, Idempotency, Policy, PolicyEffect, RateLimit, Scope,
    config::error::nearest_word,
};

/// The names of the tools that there are.
#[derive(Debug, Clone, Default)]
pub struct KnownTools(Vec<ToolName>);

/// A name or a glob in a rule or an option that no tool has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    /// The rule or the option.
    pub place: String,
    /// The name or the glob.
    pub name: String,
    /// The tool with the most similar name, if one is similar.
    pub nearest: Option<ToolName>,
    /// True if the place is to block, ask about or limit calls: with a wrong name it does not.
    pub is_protection: bool,
}

impl fmt::Display for UnknownTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, name, .. } = self;
        write!(f, "{place}: there is no tool named {name:?}")?;
        if self.is_protection {
            f.write_str(", so this protects nothing")?;
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; the nearest is {nearest}"),
            None => Ok(()),
        }
    }
}

impl KnownTools {
    /// Creates the list.
    pub fn new(names: impl IntoIterator<Item = ToolName>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Returns the tool whose name is most similar to `name`, if one is similar.
    pub fn nearest(&self, name: &str) -> Option<ToolName> {
        let names: Vec<&str> = self.0.iter().map(ToolName::as_str).collect();
        nearest_word(name, &names).map(ToolName::from)
    }

    /// Finds out whether no tool has the name, or matches the glob, that `place` gives.
    ///
    /// ```
    /// use toolgate_layers::KnownTools;
    /// let tools = KnownTools::new(["read_file".into(), "write_file".into()]);
    /// let unknown = tools.check("--deny", "write_fle", true).expect("misspelt");
    /// assert_eq!(
    ///     unknown.to_string(),
    ///     r#"--deny: there is no tool named "write_fle", so this protects nothing; the nearest is write_file"#
    /// );
    /// assert_eq!(tools.check("--allow", "*_file", false), None);
    /// ```
    pub fn check(&self, place: &str, name: &str, is_protection: bool) -> Option<UnknownTool> {
        let is_known = match Glob::new(name) {
            Ok(glob) => {
                let glob = glob.compile_matcher();
                self.0.iter().any(|tool| glob.is_match(tool.as_str()))
            }
            Err(_) => self.0.iter().any(|tool| tool.as_str() == name),
        };
        (!is_known).then(|| UnknownTool {
            place: place.to_owned(),
            name: name.to_owned(),
            nearest: self.nearest(name),
            is_protection,
        })
    }

    /// Returns the names in the options of layers that no tool has.
    ///
    /// # Errors
    ///
    /// Fails if the options of a layer cannot be read.
    pub fn check_layers(&self, config: &Config) -> Result<Vec<UnknownTool>, ConfigError> {
        let mut unknown = self.check_rules(config)?;
        let mut check = |place: &str, names: &Option<Vec<String>>, is_protection| {
            let names = names.iter().flatten();
            unknown.extend(names.filter_map(|name| self.check(place, name, is_protection)));
        };
        let approval = config.layer_options::<Approval>()?;
        check("layers.approval.tools", &approval.tools, true);
        let rates = config.layer_options::<RateLimit>()?;
        check("layers.rate_limit.tools", &rates.tools, true);
        let scope = config.layer_options::<Scope>()?;
        check("layers.scope.allowed_tools", &scope.allowed_tools, false);
        let limited: Vec<String> = scope.arguments.into_keys().collect();
        check("layers.scope.arguments", &Some(limited), true);
        let dry = config.layer_options::<DryRun>()?;
        check("layers.dry_run.only", &dry.only, true);
        check("layers.dry_run.except", &dry.except, false);
        let once = config.layer_options::<Idempotency>()?;
        check("layers.idempotency.only", &once.only, false);
        check("layers.idempotency.except", &once.except, true);
        Ok(unknown)
    }

    fn check_rules(&self, config: &Config) -> Result<Vec<UnknownTool>, ConfigError> {
        let policy = config.layer_options::<Policy>()?;
        let mut unknown = Vec::new();
        for (at, rule) in policy.rules.iter().enumerate() {
            let place = match &rule.name {
                Some(name) => format!("layers.policy, rule {name:?}"),
                None => format!("layers.policy, rule {}", at + 1),
            };
            let is_protection = rule.effect != PolicyEffect::Allow;
            let names = rule.tool.iter().flat_map(|names| names.iter());
            unknown.extend(names.filter_map(|name| self.check(&place, name, is_protection)));
        }
        Ok(unknown)
    }
}
