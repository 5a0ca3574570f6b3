//! API keys of providers: sent in a header, wiped from memory, never shown.

use std::{fmt, sync::Arc};

use zeroize::Zeroizing;

use crate::SetupError;

/// An API key of a provider. Cloning shares it.
///
/// It is sent to the provider in a header and nowhere else: `{:?}` shows nothing of it, and it is
/// redacted from whatever a server sends back. It is wiped from memory with the last clone.
///
/// ```
/// use toolgate_models::ApiKey;
/// let key = ApiKey::new("sk-hunter2")?;
/// assert_eq!(format!("{key:?}"), "ApiKey");
/// assert!(ApiKey::new("two\nlines").is_err());
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Clone)]
pub struct ApiKey(Arc<Zeroizing<String>>);

impl ApiKey {
    /// The text that replaces a key.
    pub(crate) const MARK: &'static str = "[key]";

    /// A server may repeat a key in part, so pieces of at least this length are redacted, too.
    const PIECE: usize = 8;

    /// Validates a key. Surrounding white space is removed, since files and variables often end in
    /// a line break.
    pub fn new(key: impl Into<String>) -> Result<Self, SetupError> {
        let given = Zeroizing::new(key.into());
        let key = given.trim();
        if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(Arc::new(Zeroizing::new(key.to_owned()))))
        } else {
            Err(SetupError::InvalidKey)
        }
    }

    /// Reads a key from an environment variable. An empty variable counts as not set.
    pub fn from_env(variable: &str) -> Result<Self, SetupError> {
        let missing = || SetupError::MissingKey {
            variable: variable.to_owned(),
        };
        let key = Zeroizing::new(std::env::var(variable).map_err(|_| missing())?);
        if key.trim().is_empty() {
            return Err(missing());
        }
        Self::new(key.as_str()).map_err(|_| SetupError::InvalidKeyIn {
            variable: variable.to_owned(),
        })
    }

    /// Returns the key itself, for the header that carries it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Redacts the key, and every longer piece of it, from a text.
    pub(crate) fn redact_from(&self, text: &str) -> String {
        // A key that is shorter than `PIECE` is found only as a whole.
        let whole = text.replace(self.expose(), Self::MARK);
        let mut clean = String::with_capacity(whole.len());
        let mut rest = whole.as_str();
        while let Some(first) = rest.chars().next() {
            let piece = self.leading_piece_len(rest);
            let (kept, taken) = if piece > 0 {
                (Self::MARK, piece)
            } else {
                (&rest[..first.len_utf8()], first.len_utf8())
            };
            clean.push_str(kept);
            rest = &rest[taken..];
        }
        clean
    }

    /// Returns the number of bytes at the start of `text` that are a revealing piece of the key, or
    /// 0.
    fn leading_piece_len(&self, text: &str) -> usize {
        let key = self.expose();
        let ascii = text
            .bytes()
            .take(key.len())
            .take_while(u8::is_ascii_graphic)
            .count();
        // All ASCII up to `ascii`, so none of these indices splits a character.
        if ascii < Self::PIECE || !key.contains(&text[..Self::PIECE]) {
            return 0;
        }
        (Self::PIECE..=ascii)
            .rev()
            .find(|length| key.contains(&text[..*length]))
            .unwrap_or(0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_output_of_a_key_shows_nothing_of_it() {
        let key = ApiKey::new(" sk-canary-123456\n").expect("a key");
        assert_eq!(key.expose(), "sk-canary-123456");
        assert_eq!(format!("{key:?} {:?}", Some(&key)), "ApiKey Some(ApiKey)");
    }

    #[test]
    fn text_that_cannot_be_a_header_is_not_a_key() {
        for bad in ["", "  ", "a b", "a\nb", "schlüssel"] {
            let error = ApiKey::new(bad).expect_err("not a key");
            assert!(matches!(error, SetupError::InvalidKey), "{bad:?}");
        }
    }

    #[test]
    fn a_missing_key_names_its_variable() {
        let error = ApiKey::from_env("TOOLGATE_NO_SUCH_KEY").expect_err("not set");
        assert_eq!(
            error.to_string(),
            "TOOLGATE_NO_SUCH_KEY is not set; it has to hold the key of the provider"
        );
    }

    #[test]
    fn a_key_and_its_pieces_are_redacted_from_server_messages() {
        let key = ApiKey::new("sk-canary-0123456789").expect("a key");
        for (said, clean) in [
            (
                "Bearer sk-canary-0123456789 is wrong",
                "Bearer [key] is wrong",
            ),
            ("sk-canary-01234", "[key]"),
            ("cut…-0123456789?", "cut…[key]?"),
            ("sk-cana***", "sk-cana***"),
            ("nothing of it: é", "nothing of it: é"),
        ] {
            assert_eq!(key.redact_from(said), clean);
        }
        assert_eq!(
            ApiKey::new("abc").expect("a key").redact_from("an abc, ab"),
            "an [key], ab"
        );
    }
}
