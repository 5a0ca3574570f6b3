//! The Landlock rules: the files a command may read, write and run.

use std::{ffi::CString, os::fd::OwnedFd, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

/// The input for building rules.
pub(super) struct LandlockGrants<'a> {
    pub(super) version: u32,
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    pub(super) devices: &'a [PathBuf],
    /// True to block TCP as well.
    pub(super) no_network: bool,
}

/// The Landlock rules of a command.
pub(super) struct LandlockRules {
    /// `None` only if the kernel has no Landlock, which the caller has excluded.
    pub(super) set: Option<OwnedFd>,
    /// Paths that exist only after mounting, with the access rights below them.
    pub(super) late: Vec<(CString, u64)>,
}

impl LandlockRules {
    pub(super) fn new(grants: &LandlockGrants<'_>) -> Result<Self, RulesetError> {
        let abi = landlock_abi(grants.version);
        // Fails if the kernel lacks a right, instead of silently dropping it.
        let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        // All of them: Landlock does not restrict a right that is not handled.
        rules = rules.handle_access(AccessFs::from_all(abi))?;
        if grants.no_network && abi >= ABI::V4 {
            rules = rules.handle_access(AccessNet::from_all(abi))?;
        }
        // Scopes block signals and abstract sockets to processes outside.
        if abi >= ABI::V6 {
            rules = rules.scope(Scope::from_all(abi))?;
        }
        // A path that was deleted since is skipped: no rule, no access.
        let created = rules
            .create()?
            .add_rules(path_beneath_rules(
                grants.readable,
                AccessFs::from_read(abi),
            ))?
            .add_rules(path_beneath_rules(grants.devices, device_access(abi)))?
            .add_rules(path_beneath_rules(grants.writable, write_access(abi)))?;
        Ok(Self {
            set: created.into(),
            late: Vec::new(),
        })
    }

    /// Lets a command read below a path that does not exist yet.
    pub(super) fn allow_late_read(mut self, version: u32, path: CString) -> Self {
        self.late
            .push((path, AccessFs::from_read(landlock_abi(version)).bits()));
        self
    }

    /// Lets a command write below a path that does not exist yet.
    pub(super) fn allow_late_write(mut self, version: u32, path: CString) -> Self {
        self.late
            .push((path, write_access(landlock_abi(version)).bits()));
        self
    }
}

fn landlock_abi(version: u32) -> ABI {
    ABI::from(i32::try_from(version).unwrap_or(i32::MAX))
}

/// Returns all rights except creating devices and controlling them by `ioctl`.
fn write_access(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

fn device_access(abi: ABI) -> BitFlags<AccessFs> {
    (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate) & AccessFs::from_all(abi)
}
