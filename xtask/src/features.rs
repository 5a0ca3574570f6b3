//! Checks that every cargo feature builds alone, and every crate without any: users choose them one
//! by one, and the other stages only build all of them at once.

use std::process::Command;

use serde_json::Value;

/// One choice of features of one crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FeatureChoice {
    package: String,
    /// The only feature that is on; `None` if none is.
    feature: Option<String>,
}

impl FeatureChoice {
    /// Returns the arguments of cargo that check this choice.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["check", "--quiet", "--locked", "--no-default-features"];
        arguments.extend(["--package", &self.package]);
        if let Some(feature) = &self.feature {
            arguments.extend(["--features", feature]);
        }
        arguments
    }

    /// Returns the choice in words.
    pub(crate) fn describe(&self) -> String {
        match &self.feature {
            Some(feature) => format!("{} with only `{feature}`", self.package),
            None => format!("{} without features", self.package),
        }
    }
}

/// Returns every choice of at most one feature, for the crates of the workspace that have features.
pub(crate) fn list_choices(mut metadata: Command) -> Result<Vec<FeatureChoice>, String> {
    let output = metadata
        .output()
        .map_err(|error| format!("cargo metadata could not be started: {error}"))?;
    let workspace: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata printed no JSON: {error}"))?;
    Ok(choices_of(&workspace))
}

fn choices_of(workspace: &Value) -> Vec<FeatureChoice> {
    let mut choices = Vec::new();
    for package in workspace["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let features = package["features"].as_object().into_iter().flatten();
        // `default` only names others.
        let features: Vec<_> = features.filter(|(name, _)| *name != "default").collect();
        if features.is_empty() {
            continue;
        }
        let alone = features.iter().map(|(feature, _)| Some((*feature).clone()));
        choices.extend(
            std::iter::once(None)
                .chain(alone)
                .map(|feature| FeatureChoice {
                    package: name.to_owned(),
                    feature,
                }),
        );
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crate_with_features_is_checked_without_any_and_with_each_alone() {
        let workspace = json!({ "packages": [
            { "name": "plain", "features": {} },
            { "name": "store", "features": { "default": ["sqlite"], "postgres": [], "sqlite": [] } },
        ] });
        let described: Vec<_> = choices_of(&workspace)
            .iter()
            .map(FeatureChoice::describe)
            .collect();
        assert_eq!(
            described,
            [
                "store without features",
                "store with only `postgres`",
                "store with only `sqlite`"
            ]
        );
    }
}
