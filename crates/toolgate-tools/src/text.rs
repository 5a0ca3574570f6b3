//! The text of a file, and how to write it back the way it was.

use encoding_rs::WINDOWS_1252;
use serde::Serialize;

/// How the characters of a file are written as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "utf-8 with BOM")]
    Utf8Bom,
    #[serde(rename = "utf-16le")]
    Utf16Le,
    #[serde(rename = "utf-16be")]
    Utf16Be,
    /// What is left when a file is text but not Unicode. Each byte is one character, so nothing is lost.
    #[serde(rename = "windows-1252")]
    Windows1252,
}

/// How lines end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Newline {
    Lf,
    Crlf,
}

/// A file that is text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) encoding: Encoding,
}

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

impl Encoding {
    /// What people call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with BOM",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Windows1252 => "Windows-1252",
        }
    }

    /// Writes text as bytes; nothing if a character cannot be written like this.
    pub(crate) fn encode(self, text: &str) -> Option<Vec<u8>> {
        let wide = |bom: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
            bom.into_iter()
                .chain(text.encode_utf16().flat_map(bytes))
                .collect()
        };
        match self {
            Self::Utf8 => Some(text.as_bytes().to_vec()),
            Self::Utf8Bom => Some([UTF8_BOM, text.as_bytes()].concat()),
            Self::Utf16Le => Some(wide([0xff, 0xfe], u16::to_le_bytes)),
            Self::Utf16Be => Some(wide([0xfe, 0xff], u16::to_be_bytes)),
            Self::Windows1252 => {
                let (bytes, _, lost) = WINDOWS_1252.encode(text);
                (!lost).then(|| bytes.into_owned())
            }
        }
    }
}

impl Newline {
    /// How most lines of a text end.
    pub(crate) fn of(text: &str) -> Self {
        let all = text.matches('\n').count();
        if text.matches("\r\n").count() * 2 > all {
            Self::Crlf
        } else {
            Self::Lf
        }
    }
}

impl Text {
    /// Reads a file as text; nothing if it is not, or could not be written back to the byte.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (text, encoding) = match bytes {
            [0xef, 0xbb, 0xbf, rest @ ..] => (
                std::str::from_utf8(rest).ok()?.to_owned(),
                Encoding::Utf8Bom,
            ),
            [0xff, 0xfe, rest @ ..] => (wide(rest, u16::from_le_bytes)?, Encoding::Utf16Le),
            [0xfe, 0xff, rest @ ..] => (wide(rest, u16::from_be_bytes)?, Encoding::Utf16Be),
            bytes => match std::str::from_utf8(bytes) {
                Ok(text) => (text.to_owned(), Encoding::Utf8),
                Err(_) => (eight_bit(bytes)?, Encoding::Windows1252),
            },
        };
        // A zero byte is in no text, but in nearly every other file.
        (!text.contains('\0')).then_some(Self { text, encoding })
    }

    /// How most lines end.
    pub(crate) fn newline(&self) -> Newline {
        Newline::of(&self.text)
    }
}

fn wide(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    char::decode_utf16(pairs.iter().copied().map(unit))
        .collect::<Result<_, _>>()
        .ok()
}

/// Text in an encoding of single bytes has no control characters but those that lay it out.
fn eight_bit(bytes: &[u8]) -> Option<String> {
    let odd = |byte: &u8| {
        *byte == 0x7f || (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
    };
    if bytes.iter().any(odd) {
        return None;
    }
    let (text, _) = WINDOWS_1252.decode_without_bom_handling(bytes);
    (Encoding::Windows1252.encode(&text).as_deref() == Some(bytes)).then(|| text.into_owned())
}

/// The lines of a text with their ends.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
}

/// A line without its end.
pub(crate) fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// The same text with every line ending in `\n`.
pub(crate) fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// The same text with every line ending like the others of its file.
pub(crate) fn with_newline(text: &str, newline: Newline) -> String {
    match newline {
        Newline::Lf => with_lf(text),
        Newline::Crlf => with_lf(text).replace('\n', "\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_is_recognised_and_written_back_to_the_byte() {
        let mut le = vec![0xff, 0xfe];
        le.extend("aé🦀\r\n".encode_utf16().flat_map(u16::to_le_bytes));
        let mut be = vec![0xfe, 0xff];
        be.extend("aé🦀".encode_utf16().flat_map(u16::to_be_bytes));
        for (bytes, encoding) in [
            (b"plain \xc3\xa9\n".to_vec(), Encoding::Utf8),
            (b"\xef\xbb\xbfx".to_vec(), Encoding::Utf8Bom),
            (le, Encoding::Utf16Le),
            (be, Encoding::Utf16Be),
            (b"caf\xe9 \x81\x9d\n".to_vec(), Encoding::Windows1252),
            (Vec::new(), Encoding::Utf8),
        ] {
            let text = Text::decode(&bytes).expect("text");
            assert_eq!(text.encoding, encoding);
            assert_eq!(encoding.encode(&text.text), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_text_is_not_read_as_text() {
        for bytes in [
            &b"a\0b"[..],
            b"\x89PNG\r\n\x1a\n\xff",
            b"\xff\xfea",
            b"\xff\xfe\x00\xd8",
            b"\xef\xbb\xbf\xff",
        ] {
            assert_eq!(Text::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn the_way_most_lines_end_counts() {
        for (text, newline) in [
            ("", Newline::Lf),
            ("a\nb\r\n", Newline::Lf),
            ("a\r\nb\r\nc\n", Newline::Crlf),
            ("a\rb", Newline::Lf),
        ] {
            assert_eq!(Newline::of(text), newline, "{text:?}");
        }
        assert_eq!(with_newline("a\nb\r\n", Newline::Crlf), "a\r\nb\r\n");
    }
}
