//! Changes that a program makes to a configuration in Rust, with the same checks as the file.

use std::{any::Any, fmt, ops::Range, sync::Arc};

use toml::{Spanned, de::DeTable, de::DeValue};
use toolgate_core::{AnyLayer, BudgetRule, Layer, LayerExt};

use crate::{
    Config, ConfigError, Configurable, Policy, PolicyFallback, PolicyRule,
    config::{env::insert_at_path, error::ConfigOrigin},
};

/// The changes of a program, on top of the file and the environment.
#[derive(Debug, Clone, Default)]
pub(super) struct ConfigChanges {
    edits: Vec<LayerEdit>,
    removed: Vec<String>,
    replaced: Vec<(String, AnyLayer)>,
    added: Vec<AnyLayer>,
    budgets: Vec<BudgetRule>,
}

/// A change of the options of one layer.
#[derive(Clone)]
pub(crate) struct LayerEdit {
    layer: &'static str,
    apply: Arc<EditOptions>,
}

// Not `FnOnce`: a configuration can be cloned and built more than once.
type EditOptions = dyn Fn(&mut dyn Any) + Send + Sync;

impl LayerEdit {
    fn new<L: Configurable>(edit: impl Fn(&mut L::Options) + Send + Sync + 'static) -> Self {
        let apply = move |options: &mut dyn Any| {
            let options = options.downcast_mut::<L::Options>();
            edit(options.expect("`edit_layer` checked that the catalog has this layer"));
        };
        Self {
            layer: L::NAME,
            apply: Arc::new(apply),
        }
    }

    /// Changes the options, which are of the type that the layer has.
    pub(crate) fn apply_to(&self, options: &mut dyn Any) {
        (self.apply)(options);
    }
}

impl fmt::Debug for LayerEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerEdit({})", self.layer)
    }
}

/// Changes in Rust, in place of text in the file. They apply after the file and the environment.
impl Config {
    /// Changes the options of a layer. A layer that the default stack does not have is added by it,
    /// as by a table in the file.
    ///
    /// The layer is the one under its own name, not one that a file configures with `use`.
    ///
    /// # Errors
    ///
    /// Fails if the catalog does not have this layer, or if the file disables it or leaves it out of
    /// its order: the change would have no effect.
    ///
    /// ```
    /// use toolgate_layers::{Config, Timeout};
    /// let config = Config::default().edit_layer::<Timeout>(|timeout| timeout.message = Some("too slow".into()))?;
    /// # Ok::<(), toolgate_layers::ConfigError>(())
    /// ```
    pub fn edit_layer<L: Configurable>(
        mut self,
        edit: impl Fn(&mut L::Options) + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let ours = |entry: &crate::CatalogEntry| entry.is_layer::<L>();
        if !self.catalog.get(L::NAME).is_some_and(ours) {
            let problem = format!("the layer `{}` of the catalog is of another type", L::NAME);
            return Err(self.change_error(problem));
        }
        self.changes.edits.push(LayerEdit::new::<L>(edit));
        self.validate()
    }

    /// Sets the effect of the policy on calls that no rule matches.
    ///
    /// # Errors
    ///
    /// Fails as [`Config::edit_layer`] does.
    pub fn policy_default(self, default: PolicyFallback) -> Result<Self, ConfigError> {
        self.edit_layer::<Policy>(move |policy| policy.default = default)
    }

    /// Adds rules to the policy. Those of the file stay, and deny still beats ask, which beats
    /// allow.
    ///
    /// # Errors
    ///
    /// Fails as [`Config::edit_layer`] does.
    ///
    /// ```
    /// use toolgate_layers::{Config, PolicyEffect, PolicyRule};
    /// let rule = PolicyRule { tool: Some(["refund"].into()), ..PolicyRule::new(PolicyEffect::Ask) };
    /// let config = Config::default().add_policy_rules([rule])?;
    /// # Ok::<(), toolgate_layers::ConfigError>(())
    /// ```
    pub fn add_policy_rules(
        self,
        rules: impl IntoIterator<Item = PolicyRule>,
    ) -> Result<Self, ConfigError> {
        let rules: Vec<PolicyRule> = rules.into_iter().collect();
        self.edit_layer::<Policy>(move |policy| policy.rules.extend(rules.iter().cloned()))
    }

    /// Adds budgets to those of the file. A budget in calls, or for a tool, also needs the layer
    /// `budget`.
    ///
    /// # Errors
    ///
    /// Fails if there are two budgets of a name, or if the stack cannot enforce one.
    pub fn add_budgets(
        mut self,
        rules: impl IntoIterator<Item = BudgetRule>,
    ) -> Result<Self, ConfigError> {
        self.changes.budgets.extend(rules);
        self.validate()
    }

    /// Removes a layer, as `enabled = false` in its table does.
    ///
    /// # Errors
    ///
    /// Fails if there is no layer of this name, or if the configuration needs it.
    pub fn without_layer(mut self, name: &str) -> Result<Self, ConfigError> {
        self.changes.removed.push(name.to_owned());
        self.validate()
    }

    /// Adds a layer at the inner end of its band.
    ///
    /// A second layer of a kind does not replace the first one: use [`Config::edit_layer`] or
    /// [`Config::replace_layer`] for that.
    pub fn with_layer(self, layer: impl Layer) -> Self {
        self.with_any_layer(AnyLayer::new(layer))
    }

    /// Adds a layer whose type is not known here; see [`Config::with_layer`].
    pub fn with_any_layer(mut self, layer: AnyLayer) -> Self {
        self.changes.added.push(layer);
        self
    }

    /// Puts a layer in the place of another one, under its name.
    ///
    /// # Errors
    ///
    /// Fails if the stack has no layer of this name.
    pub fn replace_layer(mut self, name: &str, layer: impl Layer) -> Result<Self, ConfigError> {
        let layer = AnyLayer::new(layer.named(name));
        // The last replacement of a layer is the one that counts.
        self.changes.replaced.retain(|(known, _)| known != name);
        self.changes.replaced.push((name.to_owned(), layer));
        self.validate()
    }

    /// Returns the options of a layer, with every change applied; the defaults if nothing sets any.
    ///
    /// # Errors
    ///
    /// Fails if the options cannot be read.
    pub fn layer_options<L: Configurable>(&self) -> Result<L::Options, ConfigError> {
        let document = self.parse_document()?;
        let section = document.section_or_default(L::NAME);
        let options = section.and_then(|section| document.edited_options::<L>(&section));
        Ok(options.unwrap_or_default())
    }

    /// Creates an error about a change of the program.
    fn change_error(&self, problem: String) -> ConfigError {
        let mut origin = ConfigOrigin::for_file(&self.name, &self.text);
        let place = origin.add_program();
        origin.error_at(&place, problem, None)
    }
}

impl ConfigChanges {
    /// Returns the changes of the options of the layer `name`.
    pub(super) fn edits_of(&self, name: &str) -> Vec<LayerEdit> {
        let ours = |edit: &&LayerEdit| edit.layer == name;
        self.edits.iter().filter(ours).cloned().collect()
    }

    /// Returns the budgets that the program adds.
    pub(super) fn budgets(&self) -> &[BudgetRule] {
        &self.budgets
    }

    /// Returns the names of the layers whose options the program changes, and of those it replaces:
    /// the stack has to have them.
    pub(super) fn required_layers(&self) -> impl Iterator<Item = &str> {
        let replaced = self.replaced.iter().map(|(name, _)| &**name);
        self.edits.iter().map(|edit| edit.layer).chain(replaced)
    }

    /// Returns the layer that stands in the place of `name`, if there is one.
    pub(super) fn replacement_of(&self, name: &str) -> Option<&AnyLayer> {
        let found = self.replaced.iter().find(|(known, _)| known == name);
        found.map(|(_, layer)| layer)
    }

    /// Inserts the added layers, each at its place: innermost in its band, but outside the layers
    /// that ask for approval.
    pub(super) fn insert_added(&self, layers: &mut Vec<AnyLayer>) {
        for added in &self.added {
            let inner = |layer: &AnyLayer| layer.stack_rank() > added.stack_rank();
            let at = layers.iter().position(inner).unwrap_or(layers.len());
            layers.insert(at, added.clone());
        }
    }

    /// Writes into the table what the file could say: a table for each changed layer, and
    /// `enabled = false` for each removed one. Fails with the key that is not a table.
    pub(super) fn apply_to(
        &self,
        table: &mut DeTable<'_>,
        place: &Range<usize>,
    ) -> Result<(), String> {
        for edit in &self.edits {
            let present = matches!(
                table.get("layers").map(Spanned::get_ref),
                Some(DeValue::Table(layers)) if layers.contains_key(edit.layer)
            );
            if !present {
                let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
                insert_at_path(table, &layer_path(&[edit.layer]), empty, place)?;
            }
        }
        for name in &self.removed {
            let disabled = Spanned::new(place.clone(), DeValue::Boolean(false));
            insert_at_path(table, &layer_path(&[name, "enabled"]), disabled, place)?;
        }
        Ok(())
    }
}

fn layer_path(keys: &[&str]) -> Vec<String> {
    std::iter::once("layers")
        .chain(keys.iter().copied())
        .map(str::to_owned)
        .collect()
}
