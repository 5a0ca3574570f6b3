//! The features of the kernel that a sandbox needs.

use std::{fmt, sync::OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sandbox features of a kernel; see [`Sandbox::check`](crate::Sandbox::check).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct KernelFeatures {
    /// The version of Landlock; 0 if there is none. 3 is needed, 6 if there are no namespaces.
    pub landlock: u32,
    /// True if system calls can be filtered.
    pub seccomp: bool,
    /// The kind of namespaces that can be created.
    pub namespaces: NamespaceSupport,
    /// True if the kernel lists the children of a process, which is needed without namespaces.
    pub children: bool,
}

/// The kind of namespaces that can be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceSupport {
    /// Namespaces created with privileges, as root has them.
    Privileged,
    /// Namespaces inside a user namespace, without privileges.
    User,
    /// No namespaces.
    None,
}

impl KernelFeatures {
    /// A kernel without any of these features.
    pub const NONE: Self = Self {
        landlock: 0,
        seccomp: false,
        namespaces: NamespaceSupport::None,
        children: false,
    };

    /// Returns the features of the running kernel. They are probed once; they do not change.
    pub fn current() -> &'static Self {
        static HERE: OnceLock<KernelFeatures> = OnceLock::new();
        HERE.get_or_init(probe_kernel)
    }

    /// Returns the features that are missing for an enforced sandbox.
    pub fn missing_features(&self) -> Vec<MissingFeature> {
        // Without namespaces, Landlock scopes and a guard process have to replace them.
        let apart = self.namespaces != NamespaceSupport::None;
        let missing = [
            // Before version 3, Landlock does not control truncation: a command could empty any
            // file of the user.
            (self.landlock < 3, MissingFeature::Files),
            (!self.seccomp, MissingFeature::SystemCalls),
            (!apart && self.landlock < 6, MissingFeature::Signals),
            (!apart && !self.children, MissingFeature::Descendants),
        ];
        missing
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, what)| what)
            .collect()
    }
}

/// A sandbox feature that the kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MissingFeature {
    /// Landlock 3 (Linux 6.2), which blocks access to files outside.
    Files,
    /// Filters of system calls, which block access to the network and the kernel.
    SystemCalls,
    /// Namespaces, or Landlock 6 (Linux 6.12), either of which blocks signals to processes outside.
    Signals,
    /// Namespaces, or a list of children, either of which finds processes that a command leaves.
    Descendants,
    /// Namespaces, which a private network needs.
    Loopback,
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Files => {
                "Landlock 3 (Linux 6.2 or later, with `landlock` among its security modules)"
            }
            Self::SystemCalls => "system call filters (seccomp, on x86_64 or aarch64)",
            Self::Signals => {
                "namespaces or Landlock 6 (Linux 6.12), to block signals to processes outside"
            }
            Self::Descendants => {
                "namespaces or lists of children in /proc, to kill the processes a command leaves behind"
            }
            Self::Loopback => "namespaces, for a private loopback network",
        })
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn probe_kernel() -> KernelFeatures {
    super::linux::probe_kernel()
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn probe_kernel() -> KernelFeatures {
    KernelFeatures::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_feature_is_named() {
        let whole = KernelFeatures {
            landlock: 7,
            seccomp: true,
            namespaces: NamespaceSupport::User,
            children: true,
        };
        assert_eq!(whole.missing_features(), []);
        assert_eq!(
            KernelFeatures {
                landlock: 2,
                ..whole.clone()
            }
            .missing_features(),
            [MissingFeature::Files]
        );
        assert_eq!(
            KernelFeatures {
                seccomp: false,
                ..whole.clone()
            }
            .missing_features(),
            [MissingFeature::SystemCalls]
        );
        let apart = KernelFeatures {
            namespaces: NamespaceSupport::None,
            ..whole
        };
        assert_eq!(
            apart.missing_features(),
            [],
            "a reaper and Landlock scopes replace namespaces"
        );
        assert_eq!(
            KernelFeatures {
                landlock: 5,
                ..apart.clone()
            }
            .missing_features(),
            [MissingFeature::Signals]
        );
        assert_eq!(
            KernelFeatures {
                children: false,
                ..apart
            }
            .missing_features(),
            [MissingFeature::Descendants]
        );
        let all = [
            MissingFeature::Files,
            MissingFeature::SystemCalls,
            MissingFeature::Signals,
            MissingFeature::Descendants,
        ];
        assert_eq!(KernelFeatures::NONE.missing_features(), all);
    }
}
