//! Lists the layers of a stack with what each does and why it stands where it does.

use std::fmt;

use serde::Serialize;
use toolgate_core::{AnyLayer, Band, LayerName};

use crate::Catalog;

/// One layer in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StackLine {
    /// What it is called.
    pub name: LayerName,
    /// Its band.
    pub band: Band,
    /// What it does.
    pub summary: String,
    /// Why it stands there.
    pub why: String,
}

/// Lists `layers`, outermost first.
///
/// ```
/// use toolgate_layers::{Catalog, Config, Parts, default_stack, describe};
/// let layers = default_stack(&Config::default(), &Parts::new())?;
/// for line in describe(&layers, &Catalog::bundled()) {
///     println!("{line}");
/// }
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
pub fn describe(layers: &[AnyLayer], catalog: &Catalog) -> Vec<StackLine> {
    let line = |layer: &AnyLayer| {
        let entry = layer.traits().kind.and_then(|kind| catalog.get(kind));
        let (summary, why) = entry.map_or(
            ("A layer of the program's own.", usual(layer.band())),
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

/// Why layers of a band stand where the band does.
const fn usual(band: Band) -> &'static str {
    match band {
        Band::Record => "outside everything, so that it sees refusals too",
        Band::Shape => "before anybody decides, so that what is decided on is what runs",
        Band::Decide => "outside what repeats, so that a call is decided on once",
        Band::Repeat => "outside what bounds an attempt, so that each attempt has its own bounds",
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
    use crate::{Config, Parts, Timeout};
    use std::time::Duration;
    use toolgate_core::{LayerExt, from_fn};

    #[test]
    fn every_layer_of_the_default_stack_has_its_own_reason() {
        let catalog = Catalog::bundled();
        let layers = Config::default().layers(&Parts::new()).expect("valid");
        let lines = describe(&layers, &catalog);
        assert_eq!(lines.len(), layers.len());
        for line in &lines {
            let entry = catalog.get(line.name.as_str()).expect("bundled");
            assert_eq!((line.why.as_str(), line.band), (entry.why, entry.band));
        }
    }

    #[test]
    fn a_renamed_layer_is_still_known_and_one_of_ones_own_gets_the_reason_of_its_band() {
        let renamed = AnyLayer::new(Timeout::after(Duration::from_secs(1)).named("short"));
        let own = AnyLayer::new(from_fn(async |call, next: toolgate_core::Next| {
            next.run(call).await
        }));
        let lines = describe(&[own, renamed], &Catalog::bundled());
        assert!(lines[0].summary.contains("own") && lines[0].why.contains("decided on"));
        assert!(lines[1].name == "short".into() && lines[1].why.contains("fresh limit"));
    }
}
