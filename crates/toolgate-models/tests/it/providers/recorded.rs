//! Replies of providers, recorded and replayed: the same deltas, and no key.

use std::sync::Arc;

use toolgate_core::{Json, ModelRequest, RedactionError, Redactor};
use toolgate_models::{RecordingModel, ReplayModel};

use crate::providers::{
    peer::{CANARY, Peer, Wire, ask, assert_clean},
    requests::{answered, saying, tools},
};

/// A redactor that finds nothing, so that only the given secrets are redacted.
struct Nothing;

impl Redactor for Nothing {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        Ok(value.clone())
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.to_owned())
    }
}

#[tokio::test]
async fn a_recording_of_a_provider_is_replayed_and_holds_no_key() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for (number, wire) in Wire::ALL.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.cassette"));
        let mut request = ModelRequest {
            view: tools(),
            ..saying(&format!("my key is {CANARY}"))
        };
        let mut recorded = Vec::new();
        for scenario in ["error-401", "parallel", "late-error", "text"] {
            let model = RecordingModel::new(wire.at(&peer.at(scenario)), &path, Arc::new(Nothing))
                .expect("opens");
            let model = model.secret(CANARY);
            let said = ask(&model, &request).await;
            recorded.push((request.clone(), said.clone()));
            if let Ok(reply) = said.1 {
                request = answered(request, reply);
            }
        }
        assert_clean(&std::fs::read_to_string(&path).expect("a file"));
        let replay = ReplayModel::open(&path).expect("opens").secret(CANARY);
        for (request, said) in recorded {
            assert_eq!(ask(&replay, &request).await, said, "{wire:?}");
        }
    }
}
