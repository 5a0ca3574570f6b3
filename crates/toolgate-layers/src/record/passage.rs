//! The passage of a call through a recording layer, for receipts and telemetry.

use toolgate_core::{Call, LayerNote, Next, Timestamp};

/// The passage of a call through a recording layer.
pub(crate) struct CallPassage<'a> {
    pub(crate) call: &'a Call,
    pub(crate) next: &'a Next,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
}

impl CallPassage<'_> {
    /// Returns the notes of the layers below. Those above, and the recording layer itself, have not
    /// finished yet.
    pub(crate) fn layers_below(&self) -> Vec<LayerNote> {
        let mut layers = self.next.trail().layer_notes();
        let own = self.next.layer_name();
        // From the end: a layer that the call entered twice has its current note last.
        if let Some(at) = layers.iter().rposition(|note| note.name == *own) {
            layers.drain(..=at);
        }
        layers
    }
}
