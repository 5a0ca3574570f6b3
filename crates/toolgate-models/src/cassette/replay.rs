//! Replays recorded exchanges.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate_core::{
    Delta, Digest, Model, ModelError, ModelErrorKind, ModelName, ModelRequest, Redactor,
};

use crate::{
    CassetteError,
    cassette::{
        Cassette, RecordedEnd, RecordedExchange,
        outline::{Outliner, RequestOutline},
        redact::CassetteRedactor,
    },
};

/// A model that replays recorded replies.
///
/// The reply is the one that was recorded for the same request: same instructions, messages, tools
/// and settings. Ids of calls may differ. A request that was recorded several times gets its
/// replies in order, and the last of them from then on. One that was never recorded is an error
/// that names the first difference to the nearest recorded one.
///
/// If secrets were redacted in a recorded request, the same redactor and secrets have to be given
/// here, or the request will not be found.
pub struct ReplayModel {
    name: ModelName,
    exchanges: Vec<RecordedExchange>,
    by_digest: HashMap<Digest, Vec<usize>>,
    outliner: Outliner,
    in_order: bool,
    played: Mutex<ReplayProgress>,
}

/// The number of requests so far, in total and for each digest.
#[derive(Default)]
struct ReplayProgress {
    asked: HashMap<Digest, usize>,
    all: usize,
}

impl ReplayModel {
    /// Opens a cassette.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CassetteError> {
        let Cassette { model, exchanges } = Cassette::load(path.as_ref())?;
        let mut by_digest: HashMap<Digest, Vec<usize>> = HashMap::new();
        for (at, exchange) in exchanges.iter().enumerate() {
            by_digest
                .entry(exchange.request.digest)
                .or_default()
                .push(at);
        }
        let outliner = Outliner::default();
        let played = Mutex::default();
        Ok(Self {
            name: model,
            exchanges,
            by_digest,
            outliner,
            in_order: false,
            played,
        })
    }

    /// Plays one exchange after the other, whatever is requested.
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Redacts requests as they were redacted when they were recorded.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        let mut scrub = CassetteRedactor::with_redactor(redactor);
        // Secrets may have been given before the redactor.
        scrub.copy_secrets(&self.outliner.scrub);
        self.outliner = Outliner::new(scrub);
        self
    }

    /// Adds a value that was redacted when the cassette was recorded.
    pub fn secret(mut self, secret: &str) -> Self {
        self.outliner.scrub.add_secret(secret);
        self
    }

    fn find_exchange(&self, request: &ModelRequest) -> Result<&RecordedExchange, ModelError> {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        if self.in_order {
            let all = self.exchanges.len();
            let over = || {
                self.setup_error(format!(
                    "the cassette has {all} exchanges, but one more was requested"
                ))
            };
            let next = self.exchanges.get(played.all).ok_or_else(over)?;
            played.all += 1;
            return Ok(next);
        }
        let failed = |_| self.setup_error("the request could not be redacted".to_owned());
        let asked = self.outliner.outline_request(request).map_err(failed)?;
        let found = self
            .by_digest
            .get(&asked.digest)
            .ok_or_else(|| self.unknown_request_error(&asked))?;
        let times = played.asked.entry(asked.digest).or_default();
        // A request that comes more often than it was recorded gets the last reply again.
        let at = found[(*times).min(found.len() - 1)];
        *times += 1;
        Ok(&self.exchanges[at])
    }

    /// Builds the error for a request that was not recorded: how it differs from the most similar
    /// one.
    fn unknown_request_error(&self, asked: &RequestOutline) -> ModelError {
        let closeness = |exchange: &RecordedExchange| {
            let then = exchange.request.messages.len();
            let common = exchange.request.common_messages(asked);
            (
                common,
                std::cmp::Reverse(then.abs_diff(asked.messages.len())),
            )
        };
        // The earliest of the nearest: reversed, because `max_by_key` returns the last of several.
        let nearest = self
            .exchanges
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|(_, exchange)| closeness(exchange));
        let Some((at, exchange)) = nearest else {
            return self.setup_error("the cassette is empty".to_owned());
        };
        // Without a redactor the request may hold secrets, and an error must not repeat them.
        let difference = exchange
            .request
            .describe_difference(asked, self.outliner.scrub.has_redactor());
        // Line 1 is the header.
        let line = at + 2;
        self.setup_error(format!("this request is not on the cassette; in the nearest, on line {line}, {difference}; record it again if the change is intended"))
    }

    fn setup_error(&self, detail: String) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, self.name.clone(), detail)
    }
}

impl Model for ReplayModel {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let RecordedExchange { deltas, end, .. } = match self.find_exchange(request) {
            Ok(exchange) => exchange,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let last = match end {
            RecordedEnd::Reply(reply) => Ok(Delta::Done(Box::new(reply.clone().into()))),
            RecordedEnd::Error(error) => Err(error.clone().into_error(&self.name)),
        };
        let pieces = deltas.iter().map(|piece| Ok(piece.clone().into_delta()));
        stream::iter(pieces.chain([last]).collect::<Vec<_>>()).boxed()
    }
}

impl fmt::Debug for ReplayModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exchanges = self.exchanges.len();
        f.debug_struct("ReplayModel")
            .field("name", &self.name)
            .field("exchanges", &exchanges)
            .finish_non_exhaustive()
    }
}
