//! Lists the layers of a stack with a summary and the reason for each position.

use std::fmt;

use serde::Serialize;
use toolgate_core::{AnyLayer, Band, LayerName};

use crate::Catalog;

/// One layer of a described stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StackLine {
    /// The layer's name.
    pub name: LayerName,
    /// The layer's band.
    pub band: Band,
    /// A one-line summary of the layer.
    pub summary: String,
    /// The reason for its position.
    pub why: String,
}

/// Describes `layers`, outermost first.
///
/// ```
/// use toolgate_layers::{Catalog, Config, Resources, default_stack, describe};
/// let layers = default_stack(&Config::default(), &Resources::new())?;
/// for line in describe(&layers, &Catalog::bundled()) {
///     println!("{line}");
/// }
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
pub fn describe(layers: &[AnyLayer], catalog: &Catalog) -> Vec<StackLine> {
    let line = |layer: &AnyLayer| {
        let entry = layer.capabilities().kind.and_then(|kind| catalog.get(kind));
        let (summary, why) = entry.map_or(
            ("A custom layer of the program.", band_reason(layer.band())),
            |entry| (entry.summary, entry.why),
        );
        StackLine {
            name: layer.name(),
            band: layer.band(),
            summary: summary.to_owned(),
            why: why.to_owned(),
        }
    };
    layers.iter().map(line).collect()
}

/// Returns the reason for the position of a band, for layers that the catalog does not know.
const fn band_reason(band: Band) -> &'static str {
    match band {
        Band::Record => "outside everything, so that it sees blocked and denied calls too",
        Band::Shape => {
            "outside the deciding layers, so that the call they decide on is the call that runs"
        }
        Band::Decide => "outside the repeating layers, so that a call is decided on once",
        Band::Repeat => "outside the bounding layers, so that each attempt has its own limits",
        Band::Bound => "innermost, around a single attempt",
    }
}

impl fmt::Display for StackLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<7} {:<16} {} Here: {}.",
            self.band, self.name, self.summary, self.why
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Resources, Timeout, default_stack};
    use std::time::Duration;
    use toolgate_core::{LayerExt, from_fn};

    #[test]
    fn every_layer_of_the_default_stack_has_its_own_reason() {
        let catalog = Catalog::bundled();
        let layers = default_stack(&Config::default(), &Resources::new()).expect("valid");
        let lines = describe(&layers, &catalog);
        assert_eq!(lines.len(), layers.len());
        for line in &lines {
            let entry = catalog.get(line.name.as_str()).expect("bundled");
            assert_eq!((line.why.as_str(), line.band), (entry.why, entry.band));
        }
    }

    #[test]
    fn a_renamed_layer_is_still_known_and_a_custom_layer_gets_the_reason_of_its_band() {
        let renamed = AnyLayer::new(Timeout::after(Duration::from_secs(1)).named("short"));
        let own = AnyLayer::new(from_fn(async |call, next: toolgate_core::Next| {
            next.run(call).await
        }));
        let lines = describe(&[own, renamed], &Catalog::bundled());
        assert!(lines[0].summary.contains("custom") && lines[0].why.contains("decide on"));
        assert!(lines[1].name == "short".into() && lines[1].why.contains("fresh limit"));
    }
}
