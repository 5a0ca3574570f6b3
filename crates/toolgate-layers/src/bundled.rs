//! The bundled layers in their default order, and why each stands where it does.

use toolgate_core::Band::{Bound, Shape};

use crate::{Catalog, CatalogEntry, Redact, Timeout};

impl Catalog {
    /// The bundled layers.
    pub fn bundled() -> Self {
        Self::of(vec![
            CatalogEntry::of::<Redact>(Shape)
                .by_default()
                .because("inside the output cap, so that only redacted text is spilled; outside everything that notes what a model wrote")
                .origin("with_redaction", "bundled detectors besides the user's redactor; a redactor that fails blocks"),
            CatalogEntry::of::<Timeout>(Bound)
                .by_default()
                .because("inside retry, so that every attempt has a fresh limit")
                .origin("with_timeout, Timeout", "really stops the work; `observe = true` only labels"),
        ])
    }
}
