//! Request bodies put together from pieces that are kept from turn to turn.

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

/// A JSON object in the making. What was written in an earlier turn is shared, not copied and not written anew.
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
pub(crate) struct Chunks {
    left: VecDeque<Bytes>,
    length: u64,
}

impl<'a> JsonBody<'a> {
    /// Smaller pieces are copied: a write for each of them would cost more.
    const SHARED: usize = 4096;

    /// An object that ends with the fields of `extra`.
    pub(crate) fn new(extra: &'a Map<String, Value>) -> Self {
        Self {
            chunks: Vec::new(),
            tail: vec![b'{'],
            extra,
        }
    }

    /// Writes a field.
    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        if self.begin(name) {
            self.write(value);
        }
    }

    /// Writes a field if there is a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.field(name, &value);
        }
    }

    /// Writes a field whose value is JSON already.
    pub(crate) fn raw(&mut self, name: &str, json: Bytes) {
        if self.begin(name) {
            self.push(json);
        }
    }

    /// Writes a field that is a list. Each fragment is some items with commas between them, or nothing.
    pub(crate) fn list(&mut self, name: &str, fragments: impl IntoIterator<Item = Bytes>) {
        if !self.begin(name) {
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
            self.push(fragment);
        }
        self.tail.push(b']');
    }

    /// Writes a field whose value is put together from pieces that are JSON only as a whole.
    pub(crate) fn spliced(&mut self, name: &str, pieces: impl IntoIterator<Item = Bytes>) {
        if self.begin(name) {
            pieces.into_iter().for_each(|piece| self.push(piece));
        }
    }

    /// The whole body.
    pub(crate) fn finish(mut self) -> Chunks {
        let extra = self.extra;
        for (name, value) in extra {
            self.separate(name);
            self.write(value);
        }
        self.tail.push(b'}');
        self.cut();
        let length = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Chunks {
            left: self.chunks.into(),
            length,
        }
    }

    /// Writes the name of a field, unless `extra` has one of that name.
    fn begin(&mut self, name: &str) -> bool {
        let own = !self.extra.contains_key(name);
        if own {
            self.separate(name);
        }
        own
    }

    fn separate(&mut self, name: &str) {
        if !(self.chunks.is_empty() && self.tail.len() == 1) {
            self.tail.push(b',');
        }
        self.write(name);
        self.tail.push(b':');
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) {
        write_json(&mut self.tail, value);
    }

    fn push(&mut self, piece: Bytes) {
        if piece.len() < Self::SHARED {
            self.tail.extend_from_slice(&piece);
        } else {
            self.cut();
            self.chunks.push(piece);
        }
    }

    fn cut(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push(std::mem::take(&mut self.tail).into());
        }
    }
}

/// Appends a value as JSON.
pub(crate) fn write_json(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(bytes, value)
        .expect("memory takes every byte, and our values have only text as keys");
}

/// The items of a list as JSON with commas between them, as [`JsonBody::list`] takes them.
pub(crate) fn fragment<T: Serialize>(items: impl IntoIterator<Item = T>) -> Bytes {
    let mut bytes = Vec::new();
    for item in items {
        if !bytes.is_empty() {
            bytes.push(b',');
        }
        write_json(&mut bytes, &item);
    }
    bytes.into()
}

impl Chunks {
    /// The body in one piece.
    #[cfg(test)]
    pub(crate) fn concat(&self) -> Vec<u8> {
        self.left.iter().flatten().copied().collect()
    }
}

/// Tells its length, so that the request has a `content-length`: not every server reads chunked requests.
impl http_body::Body for Chunks {
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

/// What was last made of a view. Turns show the same view over and over.
#[derive(Debug, Default)]
pub(crate) struct ViewCache(Mutex<Option<(View, Bytes)>>);

impl ViewCache {
    /// What `make` makes of the view, made once for as long as the view stays the same.
    pub(crate) fn get(&self, view: &View, make: impl FnOnce(&View) -> Bytes) -> Bytes {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((of, bytes)) if of.same(view) => bytes.clone(),
            _ => kept.insert((view.clone(), make(view))).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::Registry;

    fn parsed(body: JsonBody<'_>) -> Value {
        serde_json::from_slice(&body.finish().concat()).expect("JSON")
    }

    #[test]
    fn a_body_is_one_object_of_fields_lists_and_extras() {
        let extra = json!({ "seed": 7, "temperature": 0 });
        let mut body = JsonBody::new(extra.as_object().expect("an object"));
        body.field("model", "m");
        body.field("temperature", &1.0);
        body.optional("top_p", None::<f32>);
        body.list("messages", ["".into(), "1,2".into(), "".into(), "3".into()]);
        body.raw("tools", "[]".into());
        let expected = json!({ "model": "m", "messages": [1, 2, 3], "tools": [], "seed": 7, "temperature": 0 });
        assert_eq!(parsed(body), expected, "extras win");
        let only_extra = JsonBody::new(extra.as_object().expect("an object"));
        assert_eq!(parsed(only_extra), extra);
        assert_eq!(parsed(JsonBody::new(&Map::new())), json!({}));
    }

    #[test]
    fn a_large_fragment_is_sent_as_the_very_bytes_that_were_kept() {
        let large = fragment(["x".repeat(JsonBody::SHARED)]);
        let extra = Map::new();
        let mut body = JsonBody::new(&extra);
        body.list("messages", [fragment(["small"]), large.clone()]);
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
    fn tools_are_written_once_per_view() {
        let cache = ViewCache::default();
        let view = View::of(&Registry::new());
        assert_eq!(cache.get(&view, |_| "a".into()), "a");
        assert_eq!(
            cache.get(&view.clone(), |_| unreachable!("it is kept")),
            "a"
        );
        assert_eq!(
            cache.get(&View::of(&Registry::new()), |_| "b".into()),
            "b",
            "alike is not the same"
        );
    }
}
