//! Detects the media type of a file that is not text.

/// The first bytes of common formats, with their media types.
const MAGIC_BYTES: [(&[u8], &str); 24] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"(\xb5/\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-executable"),
    (b"\xcf\xfa\xed\xfe", "application/x-executable"),
    (b"\xca\xfe\xba\xbe", "application/java-vm"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"wOFF", "font/woff"),
    (b"!<arch>\n", "application/x-archive"),
];

/// Returns the media type of a binary file.
pub(crate) fn detect_media_type(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return "image/webp";
    }
    let known = MAGIC_BYTES
        .iter()
        .find(|(magic, _)| bytes.starts_with(magic));
    known.map_or("application/octet-stream", |(_, kind)| kind)
}

/// Checks whether it is an image format that models accept.
pub(crate) fn is_image(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    )
}

/// Formats a number of bytes for people.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / 1000.0;
    let mut unit = 0;
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_their_first_bytes() {
        assert_eq!(detect_media_type(b"\x89PNG\r\n\x1a\n...."), "image/png");
        assert_eq!(detect_media_type(b"RIFF\0\0\0\0WEBPVP8 "), "image/webp");
        assert_eq!(detect_media_type(b"\0\0\0"), "application/octet-stream");
        assert_eq!(detect_media_type(b""), "application/octet-stream");
    }

    #[test]
    fn sizes_are_formatted_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1500, "1.5 kB"),
            (4 << 30, "4.3 GB"),
            (999_999, "1.0 MB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }
}
