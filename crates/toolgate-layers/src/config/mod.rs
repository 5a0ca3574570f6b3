//! The configuration file `toolgate.toml`: the layers of a stack, their order and their options.
//!
//! ```toml
//! [layers.timeout]
//! max = "30s"
//!
//! [layers.research]        # a layer under a custom name
//! use = "scope"
//! allowed_tools = ["read_file", "search_*"]
//! on = ["search_*"]        # only for these tools
//!
//! [[budget]]               # how much may be spent; accounted in the store
//! name = "daily"
//! scope = "user"
//! period = "day"
//! unit = "usd"
//! limit = 5.0
//! ```
//!
//! Without `[stack] order`, the layers are those of the default stack and the ones that have a
//! table. With it, they are exactly the ones it lists, the first outermost. A file with an unknown
//! key, layer or word does not load, and the error names the line and the nearest valid word.

pub(crate) mod budgets;
mod bundled;
mod bundled_resources;
pub(crate) mod catalog;
mod changes;
mod document;
mod env;
pub(crate) mod error;
pub(crate) mod lists;
pub(crate) mod resources;
mod schema;
pub(crate) mod section;
pub(crate) mod tool_globs;

use std::{ffi::OsString, path::Path, sync::Arc};

use serde::{Deserialize, de::IntoDeserializer};
use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{AnyLayer, Budgets, Executor, Stack};

use crate::{
    Budget, BuildError, Catalog, ConfigError, HumanDuration, ProgramSection, Redact, Resources,
    config::{
        changes::ConfigChanges,
        document::{ConfigDocument, LayerSection, MergedTable},
        env::{EnvOverride, is_toolgate_variable},
        error::ConfigOrigin,
    },
};

/// A configuration file, loaded and checked.
///
/// ```
/// use toolgate_layers::Config;
/// let config = Config::parse("[layers.timeout]\nmax = '30s'")?;
/// let wrong = Config::parse("[layers.timeout]\nmaxx = '30s'").unwrap_err();
/// assert_eq!(wrong.to_string(), "toolgate.toml:2:1: layers.timeout has no option `maxx`; the nearest is `max`");
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    catalog: Catalog,
    name: String,
    /// The directory of the file, if it is known.
    directory: Option<Arc<Path>>,
    text: Arc<str>,
    /// Overrides of the file; later ones override earlier ones.
    variables: Vec<EnvOverride>,
    /// Changes of the program; they override the variables.
    changes: ConfigChanges,
    stack: StackSection,
    budgets: Budgets,
}

/// The section `[stack]`, about the stack as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StackSection {
    /// The names of the layers, the first outermost. By default, the default order.
    pub order: Option<Vec<String>>,
    /// The names of layers that may be placed outside their band.
    pub allow_out_of_band: Vec<String>,
    /// The time that the calls of a turn may take together. Running calls are cancelled then, pending
    /// ones stay pending, and the run ends with `deadline`.
    pub turn_deadline: Option<HumanDuration>,
}
impl Config {
    /// Parses a configuration from text.
    ///
    /// # Errors
    ///
    /// Returns the first problem, with its line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_with_catalog("toolgate.toml", text, Catalog::bundled())
    }

    /// Loads a configuration file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read; otherwise returns the first problem in it, with its line.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::unreadable_file(&name, &error))?;
        Self::parse_with_catalog(&name, &text, Catalog::bundled())
    }

    /// Parses a configuration with a custom catalog. Errors call the file `name`.
    pub fn parse_with_catalog(
        name: &str,
        text: &str,
        catalog: Catalog,
    ) -> Result<Self, ConfigError> {
        let name = name.to_owned();
        let stack = StackSection::default();
        let budgets = Budgets::default();
        Self {
            catalog,
            name,
            directory: None,
            text: text.into(),
            variables: Vec::new(),
            changes: ConfigChanges::default(),
            stack,
            budgets,
        }
        .validate()
    }

    /// Sets the directory of the file, from which the names of files in it are resolved.
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Returns the directory of the file, if it is known.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Overrides the file with variables such as `TOOLGATE_LAYERS__TIMEOUT__MAX=5s`; they also
    /// override those of earlier calls.
    ///
    /// The value is parsed as TOML; if that fails, it is plain text. A variable that looks as if it
    /// were meant for the file (`TOOLGATE_LAYER…`, `TOOLGATE_STACK…`, or one with `__` after
    /// `TOOLGATE_`) and overrides nothing is rejected; others are ignored.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut ours = Vec::new();
        for (name, value) in variables {
            ours.extend(
                EnvOverride::parse(&name, value, &self.catalog)
                    .map_err(|problem| self.variable_error(&name, problem))?,
            );
        }
        // The shorter path first: a variable for a whole table must not erase one for a key inside
        // it.
        ours.sort_by(|a, b| a.path.cmp(&b.path));
        self.variables.extend(ours);
        self.validate()
    }

    /// Overrides the file with the environment of this process. A Toolgate variable that is not
    /// UTF-8 is rejected.
    pub fn with_process_environment(self) -> Result<Self, ConfigError> {
        self.with_raw_environment(std::env::vars_os())
    }

    fn with_raw_environment(
        self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut texts = Vec::new();
        for (name, value) in variables {
            let shown = name.to_string_lossy().into_owned();
            // Other variables may contain anything, even invalid UTF-8; only ours have to be
            // readable.
            if !is_toolgate_variable(&shown) {
                continue;
            }
            let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
                return Err(self.variable_error(&shown, "it is not UTF-8".to_owned()));
            };
            texts.push((name, value));
        }
        self.with_environment(texts)
    }

    /// Creates an error about an environment variable.
    fn variable_error(&self, variable: &str, problem: String) -> ConfigError {
        let mut origin = ConfigOrigin::for_file(&self.name, &self.text);
        let place = origin.add_variable(variable);
        origin.error_at(&place, problem, None)
    }

    /// Returns the section about the stack as a whole.
    pub fn stack(&self) -> &StackSection {
        &self.stack
    }

    /// Returns the budgets of the file.
    ///
    /// The layer `budget` enforces them for tool calls. The caller of the model enforces them for
    /// model requests.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Returns a section that the program has added to the catalog, or its default if the file does
    /// not have it.
    pub fn section<T: ProgramSection>(&self) -> Result<T, ConfigError> {
        let document = self.parse_document()?;
        match document.others.iter().find(|(name, _)| *name == T::NAME) {
            Some((name, value)) => section::deserialize_section(value.clone())
                .map_err(|error| document.origin.options_error(&error, name, value, &[])),
            None => Ok(T::default()),
        }
    }

    /// Returns the value at a path such as `["layers", "policy", "rules"]`, with environment
    /// overrides applied. What a program changes in the options of a layer is not part of it; see
    /// [`Config::layer_options`].
    pub fn value_at(&self, path: &[&str]) -> Result<Option<Value>, ConfigError> {
        let MergedTable {
            origin, mut table, ..
        } = self.merged_table()?;
        let Some((last, above)) = path.split_last() else {
            return Ok(None);
        };
        for key in above {
            table = match table.remove(*key).map(Spanned::into_inner) {
                Some(DeValue::Table(inner)) => inner,
                Some(_) | None => return Ok(None),
            };
        }
        let Some(value) = table.remove(*last) else {
            return Ok(None);
        };
        let read = Value::deserialize(value.clone().into_deserializer());
        read.map(Some)
            .map_err(|error| origin.options_error(&error, &path.join("."), &value, &[]))
    }

    /// Returns the catalog of layers that the file can name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn build_layers(&self, parts: &Resources) -> Result<Vec<AnyLayer>, ConfigError> {
        let document = self.parse_document()?;
        let plan = document.plan_layers()?;
        let replacement = |section: &LayerSection<'_>| self.changes.replacement_of(&section.name);
        let built = || plan.iter().filter(|section| replacement(section).is_none());
        if built().any(|section| section.kind.is_layer::<Budget>()) {
            document.budgets.open_accounts(&document.origin, parts)?;
        }
        // Before any layer: recorders further out use the rules of a layer further in.
        let redaction = built()
            .filter_map(|section| document.edited_options::<Redact>(section))
            .collect();
        Redact::share_redactor(redaction, parts);
        let mut layers = Vec::new();
        for section in plan.iter() {
            layers.push(match replacement(section) {
                Some(layer) => layer.clone(),
                None => document.build_layer(section.clone(), parts)?,
            });
        }
        // An order that the file gives is kept, and checked when the stack is built. Otherwise the
        // program's own kinds of layers take their place outside those that ask for approval.
        if document.stack.order.is_none() {
            layers.sort_by_key(AnyLayer::stack_rank);
        }
        self.changes.insert_added(&mut layers);
        document.check_resources(&plan, parts)?;
        Ok(layers)
    }

    /// Builds the whole stack over `executor`, and allows the layers in `stack.allow_out_of_band`
    /// outside their band.
    ///
    /// ```
    /// use toolgate_core::Registry;
    /// use toolgate_layers::{Config, Resources};
    /// let stack = Config::default().build(Registry::new(), &Resources::new())?;
    /// # Ok::<(), toolgate_layers::BuildError>(())
    /// ```
    pub fn build(&self, executor: impl Executor, parts: &Resources) -> Result<Stack, BuildError> {
        let builder = Stack::over(executor).any_layers(self.build_layers(parts)?);
        let allowed = self.stack.allow_out_of_band.iter();
        Ok(allowed
            .fold(builder, |builder, name| builder.allow_out_of_band(name))
            .build()?)
    }

    /// Returns the JSON Schema of the file, for editors.
    pub fn json_schema(catalog: &Catalog) -> Value {
        schema::file_schema(catalog)
    }

    /// Checks the whole file, so that a [`Config`] that exists is valid.
    fn validate(mut self) -> Result<Self, ConfigError> {
        let document = self.parse_document()?;
        document.plan_layers()?;
        let stack = document.stack;
        let budgets = document.budgets.budgets;
        self.stack = stack;
        self.budgets = budgets;
        Ok(self)
    }

    /// Parses the file and applies the overrides.
    ///
    /// Parsed again for each use: the document borrows the text, and `Config` owns it.
    fn parse_document(&self) -> Result<ConfigDocument<'_>, ConfigError> {
        ConfigDocument::from_table(&self.catalog, &self.changes, self.merged_table()?)
    }

    /// Returns the file's tables with the overrides applied, and the origin of each value.
    fn merged_table(&self) -> Result<MergedTable<'_>, ConfigError> {
        let mut origin = ConfigOrigin::for_file(&self.name, &self.text);
        let mut table = DeTable::parse(&self.text)
            .map_err(|error| origin.toml_error(&error, "the file"))?
            .into_inner();
        for variable in &self.variables {
            // Every override gets a position of its own, so that an error names the variable and
            // not a line of the file.
            let place = origin.add_variable(&variable.name);
            variable
                .apply_to(&mut table, &place)
                .map_err(|taken| origin.not_a_table(&place, &taken))?;
        }
        let program = origin.add_program();
        self.changes
            .apply_to(&mut table, &program)
            .map_err(|taken| origin.not_a_table(&program, &taken))?;
        Ok(MergedTable {
            origin,
            table,
            program,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::parse("").expect("an empty file is valid")
    }
}

/// Returns the layers of the default stack, as `config` adjusts them, outermost first.
///
/// `[stack] allow_out_of_band` is not part of the layers; [`Config::build`] builds the whole stack
/// and applies it.
///
/// # Errors
///
/// Returns the first option that makes no sense, or the first resource that is missing.
///
/// ```
/// use toolgate_core::{Registry, Stack};
/// use toolgate_layers::{Config, Resources, default_stack};
/// let parts = Resources::new();
/// let stack = Stack::over(Registry::new()).any_layers(default_stack(&Config::default(), &parts)?).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn default_stack(config: &Config, parts: &Resources) -> Result<Vec<AnyLayer>, ConfigError> {
    config.build_layers(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_toolgate_variable_that_is_not_utf_8_is_rejected_and_others_are_ignored() {
        use std::os::unix::ffi::OsStringExt;
        let broken = || OsString::from_vec(vec![b'5', 0xff]);
        let with = |name: &str| {
            Config::default()
                .with_raw_environment([(name.into(), broken())])
                .map(drop)
        };
        assert_eq!(with("HOME"), Ok(()));
        let error = with("TOOLGATE_LAYERS__TIMEOUT__MAX").expect_err("not UTF-8");
        assert_eq!(
            error.to_string(),
            "the variable TOOLGATE_LAYERS__TIMEOUT__MAX: it is not UTF-8"
        );
    }
}
