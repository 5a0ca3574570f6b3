//! The last check of an approval before the call runs: is it genuine, and is everything as it was
//! shown?

use std::collections::BTreeSet;

use serde_json::json;
use toolgate_core::{
    ApprovalAnswer, ApprovalChange, ApprovalId, ApprovalRequest, AskClaims, Call, Digest,
    EditStage, GrantClaims, Json, Keyring, Next, RecordKey, TokenError, Verdict, meets_quorum,
    run_contained_sync,
};

use crate::{
    PathBase,
    decide::approval::preview::{Preview, SharedPreview},
};

/// The keys and the preview that an approval is verified with.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApprovalVerifier {
    pub(crate) keyring: Option<Keyring>,
    pub(crate) preview: Option<SharedPreview>,
    /// The directory that calls work in.
    pub(crate) path_base: Option<PathBase>,
}

/// The result of verifying an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VerifiedApproval {
    /// The answer counts.
    Valid,
    /// The answer does not count, because of these changes.
    Stale(Vec<ApprovalChange>),
    /// The answer could not be verified.
    Unknown,
}

impl ApprovalVerifier {
    /// Returns the directory that calls work in, as it is shown.
    pub(crate) fn workspace(&self) -> Option<String> {
        let base = self.path_base.as_ref();
        base.map(|base| base.root().display().to_string())
    }

    /// Verifies an approval against the stored request and the current state of files and policy.
    pub(crate) async fn verify(
        &self,
        call: &Call,
        answer: &ApprovalAnswer,
        policy: Option<&str>,
    ) -> VerifiedApproval {
        if call.is_rehearsal() {
            // In a rehearsal no approval was requested and nothing runs: the answer is hypothetical
            // and unsigned.
            return VerifiedApproval::Valid;
        }
        let store = call.env().store();
        let question = store.load_approval_request(call.id, answer.generation);
        let Ok(question) = question.await else {
            return VerifiedApproval::Unknown;
        };
        if let Some(keyring) = &self.keyring
            && let Err(changed) = verify_signature(keyring, call, answer, question.as_deref())
        {
            return VerifiedApproval::Stale(vec![changed]);
        }
        let Some(question) = question else {
            // Without keys the stored request is not needed, unless something was shown that has to
            // be compared.
            return if self.preview.is_some() && !has_started(call) {
                VerifiedApproval::Unknown
            } else {
                VerifiedApproval::Valid
            };
        };
        let mut changed = self.changed_files(call, &question);
        // A request of an earlier version does not name the directory.
        if question.workspace.is_some()
            && question.workspace != self.workspace()
            && !has_started(call)
        {
            changed.push(ApprovalChange::Workspace);
        }
        // Counted again here: the answer may be from a version that counted claimed names.
        if !meets_quorum(&question, answer) {
            changed.push(ApprovalChange::Approvers);
        }
        if policy.is_some() && question.policy_version.as_deref() != policy {
            changed.push(ApprovalChange::Policy);
        }
        if !changed.is_empty() {
            return VerifiedApproval::Stale(changed);
        }
        self.spend_token(call, answer).await
    }

    /// Checks whether the arguments are those of the model, or of an answer that was signed for
    /// them.
    pub(crate) async fn has_only_signed_edits(&self, call: &Call) -> bool {
        // Any layer's answer counts here: the edited arguments are already part of the call.
        let edits = |answer: &&ApprovalAnswer| {
            matches!(answer.decision.verdict, Verdict::ApproveWithEdits { .. })
        };
        let edited = call.resume_state().answers.iter().rev().find(edits);
        let (Some(keyring), Some(answer)) = (&self.keyring, edited) else {
            return true;
        };
        match call
            .env()
            .store()
            .load_approval_request(call.id, answer.generation)
            .await
        {
            Ok(Some(question)) => {
                verify_signature(keyring, call, answer, Some(&*question)).is_ok()
                    && meets_quorum(&question, answer)
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Returns the files that have changed since they were shown. Once the call has started, it may
    /// have changed them itself.
    fn changed_files(&self, call: &Call, question: &ApprovalRequest) -> Vec<ApprovalChange> {
        let Some(preview) = self.preview.as_ref().filter(|_| !has_started(call)) else {
            return Vec::new();
        };
        let differs = |file: &&toolgate_core::FileState| {
            // A state that cannot be determined counts as changed.
            run_contained_sync(|| preview.file_state(&file.path))
                .ok()
                .flatten()
                .as_ref()
                != Some(*file)
        };
        let files = question.files.iter().filter(differs).map(|file| &file.path);
        // A link that leads elsewhere, or that was not there when approval was requested.
        let links = preview.find_links(&question.arguments);
        let moved = links
            .iter()
            .filter(|link| !question.links.contains(link))
            .chain(question.links.iter().filter(|link| !links.contains(link)))
            .map(|link| &link.path);
        let changed: BTreeSet<&String> = files.chain(moved).collect();
        let changed = changed.into_iter().cloned();
        changed.map(|path| ApprovalChange::File { path }).collect()
    }

    /// Spends the token for this run. The same run may use it again, because its process may have
    /// crashed in between.
    async fn spend_token(&self, call: &Call, answer: &ApprovalAnswer) -> VerifiedApproval {
        let Some(token) = answer.token.as_ref().filter(|_| self.keyring.is_some()) else {
            return VerifiedApproval::Valid;
        };
        let store = call.env().store();
        let run = Json::new(json!({ "call": call.id, "generation": answer.generation }))
            .unwrap_or_else(|_| Json::null());
        let key = RecordKey::Other(format!("grant/{}", token_id(token)).into());
        let settled = match store.load_outcome(call.id).await {
            Ok(settled) => settled.is_some(),
            Err(_) => return VerifiedApproval::Unknown,
        };
        // The first writer owns the token. A record for another run, or a call that has already
        // settled, means a replay.
        match store.put_json_once(key, run.clone()).await {
            Ok(Some(earlier)) if earlier != run => {
                VerifiedApproval::Stale(vec![ApprovalChange::Replayed])
            }
            Ok(_) if settled => VerifiedApproval::Stale(vec![ApprovalChange::Replayed]),
            Ok(_) => VerifiedApproval::Valid,
            Err(_) => VerifiedApproval::Unknown,
        }
    }
}

/// Returns the digest that stands for a token where the token itself must not be written.
pub(crate) fn token_id(token: &str) -> Digest {
    Digest::of_bytes(token.as_bytes())
}

/// Returns what makes the newest answer to this layer inapplicable to the call as it is now.
pub(crate) fn changes_since_answer(call: &Call, next: &Next) -> Vec<ApprovalChange> {
    let mine = |answer: &&ApprovalAnswer| answer.asked_by == *next.layer_name();
    let Some(answer) = call.resume_state().answers.iter().rev().find(mine) else {
        return Vec::new();
    };
    let fingerprint = call.shown_tool().map(|shown| shown.entry.fingerprint);
    let digest = call.arguments.digest();
    let covered = answer.covers_arguments(digest, EditStage::Applied)
        || answer.covers_arguments(digest, EditStage::NotApplied);
    let tool = (answer.fingerprint != fingerprint).then_some(ApprovalChange::Tool);
    let arguments = (!covered || tool.is_none()).then_some(ApprovalChange::Arguments);
    arguments.into_iter().chain(tool).collect()
}

/// Returns true if the executor may already have been started under this approval.
fn has_started(call: &Call) -> bool {
    call.attempt > 1 || !call.resume_state().results.is_empty()
}

/// Checks that the answer carries our signature for exactly its content and the stored request.
fn verify_signature(
    keyring: &Keyring,
    call: &Call,
    answer: &ApprovalAnswer,
    question: Option<&ApprovalRequest>,
) -> Result<(), ApprovalChange> {
    let token = answer.token.as_deref().ok_or(ApprovalChange::Forged)?;
    let claims = keyring
        .verify_grant_token(token)
        .map_err(|error| match error {
            TokenError::KeyGone => ApprovalChange::KeyGone,
            TokenError::Forged | TokenError::Mismatch | TokenError::Expired => {
                ApprovalChange::Forged
            }
        })?;
    // The token is genuine, but was given for another call or for an earlier request about this
    // one.
    if claims.about.approval_id != ApprovalId::for_call(call.id)
        || claims.about.generation != answer.generation
    {
        return Err(ApprovalChange::Replayed);
    }
    if claims.about.arguments_digest != answer.arguments_digest
        || claims.arguments_digest != answer.final_digest()
    {
        return Err(ApprovalChange::Arguments);
    }
    let question = question.ok_or(ApprovalChange::Forged)?;
    // The token does not name the layer that the answer is for nor the requirements that it meets;
    // the stored request does.
    if question.asked_by.as_ref() != Some(&answer.asked_by)
        || question.requirements != answer.requirements
    {
        return Err(ApprovalChange::Forged);
    }
    let asked = AskClaims::for_request(question);
    if claims.about.arguments_digest != asked.arguments_digest {
        return Err(ApprovalChange::Arguments);
    }
    let fingerprint = call.shown_tool().map(|shown| shown.entry.fingerprint);
    if claims.about.fingerprint != fingerprint {
        return Err(ApprovalChange::Tool);
    }
    // Everything else: what was shown, the policy version, the approver, the decision and its time.
    if GrantClaims::for_answer(question, answer).as_ref() != Some(&claims) {
        Err(ApprovalChange::Forged)
    } else {
        Ok(())
    }
}
