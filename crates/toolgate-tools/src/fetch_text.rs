//! What a server sends, as text.

use encoding_rs::{Encoding, UTF_8};

/// A body as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Whether something in it could not be read.
    pub(crate) replaced: bool,
}

/// The media type without its parameters, in small letters.
pub(crate) fn essence(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Whether a media type says that it is text.
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

/// Reads bytes as text; `None` if they are none.
pub(crate) fn read(bytes: &[u8], content_type: Option<&str>, is_cut: bool) -> Option<Text> {
    let essence = content_type.map(essence);
    let said = essence
        .as_deref()
        .filter(|essence| *essence != "application/octet-stream");
    match said {
        Some(essence) if !is_text_type(essence) => return None,
        // Nobody says what it is; then it must look like text.
        None if bytes.contains(&0) || std::str::from_utf8(without_cut(bytes, is_cut)).is_err() => {
            return None;
        }
        _ => {}
    }
    let encoding = content_type.and_then(charset).unwrap_or(UTF_8);
    let bytes = if encoding == UTF_8 {
        without_cut(bytes, is_cut)
    } else {
        bytes
    };
    let (text, _, replaced) = encoding.decode(bytes);
    Some(Text {
        text: text.into_owned(),
        replaced,
    })
}

/// Leaves out the last character if the end was cut off in the middle of it.
fn without_cut(bytes: &[u8], is_cut: bool) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if is_cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

fn charset(content_type: &str) -> Option<&'static Encoding> {
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
    fn text_is_read_in_its_own_encoding() {
        let text = read(
            b"caf\xe9",
            Some("text/plain; charset=\"ISO-8859-1\""),
            false,
        )
        .expect("text");
        assert_eq!((text.text.as_str(), text.replaced), ("café", false));
        assert_eq!(
            read("é".as_bytes(), Some("text/html"), false)
                .expect("text")
                .text,
            "é"
        );
        assert!(
            read(b"caf\xe9", Some("text/plain"), false)
                .expect("text")
                .replaced
        );
    }

    #[test]
    fn what_is_not_text_is_none() {
        for kind in [
            "image/png",
            "application/zip",
            "application/pdf",
            "video/mp4",
            "font/woff2",
        ] {
            assert_eq!(read(b"plain", Some(kind), false), None, "{kind}");
        }
        for kind in [None, Some("application/octet-stream")] {
            assert_eq!(read(b"a\0b", kind, false), None);
            assert_eq!(read(b"\xff\xd8", kind, false), None);
            assert_eq!(read(b"plain", kind, false).expect("text").text, "plain");
        }
        for kind in [
            "application/json; charset=utf-8",
            "image/svg+xml",
            "application/ld+json",
        ] {
            assert!(read(b"{}", Some(kind), false).is_some(), "{kind}");
        }
    }

    #[test]
    fn a_cut_goes_between_characters() {
        let cut = &"aé".as_bytes()[..2];
        assert_eq!(
            read(cut, Some("text/plain"), true),
            Some(Text {
                text: "a".into(),
                replaced: false
            })
        );
        assert!(read(cut, Some("text/plain"), false).expect("text").replaced);
        assert_eq!(read(cut, None, true).expect("text").text, "a");
    }
}
