//! Stores, redactors and files for the tests.

use std::io::Cursor;

use toolgate_archive::{
    ExportFormat, ExportOptions, ExportRedaction, Exporter, ImportError, ImportResult, Importer,
};
use toolgate_core::{
    Json, MemoryStore, RedactionError, Redactor, SessionId, StoreHandle, Timestamp,
};

/// A redactor that knows one secret, and one field by its name.
pub(crate) struct HideSecret;

/// The secret.
pub(crate) const SECRET: &str = "sk-verysecret";

/// The field whose value is redacted whatever it is.
pub(crate) const PRIVATE_FIELD: &str = "birthday";

impl Redactor for HideSecret {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        let text = value.to_string().replace(SECRET, "[redacted]");
        let mut value: serde_json::Value =
            serde_json::from_str(&text).map_err(|_| RedactionError)?;
        hide_field(&mut value);
        Json::new(value).map_err(|_| RedactionError)
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.replace(SECRET, "[redacted]"))
    }
}

fn hide_field(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                if name == PRIVATE_FIELD {
                    *field = "[redacted]".into();
                } else {
                    hide_field(field);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(hide_field),
        _ => {}
    }
}

/// A redactor that finds nothing.
pub(crate) struct KeepAll;

impl Redactor for KeepAll {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        Ok(value.clone())
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.to_owned())
    }
}

/// Returns an empty store.
pub(crate) fn empty_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

/// Returns an importer with a redactor.
pub(crate) fn importer(store: &StoreHandle) -> Importer {
    let now = Timestamp::from_micros(1_767_225_700_000_000);
    Importer::new(store.clone(), now).redactor(std::sync::Arc::new(HideSecret))
}

/// Returns an exporter with a redactor.
pub(crate) fn exporter(store: &StoreHandle) -> Exporter {
    Exporter::new(store.clone()).redactor(std::sync::Arc::new(HideSecret))
}

/// Imports an archive.
pub(crate) async fn import(
    store: &StoreHandle,
    file: &[u8],
) -> Result<Vec<ImportResult>, ImportError> {
    importer(store).import_archive(Cursor::new(file)).await
}

/// Exports sessions in a format.
pub(crate) async fn export(
    store: &StoreHandle,
    sessions: &[SessionId],
    format: ExportFormat,
    redaction: ExportRedaction,
) -> String {
    let options = ExportOptions {
        format,
        redaction,
        include_metadata: true,
        ..ExportOptions::default()
    };
    let mut file = Vec::new();
    let done = exporter(store).export(sessions, &options, &mut file).await;
    done.expect("exports");
    String::from_utf8(file).expect("text")
}
