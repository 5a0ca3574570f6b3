//! Signed tokens: the proof that we asked exactly this, and the proof that somebody decided on it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};

use crate::{
    Answer, ApprovalId, ApprovalRequest, Digest, Json, KeyId, Keyring, PostCode, Principal,
    Timestamp, Verdict, Vote, keys::BadSignature,
};

/// The question that a token is bound to, to the letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskClaims {
    /// Which approval.
    pub approval_id: ApprovalId,
    /// Which generation of the call.
    pub generation: u32,
    /// The digest of the arguments that were asked about.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool, if it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The version of the policy, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// The digest of everything that was shown.
    pub shown_digest: Digest,
    /// When the question lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A decision that was taken in: about which question, what, by whom, when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantClaims {
    /// The question.
    pub about: AskClaims,
    /// The word of the decision: `approve`, `approve_with_edits` or `deny`.
    pub decision: String,
    /// The digest of the arguments that may run.
    pub arguments_digest: Digest,
    /// Who decided; the one who decided last comes first.
    pub by: Vec<Principal>,
    /// When it was taken in.
    pub decided_at: Timestamp,
}

/// What a token says. The kind is part of what is signed, so a question cannot pass for its answer.
#[derive(Serialize, Deserialize)]
#[serde(
    tag = "kind",
    content = "claims",
    rename_all = "snake_case",
    deny_unknown_fields
)]
enum Claims {
    Ask(AskClaims),
    Grant(Box<GrantClaims>),
    Vote(Box<VoteClaims>),
}

/// One of several approvals that it takes.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VoteClaims {
    about: AskClaims,
    by: Principal,
    arguments_digest: Digest,
    at: Timestamp,
}

impl VoteClaims {
    fn of(request: &ApprovalRequest, vote: &Vote) -> Self {
        let Vote {
            by,
            arguments_digest,
            at,
            token: _,
        } = vote;
        Self {
            about: AskClaims::of(request),
            by: by.clone(),
            arguments_digest: *arguments_digest,
            at: *at,
        }
    }
}

/// Why a token does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It was not signed by us, was changed, or is no token at all.
    #[error("the token is not valid")]
    Forged,
    /// It was signed with a key that does not count any more.
    #[error("the token was signed with a key that is not used any more")]
    KeyGone,
    /// It is genuine and about something else.
    #[error("the token is about something else")]
    Mismatch,
    /// It has lapsed.
    #[error("the token has expired")]
    Expired,
}

impl From<TokenError> for PostCode {
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
            BadSignature::Wrong => Self::Forged,
        }
    }
}

impl AskClaims {
    /// What a token about this question says.
    pub fn of(request: &ApprovalRequest) -> Self {
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
    /// What a token about this answer says; nothing if the answer does not say when it was given.
    pub fn of(request: &ApprovalRequest, answer: &Answer) -> Option<Self> {
        Some(Self {
            about: AskClaims::of(request),
            decision: answer.decision.verdict.word().to_owned(),
            arguments_digest: answer.final_digest(),
            by: [&answer.decision.by]
                .into_iter()
                .chain(&answer.with)
                .cloned()
                .collect(),
            decided_at: answer.decided_at?,
        })
    }
}

impl Keyring {
    /// The longest token that is looked at.
    pub const MOST_TOKEN_BYTES: usize = 16 * 1024;

    /// Makes the token that goes out with a question. The same question always has the same one per key.
    ///
    /// ```
    /// use toolgate_core::{ApprovalRequest, Arguments, Call, KeyKind, Keyring, SecretKey, TokenError};
    /// let ring = Keyring::new(SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]));
    /// let request = ApprovalRequest::about(&Call::detached("pay", Arguments::empty()));
    /// let token = ring.ask_token(&request);
    /// assert!(token.starts_with("tg1.k1."));
    /// assert_eq!(ring.read_ask(&token).unwrap().approval_id, request.approval_id);
    /// assert_eq!(ring.read_ask(&token.replace("tg1.k1", "tg1.k2")), Err(TokenError::KeyGone));
    /// # Ok::<(), toolgate_core::InvalidKeyId>(())
    /// ```
    pub fn ask_token(&self, request: &ApprovalRequest) -> String {
        self.seal(&Claims::Ask(AskClaims::of(request)))
    }

    /// Makes the token that makes an answer count. An answer that does not say when it was given has none.
    pub fn grant_token(&self, request: &ApprovalRequest, answer: &Answer) -> Option<String> {
        let claims = GrantClaims::of(request, answer)?;
        Some(self.seal(&Claims::Grant(Box::new(claims))))
    }

    /// Reads a token that went out with a question. Whether it still is the open question is not looked at.
    pub fn read_ask(&self, token: &str) -> Result<AskClaims, TokenError> {
        match self.open(token)? {
            Claims::Ask(claims) => Ok(claims),
            Claims::Grant(_) | Claims::Vote(_) => Err(TokenError::Mismatch),
        }
    }

    /// Reads a token that came with an answer.
    pub fn read_grant(&self, token: &str) -> Result<GrantClaims, TokenError> {
        match self.open(token)? {
            Claims::Grant(claims) => Ok(*claims),
            Claims::Ask(_) | Claims::Vote(_) => Err(TokenError::Mismatch),
        }
    }

    /// Makes the token that makes a vote count.
    pub fn vote_token(&self, request: &ApprovalRequest, vote: &Vote) -> String {
        self.seal(&Claims::Vote(Box::new(VoteClaims::of(request, vote))))
    }

    /// Makes sure that a vote on this question was counted by us.
    pub fn check_vote(&self, request: &ApprovalRequest, vote: &Vote) -> Result<(), TokenError> {
        match self.open(vote.token.as_deref().unwrap_or_default())? {
            Claims::Vote(claims) if *claims == VoteClaims::of(request, vote) => Ok(()),
            Claims::Vote(_) | Claims::Ask(_) | Claims::Grant(_) => Err(TokenError::Mismatch),
        }
    }

    /// Makes sure that a token is about exactly this question and has not lapsed.
    pub fn check_ask(
        &self,
        token: &str,
        request: &ApprovalRequest,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let claims = self.read_ask(token)?;
        if claims != AskClaims::of(request) {
            return Err(TokenError::Mismatch);
        }
        if claims.expires_at.is_some_and(|until| now >= until) {
            return Err(TokenError::Expired);
        }
        Ok(())
    }

    fn seal(&self, claims: &Claims) -> String {
        let value = serde_json::to_value(claims).expect("claims are plain data");
        let canonical = serde_json_canonicalizer::to_vec(&value).expect("claims are plain data");
        let signed = format!("{PREFIX}.{}.{}", self.active(), BASE64.encode(canonical));
        let signature = BASE64.encode(self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn open(&self, token: &str) -> Result<Claims, TokenError> {
        let parts = Parts::of(token)?;
        let signature = BASE64
            .decode(parts.signature)
            .map_err(|_| TokenError::Forged)?;
        self.verify(&parts.key, parts.signed.as_bytes(), &signature)?;
        parts.claims()
    }
}

/// The word that every token starts with; another one for another way to write them.
const PREFIX: &str = "tg1";

/// A token taken apart. Nothing in it is known to be true.
struct Parts<'a> {
    key: KeyId,
    claims: &'a str,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > Keyring::MOST_TOKEN_BYTES {
            return Err(TokenError::Forged);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Forged)?;
        let mut parts = signed.split('.');
        let (prefix, key, claims) = (parts.next(), parts.next(), parts.next());
        let (Some(PREFIX), Some(key), Some(claims), None) = (prefix, key, claims, parts.next())
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

    fn claims(&self) -> Result<Claims, TokenError> {
        let json = BASE64.decode(self.claims).map_err(|_| TokenError::Forged)?;
        serde_json::from_slice(&json).map_err(|_| TokenError::Forged)
    }
}

/// Which approval a token says it is about, without a look at the signature: good for writing down that it was
/// refused, and for nothing else.
pub fn claimed_approval(token: &str) -> Option<ApprovalId> {
    match Parts::of(token).ok()?.claims().ok()? {
        Claims::Ask(claims) => Some(claims.approval_id),
        Claims::Grant(claims) => Some(claims.about.approval_id),
        Claims::Vote(claims) => Some(claims.about.approval_id),
    }
}

impl ApprovalRequest {
    /// The digest of everything the question says: change one word of it and it is another question.
    pub fn shown_digest(&self) -> Digest {
        let shown = self
            .shown
            .as_ref()
            .map(|shown| match Json::new(shown.clone()) {
                Ok(json) => json.digest(),
                Err(_) => Digest::of_bytes(b"nested too deeply"),
            });
        // What may be nested deeply goes in as its digest.
        let flat = serde_json::json!({
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
        Json::shallow(flat).digest()
    }
}

impl Answer {
    /// The digest of the arguments that may run by this answer.
    pub fn final_digest(&self) -> Digest {
        match &self.decision.verdict {
            Verdict::ApproveWithEdits { arguments } => arguments.digest(),
            Verdict::Approve | Verdict::Deny { .. } => self.arguments_digest,
        }
    }
}

impl Verdict {
    /// The word of the decision.
    pub const fn word(&self) -> &'static str {
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
        ApprovalRequest::about(&call).until(Timestamp::from_micros(1_000))
    }

    fn answered(request: &ApprovalRequest) -> Answer {
        let mut answer = Answer::to(request, Decision::approve("ann"));
        answer.decided_at = Some(Timestamp::from_micros(500));
        answer
    }

    #[test]
    fn a_token_says_what_it_was_made_from() {
        let (request, early) = (request(), Timestamp::EPOCH);
        for kind in [KeyKind::HmacSha256, KeyKind::Ed25519] {
            let ring = ring("k", kind);
            assert_eq!(
                ring.check_ask(&ring.ask_token(&request), &request, early),
                Ok(())
            );
            let answer = answered(&request);
            let grant = ring.grant_token(&request, &answer).expect("dated");
            assert_eq!(
                ring.read_grant(&grant).ok(),
                GrantClaims::of(&request, &answer)
            );
        }
    }

    #[test]
    fn a_question_does_not_pass_for_an_answer_nor_an_answer_for_a_question() {
        let (ring, request) = (ring("k", KeyKind::HmacSha256), request());
        let grant = ring
            .grant_token(&request, &answered(&request))
            .expect("dated");
        assert_eq!(
            ring.read_grant(&ring.ask_token(&request)),
            Err(TokenError::Mismatch)
        );
        assert_eq!(ring.read_ask(&grant), Err(TokenError::Mismatch));
    }

    #[test]
    fn changing_any_byte_of_a_token_makes_it_worthless() {
        // Checking a signature by a pair of keys takes its time.
        for (kind, step) in [(KeyKind::HmacSha256, 1), (KeyKind::Ed25519, 41)] {
            let ring = ring("k", kind);
            let token = ring.ask_token(&request()).into_bytes();
            for at in (0..token.len()).step_by(step) {
                let mut changed = token.clone();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).expect("ASCII");
                assert!(ring.read_ask(&changed).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_token_about_another_question_or_one_that_has_lapsed_does_not_count() {
        let (ring, request) = (ring("k", KeyKind::HmacSha256), request());
        let (token, early) = (ring.ask_token(&request), Timestamp::EPOCH);
        let other = ApprovalRequest {
            generation: 1,
            ..request.clone()
        };
        assert_eq!(
            ring.check_ask(&token, &other, early),
            Err(TokenError::Mismatch)
        );
        let late = Timestamp::from_micros(1_000);
        assert_eq!(
            ring.check_ask(&token, &request, late),
            Err(TokenError::Expired)
        );
    }

    #[test]
    fn a_key_that_is_gone_is_told_apart_from_a_forged_token() {
        let token = ring("old", KeyKind::HmacSha256).ask_token(&request());
        assert_eq!(
            ring("new", KeyKind::HmacSha256).read_ask(&token),
            Err(TokenError::KeyGone)
        );
        let other = Keyring::new(SecretKey::new(
            "old".parse().expect("a name"),
            KeyKind::HmacSha256,
            [1; 32],
        ));
        assert_eq!(other.read_ask(&token), Err(TokenError::Forged));
    }

    #[test]
    fn what_is_no_token_is_forged() {
        let ring = ring("k", KeyKind::HmacSha256);
        let long = format!("tg1.k.{}.AA", "A".repeat(Keyring::MOST_TOKEN_BYTES));
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
            assert_eq!(ring.read_ask(text), Err(TokenError::Forged), "{text}");
        }
    }

    #[test]
    fn a_token_names_its_approval_even_if_it_is_worthless() {
        let token = ring("k", KeyKind::HmacSha256).ask_token(&request());
        assert_eq!(
            claimed_approval(&format!("{token}x")),
            Some(request().approval_id)
        );
        assert_eq!(claimed_approval("nonsense"), None);
    }

    #[test]
    fn every_word_of_a_question_is_part_of_its_digest() {
        let plain = request();
        let digest = plain.shown_digest();
        let others = [
            plain.clone().because("another reason"),
            plain.clone().showing("a diff".into()),
            plain.clone().until(Timestamp::from_micros(2_000)),
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
                changed: vec![crate::Changed::Tool],
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
