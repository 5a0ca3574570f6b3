//! What the kernel has to keep a command in its place.

use std::{fmt, sync::OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the kernel has to keep a command in its place; see [`Sandbox::check`](crate::Sandbox::check).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Kernel {
    /// The version of Landlock; 0 if there is none. 3 is needed, 6 if there are no namespaces.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// How namespaces can be made.
    pub namespaces: Namespaces,
    /// Whether the kernel keeps a list of children, which is needed if there are no namespaces.
    pub children: bool,
}

/// How namespaces can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Namespaces {
    /// With the privilege for it, as root has it.
    Privileged,
    /// By anybody, inside a user namespace.
    User,
    /// Not at all.
    None,
}

impl Kernel {
    /// A system that has nothing of it.
    pub const NOTHING: Self = Self {
        landlock: 0,
        seccomp: false,
        namespaces: Namespaces::None,
        children: false,
    };

    /// Looks what the kernel we run on has. Asked once; it does not change.
    pub fn here() -> &'static Self {
        static HERE: OnceLock<Kernel> = OnceLock::new();
        HERE.get_or_init(look)
    }

    /// What is missing for a sandbox that holds, in words for the operator.
    pub fn missing(&self) -> Vec<Missing> {
        let apart = self.namespaces != Namespaces::None;
        let missing = [
            (self.landlock < 3, Missing::Files),
            (!self.seccomp, Missing::SystemCalls),
            (!apart && self.landlock < 6, Missing::Signals),
            (!apart && !self.children, Missing::Descendants),
        ];
        missing
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, what)| what)
            .collect()
    }
}

/// Something that the kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Missing {
    /// Landlock 3 (Linux 6.2), which keeps files outside from being read and written.
    Files,
    /// Filters of system calls, which keep the network and the kernel away.
    SystemCalls,
    /// Namespaces, or Landlock 6 (Linux 6.12), either of which keeps signals inside.
    Signals,
    /// Namespaces, or a list of children, either of which finds what a command leaves behind.
    Descendants,
    /// Namespaces, without which there is no network of one's own.
    Loopback,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Files => {
                "Landlock 3 (Linux 6.2 or later, with `landlock` among its security modules)"
            }
            Self::SystemCalls => "filters of system calls (seccomp, on x86_64 or aarch64)",
            Self::Signals => "namespaces or Landlock 6 (Linux 6.12), to keep signals inside",
            Self::Descendants => {
                "namespaces or lists of children in /proc, to end what a command leaves behind"
            }
            Self::Loopback => "namespaces, for a network of its own",
        })
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn look() -> Kernel {
    super::linux::look()
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn look() -> Kernel {
    Kernel::NOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_that_is_needed_is_missed_by_name() {
        let whole = Kernel {
            landlock: 7,
            seccomp: true,
            namespaces: Namespaces::User,
            children: true,
        };
        assert_eq!(whole.missing(), []);
        assert_eq!(
            Kernel {
                landlock: 2,
                ..whole.clone()
            }
            .missing(),
            [Missing::Files]
        );
        assert_eq!(
            Kernel {
                seccomp: false,
                ..whole.clone()
            }
            .missing(),
            [Missing::SystemCalls]
        );
        let apart = Kernel {
            namespaces: Namespaces::None,
            ..whole
        };
        assert_eq!(
            apart.missing(),
            [],
            "a reaper and scopes of Landlock do the same"
        );
        assert_eq!(
            Kernel {
                landlock: 5,
                ..apart.clone()
            }
            .missing(),
            [Missing::Signals]
        );
        assert_eq!(
            Kernel {
                children: false,
                ..apart
            }
            .missing(),
            [Missing::Descendants]
        );
        let all = [
            Missing::Files,
            Missing::SystemCalls,
            Missing::Signals,
            Missing::Descendants,
        ];
        assert_eq!(Kernel::NOTHING.missing(), all);
    }
}
