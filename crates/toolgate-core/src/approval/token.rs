//! Signed tokens: the proof that exactly this was asked, and the proof of a decision on it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalAnswer, ApprovalId, ApprovalRequest, ApproverIdentity, Digest, Json, KeyId, Keyring,
    Principal, RejectCode, Timestamp, Verdict, Vote, approval::keys::BadSignature,
};

/// The approval request that a token is bound to, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskClaims {
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// The generation of the call.
    pub generation: u32,
    /// The digest of the arguments in the request.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool, if it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The version of the policy, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// The digest of everything that was shown.
    pub shown_digest: Digest,
    /// The time the request expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// An accepted decision: its request, arguments, approvers and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantClaims {
    /// The request.
    pub about: AskClaims,
    /// The word of the decision: `approve`, `approve_with_edits` or `deny`.
    pub decision: String,
    /// The digest of the arguments that may run.
    pub arguments_digest: Digest,
    /// The names of the approvers, the last one first.
    pub by: Vec<Principal>,
    /// The approvers with how each was established. Empty if all names are only claimed, as in
    /// tokens of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<ApproverIdentity>,
    /// The time the decision was accepted.
    pub decided_at: Timestamp,
    /// True if the approver has acknowledged that the request was not shown in full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

/// The claims of a token. The kind is part of what is signed, so a request cannot pass for its
/// answer.
#[derive(Serialize, Deserialize)]
#[serde(
    tag = "kind",
    content = "claims",
    rename_all = "snake_case",
    deny_unknown_fields
)]
enum TokenClaims {
    Ask(AskClaims),
    Grant(Box<GrantClaims>),
    Vote(Box<VoteClaims>),
    Seal(AskClaims),
    Record(RecordClaims),
}

/// A record that only the holder of the keys can have written.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordClaims {
    name: String,
    content: Digest,
}

/// One approval of several that a quorum needs.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VoteClaims {
    about: AskClaims,
    by: ApproverIdentity,
    arguments_digest: Digest,
    at: Timestamp,
}

impl VoteClaims {
    fn for_vote(request: &ApprovalRequest, vote: &Vote) -> Self {
        let Vote {
            by,
            arguments_digest,
            at,
            token: _,
        } = vote;
        Self {
            about: AskClaims::for_request(request),
            by: by.clone(),
            arguments_digest: *arguments_digest,
            at: *at,
        }
    }
}

/// The reason a token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It was not signed with our keys, was changed, or is not a token.
    #[error("the token is not valid")]
    Forged,
    /// It was signed with a key that is no longer in the key ring.
    #[error("the token was signed with a key that is no longer valid")]
    KeyGone,
    /// It is genuine but belongs to something else.
    #[error("the token belongs to something else")]
    Mismatch,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
}

impl From<TokenError> for RejectCode {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Forged => Self::Forged,
            TokenError::KeyGone => Self::KeyGone,
            TokenError::Mismatch => Self::TokenMismatch,
            TokenError::Expired => Self::Expired,
        }
    }
}

impl From<BadSignature> for TokenError {
    fn from(error: BadSignature) -> Self {
        match error {
            BadSignature::KeyGone => Self::KeyGone,
            BadSignature::Mismatch => Self::Forged,
        }
    }
}

impl AskClaims {
    /// Returns the claims of a token for this request.
    pub fn for_request(request: &ApprovalRequest) -> Self {
        Self {
            approval_id: request.approval_id,
            generation: request.generation,
            arguments_digest: request.arguments_digest,
            fingerprint: request.fingerprint,
            policy_version: request.policy_version.clone(),
            shown_digest: request.shown_digest(),
            expires_at: request.expires_at,
        }
    }
}

impl GrantClaims {
    /// Returns the claims of a token for this answer; `None` if the answer has no time.
    pub fn for_answer(request: &ApprovalRequest, answer: &ApprovalAnswer) -> Option<Self> {
        Some(Self {
            about: AskClaims::for_request(request),
            decision: answer.decision.verdict.as_str().to_owned(),
            arguments_digest: answer.final_digest(),
            by: answer.approvers().map(|by| by.name.clone()).collect(),
            identities: answer.established_identities(),
            decided_at: answer.decided_at?,
            unseen: answer.decision.unseen,
        })
    }
}

impl Keyring {
    /// The longest token that is parsed.
    pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

    /// Creates the token that is sent with a request. The same request always has the same token
    /// per key.
    ///
    /// ```
    /// use toolgate_core::{ApprovalRequest, Arguments, Call, KeyKind, Keyring, SecretKey, TokenError};
    /// let ring = Keyring::new(SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]));
    /// let request = ApprovalRequest::for_call(&Call::detached("pay", Arguments::empty()));
    /// let token = ring.ask_token(&request);
    /// assert!(token.starts_with("tg1.k1."));
    /// assert_eq!(ring.verify_ask_token(&token).unwrap().approval_id, request.approval_id);
    /// assert_eq!(ring.verify_ask_token(&token.replace("tg1.k1", "tg1.k2")), Err(TokenError::KeyGone));
    /// # Ok::<(), toolgate_core::InvalidKeyId>(())
    /// ```
    pub fn ask_token(&self, request: &ApprovalRequest) -> String {
        self.sign_claims(&TokenClaims::Ask(AskClaims::for_request(request)))
    }

    /// Creates the token that makes an answer valid. An answer without a time has none.
    pub fn grant_token(
        &self,
        request: &ApprovalRequest,
        answer: &ApprovalAnswer,
    ) -> Option<String> {
        let claims = GrantClaims::for_answer(request, answer)?;
        Some(self.sign_claims(&TokenClaims::Grant(Box::new(claims))))
    }

    /// Verifies a token that was sent with a request. It does not check that the request is still
    /// pending.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if the token is not valid or of another kind.
    pub fn verify_ask_token(&self, token: &str) -> Result<AskClaims, TokenError> {
        match self.verify_token(token)? {
            TokenClaims::Ask(claims) => Ok(claims),
            TokenClaims::Grant(_)
            | TokenClaims::Vote(_)
            | TokenClaims::Seal(_)
            | TokenClaims::Record(_) => Err(TokenError::Mismatch),
        }
    }

    /// Verifies a token that belongs to an answer.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if the token is not valid or of another kind.
    pub fn verify_grant_token(&self, token: &str) -> Result<GrantClaims, TokenError> {
        match self.verify_token(token)? {
            TokenClaims::Grant(claims) => Ok(*claims),
            TokenClaims::Ask(_)
            | TokenClaims::Vote(_)
            | TokenClaims::Seal(_)
            | TokenClaims::Record(_) => Err(TokenError::Mismatch),
        }
    }

    /// Creates the token that makes a vote valid.
    pub fn vote_token(&self, request: &ApprovalRequest, vote: &Vote) -> String {
        self.sign_claims(&TokenClaims::Vote(Box::new(VoteClaims::for_vote(
            request, vote,
        ))))
    }

    /// Checks that a vote on this request was signed with our keys.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if its token is missing, not valid, or belongs to another vote.
    pub fn check_vote_token(
        &self,
        request: &ApprovalRequest,
        vote: &Vote,
    ) -> Result<(), TokenError> {
        match self.verify_token(vote.token.as_deref().unwrap_or_default())? {
            TokenClaims::Vote(claims) if *claims == VoteClaims::for_vote(request, vote) => Ok(()),
            TokenClaims::Ask(_)
            | TokenClaims::Grant(_)
            | TokenClaims::Vote(_)
            | TokenClaims::Seal(_)
            | TokenClaims::Record(_) => Err(TokenError::Mismatch),
        }
    }

    /// Creates the token that is stored with a request. It is of another kind than the one that is
    /// sent to an approver: a reader of the store cannot decide with it.
    pub(crate) fn seal_token(&self, request: &ApprovalRequest) -> String {
        self.sign_claims(&TokenClaims::Seal(AskClaims::for_request(request)))
    }

    /// Checks that a token was stored with exactly this request.
    pub(crate) fn check_seal_token(
        &self,
        token: &str,
        request: &ApprovalRequest,
    ) -> Result<(), TokenError> {
        match self.verify_token(token)? {
            TokenClaims::Seal(claims) if claims == AskClaims::for_request(request) => Ok(()),
            TokenClaims::Ask(_)
            | TokenClaims::Grant(_)
            | TokenClaims::Vote(_)
            | TokenClaims::Seal(_)
            | TokenClaims::Record(_) => Err(TokenError::Mismatch),
        }
    }

    /// Creates the token that is stored with a record of this name, so that a change of the record
    /// in the store is found out.
    ///
    /// ```
    /// use toolgate_core::{Digest, KeyKind, Keyring, SecretKey};
    /// let ring = Keyring::new(SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]));
    /// let content = Digest::of_bytes(b"options");
    /// let seal = ring.seal_record("session-options/1", content);
    /// assert!(ring.check_record_seal(&seal, "session-options/1", content).is_ok());
    /// assert!(ring.check_record_seal(&seal, "session-options/2", content).is_err());
    /// # Ok::<(), toolgate_core::InvalidKeyId>(())
    /// ```
    pub fn seal_record(&self, name: &str, content: Digest) -> String {
        self.sign_claims(&TokenClaims::Record(RecordClaims {
            name: name.to_owned(),
            content,
        }))
    }

    /// Checks that a token was stored with exactly this record.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if the token is not valid or belongs to something else.
    pub fn check_record_seal(
        &self,
        token: &str,
        name: &str,
        content: Digest,
    ) -> Result<(), TokenError> {
        match self.verify_token(token)? {
            TokenClaims::Record(claims) if claims.name == name && claims.content == content => {
                Ok(())
            }
            TokenClaims::Ask(_)
            | TokenClaims::Grant(_)
            | TokenClaims::Vote(_)
            | TokenClaims::Seal(_)
            | TokenClaims::Record(_) => Err(TokenError::Mismatch),
        }
    }

    /// Checks that a token belongs to exactly this request and has not expired.
    ///
    /// # Errors
    ///
    /// [`TokenError`] that says which of these failed.
    pub fn check_ask_token(
        &self,
        token: &str,
        request: &ApprovalRequest,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let claims = self.verify_ask_token(token)?;
        if claims != AskClaims::for_request(request) {
            return Err(TokenError::Mismatch);
        }
        if claims.expires_at.is_some_and(|until| now >= until) {
            return Err(TokenError::Expired);
        }
        Ok(())
    }

    fn sign_claims(&self, claims: &TokenClaims) -> String {
        let value = serde_json::to_value(claims).expect("claims are plain data");
        // Canonical, so that the same request gives the same token in every process.
        let canonical = serde_json_canonicalizer::to_vec(&value).expect("claims are plain data");
        let signed = format!(
            "{TOKEN_PREFIX}.{}.{}",
            self.active_key_id(),
            BASE64.encode(canonical)
        );
        let signature = BASE64.encode(self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn verify_token(&self, token: &str) -> Result<TokenClaims, TokenError> {
        let parts = TokenParts::parse(token)?;
        let signature = BASE64
            .decode(parts.signature)
            .map_err(|_| TokenError::Forged)?;
        // The claims are decoded only after this.
        self.verify(&parts.key, parts.signed.as_bytes(), &signature)?;
        parts.decode_claims()
    }
}

/// The prefix of every token; it changes with the token format.
const TOKEN_PREFIX: &str = "tg1";

/// The parts of a token. None of them is verified.
struct TokenParts<'a> {
    key: KeyId,
    claims: &'a str,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> TokenParts<'a> {
    fn parse(token: &'a str) -> Result<Self, TokenError> {
        // Tokens come from clients, so the size is limited before any other work.
        if token.len() > Keyring::MAX_TOKEN_BYTES {
            return Err(TokenError::Forged);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Forged)?;
        let mut parts = signed.split('.');
        let prefix = parts.next();
        let key = parts.next();
        let claims = parts.next();
        let (Some(TOKEN_PREFIX), Some(key), Some(claims), None) =
            (prefix, key, claims, parts.next())
        else {
            return Err(TokenError::Forged);
        };
        Ok(Self {
            key: key.parse().map_err(|_| TokenError::Forged)?,
            claims,
            signed,
            signature,
        })
    }

    fn decode_claims(&self) -> Result<TokenClaims, TokenError> {
        let json = BASE64.decode(self.claims).map_err(|_| TokenError::Forged)?;
        serde_json::from_slice(&json).map_err(|_| TokenError::Forged)
    }
}

/// Returns the approval id that a token claims, without verifying the signature. Only for recording
/// that the token was rejected.
pub fn unverified_approval_id(token: &str) -> Option<ApprovalId> {
    match TokenParts::parse(token).ok()?.decode_claims().ok()? {
        TokenClaims::Ask(claims) | TokenClaims::Seal(claims) => Some(claims.approval_id),
        TokenClaims::Grant(claims) => Some(claims.about.approval_id),
        TokenClaims::Vote(claims) => Some(claims.about.approval_id),
        TokenClaims::Record(_) => None,
    }
}

impl ApprovalRequest {
    /// Returns the digest of everything in the request: any change makes it another request.
    pub fn shown_digest(&self) -> Digest {
        let shown = self
            .shown
            .as_ref()
            .map(|shown| match Json::new(shown.clone()) {
                Ok(json) => json.digest(),
                Err(_) => Digest::of_bytes(b"nested too deeply"),
            });
        // Values that may be nested deeply are included as digests, since `Json::from_shallow` trusts
        // its input.
        let mut flat = serde_json::json!({
            "approval_id": self.approval_id,
            "generation": self.generation,
            "asked_by": self.asked_by,
            "tool": self.tool,
            "arguments": self.arguments.digest(),
            "withheld": self.withheld,
            "arguments_digest": self.arguments_digest,
            "fingerprint": self.fingerprint,
            "reason": self.reason,
            "risk": self.risk,
            "shown": shown,
            "expires_at": self.expires_at,
            "requester": self.requester,
            "policy_version": self.policy_version,
            "files": self.files,
            "quorum": self.quorum,
            "changed": self.changed,
        });
        // Only if there are any: a request of an earlier version keeps its digest.
        if !self.requirements.is_empty() {
            flat["requirements"] = serde_json::json!(self.requirements);
        }
        if let Some(stated) = &self.stated_reason {
            flat["stated_reason"] = serde_json::json!(stated);
        }
        if !self.links.is_empty() {
            flat["links"] = serde_json::json!(self.links);
        }
        if self.each_time {
            flat["each_time"] = serde_json::json!(true);
        }
        if let Some(workspace) = &self.workspace {
            flat["workspace"] = serde_json::json!(workspace);
        }
        if let Some(digest) = self.event_digest {
            flat["event_digest"] = serde_json::json!(digest);
        }
        Json::from_shallow(flat).digest()
    }
}

impl ApprovalAnswer {
    /// Returns the digest of the arguments that this answer lets run.
    pub fn final_digest(&self) -> Digest {
        match &self.decision.verdict {
            Verdict::ApproveWithEdits { arguments } => arguments.digest(),
            Verdict::Approve | Verdict::Deny { .. } => self.arguments_digest,
        }
    }
}

impl Verdict {
    /// Returns the wire word of the decision.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWithEdits { .. } => "approve_with_edits",
            Self::Deny { .. } => "deny",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Call, Decision, KeyKind, SecretKey};

    fn ring(id: &str, kind: KeyKind) -> Keyring {
        Keyring::new(SecretKey::new(id.parse().expect("a name"), kind, [9; 32]))
    }

    fn request() -> ApprovalRequest {
        let call = Call::detached("pay", Arguments::parse(r#"{"n":1}"#).expect("object"));
        ApprovalRequest::for_call(&call).expiring_at(Timestamp::from_micros(1_000))
    }

    fn answer_to(request: &ApprovalRequest) -> ApprovalAnswer {
        let mut answer = ApprovalAnswer::for_request(request, Decision::approve("ann"));
        answer.decided_at = Some(Timestamp::from_micros(500));
        answer
    }

    #[test]
    fn a_token_contains_the_claims_it_was_made_from() {
        let request = request();
        let early = Timestamp::EPOCH;
        for kind in [KeyKind::HmacSha256, KeyKind::Ed25519] {
            let ring = ring("k", kind);
            assert_eq!(
                ring.check_ask_token(&ring.ask_token(&request), &request, early),
                Ok(())
            );
            let answer = answer_to(&request);
            let grant = ring.grant_token(&request, &answer).expect("dated");
            assert_eq!(
                ring.verify_grant_token(&grant).ok(),
                GrantClaims::for_answer(&request, &answer)
            );
        }
    }

    #[test]
    fn a_request_token_does_not_pass_for_an_answer_token_nor_the_reverse() {
        let ring = ring("k", KeyKind::HmacSha256);
        let request = request();
        let grant = ring
            .grant_token(&request, &answer_to(&request))
            .expect("dated");
        assert_eq!(
            ring.verify_grant_token(&ring.ask_token(&request)),
            Err(TokenError::Mismatch)
        );
        assert_eq!(ring.verify_ask_token(&grant), Err(TokenError::Mismatch));
    }

    #[test]
    fn changing_any_byte_of_a_token_invalidates_it() {
        // Verifying Ed25519 signatures is slow, so only some bytes are tried.
        for (kind, step) in [(KeyKind::HmacSha256, 1), (KeyKind::Ed25519, 41)] {
            let ring = ring("k", kind);
            let token = ring.ask_token(&request()).into_bytes();
            for at in (0..token.len()).step_by(step) {
                let mut changed = token.clone();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).expect("ASCII");
                assert!(ring.verify_ask_token(&changed).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_token_of_another_request_or_an_expired_one_is_rejected() {
        let ring = ring("k", KeyKind::HmacSha256);
        let request = request();
        let token = ring.ask_token(&request);
        let early = Timestamp::EPOCH;
        let other = ApprovalRequest {
            generation: 1,
            ..request.clone()
        };
        assert_eq!(
            ring.check_ask_token(&token, &other, early),
            Err(TokenError::Mismatch)
        );
        let late = Timestamp::from_micros(1_000);
        assert_eq!(
            ring.check_ask_token(&token, &request, late),
            Err(TokenError::Expired)
        );
    }

    #[test]
    fn a_removed_key_is_distinguished_from_a_forged_token() {
        let token = ring("old", KeyKind::HmacSha256).ask_token(&request());
        assert_eq!(
            ring("new", KeyKind::HmacSha256).verify_ask_token(&token),
            Err(TokenError::KeyGone)
        );
        let other = Keyring::new(SecretKey::new(
            "old".parse().expect("a name"),
            KeyKind::HmacSha256,
            [1; 32],
        ));
        assert_eq!(other.verify_ask_token(&token), Err(TokenError::Forged));
    }

    #[test]
    fn text_that_is_not_a_token_is_forged() {
        let ring = ring("k", KeyKind::HmacSha256);
        let long = format!("tg1.k.{}.AA", "A".repeat(Keyring::MAX_TOKEN_BYTES));
        for text in [
            "",
            ".",
            "tg1",
            "tg1.k.AA",
            "tg1.k.AA.AA.AA",
            "tg2.k.AA.AA",
            "tg1.k k.AA.AA",
            "tg1.k.é.AA",
            &long,
        ] {
            assert_eq!(
                ring.verify_ask_token(text),
                Err(TokenError::Forged),
                "{text}"
            );
        }
    }

    #[test]
    fn a_token_names_its_approval_even_if_it_is_invalid() {
        let token = ring("k", KeyKind::HmacSha256).ask_token(&request());
        assert_eq!(
            unverified_approval_id(&format!("{token}x")),
            Some(request().approval_id)
        );
        assert_eq!(unverified_approval_id("nonsense"), None);
    }

    #[test]
    fn every_field_of_a_request_is_part_of_its_digest() {
        let plain = request();
        let digest = plain.shown_digest();
        let others = [
            plain.clone().with_reason("another reason"),
            plain.clone().with_preview("a diff".into()),
            plain.clone().expiring_at(Timestamp::from_micros(2_000)),
            ApprovalRequest {
                arguments: Arguments::empty(),
                ..plain.clone()
            },
            ApprovalRequest {
                tool: "other".into(),
                ..plain.clone()
            },
            ApprovalRequest {
                policy_version: Some("2".into()),
                ..plain.clone()
            },
            ApprovalRequest {
                requester: Some("eve".into()),
                ..plain.clone()
            },
            ApprovalRequest {
                changed: vec![crate::ApprovalChange::Tool],
                ..plain.clone()
            },
            ApprovalRequest {
                each_time: true,
                ..plain.clone()
            },
            ApprovalRequest {
                workspace: Some("/srv/project".into()),
                ..plain.clone()
            },
            ApprovalRequest {
                quorum: Some(crate::Quorum {
                    needed: 2,
                    among: Vec::new(),
                }),
                ..plain.clone()
            },
        ];
        for other in others {
            assert_ne!(other.shown_digest(), digest, "{other:?}");
        }
        let read: ApprovalRequest =
            serde_json::from_str(&serde_json::to_string(&plain).expect("writes")).expect("reads");
        assert_eq!(read.shown_digest(), digest);
    }
}
