//! Parses server-sent events from bytes that arrive in arbitrary pieces.

use std::mem;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The event's type; empty if the server sent none.
    pub(crate) name: String,
    /// The data, its lines joined.
    pub(crate) data: String,
}

/// The reason why bytes are not events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// One event is larger than a client should buffer.
    #[error("one event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// The largest size in bytes that is accepted.
        limit: usize,
    },
    /// An event is not UTF-8 text.
    #[error("an event of the stream is not UTF-8")]
    NotText,
}

/// Parses events as the HTML standard defines them. Data that no empty line ends is not an event.
#[derive(Debug)]
pub(crate) struct SseParser {
    /// The line that is not complete yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// True if the last line ended in CR: an LF that comes next belongs to it.
    after_cr: bool,
    at_start: bool,
    limit: usize,
}

impl SseParser {
    /// The largest event in bytes that is accepted by default.
    pub(crate) const LIMIT: usize = 16 * 1024 * 1024;

    /// Creates a parser at the start of a stream, for events of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Parses the next bytes of the stream and appends the events that end in them.
    pub(crate) fn feed_bytes(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), SseError> {
        // A CRLF may be split between two chunks; the LF belongs to the line before it.
        if self.after_cr && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.after_cr = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let line = &bytes[..end];
            let ended = bytes[end];
            // The common case, a line within one chunk, is parsed without a copy.
            if self.line.is_empty() {
                self.parse_line(line, events)?;
            } else {
                self.line.extend_from_slice(line);
                let mut whole = mem::take(&mut self.line);
                self.parse_line(&whole, events)?;
                // The buffer is reused for the next line.
                whole.clear();
                self.line = whole;
            }
            bytes = &bytes[end + 1..];
            if ended == b'\r' {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.line.extend_from_slice(bytes);
        self.check_size(&self.line)
    }

    fn parse_line(&mut self, line: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        // The whole line counts, as it does while it is not complete: the limit must not depend on
        // how the bytes arrive.
        self.check_size(line)?;
        // The standard ignores a byte order mark at the start of the stream only.
        let line = if mem::take(&mut self.at_start) {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            return self.end_event(events);
        }
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let field = &line[..colon];
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = value.to_vec(),
            // Comments have an empty field; `id` and `retry` are about reconnecting, and replies
            // are not resumed.
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let name = mem::take(&mut self.name);
        let data = mem::take(&mut self.data);
        // By the standard, an event without data is not dispatched, and its name is dropped.
        if mem::take(&mut self.has_data) {
            let text = |bytes| String::from_utf8(bytes).map_err(|_| SseError::NotText);
            events.push(SseEvent {
                name: text(name)?,
                data: text(data)?,
            });
        }
        Ok(())
    }

    fn check_size(&self, line: &[u8]) -> Result<(), SseError> {
        // Without a limit, a server could fill the memory with one endless event.
        if line.len() + self.name.len() + self.data.len() > self.limit {
            Err(SseError::TooLarge { limit: self.limit })
        } else {
            Ok(())
        }
    }
}

/// Parses a stream that arrives in these pieces.
pub(crate) fn parse_pieces<'a>(
    limit: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<SseEvent>, SseError> {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        parser.feed_bytes(piece, &mut events)?;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<SseEvent>, SseError> {
        parse_pieces(1024, pieces)
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn lines_may_end_in_lf_crlf_or_cr() {
        for end in ["\n", "\r\n", "\r"] {
            let text = [
                "event: ping",
                "data: a",
                "data:b",
                "",
                ": comment",
                "data",
                "",
                "id: 7",
                "",
                "",
            ]
            .join(end);
            let expected = vec![event("ping", "a\nb"), event("", "")];
            assert_eq!(parse([text.as_bytes()]), Ok(expected), "{end:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_line() {
        assert_eq!(
            parse(["\u{FEFF}data: x\n\n".as_bytes()]),
            Ok(vec![event("", "x")])
        );
        assert_eq!(
            parse(["data: \u{FEFF}x\n\n".as_bytes()]),
            Ok(vec![event("", "\u{FEFF}x")])
        );
    }

    #[test]
    fn only_one_space_after_the_colon_is_removed() {
        assert_eq!(
            parse([b"data:  x: y\n\n".as_slice()]),
            Ok(vec![event("", " x: y")])
        );
    }

    #[test]
    fn data_without_a_final_empty_line_is_not_an_event() {
        assert_eq!(
            parse([b"data: whole\n\ndata: half\n".as_slice()]),
            Ok(vec![event("", "whole")])
        );
    }

    #[test]
    fn an_oversized_event_is_rejected_in_one_line_or_many() {
        let too_large = Err(SseError::TooLarge { limit: 1024 });
        assert_eq!(
            parse([format!("data: {}", "x".repeat(1100)).as_bytes()]),
            too_large
        );
        assert_eq!(
            parse(["data: many lines\n".repeat(100).as_bytes()]),
            too_large
        );
        assert!(parse(["data: many events\n\n".repeat(100).as_bytes()]).is_ok());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_rejected() {
        assert_eq!(
            parse([b"data: \xFF\n\n".as_slice()]),
            Err(SseError::NotText)
        );
    }

    const PIECES: &[&str] = &[
        "data: ",
        "data",
        "event: ",
        ":",
        "é",
        "\u{1F980}",
        "{\"a\": 1}",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        " ",
        "\u{FEFF}",
    ];

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_the_stream_is_split(
            text in proptest::collection::vec(proptest::sample::select(PIECES), 0..60),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        ) {
            let text = text.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let whole = parse([text.as_bytes()]);
            prop_assert_eq!(&parse(cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]])), &whole);
            prop_assert_eq!(&parse(text.as_bytes().chunks(1)), &whole, "byte by byte");
        }
    }

    #[test]
    fn the_limit_does_not_depend_on_how_the_bytes_arrive() {
        let long = "x".repeat(2000);
        for stream in [
            format!(": {long}\n\ndata: a\n\n"),
            format!("data: {long}\n\n"),
            format!("id: {long}\n"),
            format!("event: {long}\ndata: a\n\n"),
            format!("data: a\n{long}"),
            format!("data: {}\n\n", &long[..1018]),
            format!("data: {}\n\n", &long[..1019]),
        ] {
            let whole = parse([stream.as_bytes()]);
            assert_eq!(
                whole,
                parse(stream.as_bytes().chunks(1)),
                "{}",
                stream.len()
            );
            assert_eq!(
                whole,
                parse(stream.as_bytes().chunks(700)),
                "{}",
                stream.len()
            );
        }
        assert!(parse([format!(": {long}\n").as_bytes()]).is_err());
    }
}
