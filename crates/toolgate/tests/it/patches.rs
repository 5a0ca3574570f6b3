//! Policy and tool agree on the files of a patch: random patches, applied in a real workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proptest::{prelude::*, sample::select};
use serde_json::json;
use toolgate::{
    Resources,
    layers::{Configurable, PathBase, Policy, PolicyEffect, PolicyOptions},
    prelude::*,
};
use toolgate_tools::{ApplyPatch, Workspace};

/// Files that exist before each patch, all with the same content.
const OLD: [&str; 5] = [
    "one.txt",
    "dir/two.txt",
    "sp ace.txt",
    "café.txt",
    "a/three",
];
/// Files that do not exist.
const NEW: [&str; 3] = ["four.txt", "deep/er/five.txt", "b/six"];
const CONTENT: &str = "first\nsecond\n";
const MODIFY: &str = "@@ -1,2 +1,2 @@\n first\n-second\n+--- a/second\n";

fn all_names() -> impl Iterator<Item = &'static str> {
    OLD.into_iter().chain(NEW)
}

struct PatchWorld {
    dir: tempfile::TempDir,
    stack: Stack,
    /// A policy for each file: it denies only that file.
    denying: BTreeMap<&'static str, Policy>,
    /// A policy for each file: it allows all other files.
    allowing_others: BTreeMap<&'static str, Policy>,
    allowing_all: Policy,
}

impl PatchWorld {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::new();
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        registry
            .register(ApplyPatch::new(workspace))
            .expect("a free name");
        let stack = Stack::over(registry).build().expect("in order");
        let base = PathBase::new(dir.path());
        let policy = |default: &str, effect: &str, paths: Vec<&str>| {
            let rule = json!({ "effect": effect, "path": paths });
            let options: PolicyOptions =
                serde_json::from_value(json!({ "default": default, "rules": [rule] }))
                    .expect("valid options");
            Policy::configure(options, &Resources::new().with(base.clone())).expect("valid")
        };
        let deny = |name| (name, policy("allow", "deny", vec![name]));
        let allow = |name| {
            let others = all_names().filter(|other| *other != name);
            (name, policy("ask", "allow", others.collect()))
        };
        Self {
            denying: all_names().map(deny).collect(),
            allowing_others: all_names().map(allow).collect(),
            allowing_all: policy("ask", "allow", all_names().collect()),
            stack,
            dir,
        }
    }

    /// Restores the files, applies the patch, and returns the files that it changed.
    fn apply(&self, call: &Call) -> BTreeSet<String> {
        for entry in fs::read_dir(self.dir.path()).expect("readable") {
            let path = entry.expect("readable").path();
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            removed.expect("removed");
        }
        for name in OLD {
            let path = self.dir.path().join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("created");
            fs::write(path, CONTENT).expect("written");
        }
        let before = self.snapshot();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .expect("a runtime")
            .block_on(self.stack.run(call.clone()));
        let after = self.snapshot();
        let names = before.keys().chain(after.keys());
        names
            .filter(|name| before.get(*name) != after.get(*name))
            .cloned()
            .collect()
    }

    /// Returns content and permissions of every file.
    fn snapshot(&self) -> BTreeMap<String, (Vec<u8>, bool)> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let name = path.strip_prefix(self.dir.path()).expect("below the root");
                let name = name.to_str().expect("UTF-8").to_owned();
                let content = fs::read(&path).expect("readable");
                files.insert(name, (content, is_executable(&path)));
            }
        }
        files
    }

    fn denied_files(&self, call: &Call) -> BTreeSet<String> {
        let denied = |(name, policy): (&&str, &Policy)| {
            (policy.judge(call).effect == PolicyEffect::Deny).then(|| (*name).to_owned())
        };
        self.denying.iter().filter_map(denied).collect()
    }
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let meta = fs::metadata(path).expect("readable");
    meta.permissions().mode() & 0o100 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}

fn patch_call(patch: &str) -> Call {
    let arguments = Arguments::empty()
        .with_argument("patch", patch.into())
        .expect("valid");
    Call::detached("apply_patch", arguments)
}

/// Returns the part of a patch that changes one file in one of several ways.
fn file_patch(old: &str, new: &str, kind: u8) -> String {
    let git = format!("diff --git a/{old} b/{old}\n");
    match kind {
        0 => format!("--- a/{old}\n+++ b/{old}\n{MODIFY}"),
        1 => format!("--- /dev/null\n+++ b/{new}\n@@ -0,0 +1 @@\n+x\n"),
        2 => format!("--- a/{old}\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-first\n-second\n"),
        3 => format!("diff --git a/{new} b/{new}\nnew file mode 100755\nindex 0..1\n"),
        4 => format!("{git}index 1..2 100644\n--- a/{old}\n+++ b/{old}\n{MODIFY}"),
        5 => format!("diff --git a/{old} b/{new}\nrename from {old}\nrename to {new}\n"),
        6 => format!(
            "diff --git a/{old} b/{new}\nrename from {old}\nrename to {new}\n--- a/{old}\n+++ b/{new}\n{MODIFY}"
        ),
        7 if cfg!(unix) => format!("{git}old mode 100644\nnew mode 100755\n"),
        _ => format!("{git}--- \"a/{old}\"\n+++ \"b/{old}\"\n{MODIFY}"),
    }
}

/// Generates a patch that applies.
fn valid_patch() -> impl Strategy<Value = String> {
    let old = Just(OLD.to_vec()).prop_shuffle();
    let new = Just(NEW.to_vec()).prop_shuffle();
    let kinds = prop::collection::vec(0..9_u8, 1..=NEW.len());
    (old, new, kinds, any::<bool>()).prop_map(|(old, new, mut kinds, has_note)| {
        // Headers of git own the next `---` line, so kinds without them come first.
        kinds.sort_unstable();
        let parts = kinds.iter().zip(old.iter().zip(&new));
        let parts = parts.map(|(kind, (old, new))| file_patch(old, new, *kind));
        let note = if has_note { "A note.\n\n" } else { "" };
        format!("{note}{}", parts.collect::<String>())
    })
}

/// A change that may make a patch invalid, or another patch.
#[derive(Debug, Clone)]
enum Damage {
    Delete(prop::sample::Index),
    Repeat(prop::sample::Index),
    Insert(prop::sample::Index, String),
    Rename(&'static str, &'static str),
    Crlf,
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let name = || select(all_names().collect::<Vec<_>>());
    let word = select(vec![
        "--- a/",
        "+++ b/",
        "--- ",
        "+++ ",
        "rename from ",
        "rename to ",
        "*** Update File: ",
        " ",
        "-",
        "+",
    ]);
    let line = (word, name()).prop_map(|(word, name)| format!("{word}{name}"));
    prop_oneof![
        index().prop_map(Damage::Delete),
        index().prop_map(Damage::Repeat),
        (index(), line).prop_map(|(at, line)| Damage::Insert(at, line)),
        (name(), name()).prop_map(|(from, to)| Damage::Rename(from, to)),
        Just(Damage::Crlf),
    ]
}

fn apply_damage(patch: String, damage: &Damage) -> String {
    let mut lines: Vec<String> = patch.lines().map(str::to_owned).collect();
    let at = |index: &prop::sample::Index| index.index(lines.len().max(1));
    match damage {
        Damage::Delete(index) if !lines.is_empty() => drop(lines.remove(at(index))),
        Damage::Repeat(index) if !lines.is_empty() => {
            let at = at(index);
            lines.insert(at, lines[at].clone());
        }
        Damage::Insert(index, line) => lines.insert(at(index).min(lines.len()), line.clone()),
        Damage::Rename(from, to) => return patch.replacen(from, to, 2),
        Damage::Crlf => return patch.replace('\n', "\r\n"),
        Damage::Delete(_) | Damage::Repeat(_) => {}
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

thread_local! {
    static WORLD: PatchWorld = PatchWorld::new();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_policy_sees_exactly_the_files_that_the_tool_changes(patch in valid_patch()) {
        WORLD.with(|world| {
            let call = patch_call(&patch);
            let denied = world.denied_files(&call);
            let allowed = world.allowing_all.judge(&call).effect;
            let changed = world.apply(&call);
            prop_assert!(!changed.is_empty(), "{patch}");
            prop_assert_eq!(denied, changed, "{}", patch);
            prop_assert_eq!(allowed, PolicyEffect::Allow, "{}", patch);
            Ok(())
        })?;
    }

    #[test]
    fn no_file_that_the_tool_changes_is_hidden_from_a_policy(
        patch in valid_patch(),
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        WORLD.with(|world| {
            let patch = damages.iter().fold(patch, apply_damage);
            let call = patch_call(&patch);
            let denied = world.denied_files(&call);
            for name in world.apply(&call) {
                // `+++ b/six` without git may name the file `six`, which no policy lists.
                let known = world.allowing_others.get(name.as_str());
                prop_assert!(known.is_none() || denied.contains(&name), "{name}:\n{patch}");
                let effect = known.unwrap_or(&world.allowing_all).judge(&call).effect;
                prop_assert_ne!(effect, PolicyEffect::Allow, "{}:\n{}", name, patch);
            }
            Ok(())
        })?;
    }
}
