//! Landlock rules: which files a command may read, write and run.

use std::{ffi::CString, os::fd::OwnedFd, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

/// What rules are made from.
pub(super) struct Grants<'a> {
    pub(super) version: u32,
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    pub(super) devices: &'a [PathBuf],
    /// Whether to refuse TCP as well.
    pub(super) no_network: bool,
}

/// Rules that a command is put under.
pub(super) struct Rules {
    /// `None` only if the kernel has no Landlock, which the caller has ruled out.
    pub(super) set: Option<OwnedFd>,
    /// Paths that are only there after mounting, with what may be done below them.
    pub(super) late: Vec<(CString, u64)>,
}

impl Rules {
    pub(super) fn new(grants: &Grants<'_>) -> Result<Self, RulesetError> {
        let abi = abi(grants.version);
        let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        rules = rules.handle_access(AccessFs::from_all(abi))?;
        if grants.no_network && abi >= ABI::V4 {
            rules = rules.handle_access(AccessNet::from_all(abi))?;
        }
        if abi >= ABI::V6 {
            rules = rules.scope(Scope::from_all(abi))?;
        }
        let created = rules
            .create()?
            .add_rules(path_beneath_rules(
                grants.readable,
                AccessFs::from_read(abi),
            ))?
            .add_rules(path_beneath_rules(grants.devices, use_device(abi)))?
            .add_rules(path_beneath_rules(grants.writable, change(abi)))?;
        Ok(Self {
            set: created.into(),
            late: Vec::new(),
        })
    }

    /// Lets a command read below a path that is not there yet.
    pub(super) fn late_read(mut self, version: u32, path: CString) -> Self {
        self.late
            .push((path, AccessFs::from_read(abi(version)).bits()));
        self
    }

    /// Lets a command write below a path that is not there yet.
    pub(super) fn late_write(mut self, version: u32, path: CString) -> Self {
        self.late.push((path, change(abi(version)).bits()));
        self
    }
}

fn abi(version: u32) -> ABI {
    ABI::from(i32::try_from(version).unwrap_or(i32::MAX))
}

/// All but making devices and speaking to them.
fn change(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

fn use_device(abi: ABI) -> BitFlags<AccessFs> {
    (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate) & AccessFs::from_all(abi)
}
