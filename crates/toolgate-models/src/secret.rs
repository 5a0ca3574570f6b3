//! Keys of providers: sent in a header, wiped from memory, shown nowhere.

use std::{fmt, sync::Arc};

use zeroize::Zeroizing;

use crate::SetupError;

/// A key of a provider. Cloning shares it.
///
/// It is sent to the provider in a header and goes nowhere else: `{:?}` shows nothing of it, and it is taken out of
/// whatever a server says back. It is wiped from memory with the last clone.
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
    /// What stands where a key was.
    pub(crate) const MARK: &'static str = "[key]";

    /// A server may repeat a key in part, so pieces of this length are taken out, too.
    const PIECE: usize = 8;

    /// Takes a key. Space around it is left out, since files and variables often end in a line break.
    pub fn new(key: impl Into<String>) -> Result<Self, SetupError> {
        let given = Zeroizing::new(key.into());
        let key = given.trim();
        match !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(Arc::new(Zeroizing::new(key.to_owned())))),
            false => Err(SetupError::InvalidKey),
        }
    }

    /// Takes a key from a variable of the environment. A variable that is empty counts as not set.
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

    /// The key itself, for the header that it is sent in.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the key, and without any longer piece of it.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let whole = text.replace(self.expose(), Self::MARK);
        let mut clean = String::with_capacity(whole.len());
        let mut rest = whole.as_str();
        while let Some(first) = rest.chars().next() {
            let piece = self.piece_at(rest);
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

    /// How many bytes at the start of the text are a piece of the key that is long enough to give it away.
    fn piece_at(&self, text: &str) -> usize {
        let key = self.expose();
        let ascii = text
            .bytes()
            .take(key.len())
            .take_while(u8::is_ascii_graphic)
            .count();
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
    fn a_key_shows_nothing_of_itself() {
        let key = ApiKey::new(" sk-canary-123456\n").expect("a key");
        assert_eq!(key.expose(), "sk-canary-123456");
        assert_eq!(format!("{key:?} {:?}", Some(&key)), "ApiKey Some(ApiKey)");
    }

    #[test]
    fn what_cannot_be_a_header_is_no_key() {
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
    fn a_key_and_its_pieces_are_taken_out_of_what_a_server_says() {
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
            assert_eq!(key.scrub(said), clean);
        }
        assert_eq!(
            ApiKey::new("abc").expect("a key").scrub("an abc, ab"),
            "an [key], ab"
        );
    }
}
