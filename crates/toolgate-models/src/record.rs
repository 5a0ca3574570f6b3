//! Writes down what a model says, so that it can be played back.

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
    cassette::{End, Exchange, KeptError, NotWritten, Piece, Tape},
    outline::{Outline, Outliner},
    scrub::Scrub,
};

/// A model that records what another one says.
///
/// Every exchange is appended to a cassette that [`Replay`](crate::Replay) plays back. Secrets are taken out first: the
/// exact values that were [given](Self::secret), and what the redactor finds. If that cannot be done, nothing is written
/// and the reply fails, even before the model is asked if it is the request. A reply that nobody waits for to the end
/// is not recorded. Of a request only digests and first words are written; replies are written whole.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use toolgate_core::Redactor;
/// use toolgate_models::{CassetteError, Record, Scripted};
/// fn recorded(secrets: Arc<dyn Redactor>) -> Result<Record<Scripted>, CassetteError> {
///     Record::new(Scripted::new(["Hello."]), "tests/hello.cassette", secrets)
/// }
/// ```
pub struct Record<M> {
    model: M,
    outliner: Outliner,
    tape: Mutex<Tape>,
}

impl<M: Model> Record<M> {
    /// Records to a file. One that exists is continued; a new one can be read by its owner only.
    pub fn new(
        model: M,
        path: impl AsRef<Path>,
        redactor: Arc<dyn Redactor>,
    ) -> Result<Self, CassetteError> {
        let tape = Mutex::new(Tape::open(path.as_ref(), model.name())?);
        Ok(Self {
            model,
            outliner: Outliner::new(Scrub::with(redactor)),
            tape,
        })
    }

    /// A value that must not be on the cassette, such as the key of the provider.
    pub fn secret(mut self, secret: &str) -> Self {
        self.outliner.scrub.secret(secret);
        self
    }

    fn write(&self, request: Outline, pieces: Vec<Delta>, end: End) -> Result<(), NotWritten> {
        let scrub = &self.outliner.scrub;
        let deltas = scrub
            .pieces(pieces)?
            .into_iter()
            .filter_map(Piece::of)
            .collect();
        let check = |line: &str| {
            if scrub.is_clean(line) {
                Ok(())
            } else {
                Err(NotWritten::Redaction)
            }
        };
        let mut tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        tape.write(
            Exchange {
                request,
                deltas,
                end,
            },
            check,
        )
    }

    fn write_reply(
        &self,
        request: Outline,
        pieces: Vec<Delta>,
        reply: &Reply,
    ) -> Result<(), NotWritten> {
        let scrub = &self.outliner.scrub;
        let message = serde_json::to_value(&reply.message).map_err(|_| NotWritten::Redaction)?;
        // A redactor that changes what makes a message a message has failed.
        let message: Message =
            serde_json::from_value(scrub.value(&message)?).map_err(|_| NotWritten::Redaction)?;
        let text = |text: &Option<String>| text.as_deref().map(|text| scrub.text(text)).transpose();
        let (model, id) = (text(&reply.model)?, text(&reply.id)?);
        let reply = Reply {
            message,
            usage: reply.usage,
            finish: reply.finish,
            model,
            id,
        };
        self.write(request, pieces, End::Reply(reply.into()))
    }

    fn write_error(
        &self,
        request: Outline,
        pieces: Vec<Delta>,
        error: &ModelError,
    ) -> Result<(), NotWritten> {
        let detail = self.outliner.scrub.text(&error.detail)?;
        self.write(request, pieces, End::Error(KeptError::of(error, detail)))
    }

    fn not_recorded(&self, problem: &NotWritten) -> ModelError {
        let detail = format!("the exchange was not recorded: {problem}");
        ModelError::new(ModelErrorKind::Setup, self.model.name().clone(), detail)
    }
}

impl<M: Model> Model for Record<M> {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let mut outline = match self.outliner.outline(request) {
            Ok(outline) => Some(outline),
            Err(failed) => return stream::iter([Err(self.not_recorded(&failed.into()))]).boxed(),
        };
        let mut pieces = Vec::new();
        let record = move |piece: Result<Delta, ModelError>| {
            // Nothing follows the end, so there is one outline for one end.
            if let Ok(Delta::Done(_)) | Err(_) = &piece
                && let Some(outline) = outline.take()
            {
                let pieces = std::mem::take(&mut pieces);
                return match piece {
                    Ok(Delta::Done(reply)) => match self.write_reply(outline, pieces, &reply) {
                        Ok(()) => Ok(Delta::Done(reply)),
                        Err(problem) => Err(self.not_recorded(&problem)),
                    },
                    Err(error) => Err(match self.write_error(outline, pieces, &error) {
                        Ok(()) => error,
                        Err(problem) => self.not_recorded(&problem),
                    }),
                    other => other,
                };
            }
            pieces.extend(piece.as_ref().ok().cloned());
            piece
        };
        self.model.reply(request).map(record).boxed()
    }
}

impl<M: Model> fmt::Debug for Record<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("model", self.model.name())
            .finish_non_exhaustive()
    }
}
