//! Detectors of secrets: token shapes, and the words that precede a password.
//!
//! Every detector has a literal anchor. All anchors of a text are found at once, and a detector
//! looks closer only there; that keeps redaction fast on text without secrets. `bundled` is the list;
//! each kind of look has a file; `decided` tells whether text that arrives later can change what was
//! found.

mod assigned_values;
mod bundled;
mod cookies;
mod decided;
mod literals;
mod private_keys;
mod secret_names;
mod token_shapes;
mod url_passwords;

use std::{ops::Range, sync::LazyLock};

use self::{
    assigned_values::find_assigned,
    bundled::{CONTEXT_DETECTORS, SHAPE_DETECTORS},
    cookies::find_cookie,
    private_keys::find_pem,
    secret_names::name_in_anchor,
    token_shapes::CompiledShape,
    url_passwords::find_url_password,
};
pub(super) use self::{
    literals::is_literal,
    secret_names::{is_absolute_path, is_directory_name},
};
use crate::shape::redact::lookahead::Lookahead;

/// A shape of secrets, or a word that precedes one.
struct Detector {
    /// The name in the mark that replaces the secret.
    kind: &'static str,
    /// The text by which it is found, ignoring case.
    anchor: &'static str,
    look: DetectorLook,
}

/// The way a detector examines the text around its anchor.
enum DetectorLook {
    /// The text from the anchor on has this shape; a letter or digit before it means that it is
    /// something else.
    Shape(&'static str),
    /// The same, but only if the text found also passes a test.
    ShapeIf(&'static str, fn(&str) -> bool),
    /// The anchor is the end of a name that something is assigned to.
    Assigned(SecretStrength),
    /// The same for a password, if the name around the anchor passes a test.
    NamedBy(fn(&[u8], &Range<usize>) -> bool),
    /// The text from the anchor on has this shape, and the first group in it is the secret.
    Group(&'static str),
    /// A private key in PEM armour.
    Pem,
    /// `scheme://user:password@host`.
    UserInfo,
    /// `Cookie: a=b; c=d` and `Set-Cookie: a=b; Path=/`.
    Cookie,
}

/// The probability that a name is followed by a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretStrength {
    /// A password: any literal counts.
    Any,
    /// A token: only what looks random counts.
    Random,
}

/// All bundled detectors, shared by all scanners.
pub(crate) static BUNDLED_DETECTORS: LazyLock<Vec<CompiledDetector>> = LazyLock::new(|| {
    SHAPE_DETECTORS
        .iter()
        .chain(CONTEXT_DETECTORS)
        .map(CompiledDetector::new)
        .collect()
});

/// A detector whose pattern is compiled when its anchor first occurs: most never do.
pub(crate) struct CompiledDetector {
    pub(crate) kind: &'static str,
    pub(crate) anchor: &'static str,
    look: CompiledLook,
}

enum CompiledLook {
    Shape(CompiledShape),
    Assigned(SecretStrength),
    NamedBy(fn(&[u8], &Range<usize>) -> bool),
    Group(CompiledShape),
    Pem,
    UserInfo,
    Cookie,
}

/// Maximum number of bytes that a detector examines before it has found something. The secret may
/// be longer; but a text full of anchors must not be read to its end from each of them.
const MAX_LOOK_BYTES: usize = 1024;

/// The same where many bytes have to be counted to tell whether a text looks random.
const MAX_RANDOM_BYTES: usize = 256;

/// The same for shapes, which begin with what makes them look generated.
const MAX_TEST_BYTES: usize = 64;

/// Maximum length of a private key.
const MAX_KEY_BYTES: usize = 16 * 1024;

impl CompiledDetector {
    fn new(detector: &Detector) -> Self {
        let shape = |pattern, test| CompiledShape::new(detector.anchor, pattern, test);
        let look = match detector.look {
            DetectorLook::Shape(pattern) => CompiledLook::Shape(shape(pattern, None)),
            DetectorLook::ShapeIf(pattern, test) => CompiledLook::Shape(shape(pattern, Some(test))),
            DetectorLook::Group(pattern) => CompiledLook::Group(shape(pattern, None)),
            DetectorLook::Assigned(strength) => CompiledLook::Assigned(strength),
            DetectorLook::NamedBy(test) => CompiledLook::NamedBy(test),
            DetectorLook::Pem => CompiledLook::Pem,
            DetectorLook::UserInfo => CompiledLook::UserInfo,
            DetectorLook::Cookie => CompiledLook::Cookie,
        };
        Self {
            kind: detector.kind,
            anchor: detector.anchor,
            look,
        }
    }

    /// Returns the range of the secret at `anchor`, if there is one.
    pub(crate) fn find_secret(
        &self,
        text: &str,
        anchor: Range<usize>,
        ahead: &mut Lookahead,
    ) -> Option<Range<usize>> {
        match &self.look {
            CompiledLook::Shape(shape) => shape.find_match(text, anchor, ahead),
            CompiledLook::Assigned(strength) => find_assigned(text, anchor, *strength, ahead),
            CompiledLook::NamedBy(test) => {
                let name = name_in_anchor(text, &anchor);
                test(text.as_bytes(), &name)
                    .then(|| find_assigned(text, name, SecretStrength::Any, ahead))?
            }
            CompiledLook::Group(shape) => shape.find_group(text, anchor.start, ahead),
            CompiledLook::Pem => find_pem(text, anchor.start, ahead),
            CompiledLook::UserInfo => find_url_password(text, anchor.end, ahead),
            CompiledLook::Cookie => find_cookie(text, anchor.end, ahead),
        }
    }
}

/// Returns at most `most` bytes of the text from `start` on.
fn text_near(text: &str, start: usize, most: usize) -> &str {
    &text[start..text.floor_char_boundary(start.saturating_add(most).min(text.len()))]
}

/// Returns the first position from `at` on whose byte is not in `set`.
fn skip_bytes(bytes: &[u8], mut at: usize, set: &[u8]) -> usize {
    while bytes.get(at).is_some_and(|byte| set.contains(byte)) {
        at += 1;
    }
    at
}
