//! What a running tool accesses beyond the arguments of its call, and who judges it.
//!
//! A directory walk finds files that no argument names, and a redirect leads to a host that no
//! argument names. A layer that decides puts a judge on the call; the tool asks it about each of
//! them.

use std::{path::Path, sync::Arc};

use crate::{Call, run_contained_sync};

/// Something that a tool is about to show or to contact, and that the call does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// The name of a file or directory, found in a directory. The path is absolute.
    ListEntry(&'a Path),
    /// The content of a file. The path is absolute.
    ReadFile(&'a Path),
    /// A URL, such as the target of a redirect.
    FetchUrl(&'a str),
}

/// The judgement about one access, from loose to strict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessVerdict {
    /// The tool may use it.
    Allowed,
    /// It needs an approval that the call does not have; the tool leaves it out.
    NeedsApproval(Arc<str>),
    /// The tool leaves it out.
    Denied(Arc<str>),
}

/// Judges the accesses of a call that it has let pass; see [`Call::with_access_judge`].
pub trait AccessJudge: Send + Sync + 'static {
    /// Judges one access of `call`.
    fn judge_access(&self, call: &Call, access: Access<'_>) -> AccessVerdict;
}

/// A judge as an extension of a call.
#[derive(Clone)]
pub(crate) struct CallAccessJudge(pub(crate) Arc<dyn AccessJudge>);

impl AccessVerdict {
    /// Checks whether the tool may use it.
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }

    /// Returns the stricter of two; this one if they are equally strict.
    pub fn or_stricter(self, other: Self) -> Self {
        let strictness = |verdict: &Self| match verdict {
            Self::Allowed => 0,
            Self::NeedsApproval(_) => 1,
            Self::Denied(_) => 2,
        };
        if strictness(&other) > strictness(&self) {
            other
        } else {
            self
        }
    }
}

impl Call {
    /// Returns a copy whose tool has to ask `judge` about what it accesses. It adds to the judges of
    /// the layers above, and holds in a stack inside the executor too.
    pub fn with_access_judge(self, judge: Arc<dyn AccessJudge>) -> Self {
        self.with_extension(CallAccessJudge(judge))
    }

    /// Judges something that the call does not name, by the strictest of its judges. Without a
    /// judge everything is allowed.
    ///
    /// ```
    /// # use std::{path::Path, sync::Arc};
    /// use toolgate_core::{Access, AccessJudge, AccessVerdict, Arguments, Call};
    ///
    /// struct NoDrafts;
    /// impl AccessJudge for NoDrafts {
    ///     fn judge_access(&self, _: &Call, access: Access<'_>) -> AccessVerdict {
    ///         match access {
    ///             Access::ListEntry(path) | Access::ReadFile(path) if path.ends_with("draft") => {
    ///                 AccessVerdict::Denied("drafts are private".into())
    ///             }
    ///             _ => AccessVerdict::Allowed,
    ///         }
    ///     }
    /// }
    ///
    /// let call = Call::detached("list", Arguments::empty());
    /// let draft = Access::ListEntry(Path::new("/work/draft"));
    /// assert!(call.judge_access(draft).is_allowed());
    /// assert!(!call.with_access_judge(Arc::new(NoDrafts)).judge_access(draft).is_allowed());
    /// ```
    pub fn judge_access(&self, access: Access<'_>) -> AccessVerdict {
        let judge = |CallAccessJudge(judge): &CallAccessJudge| {
            // Fail closed: what cannot be judged is not shown.
            run_contained_sync(|| judge.judge_access(self, access))
                .unwrap_or_else(|_| AccessVerdict::Denied("it could not be judged".into()))
        };
        let verdicts = self.extensions.values().map(judge);
        verdicts.fold(AccessVerdict::Allowed, AccessVerdict::or_stricter)
    }

    /// Checks whether there is a judge to ask.
    pub fn has_access_judge(&self) -> bool {
        self.extension::<CallAccessJudge>().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;

    struct Fixed(AccessVerdict);

    impl AccessJudge for Fixed {
        fn judge_access(&self, _: &Call, _: Access<'_>) -> AccessVerdict {
            self.0.clone()
        }
    }

    struct Panicking;

    impl AccessJudge for Panicking {
        fn judge_access(&self, _: &Call, _: Access<'_>) -> AccessVerdict {
            panic!("broken")
        }
    }

    fn judged_by(verdicts: &[AccessVerdict]) -> Call {
        let call = Call::detached("walk", Arguments::empty());
        let add = |call: Call, verdict: &AccessVerdict| {
            call.with_access_judge(Arc::new(Fixed(verdict.clone())))
        };
        verdicts.iter().fold(call, add)
    }

    #[test]
    fn the_strictest_of_several_judges_decides_in_any_order_and_in_an_inner_stack() {
        use AccessVerdict::{Allowed, Denied, NeedsApproval};
        let ask = NeedsApproval("a".into());
        let deny = Denied("d".into());
        let access = Access::FetchUrl("https://a.example/");
        for (verdicts, expected) in [
            (vec![], Allowed),
            (vec![Allowed], Allowed),
            (vec![Allowed, ask.clone()], ask.clone()),
            (vec![ask.clone(), Allowed], ask.clone()),
            (vec![deny.clone(), ask.clone(), Allowed], deny.clone()),
            (vec![ask, deny.clone()], deny),
        ] {
            let call = judged_by(&verdicts);
            assert_eq!(call.judge_access(access), expected);
            let inner = call.with_extension(7_u8).without_extensions();
            assert_eq!(inner.judge_access(access), expected);
            assert_eq!(inner.extension::<u8>(), None);
        }
    }

    #[test]
    fn a_judge_that_panics_allows_nothing() {
        let call = judged_by(&[AccessVerdict::Allowed]).with_access_judge(Arc::new(Panicking));
        let verdict = call.judge_access(Access::ReadFile(Path::new("/x")));
        assert!(matches!(verdict, AccessVerdict::Denied(_)));
    }
}
