//! Request bodies built from fragments that are cached from iteration to iteration.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use toolgate_core::View;

/// A JSON object under construction. Fragments that were encoded for an earlier request are shared,
/// neither copied nor encoded again.
///
/// Fields of `extra` win over fields of the same name.
#[derive(Debug)]
pub(crate) struct JsonBody<'a> {
    chunks: Vec<Bytes>,
    tail: Vec<u8>,
    extra: &'a Map<String, Value>,
}

/// The bytes of a finished body, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyChunks {
    left: VecDeque<Bytes>,
    length: u64,
}

impl<'a> JsonBody<'a> {
    /// The size in bytes from which a fragment is shared. Smaller ones are copied: a write for each
    /// of them would cost more.
    const SHARED: usize = 4096;

    /// Creates an object that ends with the fields of `extra`.
    pub(crate) fn new(extra: &'a Map<String, Value>) -> Self {
        Self {
            chunks: Vec::new(),
            tail: vec![b'{'],
            extra,
        }
    }

    /// Writes a field.
    pub(crate) fn write_field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        if self.begin_field(name) {
            self.write_value(value);
        }
    }

    /// Writes a field if it has a value.
    pub(crate) fn write_optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.write_field(name, &value);
        }
    }

    /// Writes a field whose value is already JSON.
    pub(crate) fn write_raw(&mut self, name: &str, json: Bytes) {
        if self.begin_field(name) {
            self.push_fragment(json);
        }
    }

    /// Writes a field that is a list. Each fragment is some items with commas between them, or
    /// empty.
    pub(crate) fn write_list(&mut self, name: &str, fragments: impl IntoIterator<Item = Bytes>) {
        if !self.begin_field(name) {
            return;
        }
        self.tail.push(b'[');
        let mut first = true;
        for fragment in fragments
            .into_iter()
            .filter(|fragment| !fragment.is_empty())
        {
            if !first {
                self.tail.push(b',');
            }
            first = false;
            self.push_fragment(fragment);
        }
        self.tail.push(b']');
    }

    /// Writes a field whose value is joined from pieces that are JSON only as a whole.
    pub(crate) fn write_spliced(&mut self, name: &str, pieces: impl IntoIterator<Item = Bytes>) {
        if self.begin_field(name) {
            pieces
                .into_iter()
                .for_each(|piece| self.push_fragment(piece));
        }
    }

    /// Returns the whole body.
    pub(crate) fn finish(mut self) -> BodyChunks {
        let extra = self.extra;
        // Fields of these names were skipped in `begin_field`, so every name occurs once.
        for (name, value) in extra {
            self.write_name(name);
            self.write_value(value);
        }
        self.tail.push(b'}');
        self.flush_tail();
        let length = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        BodyChunks {
            left: self.chunks.into(),
            length,
        }
    }

    /// Writes the name of a field, unless `extra` has a field of that name; returns whether it did.
    fn begin_field(&mut self, name: &str) -> bool {
        let own = !self.extra.contains_key(name);
        if own {
            self.write_name(name);
        }
        own
    }

    fn write_name(&mut self, name: &str) {
        // The first field needs no comma: only the opening brace has been written.
        if !(self.chunks.is_empty() && self.tail.len() == 1) {
            self.tail.push(b',');
        }
        self.write_value(name);
        self.tail.push(b':');
    }

    fn write_value(&mut self, value: &(impl Serialize + ?Sized)) {
        write_json(&mut self.tail, value);
    }

    fn push_fragment(&mut self, piece: Bytes) {
        if piece.len() < Self::SHARED {
            self.tail.extend_from_slice(&piece);
        } else {
            self.flush_tail();
            self.chunks.push(piece);
        }
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push(std::mem::take(&mut self.tail).into());
        }
    }
}

/// Appends a value as JSON.
pub(crate) fn write_json(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(bytes, value)
        .expect("writing to memory cannot fail, and all our map keys are strings");
}

/// Encodes the items of a list as JSON with commas between them, as [`JsonBody::write_list`] takes them.
pub(crate) fn encode_items<T: Serialize>(items: impl IntoIterator<Item = T>) -> Bytes {
    let mut bytes = Vec::new();
    for item in items {
        if !bytes.is_empty() {
            bytes.push(b',');
        }
        write_json(&mut bytes, &item);
    }
    bytes.into()
}

impl BodyChunks {
    /// Returns the body in one piece.
    #[cfg(test)]
    pub(crate) fn concat(&self) -> Vec<u8> {
        self.left.iter().flatten().copied().collect()
    }
}

/// Reports its exact length, so that the request has a `content-length`: not every server accepts
/// chunked requests.
impl http_body::Body for BodyChunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let next = self.left.pop_front();
        if let Some(chunk) = &next {
            self.length -= chunk.len() as u64;
        }
        Poll::Ready(next.map(|chunk| Ok(http_body::Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length)
    }
}

/// The last encoding of a view. Consecutive requests of a session show the same view.
#[derive(Debug, Default)]
pub(crate) struct ViewCache(Mutex<Option<(View, Bytes)>>);

impl ViewCache {
    /// Returns `make(view)`, computed once for as long as the view stays the same.
    pub(crate) fn get_or_encode(&self, view: &View, make: impl FnOnce(&View) -> Bytes) -> Bytes {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            // Compared by identity: comparing the content would cost as much as encoding it.
            Some((of, bytes)) if of.is_same(view) => bytes.clone(),
            _ => kept.insert((view.clone(), make(view))).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::Registry;

    fn parse_body(body: JsonBody<'_>) -> Value {
        serde_json::from_slice(&body.finish().concat()).expect("JSON")
    }

    #[test]
    fn a_body_is_one_object_of_fields_lists_and_extras() {
        let extra = json!({ "seed": 7, "temperature": 0 });
        let mut body = JsonBody::new(extra.as_object().expect("an object"));
        body.write_field("model", "m");
        body.write_field("temperature", &1.0);
        body.write_optional("top_p", None::<f32>);
        body.write_list("messages", ["".into(), "1,2".into(), "".into(), "3".into()]);
        body.write_raw("tools", "[]".into());
        let expected = json!({ "model": "m", "messages": [1, 2, 3], "tools": [], "seed": 7, "temperature": 0 });
        assert_eq!(parse_body(body), expected, "extras win");
        let only_extra = JsonBody::new(extra.as_object().expect("an object"));
        assert_eq!(parse_body(only_extra), extra);
        assert_eq!(parse_body(JsonBody::new(&Map::new())), json!({}));
    }

    #[test]
    fn a_large_fragment_is_sent_without_a_copy() {
        let large = encode_items(["x".repeat(JsonBody::SHARED)]);
        let extra = Map::new();
        let mut body = JsonBody::new(&extra);
        body.write_list("messages", [encode_items(["small"]), large.clone()]);
        let chunks = body.finish();
        assert!(
            chunks
                .left
                .iter()
                .any(|chunk| chunk.as_ptr() == large.as_ptr())
        );
        assert_eq!(chunks.length, chunks.concat().len() as u64);
    }

    #[test]
    fn tools_are_encoded_once_per_view() {
        let cache = ViewCache::default();
        let view = toolgate_testkit::plain_view(&Registry::new());
        assert_eq!(cache.get_or_encode(&view, |_| "a".into()), "a");
        assert_eq!(
            cache.get_or_encode(&view.clone(), |_| unreachable!("it is cached")),
            "a"
        );
        assert_eq!(
            cache.get_or_encode(&toolgate_testkit::plain_view(&Registry::new()), |_| "b"
                .into()),
            "b",
            "equal content in another view is not the same view"
        );
    }
}
