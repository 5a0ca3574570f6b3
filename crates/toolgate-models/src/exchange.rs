//! One request and its reply: sends, reads events as they come, and lets only a whole reply pass for one.

use std::{collections::VecDeque, mem, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use reqwest::Response;
use tokio::time::timeout;
use toolgate_core::{Delta, ModelError, ModelErrorKind, Reply};

use crate::{
    body::Chunks,
    errors::Failure,
    http::Endpoint,
    sse::{Event, Parser},
};

/// Makes deltas and at last a reply out of the events of one wire format.
pub(crate) trait Decoder: Send {
    /// Takes the next event and appends what it brings.
    fn event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<Progress, Failure>;

    /// Whether the reply is whole although the stream ended without saying so.
    fn is_whole(&self) -> bool {
        false
    }

    /// The whole reply.
    fn reply(&mut self) -> Result<Reply, Failure>;
}

/// Whether there is more to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is.
    More,
    /// That was the end: the reply is whole.
    Whole,
}

/// Sends `body` and streams what the decoder makes of the answer.
///
/// A connection that breaks, a stream that ends early or goes silent, and a reply beyond the limits are errors.
pub(crate) fn exchange<'a>(
    endpoint: &'a Endpoint,
    body: Chunks,
    decoder: impl Decoder + 'a,
) -> BoxStream<'a, Result<Delta, ModelError>> {
    let exchange = Exchange {
        endpoint,
        decoder,
        parser: Parser::new(Parser::LIMIT),
        stage: Stage::Ask(body),
        ready: VecDeque::new(),
        received: 0,
    };
    stream::unfold(exchange, async |mut exchange| {
        exchange.next().await.map(|item| (item, exchange))
    })
    .boxed()
}

struct Exchange<'a, D> {
    endpoint: &'a Endpoint,
    decoder: D,
    parser: Parser,
    stage: Stage,
    ready: VecDeque<Result<Delta, ModelError>>,
    received: usize,
}

enum Stage {
    Ask(Chunks),
    Read(Response),
    Ended,
}

impl<D: Decoder> Exchange<'_, D> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            let stepped = match mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ask(body) => self.endpoint.send(body).await.map(Stage::Read),
                Stage::Read(response) => self.read(response).await,
                Stage::Ended => return None,
            };
            match stepped {
                Ok(stage) => self.stage = stage,
                Err(failure) => self.ready.push_back(Err(self.endpoint.error(failure))),
            }
        }
    }

    async fn read(&mut self, mut response: Response) -> Result<Stage, Failure> {
        let silent = |_| Failure::new(ModelErrorKind::Timeout, "nothing more came of the reply");
        let chunk = timeout(self.endpoint.limits().idle, response.chunk())
            .await
            .map_err(silent)?;
        let progress = match chunk.map_err(Failure::from_transport)? {
            Some(bytes) => self.take(bytes)?,
            None if self.decoder.is_whole() => Progress::Whole,
            None => {
                return Err(Failure::new(
                    ModelErrorKind::Connection,
                    "the stream ended before the reply was whole",
                ));
            }
        };
        if progress == Progress::More {
            return Ok(Stage::Read(response));
        }
        let reply = self.decoder.reply()?;
        self.ready.push_back(Ok(Delta::Done(Box::new(reply))));
        tokio::spawn(drain(response));
        Ok(Stage::Ended)
    }

    fn take(&mut self, bytes: Bytes) -> Result<Progress, Failure> {
        self.received = self.received.saturating_add(bytes.len());
        let limit = self.endpoint.limits().reply_bytes;
        if self.received > limit {
            return Err(Failure::malformed(format!(
                "the reply is larger than {limit} bytes"
            )));
        }
        let mut events = Vec::new();
        let parsed = self.parser.feed(&bytes, &mut events);
        for event in events {
            let mut deltas = Vec::new();
            let progress = self.decoder.event(event, &mut deltas);
            self.ready.extend(deltas.into_iter().map(Ok));
            if progress? == Progress::Whole {
                return Ok(Progress::Whole);
            }
        }
        parsed.map_err(|error| Failure::malformed(error.to_string()))?;
        Ok(Progress::More)
    }
}

/// Reads what little follows the end of a reply, so that the connection can be used again.
async fn drain(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    // A server that goes on sending loses its connection.
    let _ = timeout(Duration::from_secs(5), rest).await;
}
