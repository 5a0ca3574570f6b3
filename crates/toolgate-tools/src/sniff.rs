//! Names what a file is that is not text.

/// The beginnings by which common formats are known, and what they are.
const MAGIC: [(&[u8], &str); 24] = [
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

/// The media type of bytes that are no text.
pub(crate) fn media_type(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return "image/webp";
    }
    let known = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic));
    known.map_or("application/octet-stream", |(_, kind)| kind)
}

/// Whether models can look at it.
pub(crate) fn is_picture(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    )
}

/// A number of bytes as people read it.
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
    fn formats_are_known_by_how_they_begin() {
        assert_eq!(media_type(b"\x89PNG\r\n\x1a\n...."), "image/png");
        assert_eq!(media_type(b"RIFF\0\0\0\0WEBPVP8 "), "image/webp");
        assert_eq!(media_type(b"\0\0\0"), "application/octet-stream");
        assert_eq!(media_type(b""), "application/octet-stream");
    }

    #[test]
    fn sizes_are_written_for_people() {
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
