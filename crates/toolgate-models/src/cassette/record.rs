//! Records the replies of a model, so that they can be replayed.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate_core::{
    Delta, Message, Model, ModelError, ModelErrorKind, ModelName, ModelRequest, Redactor, Reply,
};

use crate::{
    CassetteError,
    cassette::{
        CassetteWriter, RecordError, RecordedDelta, RecordedEnd, RecordedError, RecordedExchange,
        outline::{Outliner, RequestOutline},
        redact::CassetteRedactor,
    },
};

/// A model that records the replies of another one.
///
/// Every exchange is appended to a cassette that [`ReplayModel`](crate::ReplayModel) plays back. Secrets are
/// redacted first: the exact values that were [given](Self::secret), and what the redactor finds.
/// If redaction fails, nothing is written and the reply fails; if it fails for the request, the
/// model is not even called. A reply that the caller does not read to the end is not recorded. Of a
/// request only digests and beginnings of texts are written; replies are written whole.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use toolgate_core::Redactor;
/// use toolgate_models::{CassetteError, RecordingModel, ScriptedModel};
/// fn recorded(secrets: Arc<dyn Redactor>) -> Result<RecordingModel<ScriptedModel>, CassetteError> {
///     RecordingModel::new(ScriptedModel::new(["Hello."]), "tests/hello.cassette", secrets)
/// }
/// ```
pub struct RecordingModel<M> {
    model: M,
    outliner: Outliner,
    tape: Mutex<CassetteWriter>,
}

impl<M: Model> RecordingModel<M> {
    /// Records to a file. An existing one is continued; a new one can be read by its owner only.
    pub fn new(
        model: M,
        path: impl AsRef<Path>,
        redactor: Arc<dyn Redactor>,
    ) -> Result<Self, CassetteError> {
        let tape = Mutex::new(CassetteWriter::open(path.as_ref(), model.name())?);
        Ok(Self {
            model,
            outliner: Outliner::new(CassetteRedactor::with_redactor(redactor)),
            tape,
        })
    }

    /// Adds a value that must not be on the cassette, such as the key of the provider.
    pub fn secret(mut self, secret: &str) -> Self {
        self.outliner.scrub.add_secret(secret);
        self
    }

    fn write_exchange(
        &self,
        request: RequestOutline,
        pieces: Vec<Delta>,
        end: RecordedEnd,
    ) -> Result<(), RecordError> {
        let scrub = &self.outliner.scrub;
        let deltas = scrub
            .redact_deltas(pieces)?
            .into_iter()
            .filter_map(RecordedDelta::from_delta)
            .collect();
        // The redactor is a plug-in. The final check on the very line that is written does not rely
        // on it.
        let check = |line: &str| {
            if scrub.is_clean(line) {
                Ok(())
            } else {
                Err(RecordError::Redaction)
            }
        };
        let mut tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        tape.write_exchange(
            RecordedExchange {
                request,
                deltas,
                end,
            },
            check,
        )
    }

    fn write_reply(
        &self,
        request: RequestOutline,
        pieces: Vec<Delta>,
        reply: &Reply,
    ) -> Result<(), RecordError> {
        let scrub = &self.outliner.scrub;
        let message = serde_json::to_value(&reply.message).map_err(|_| RecordError::Redaction)?;
        // A redactor that changes the structure of a message has failed.
        let message: Message = serde_json::from_value(scrub.redact_value(&message)?)
            .map_err(|_| RecordError::Redaction)?;
        let text = |text: &Option<String>| {
            text.as_deref()
                .map(|text| scrub.redact_text(text))
                .transpose()
        };
        let model = text(&reply.model)?;
        let id = text(&reply.id)?;
        let reply = Reply {
            message,
            usage: reply.usage,
            finish: reply.finish,
            model,
            id,
        };
        self.write_exchange(request, pieces, RecordedEnd::Reply(reply.into()))
    }

    fn write_error(
        &self,
        request: RequestOutline,
        pieces: Vec<Delta>,
        error: &ModelError,
    ) -> Result<(), RecordError> {
        let detail = self.outliner.scrub.redact_text(&error.detail)?;
        self.write_exchange(
            request,
            pieces,
            RecordedEnd::Error(RecordedError::from_error(error, detail)),
        )
    }

    fn not_recorded_error(&self, problem: &RecordError) -> ModelError {
        let detail = format!("the exchange was not recorded: {problem}");
        // Not transient: a retry may pay for another reply and fail in the same way.
        ModelError::new(ModelErrorKind::Setup, self.model.name().clone(), detail)
    }
}

impl<M: Model> Model for RecordingModel<M> {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let mut outline = match self.outliner.outline_request(request) {
            Ok(outline) => Some(outline),
            Err(failed) => {
                return stream::iter([Err(self.not_recorded_error(&failed.into()))]).boxed();
            }
        };
        let mut pieces = Vec::new();
        let record = move |piece: Result<Delta, ModelError>| {
            // Nothing follows the end of a reply, so the outline is used once.
            if let Ok(Delta::Done(_)) | Err(_) = &piece
                && let Some(outline) = outline.take()
            {
                let pieces = std::mem::take(&mut pieces);
                return match piece {
                    Ok(Delta::Done(reply)) => match self.write_reply(outline, pieces, &reply) {
                        Ok(()) => Ok(Delta::Done(reply)),
                        Err(problem) => Err(self.not_recorded_error(&problem)),
                    },
                    Err(error) => Err(match self.write_error(outline, pieces, &error) {
                        Ok(()) => error,
                        Err(problem) => self.not_recorded_error(&problem),
                    }),
                    other => other,
                };
            }
            if let Ok(Delta::Retry(_)) = &piece {
                // The cassette has the exchange that counts; what came before is void.
                pieces.clear();
                return piece;
            }
            pieces.extend(piece.as_ref().ok().cloned());
            piece
        };
        self.model.reply(request).map(record).boxed()
    }
}

impl<M: Model> fmt::Debug for RecordingModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingModel")
            .field("model", self.model.name())
            .finish_non_exhaustive()
    }
}
