//! Decodes the text of a file so that it can be written back in the same encoding.

mod near_miss;
pub(crate) mod replace;
pub(crate) mod sniff;
pub(crate) mod suggest;

use encoding_rs::WINDOWS_1252;
use serde::Serialize;

/// The character encoding of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum TextEncoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "utf-8 with BOM")]
    Utf8Bom,
    #[serde(rename = "utf-16le")]
    Utf16Le,
    #[serde(rename = "utf-16be")]
    Utf16Be,
    /// The fallback for text that is not Unicode. Each byte is one character, so nothing is lost.
    #[serde(rename = "windows-1252")]
    Windows1252,
}

/// The line ending of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LineEnding {
    Lf,
    Crlf,
}

/// A decoded text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodedText {
    pub(crate) text: String,
    pub(crate) encoding: TextEncoding,
}

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

impl TextEncoding {
    /// Returns the usual name of the encoding.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with BOM",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Windows1252 => "Windows-1252",
        }
    }

    /// Encodes text; returns `None` if the encoding lacks a character.
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

impl LineEnding {
    /// Returns the line ending of most lines.
    pub(crate) fn detect(text: &str) -> Self {
        let all = text.matches('\n').count();
        if text.matches("\r\n").count() * 2 > all {
            Self::Crlf
        } else {
            Self::Lf
        }
    }
}

impl DecodedText {
    /// Decodes a file; returns `None` if it is not text or would not encode to the same bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (text, encoding) = match bytes {
            [0xef, 0xbb, 0xbf, rest @ ..] => (
                std::str::from_utf8(rest).ok()?.to_owned(),
                TextEncoding::Utf8Bom,
            ),
            [0xff, 0xfe, rest @ ..] => (
                decode_utf16(rest, u16::from_le_bytes)?,
                TextEncoding::Utf16Le,
            ),
            [0xfe, 0xff, rest @ ..] => (
                decode_utf16(rest, u16::from_be_bytes)?,
                TextEncoding::Utf16Be,
            ),
            bytes => match std::str::from_utf8(bytes) {
                Ok(text) => (text.to_owned(), TextEncoding::Utf8),
                Err(_) => (decode_single_byte(bytes)?, TextEncoding::Windows1252),
            },
        };
        // No text contains a NUL character, but nearly every binary file does.
        (!text.contains('\0')).then_some(Self { text, encoding })
    }

    /// Returns the line ending of most lines.
    pub(crate) fn line_ending(&self) -> LineEnding {
        LineEnding::detect(&self.text)
    }
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    char::decode_utf16(pairs.iter().copied().map(unit))
        .collect::<Result<_, _>>()
        .ok()
}

/// Decodes single-byte text; returns `None` if it has control characters other than layout.
fn decode_single_byte(bytes: &[u8]) -> Option<String> {
    let odd = |byte: &u8| {
        *byte == 0x7f || (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
    };
    if bytes.iter().any(odd) {
        return None;
    }
    // Checked by a round trip: an edit must not change bytes that it does not touch.
    let (text, _) = WINDOWS_1252.decode_without_bom_handling(bytes);
    (TextEncoding::Windows1252.encode(&text).as_deref() == Some(bytes)).then(|| text.into_owned())
}

/// Returns the lines of a text with their line endings.
pub(crate) fn lines_with_endings(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
}

/// Returns a line without its line ending.
pub(crate) fn strip_line_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Converts every line ending to `\n`.
pub(crate) fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Converts every line ending to `newline`.
pub(crate) fn with_line_ending(text: &str, newline: LineEnding) -> String {
    match newline {
        LineEnding::Lf => with_lf(text),
        LineEnding::Crlf => with_lf(text).replace('\n', "\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_is_detected_and_encodes_to_the_same_bytes() {
        let mut le = vec![0xff, 0xfe];
        le.extend("aé🦀\r\n".encode_utf16().flat_map(u16::to_le_bytes));
        let mut be = vec![0xfe, 0xff];
        be.extend("aé🦀".encode_utf16().flat_map(u16::to_be_bytes));
        for (bytes, encoding) in [
            (b"plain \xc3\xa9\n".to_vec(), TextEncoding::Utf8),
            (b"\xef\xbb\xbfx".to_vec(), TextEncoding::Utf8Bom),
            (le, TextEncoding::Utf16Le),
            (be, TextEncoding::Utf16Be),
            (b"caf\xe9 \x81\x9d\n".to_vec(), TextEncoding::Windows1252),
            (Vec::new(), TextEncoding::Utf8),
        ] {
            let text = DecodedText::decode(&bytes).expect("text");
            assert_eq!(text.encoding, encoding);
            assert_eq!(encoding.encode(&text.text), Some(bytes));
        }
    }

    #[test]
    fn binary_files_are_not_decoded_as_text() {
        for bytes in [
            &b"a\0b"[..],
            b"\x89PNG\r\n\x1a\n\xff",
            b"\xff\xfea",
            b"\xff\xfe\x00\xd8",
            b"\xef\xbb\xbf\xff",
        ] {
            assert_eq!(DecodedText::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn the_line_ending_of_most_lines_is_detected() {
        for (text, newline) in [
            ("", LineEnding::Lf),
            ("a\nb\r\n", LineEnding::Lf),
            ("a\r\nb\r\nc\n", LineEnding::Crlf),
            ("a\rb", LineEnding::Lf),
        ] {
            assert_eq!(LineEnding::detect(text), newline, "{text:?}");
        }
        assert_eq!(with_line_ending("a\nb\r\n", LineEnding::Crlf), "a\r\nb\r\n");
    }
}
