//! The last look at an approval before the call runs: is it genuine, and is everything as it was shown?

use serde_json::json;
use toolgate_core::{
    Answer, ApprovalId, ApprovalRequest, AskClaims, Call, Changed, Digest, Edits, GrantClaims,
    Json, Keyring, Next, Record, RecordKey, TokenError, Verdict, contained_sync,
};

use crate::preview::{Preview, SharedPreview};

/// What an approval is held against.
#[derive(Debug, Clone, Default)]
pub(crate) struct Boundary {
    pub(crate) keyring: Option<Keyring>,
    pub(crate) preview: Option<SharedPreview>,
}

/// Whether an answer that was found for a call counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It counts.
    Firm,
    /// It does not, because this is not as it was.
    Broken(Vec<Changed>),
    /// Nobody can say.
    Unclear,
}

impl Boundary {
    /// Holds an approval against the question as it was put and the world as it is now.
    pub(crate) async fn hold(&self, call: &Call, answer: &Answer, policy: Option<&str>) -> Held {
        if call.is_rehearsal() {
            // Nobody was asked and nothing runs: the answer is a supposition, and nobody has signed it.
            return Held::Firm;
        }
        let key = RecordKey::Question(call.id, answer.generation);
        let question = match call.env().store().record(&key).await {
            Ok(Some(Record::Question(question))) => Some(question),
            Ok(_) => None,
            Err(_) => return Held::Unclear,
        };
        if let Some(keyring) = &self.keyring
            && let Err(changed) = genuine(keyring, call, answer, question.as_deref())
        {
            return Held::Broken(vec![changed]);
        }
        let Some(question) = question else {
            // Without keys a question is not missed, unless something was shown that has to be compared.
            return if self.preview.is_some() && !has_started(call) {
                Held::Unclear
            } else {
                Held::Firm
            };
        };
        let mut changed = self.changed_files(call, &question);
        if policy.is_some() && question.policy_version.as_deref() != policy {
            changed.push(Changed::Policy);
        }
        if !changed.is_empty() {
            return Held::Broken(changed);
        }
        self.spend(call, answer).await
    }

    /// Whether the arguments are those of the model, or of an answer that was signed for them. Which layer that answer is
    /// for does not matter here: it has put its arguments into the call.
    pub(crate) async fn vouches_for_edits(&self, call: &Call) -> bool {
        let edits =
            |answer: &&Answer| matches!(answer.decision.verdict, Verdict::ApproveWithEdits { .. });
        let edited = call.resumed().answers.iter().rev().find(edits);
        let (Some(keyring), Some(answer)) = (&self.keyring, edited) else {
            return true;
        };
        match call
            .env()
            .store()
            .record(&RecordKey::Question(call.id, answer.generation))
            .await
        {
            Ok(Some(Record::Question(question))) => {
                genuine(keyring, call, answer, Some(&*question)).is_ok()
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The files that are not as they were shown. Once the call has started, it may have changed them itself.
    fn changed_files(&self, call: &Call, question: &ApprovalRequest) -> Vec<Changed> {
        let Some(preview) = self.preview.as_ref().filter(|_| !has_started(call)) else {
            return Vec::new();
        };
        let differs = |file: &&toolgate_core::FileState| {
            contained_sync(|| preview.state(&file.path))
                .ok()
                .flatten()
                .as_ref()
                != Some(*file)
        };
        let files = question.files.iter().filter(differs);
        files
            .map(|file| Changed::File {
                path: file.path.clone(),
            })
            .collect()
    }

    /// Uses the token up for this run. The same run may use it again: its process may have been lost in between.
    async fn spend(&self, call: &Call, answer: &Answer) -> Held {
        let Some(token) = answer.token.as_ref().filter(|_| self.keyring.is_some()) else {
            return Held::Firm;
        };
        let store = call.env().store();
        let run = Json::new(json!({ "call": call.id, "generation": answer.generation }))
            .unwrap_or_else(|_| Json::null());
        let key = RecordKey::Other(format!("grant/{}", token_id(token)).into());
        let settled = match store.record(&RecordKey::Outcome(call.id)).await {
            Ok(settled) => settled.is_some(),
            Err(_) => return Held::Unclear,
        };
        match store.once(key, Record::Json(run.clone())).await {
            Ok(Some(earlier)) if earlier != Record::Json(run) => {
                Held::Broken(vec![Changed::Replayed])
            }
            Ok(_) if settled => Held::Broken(vec![Changed::Replayed]),
            Ok(_) => Held::Firm,
            Err(_) => Held::Unclear,
        }
    }
}

/// What a token is called where the token itself must not be written down.
pub(crate) fn token_id(token: &str) -> Digest {
    Digest::of_bytes(token.as_bytes())
}

/// Why the newest answer to this layer's question says nothing about the call as it is now.
pub(crate) fn outdated(call: &Call, next: &Next) -> Vec<Changed> {
    let mine = |answer: &&Answer| answer.asked_by == *next.layer_name();
    let Some(answer) = call.resumed().answers.iter().rev().find(mine) else {
        return Vec::new();
    };
    let fingerprint = call.shown().map(|shown| shown.entry.fingerprint);
    let digest = call.arguments.digest();
    let covered = answer.covers(digest, Edits::PutIn) || answer.covers(digest, Edits::NotYet);
    let tool = (answer.fingerprint != fingerprint).then_some(Changed::Tool);
    let arguments = (!covered || tool.is_none()).then_some(Changed::Arguments);
    arguments.into_iter().chain(tool).collect()
}

/// Whether the executor may have been started under this approval before.
fn has_started(call: &Call) -> bool {
    call.attempt > 1 || !call.resumed().results.is_empty()
}

/// Makes sure that the answer carries our signature on exactly what it says and what was asked.
fn genuine(
    keyring: &Keyring,
    call: &Call,
    answer: &Answer,
    question: Option<&ApprovalRequest>,
) -> Result<(), Changed> {
    let token = answer.token.as_deref().ok_or(Changed::Forged)?;
    let claims = keyring.read_grant(token).map_err(|error| match error {
        TokenError::KeyGone => Changed::KeyGone,
        TokenError::Forged | TokenError::Mismatch | TokenError::Expired => Changed::Forged,
    })?;
    // Genuine, but given for another call or an earlier question about this one.
    if claims.about.approval_id != ApprovalId::of(call.id)
        || claims.about.generation != answer.generation
    {
        return Err(Changed::Replayed);
    }
    if claims.about.arguments_digest != answer.arguments_digest
        || claims.arguments_digest != answer.final_digest()
    {
        return Err(Changed::Arguments);
    }
    let question = question.ok_or(Changed::Forged)?;
    // The token says nothing about which layer the answer is made out to; the question does.
    if question.asked_by.as_ref() != Some(&answer.asked_by) {
        return Err(Changed::Forged);
    }
    let asked = AskClaims::of(question);
    if claims.about.arguments_digest != asked.arguments_digest {
        return Err(Changed::Arguments);
    }
    let fingerprint = call.shown().map(|shown| shown.entry.fingerprint);
    if claims.about.fingerprint != fingerprint {
        return Err(Changed::Tool);
    }
    // Everything else: what was shown, the policy it was asked under, who decided, what and when.
    if GrantClaims::of(question, answer).as_ref() != Some(&claims) {
        Err(Changed::Forged)
    } else {
        Ok(())
    }
}
