//! Edits of a genuine text, for targets whose inputs no mutation would ever hit on by itself.

/// Applies edits to `original`: each takes four bytes of `edits`, an operation, a position and a
/// byte.
pub(super) fn apply_edits(original: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut edited = original.to_vec();
    for edit in edits.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (edited.len() + 1);
        match edit[0] % 5 {
            0 if at < edited.len() => edited[at] = edit[3],
            1 if at < edited.len() => drop(edited.remove(at)),
            2 => edited.insert(at, edit[3]),
            3 => edited.truncate(at),
            4 if at + 1 < edited.len() => edited.swap(at, at + 1),
            _ => {}
        }
    }
    edited
}
