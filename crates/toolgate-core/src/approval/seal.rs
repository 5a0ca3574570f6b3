//! The seal of a stored approval request: nothing that was changed in the store is shown or signed.

use crate::{ApprovalRequest, Keyring, TokenError};

/// The reason a stored approval request is neither shown nor decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangedRequest {
    /// Its arguments are not those that its digest is about.
    #[error("the stored approval request was changed: its arguments are not those that would run")]
    Arguments,
    /// Its seal is not valid.
    #[error("the stored approval request was changed since approval was requested")]
    Seal,
    /// It has no seal: it was stored by an earlier version or without keys.
    #[error(
        "the stored approval request has no seal, so it cannot be known whether it was changed"
    )]
    Unsealed,
    /// It was sealed with a key that no longer exists.
    #[error("the stored approval request was sealed with a key that no longer exists")]
    KeyGone,
    /// The list of approvals shows something else.
    #[error("the list of approvals was changed: it does not show the stored approval request")]
    Listed,
}

impl ApprovalRequest {
    /// Binds the request to its redacted copy in the event, and seals it if there are keys.
    pub fn seal(&mut self, listed: &Self, keyring: Option<&Keyring>) {
        self.event_digest = Some(listed.shown_digest());
        self.seal = keyring.map(|keyring| keyring.seal_token(self));
    }

    /// Checks that the request is as it was when it was stored. Without keys only the arguments can
    /// be checked.
    ///
    /// # Errors
    ///
    /// [`ChangedRequest`] if it was changed, or if that cannot be known.
    pub fn check_seal(&self, keyring: Option<&Keyring>) -> Result<(), ChangedRequest> {
        if self.arguments.digest() != self.arguments_digest {
            return Err(ChangedRequest::Arguments);
        }
        let Some(keyring) = keyring else {
            return Ok(());
        };
        let seal = self.seal.as_deref().ok_or(ChangedRequest::Unsealed)?;
        keyring
            .check_seal_token(seal, self)
            .map_err(|error| match error {
                TokenError::KeyGone => ChangedRequest::KeyGone,
                TokenError::Forged | TokenError::Mismatch | TokenError::Expired => {
                    ChangedRequest::Seal
                }
            })
    }

    /// Checks that a list shows the redacted copy of this request, unchanged.
    ///
    /// # Errors
    ///
    /// [`ChangedRequest::Listed`] if it shows anything else.
    pub fn check_listed(&self, listed: &Self) -> Result<(), ChangedRequest> {
        // Without the digest it is a request of an earlier version, which has no seal either.
        match self.event_digest {
            Some(digest) if digest != listed.shown_digest() => Err(ChangedRequest::Listed),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Call, KeyKind, SecretKey};

    fn keyring(id: &str) -> Keyring {
        let id = id.parse().expect("a name");
        Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [7; 32]))
    }

    /// Returns a sealed request and its redacted copy.
    fn sealed() -> (ApprovalRequest, ApprovalRequest) {
        let arguments = Arguments::parse(r#"{"command":"ls"}"#).expect("an object");
        let mut request = ApprovalRequest::for_call(&Call::detached("shell", arguments));
        let mut listed = request.clone();
        listed.arguments = Arguments::empty();
        listed.withheld = true;
        request.seal(&listed, Some(&keyring("k1")));
        (request, listed)
    }

    #[test]
    fn a_request_that_was_changed_in_any_field_is_found_out() {
        let (request, listed) = sealed();
        assert_eq!(request.check_seal(Some(&keyring("k1"))), Ok(()));
        assert_eq!(request.check_listed(&listed), Ok(()));
        let seal = request.seal.as_deref().expect("sealed");
        let decided = keyring("k1").verify_ask_token(seal);
        assert_eq!(decided, Err(TokenError::Mismatch), "a seal decides nothing");
        let arguments = || Arguments::parse(r#"{"command":"rm"}"#).expect("an object");
        let changes: [fn(&mut ApprovalRequest); 11] = [
            |request| request.tool = "read_file".into(),
            |request| request.reason = Some("harmless".into()),
            |request| request.stated_reason = Some("harmless".into()),
            |request| request.shown = Some("no change".into()),
            |request| request.generation += 1,
            |request| request.fingerprint = Some(crate::Digest::of_bytes(b"x")),
            |request| request.risk = crate::SideEffect::None,
            |request| request.event_digest = None,
            |request| request.workspace = Some("/elsewhere".into()),
            |request| request.each_time = true,
            |request| {
                request.links.push(crate::PathLink {
                    path: "a".into(),
                    target: "b".into(),
                })
            },
        ];
        for change in changes {
            let mut changed = request.clone();
            change(&mut changed);
            let checked = changed.check_seal(Some(&keyring("k1")));
            assert_eq!(checked, Err(ChangedRequest::Seal), "{changed:?}");
        }
        let mut changed = request.clone();
        changed.arguments = arguments();
        let expected = Err(ChangedRequest::Arguments);
        assert_eq!(changed.check_seal(None), expected, "also without keys");
        changed.arguments_digest = arguments().digest();
        assert_eq!(
            changed.check_seal(Some(&keyring("k1"))),
            Err(ChangedRequest::Seal)
        );
        let mut changed = listed.clone();
        changed.arguments = arguments();
        assert_eq!(request.check_listed(&changed), Err(ChangedRequest::Listed));
    }

    #[test]
    fn a_seal_that_is_missing_or_from_another_key_does_not_count() {
        let (mut request, _) = sealed();
        let other = request.check_seal(Some(&keyring("k2")));
        assert_eq!(other, Err(ChangedRequest::KeyGone));
        request.seal = Some("tg1.k1.e30.AAAA".to_owned());
        let forged = request.check_seal(Some(&keyring("k1")));
        assert_eq!(forged, Err(ChangedRequest::Seal));
        let ask = keyring("k1").ask_token(&request);
        request.seal = Some(ask);
        let other = request.check_seal(Some(&keyring("k1")));
        assert_eq!(other, Err(ChangedRequest::Seal), "a token of another kind");
        request.seal = None;
        request.signed = false;
        let missing = request.check_seal(Some(&keyring("k1")));
        assert_eq!(missing, Err(ChangedRequest::Unsealed));
    }
}
