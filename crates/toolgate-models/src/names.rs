//! Names of tools as providers take them: shorter and of fewer characters than ours.

use std::borrow::Cow;

use toolgate_core::View;

/// What a provider takes as the name of a tool or a format: letters, digits, `_` and `-`, so many at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameRule {
    /// How many characters.
    pub(crate) longest: usize,
}

impl NameRule {
    /// The name as it goes over the wire.
    ///
    /// A name that does not fit gets a mark made from the whole of it, so that two names never become one. It depends on
    /// nothing but the name: a conversation names tools that are no longer shown.
    pub(crate) fn to_wire(self, name: &str) -> Cow<'_, str> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !name.is_empty() && name.len() <= self.longest && name.chars().all(fits) {
            return Cow::Borrowed(name);
        }
        let mark = format!("_{:08x}", fold(name));
        let kept = name
            .chars()
            .map(|c| if fits(c) { c } else { '_' })
            .take(self.longest - mark.len());
        Cow::Owned(kept.chain(mark.chars()).collect())
    }

    /// The tool of the view that goes by this name over the wire, or else the name as it came.
    #[expect(
        clippy::wrong_self_convention,
        reason = "it undoes `to_wire`, by the same rule"
    )]
    pub(crate) fn from_wire(self, view: &View, wire: &str) -> String {
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

/// FNV-1a: the same everywhere and for ever, which the hash of the standard library does not promise.
fn fold(text: &str) -> u32 {
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
    fn a_name_that_fits_stays_as_it_is() {
        assert_eq!(RULE.to_wire("read_file-2"), "read_file-2");
    }

    #[test]
    fn names_that_do_not_fit_stay_apart_and_find_back() {
        let registry = Registry::new();
        let long = "x".repeat(100);
        let names = ["files.read", "files_read", "files-read", long.as_str()];
        for name in names {
            registry
                .register_host(ToolSpec::new(name, "A tool.", Schema::any_object()))
                .expect("free");
        }
        let view = View::of(&registry);
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
            "what was never shown is refused by that name"
        );
    }
}
