//! Plays back what was recorded.

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
    cassette::{Cassette, End, Exchange},
    outline::{Outline, Outliner},
    scrub::Scrub,
};

/// A model that says again what was recorded.
///
/// The reply is the one that was recorded for the same request: same instructions, messages, tools and settings.
/// Ids of calls may differ. A request that was asked several times gets its replies in order, and the last of them from
/// then on. One that was never asked is an error that names the first difference to the nearest one that was.
///
/// If secrets were taken out of a recorded request, the same redactor and secrets have to be given here, or the request
/// will not be found.
pub struct Replay {
    name: ModelName,
    exchanges: Vec<Exchange>,
    by_digest: HashMap<Digest, Vec<usize>>,
    outliner: Outliner,
    in_order: bool,
    played: Mutex<Played>,
}

/// How often each request was asked, and how many there were.
#[derive(Default)]
struct Played {
    asked: HashMap<Digest, usize>,
    all: usize,
}

impl Replay {
    /// Opens a cassette.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CassetteError> {
        let Cassette { model, exchanges } = Cassette::open(path.as_ref())?;
        let mut by_digest: HashMap<Digest, Vec<usize>> = HashMap::new();
        for (at, exchange) in exchanges.iter().enumerate() {
            by_digest
                .entry(exchange.request.digest)
                .or_default()
                .push(at);
        }
        let (outliner, played) = (Outliner::default(), Mutex::default());
        Ok(Self {
            name: model,
            exchanges,
            by_digest,
            outliner,
            in_order: false,
            played,
        })
    }

    /// Plays one exchange after the other, whatever is asked.
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Takes the same secrets out of requests as were taken out when they were recorded.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        let mut scrub = Scrub::with(redactor);
        scrub.known_from(&self.outliner.scrub);
        self.outliner = Outliner::new(scrub);
        self
    }

    /// A value that was kept from the cassette.
    pub fn secret(mut self, secret: &str) -> Self {
        self.outliner.scrub.secret(secret);
        self
    }

    fn find(&self, request: &ModelRequest) -> Result<&Exchange, ModelError> {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        if self.in_order {
            let all = self.exchanges.len();
            let over = || {
                self.setup(format!(
                    "the cassette has {all} exchanges and was asked for one more"
                ))
            };
            let next = self.exchanges.get(played.all).ok_or_else(over)?;
            played.all += 1;
            return Ok(next);
        }
        let failed = |_| self.setup("secrets could not be taken out of the request".to_owned());
        let asked = self.outliner.outline(request).map_err(failed)?;
        let found = self
            .by_digest
            .get(&asked.digest)
            .ok_or_else(|| self.unknown(&asked))?;
        let times = played.asked.entry(asked.digest).or_default();
        let at = found[(*times).min(found.len() - 1)];
        *times += 1;
        Ok(&self.exchanges[at])
    }

    /// Says how a request differs from the one that has most in common with it.
    fn unknown(&self, asked: &Outline) -> ModelError {
        let closeness = |exchange: &Exchange| {
            let (then, common) = (
                exchange.request.messages.len(),
                exchange.request.common(asked),
            );
            (
                common,
                std::cmp::Reverse(then.abs_diff(asked.messages.len())),
            )
        };
        // The earliest of the nearest: reversed, because the last of several is taken.
        let nearest = self
            .exchanges
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|(_, exchange)| closeness(exchange));
        let Some((at, exchange)) = nearest else {
            return self.setup("nothing is recorded on the cassette".to_owned());
        };
        let difference = exchange
            .request
            .difference(asked, self.outliner.scrub.is_thorough());
        // Line 1 is the header.
        let line = at + 2;
        self.setup(format!("this request is not on the cassette; in the nearest, on line {line}, {difference}; record it again if that is meant"))
    }

    fn setup(&self, detail: String) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, self.name.clone(), detail)
    }
}

impl Model for Replay {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let Exchange { deltas, end, .. } = match self.find(request) {
            Ok(exchange) => exchange,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let last = match end {
            End::Reply(reply) => Ok(Delta::Done(Box::new(reply.clone().into()))),
            End::Error(error) => Err(error.clone().error(&self.name)),
        };
        let pieces = deltas.iter().map(|piece| Ok(piece.clone().delta()));
        stream::iter(pieces.chain([last]).collect::<Vec<_>>()).boxed()
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exchanges = self.exchanges.len();
        f.debug_struct("Replay")
            .field("name", &self.name)
            .field("exchanges", &exchanges)
            .finish_non_exhaustive()
    }
}
