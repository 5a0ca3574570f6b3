//! Decodes the body of a response as text.

use encoding_rs::{Encoding, UTF_8};

/// A decoded body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageText {
    pub(crate) text: String,
    /// True if parts could not be decoded and were replaced.
    pub(crate) replaced: bool,
}

/// Returns the media type without its parameters, in lower case.
pub(crate) fn media_type_essence(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Checks whether a media type is text.
pub(crate) fn is_text_type(essence: &str) -> bool {
    const APPLICATIONS: [&str; 14] = [
        "json",
        "xml",
        "javascript",
        "ecmascript",
        "xhtml+xml",
        "yaml",
        "x-yaml",
        "toml",
        "x-ndjson",
        "jsonl",
        "graphql",
        "sql",
        "x-sh",
        "x-www-form-urlencoded",
    ];
    let (kind, rest) = essence.split_once('/').unwrap_or_default();
    let suffix = || rest.ends_with("+json") || rest.ends_with("+xml") || rest.ends_with("+yaml");
    match kind {
        "text" => true,
        "application" => APPLICATIONS.contains(&rest) || suffix(),
        _ => suffix(),
    }
}

/// Decodes bytes as text; returns `None` if they are not text.
pub(crate) fn decode_page(
    bytes: &[u8],
    content_type: Option<&str>,
    is_cut: bool,
) -> Option<PageText> {
    let essence = content_type.map(media_type_essence);
    let said = essence
        .as_deref()
        // Servers send this type for every file they do not know, so it says nothing.
        .filter(|essence| *essence != "application/octet-stream");
    match said {
        Some(essence) if !is_text_type(essence) => return None,
        // Without a content type the bytes must be valid UTF-8 without NUL.
        None if bytes.contains(&0)
            || std::str::from_utf8(trim_incomplete_char(bytes, is_cut)).is_err() =>
        {
            return None;
        }
        _ => {}
    }
    let encoding = content_type.and_then(parse_charset).unwrap_or(UTF_8);
    let bytes = if encoding == UTF_8 {
        trim_incomplete_char(bytes, is_cut)
    } else {
        bytes
    };
    let (text, _, replaced) = encoding.decode(bytes);
    Some(PageText {
        text: text.into_owned(),
        replaced,
    })
}

/// Removes the last character if the body was truncated in the middle of it.
fn trim_incomplete_char(bytes: &[u8], is_cut: bool) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if is_cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

fn parse_charset(content_type: &str) -> Option<&'static Encoding> {
    let parameter = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let is = name.trim().eq_ignore_ascii_case("charset");
        is.then(|| Encoding::for_label(value.trim().trim_matches('"').as_bytes()))
            .flatten()
    };
    content_type.split(';').skip(1).find_map(parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_in_its_declared_encoding() {
        let text = decode_page(
            b"caf\xe9",
            Some("text/plain; charset=\"ISO-8859-1\""),
            false,
        )
        .expect("text");
        assert_eq!((text.text.as_str(), text.replaced), ("café", false));
        assert_eq!(
            decode_page("é".as_bytes(), Some("text/html"), false)
                .expect("text")
                .text,
            "é"
        );
        assert!(
            decode_page(b"caf\xe9", Some("text/plain"), false)
                .expect("text")
                .replaced
        );
    }

    #[test]
    fn binary_bodies_are_not_decoded() {
        for kind in [
            "image/png",
            "application/zip",
            "application/pdf",
            "video/mp4",
            "font/woff2",
        ] {
            assert_eq!(decode_page(b"plain", Some(kind), false), None, "{kind}");
        }
        for kind in [None, Some("application/octet-stream")] {
            assert_eq!(decode_page(b"a\0b", kind, false), None);
            assert_eq!(decode_page(b"\xff\xd8", kind, false), None);
            assert_eq!(
                decode_page(b"plain", kind, false).expect("text").text,
                "plain"
            );
        }
        for kind in [
            "application/json; charset=utf-8",
            "image/svg+xml",
            "application/ld+json",
        ] {
            assert!(decode_page(b"{}", Some(kind), false).is_some(), "{kind}");
        }
    }

    #[test]
    fn a_truncated_body_ends_at_a_character_boundary() {
        let cut = &"aé".as_bytes()[..2];
        assert_eq!(
            decode_page(cut, Some("text/plain"), true),
            Some(PageText {
                text: "a".into(),
                replaced: false
            })
        );
        assert!(
            decode_page(cut, Some("text/plain"), false)
                .expect("text")
                .replaced
        );
        assert_eq!(decode_page(cut, None, true).expect("text").text, "a");
    }
}
