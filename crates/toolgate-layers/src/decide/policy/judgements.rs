//! The versions of the policies that judged a call, which travel on it to the approval layer.

use std::sync::Arc;

use smallvec::SmallVec;
use toolgate_core::{Call, Digest, Next};

/// The policies that judged a call, outermost first. An approval is bound to all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyJudgements {
    /// Most stacks have one policy.
    versions: SmallVec<[Arc<str>; 1]>,
    /// True if one of them judges every call, so that an approval layer needs no condition of its
    /// own.
    all_calls: bool,
}

impl PolicyJudgements {
    /// Returns the call with the version of the policy that holds `next`, which has judged it.
    pub(crate) fn note_version(call: Call, next: &Next, version: &Arc<str>) -> Call {
        let mut judged = call.extension::<Self>().cloned().unwrap_or_default();
        judged.versions.push(version.clone());
        judged.all_calls |= !next.is_restricted();
        call.with_extension(judged)
    }

    /// Checks whether the call was judged by a policy that judges every call.
    pub(crate) fn cover_all_calls(call: &Call) -> bool {
        call.extension::<Self>()
            .is_some_and(|judged| judged.all_calls)
    }

    /// Returns one text for the versions of all policies that judged the call or require approval
    /// for it. It changes when one of them does.
    pub(crate) fn combined_version(call: &Call) -> Option<String> {
        let judged = call.extension::<Self>();
        let mut versions: Vec<&str> = judged
            .iter()
            .flat_map(|judged| &judged.versions)
            .map(|version| &**version)
            .collect();
        for version in call
            .unmet_requirements()
            .filter_map(|required| required.policy_version.as_deref())
        {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        combine_versions(&versions)
    }
}

/// Returns one text for several versions: a single one stays as it is.
pub(crate) fn combine_versions<T: AsRef<str>>(versions: &[T]) -> Option<String> {
    match versions {
        [] => None,
        [one] => Some(one.as_ref().to_owned()),
        many => {
            let texts: Vec<&str> = many.iter().map(AsRef::as_ref).collect();
            Some(Digest::of_bytes(texts.join("\n").as_bytes()).to_string())
        }
    }
}
