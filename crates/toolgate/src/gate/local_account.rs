//! The account of the operating system that runs this process.

use std::{ffi::CStr, fs, mem::MaybeUninit};

use toolgate_core::{ApproverIdentity, IdentitySource};

/// The longest entry of the account database that is read, in bytes.
const MAX_ENTRY_BYTES: usize = 64 * 1024;

/// Returns the account that runs this process, as the identity of an approver.
///
/// Number and name come from the operating system and not from variables such as `USER`. In a
/// namespace with accounts of its own (a rootless container, `unshare --user`) a process can have
/// any number and name, so there the identity is only claimed.
pub fn local_account() -> ApproverIdentity {
    let uid = rustix::process::getuid().as_raw();
    // An account without an entry in the database is still known by its number.
    let name = account_name(uid).unwrap_or_else(|| format!("uid {uid}"));
    let established = if numbers_are_genuine() {
        let host = host_name();
        IdentitySource::LocalAccount { uid, host }
    } else {
        IdentitySource::Claimed
    };
    ApproverIdentity::new(name.as_str(), established)
}

/// Checks whether the numbers of accounts here are those of the machine.
fn numbers_are_genuine() -> bool {
    // Other systems have no namespaces of accounts.
    !cfg!(target_os = "linux")
        || fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_every_number(&map))
}

/// Checks whether a map of account numbers leaves every number as it is. Only the first namespace
/// and those that its administrator made have such a map.
fn maps_every_number(map: &str) -> bool {
    let mut lines = map.lines().map(|line| line.split_whitespace());
    let first = lines.next().map(Iterator::collect::<Vec<_>>);
    first.as_deref() == Some(&["0", "0", "4294967295"]) && lines.next().is_none()
}

/// Returns the name of the machine. Accounts of two machines with one number are two accounts.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| fs::read_to_string("/etc/hostname"))
        .unwrap_or_default();
    name.trim().to_owned()
}

#[expect(
    unsafe_code,
    reason = "no safe crate of the workspace reads the account database"
)]
fn account_name(uid: u32) -> Option<String> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts = vec![0; 1024];
    loop {
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are valid for the call, and the length is that of the buffer.
        let code = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                texts.as_mut_ptr(),
                texts.len(),
                &raw mut found,
            )
        };
        if code == libc::ERANGE && texts.len() < MAX_ENTRY_BYTES {
            texts.resize(texts.len() * 4, 0);
            continue;
        }
        if code != 0 || found.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so the entry is initialized and its name is a text with an end
        // in `texts`, which is not changed before it is copied.
        let name = unsafe { CStr::from_ptr(entry.assume_init_ref().pw_name) };
        let name = name.to_str().ok()?.trim().to_owned();
        return Some(name).filter(|name| !name.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_has_the_number_and_the_name_that_the_system_gives_it() {
        let said = |option: &str| {
            let output = std::process::Command::new("id").arg(option).output();
            let output = output.expect("`id` runs").stdout;
            String::from_utf8(output).expect("text").trim().to_owned()
        };
        let account = local_account();
        assert_eq!(account.as_str(), said("-un"));
        match account.established {
            IdentitySource::LocalAccount { uid, .. } => assert_eq!(uid.to_string(), said("-u")),
            other => assert!(other.is_claimed() && !numbers_are_genuine(), "{other:?}"),
        }
        assert_eq!(account_name(u32::MAX - 7), None);
    }

    #[test]
    fn only_a_map_that_changes_nothing_makes_numbers_genuine() {
        assert!(maps_every_number("         0          0 4294967295\n"));
        for other in [
            "",
            "0 1000 1\n",
            "1000 1000 1\n",
            "0 0 1\n",
            "0 0 4294967294\n",
            "0 100000 65536\n",
            "0 1000 1\n1 100000 65536\n",
            "0 0 4294967295\n0 1000 1\n",
            "0 0 4294967295 7\n",
        ] {
            assert!(!maps_every_number(other), "{other:?}");
        }
    }
}
