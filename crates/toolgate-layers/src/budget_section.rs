//! The budgets of a configuration file: `[[budget]]`.

use std::{ops::Range, sync::Arc};

use serde::{Deserialize, de::IntoDeserializer};
use toml::{Spanned, de::DeValue};
use toolgate_core::{BudgetRule, BudgetScope, BudgetUnit, Budgets, Payer, StoreHandle};

use crate::{
    ConfigError, Parts, SharedAccounts, StoreAccounts, ToastManager, config_error::Origin,
};

/// The budgets, and where each of them stands.
#[derive(Debug, Default)]
pub(crate) struct BudgetSection {
    pub(crate) budgets: Budgets,
    places: Vec<Range<usize>>,
}

impl BudgetSection {
    pub(crate) fn read(origin: &Origin, value: &Spanned<DeValue<'_>>) -> Result<Self, ConfigError> {
        let DeValue::Array(entries) = value.get_ref() else {
            let hint = Some("write [[budget]] above each of them".to_owned());
            return Err(origin.error(&value.span(), "`budget` is a list of budgets", hint));
        };
        let mut rules: Vec<BudgetRule> = Vec::new();
        for entry in entries {
            let rule = BudgetRule::deserialize(entry.clone().into_deserializer())
                .map_err(|error| origin.options(&error, "budget", entry, &[]))?;
            if rules.iter().any(|known| known.name == rule.name) {
                return Err(origin.error(
                    &entry.span(),
                    format!("there are two budgets `{}`", rule.name),
                    None,
                ));
            }
            rules.push(rule);
        }
        let places = entries.iter().map(Spanned::span).collect();
        Ok(Self {
            budgets: Budgets::new(rules),
            places,
        })
    }

    /// Refuses budgets that only the layer can keep, where there is none: they would bound nothing.
    pub(crate) fn check_unheeded(&self, origin: &Origin) -> Result<(), ConfigError> {
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
                Err(origin.error(place, problem, Some("add a table [layers.budget]".into())))
            }
            None => Ok(()),
        }
    }

    /// Opens the accounts for the layer, unless the program has brought its own.
    pub(crate) fn open(&self, origin: &Origin, parts: &Parts) -> Result<(), ConfigError> {
        // Those of a file that was read before are not the program's.
        if let Some(Opened(old)) = parts.take::<Opened>()
            && parts
                .get::<SharedAccounts>()
                .is_some_and(|accounts| Arc::ptr_eq(&accounts.0, &old.0))
        {
            parts.take::<SharedAccounts>();
        }
        if self.budgets.is_empty() || parts.get::<SharedAccounts>().is_some() {
            return Ok(());
        }
        let Some(store) = parts.get::<StoreHandle>() else {
            let place = self.places.first().cloned().unwrap_or(0..0);
            let hint = Some("put a StoreHandle into the parts".to_owned());
            return Err(origin.error(
                &place,
                "budgets are kept in a store, and the program has given none",
                hint,
            ));
        };
        let accounts = StoreAccounts::new(store, self.budgets.clone());
        let accounts = accounts.paid_by(parts.get::<Payer>().unwrap_or_default());
        let accounts =
            SharedAccounts::new(accounts.with_toasts(parts.get_or_default::<ToastManager>()));
        parts.put(Opened(accounts.clone()));
        parts.put(accounts);
        Ok(())
    }
}

/// The accounts that were opened for a file.
#[derive(Clone)]
struct Opened(SharedAccounts);
