//! One request and its reply: sends the request, decodes events as they arrive, and yields a reply
//! only if it is complete.

use std::{collections::VecDeque, mem, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use reqwest::Response;
use tokio::time::timeout;
use toolgate_core::{Delta, ModelError, ModelErrorKind, Reply};

use crate::wire::{
    body::BodyChunks,
    errors::WireFailure,
    http::ModelEndpoint,
    sse::{SseEvent, SseParser},
};

/// Decodes the events of one wire format into deltas and at last a reply.
pub(crate) trait ReplyDecoder: Send {
    /// Decodes the next event and appends its deltas.
    fn decode_event(
        &mut self,
        event: SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<DecodeProgress, WireFailure>;

    /// Checks whether the reply is complete although the stream ended without an end marker.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns the whole reply.
    fn take_reply(&mut self) -> Result<Reply, WireFailure>;
}

/// The state of a reply after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeProgress {
    /// More events follow.
    More,
    /// The reply is complete.
    Complete,
}

/// Sends `body` and streams the deltas that the decoder produces from the response.
///
/// A connection that breaks, a stream that ends early or falls silent, and a reply beyond the
/// limits are errors.
pub(crate) fn stream_reply<'a>(
    endpoint: &'a ModelEndpoint,
    body: BodyChunks,
    decoder: impl ReplyDecoder + 'a,
) -> BoxStream<'a, Result<Delta, ModelError>> {
    let exchange = WireExchange {
        endpoint,
        decoder,
        parser: SseParser::new(SseParser::LIMIT),
        stage: ExchangeStage::Unsent(body),
        ready: VecDeque::new(),
        received: 0,
        content: 0,
    };
    stream::unfold(exchange, async |mut exchange| {
        exchange.next_delta().await.map(|item| (item, exchange))
    })
    .boxed()
}

struct WireExchange<'a, D> {
    endpoint: &'a ModelEndpoint,
    decoder: D,
    parser: SseParser,
    stage: ExchangeStage,
    ready: VecDeque<Result<Delta, ModelError>>,
    received: usize,
    /// The bytes of text, reasoning and arguments so far.
    content: usize,
}

enum ExchangeStage {
    Unsent(BodyChunks),
    Streaming(Response),
    Ended,
}

impl<D: ReplyDecoder> WireExchange<'_, D> {
    async fn next_delta(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            // `Ended` stands in while the step runs, so a failed step leaves the stream ended: the
            // error is the last item, and a broken connection is never read again.
            let stepped = match mem::replace(&mut self.stage, ExchangeStage::Ended) {
                ExchangeStage::Unsent(body) => self
                    .endpoint
                    .send_request(body)
                    .await
                    .map(ExchangeStage::Streaming),
                ExchangeStage::Streaming(response) => self.read_chunk(response).await,
                ExchangeStage::Ended => return None,
            };
            match stepped {
                Ok(stage) => self.stage = stage,
                Err(failure) => self
                    .ready
                    .push_back(Err(self.endpoint.to_model_error(failure))),
            }
        }
    }

    async fn read_chunk(&mut self, mut response: Response) -> Result<ExchangeStage, WireFailure> {
        let silent = |_| {
            WireFailure::new(
                ModelErrorKind::Timeout,
                "the server stopped sending before the reply was complete",
            )
        };
        let chunk = timeout(self.endpoint.limits().idle, response.chunk())
            .await
            .map_err(silent)?;
        let progress = match chunk.map_err(WireFailure::from_transport)? {
            Some(bytes) => self.decode_chunk(bytes)?,
            None if self.decoder.is_complete() => DecodeProgress::Complete,
            None => {
                return Err(WireFailure::new(
                    ModelErrorKind::Connection,
                    "the stream ended before the reply was complete",
                ));
            }
        };
        if progress == DecodeProgress::More {
            return Ok(ExchangeStage::Streaming(response));
        }
        let reply = self.decoder.take_reply()?;
        self.ready.push_back(Ok(Delta::Done(Box::new(reply))));
        // The reply is delivered at once; the rest of the response is read in the background.
        tokio::spawn(drain_response(response));
        Ok(ExchangeStage::Ended)
    }

    fn decode_chunk(&mut self, bytes: Bytes) -> Result<DecodeProgress, WireFailure> {
        // Counts raw bytes, so that comments and ignored events cannot bypass the limit.
        self.received = self.received.saturating_add(bytes.len());
        let limit = self.endpoint.limits().reply_bytes;
        if self.received > limit {
            return Err(WireFailure::malformed(format!(
                "the reply is larger than {limit} bytes"
            )));
        }
        let mut events = Vec::new();
        let parsed = self.parser.feed_bytes(&bytes, &mut events);
        // Events before an oversized or broken one are still decoded: their deltas are valid, and
        // only then does the error end the stream.
        for event in events {
            let mut deltas = Vec::new();
            let progress = self.decoder.decode_event(event, &mut deltas);
            self.count_content(&deltas)?;
            self.ready.extend(deltas.into_iter().map(Ok));
            if progress? == DecodeProgress::Complete {
                return Ok(DecodeProgress::Complete);
            }
        }
        parsed.map_err(|error| WireFailure::malformed(error.to_string()))?;
        Ok(DecodeProgress::More)
    }

    /// Counts what the reply consists of. It is kept in memory several times until it is stored.
    fn count_content(&mut self, deltas: &[Delta]) -> Result<(), WireFailure> {
        let bytes = |delta: &Delta| match delta {
            Delta::Text(text) | Delta::Reasoning(text) => text.len(),
            Delta::Arguments { text, .. } => text.len(),
            Delta::Routed(_) | Delta::Retry(_) | Delta::Call { .. } | Delta::Done(_) => 0,
        };
        self.content += deltas.iter().map(bytes).sum::<usize>();
        let limit = self.endpoint.limits().content_bytes;
        if self.content > limit {
            return Err(WireFailure::malformed(format!(
                "the text and arguments of the reply are larger than {limit} bytes"
            )));
        }
        Ok(())
    }
}

/// Reads the rest of the response after the end of a reply, so that the connection can be reused.
async fn drain_response(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    // A server that keeps sending loses its connection.
    let _ = timeout(Duration::from_secs(5), rest).await;
}
