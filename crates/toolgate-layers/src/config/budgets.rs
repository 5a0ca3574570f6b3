//! The budgets of a configuration file: `[[budget]]`.

use std::ops::Range;

use serde::{Deserialize, de::IntoDeserializer};
use toml::{Spanned, de::DeValue};
use toolgate_core::{
    BillingService, BudgetRule, BudgetScope, BudgetUnit, Budgets, Payer, StoreHandle,
};

use crate::{ConfigError, Resources, Toast, ToastManager, config::error::ConfigOrigin};

/// The budgets of a file, with the position of each entry.
#[derive(Debug, Default)]
pub(crate) struct BudgetSection {
    pub(crate) budgets: Budgets,
    places: Vec<Range<usize>>,
}

impl BudgetSection {
    /// Reads the list of budgets and rejects two of the same name.
    pub(crate) fn from_value(
        origin: &ConfigOrigin,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Self, ConfigError> {
        let DeValue::Array(entries) = value.get_ref() else {
            let hint = Some("write [[budget]] above each of them".to_owned());
            return Err(origin.error_at(&value.span(), "`budget` is a list of budgets", hint));
        };
        let mut section = Self::default();
        for entry in entries {
            let rule = BudgetRule::deserialize(entry.clone().into_deserializer())
                .map_err(|error| origin.options_error(&error, "budget", entry, &[]))?;
            section.add_rules(origin, &entry.span(), [rule])?;
        }
        Ok(section)
    }

    /// Adds budgets that stand at `place`, and rejects two of the same name.
    pub(crate) fn add_rules(
        &mut self,
        origin: &ConfigOrigin,
        place: &Range<usize>,
        more: impl IntoIterator<Item = BudgetRule>,
    ) -> Result<(), ConfigError> {
        let mut rules = self.budgets.rules().to_vec();
        for rule in more {
            if rules.iter().any(|known| known.name == rule.name) {
                let problem = format!("there are two budgets `{}`", rule.name);
                return Err(origin.error_at(place, problem, None));
            }
            rules.push(rule);
            self.places.push(place.clone());
        }
        self.budgets = Budgets::new(rules);
        Ok(())
    }

    /// Rejects budgets that only the layer `budget` can enforce if the stack has no such layer.
    pub(crate) fn check_enforceable(&self, origin: &ConfigOrigin) -> Result<(), ConfigError> {
        // Silently accepted, such a budget would look like a limit and limit nothing.
        let of_tools =
            |rule: &BudgetRule| rule.unit == BudgetUnit::Calls || rule.scope == BudgetScope::Tool;
        match self
            .budgets
            .rules()
            .iter()
            .zip(&self.places)
            .find(|(rule, _)| of_tools(rule))
        {
            Some((rule, place)) => {
                let problem = format!(
                    "the budget `{}` is about calls, but the stack has no layer `budget`",
                    rule.name
                );
                Err(origin.error_at(place, problem, Some("add a table [layers.budget]".into())))
            }
            None => Ok(()),
        }
    }

    /// Opens the accounts for the layer, unless the program has provided its own.
    pub(crate) fn open_accounts(
        &self,
        origin: &ConfigOrigin,
        parts: &Resources,
    ) -> Result<(), ConfigError> {
        // A reload must not keep the limits of an earlier file.
        parts.remove::<FileBilling>();
        if self.budgets.is_empty() || parts.get::<BillingService>().is_some() {
            return Ok(());
        }
        let Some(store) = parts.get::<StoreHandle>() else {
            let place = self.places.first().cloned().unwrap_or(0..0);
            let hint = Some("add a StoreHandle to the resources".to_owned());
            return Err(origin.error_at(
                &place,
                "budgets need a store, and the program has provided none",
                hint,
            ));
        };
        let toasts = parts.get_or_default::<ToastManager>();
        let billing = BillingService::new(store, self.budgets.clone())
            .paid_by(parts.get::<Payer>().unwrap_or_default())
            .on_alert(move |alert, at| {
                toasts.show(Toast::for_budget(alert, at));
            });
        parts.insert(FileBilling(billing));
        Ok(())
    }
}

/// The billing service for the budgets of a file, as opposed to one of the program.
#[derive(Clone)]
pub(crate) struct FileBilling(pub(crate) BillingService);
