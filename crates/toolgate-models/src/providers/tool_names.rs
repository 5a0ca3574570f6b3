//! Names of tools on the wire: providers accept shorter names and fewer characters than we do.

use std::borrow::Cow;

use toolgate_core::View;

/// A provider's rule for the name of a tool or a format: letters, digits, `_` and `-`, up to a
/// maximum length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameRule {
    /// The maximum number of characters.
    pub(crate) longest: usize,
}

impl NameRule {
    /// Returns the name as it is sent.
    ///
    /// A name that does not fit gets a suffix hashed from the whole of it, so that two names never
    /// become one. The result depends on nothing but the name: a conversation names tools that are
    /// no longer in the view.
    pub(crate) fn to_wire(self, name: &str) -> Cow<'_, str> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !name.is_empty() && name.len() <= self.longest && name.chars().all(fits) {
            return Cow::Borrowed(name);
        }
        let mark = format!("_{:08x}", fnv1a_hash(name));
        let kept = name
            .chars()
            .map(|c| if fits(c) { c } else { '_' })
            .take(self.longest - mark.len());
        Cow::Owned(kept.chain(mark.chars()).collect())
    }

    /// Returns the tool of the view that has this wire name, or else the wire name itself.
    #[expect(
        clippy::wrong_self_convention,
        reason = "it undoes `to_wire`, by the same rule"
    )]
    pub(crate) fn from_wire(self, view: &View, wire: &str) -> String {
        // The exact name first: a tool may be called what another one's name becomes on the wire.
        if view.get(wire).is_some() {
            return wire.to_owned();
        }
        let shown = view
            .specs()
            .map(|spec| spec.name.as_str())
            .find(|name| self.to_wire(name) == wire);
        shown.unwrap_or(wire).to_owned()
    }
}

/// Hashes a text with FNV-1a: the result is stable across versions, which the standard library's
/// hash does not promise.
fn fnv1a_hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Registry, Schema, ToolSpec};

    const RULE: NameRule = NameRule { longest: 64 };

    #[test]
    fn a_valid_name_is_unchanged() {
        assert_eq!(RULE.to_wire("read_file-2"), "read_file-2");
    }

    #[test]
    fn invalid_names_stay_distinct_and_are_mapped_back() {
        let registry = Registry::new();
        let long = "x".repeat(100);
        let names = ["files.read", "files_read", "files-read", long.as_str()];
        for name in names {
            registry
                .register_host(ToolSpec::new(name, "A tool.", Schema::any_object()))
                .expect("free");
        }
        let view = toolgate_testkit::plain_view(&registry);
        let mut wire: Vec<String> = names
            .iter()
            .map(|name| RULE.to_wire(name).into_owned())
            .collect();
        for (name, wire) in names.iter().zip(&wire) {
            assert!(wire.len() <= 64 && !wire.contains('.'), "{wire}");
            assert_eq!(RULE.from_wire(&view, wire), *name);
        }
        wire.sort();
        wire.dedup();
        assert_eq!(wire.len(), names.len());
        assert_eq!(
            RULE.from_wire(&view, "made_up"),
            "made_up",
            "a tool that was never shown keeps its wire name, to be rejected later"
        );
    }
}
