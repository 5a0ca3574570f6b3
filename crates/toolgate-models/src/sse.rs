//! Server-sent events out of bytes that arrive in whatever pieces.

use std::mem;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// What kind of event the server says it is; empty if it does not say.
    pub(crate) name: String,
    /// The data, its lines joined.
    pub(crate) data: String,
}

/// Why bytes are not events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// One event is larger than a client should keep.
    #[error("one event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// Events are text.
    #[error("an event of the stream is not UTF-8")]
    NotText,
}

/// Reads events as the standard of HTML has them. What was begun and not ended by an empty line is not an event.
#[derive(Debug)]
pub(crate) struct Parser {
    /// The line that is not whole yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended in CR: an LF that comes next belongs to it.
    after_cr: bool,
    at_start: bool,
    limit: usize,
}

impl Parser {
    /// The largest event that is taken unless another limit is set.
    pub(crate) const LIMIT: usize = 16 * 1024 * 1024;

    /// A parser at the start of a stream, for events of at most `limit` bytes.
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

    /// Takes the next bytes of the stream and appends the events that end in them.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), SseError> {
        if self.after_cr && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.after_cr = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, ended) = (&bytes[..end], bytes[end]);
            if self.line.is_empty() {
                self.take_line(line, events)?;
            } else {
                self.line.extend_from_slice(line);
                let mut whole = mem::take(&mut self.line);
                self.take_line(&whole, events)?;
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
        self.check_size()
    }

    fn take_line(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), SseError> {
        let line = match mem::take(&mut self.at_start) {
            true => line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            return self.end_event(events);
        }
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
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
            // Comments have an empty field; `id` and `retry` are about reconnecting, and replies are not resumed.
            _ => {}
        }
        self.check_size()
    }

    fn end_event(&mut self, events: &mut Vec<Event>) -> Result<(), SseError> {
        let (name, data) = (mem::take(&mut self.name), mem::take(&mut self.data));
        if mem::take(&mut self.has_data) {
            let text = |bytes| String::from_utf8(bytes).map_err(|_| SseError::NotText);
            events.push(Event {
                name: text(name)?,
                data: text(data)?,
            });
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), SseError> {
        match self.line.len() + self.name.len() + self.data.len() > self.limit {
            true => Err(SseError::TooLarge { limit: self.limit }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Event>, SseError> {
        let (mut parser, mut events) = (Parser::new(1024), Vec::new());
        for piece in pieces {
            parser.feed(piece, &mut events)?;
        }
        Ok(events)
    }

    fn event(name: &str, data: &str) -> Event {
        Event {
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn lines_end_in_any_of_the_three_ways() {
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
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
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
    fn only_one_space_after_the_colon_is_left_out() {
        assert_eq!(
            parse([b"data:  x: y\n\n".as_slice()]),
            Ok(vec![event("", " x: y")])
        );
    }

    #[test]
    fn what_is_not_ended_by_an_empty_line_is_no_event() {
        assert_eq!(
            parse([b"data: whole\n\ndata: half\n".as_slice()]),
            Ok(vec![event("", "whole")])
        );
    }

    #[test]
    fn an_event_that_is_too_large_is_refused_whether_it_is_one_line_or_many() {
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
    fn bytes_that_are_not_text_are_refused() {
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
        fn however_a_stream_is_cut_its_events_are_the_same(
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
}
