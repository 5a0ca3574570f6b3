//! Paths: a spelling of a denied file is never allowed, and what is allowed lies where the rule
//! says. The file system itself is the second opinion.

use std::{
    fs,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use serde_json::json;
use tempfile::TempDir;
use toolgate_layers::{PathBase, Policy, PolicyEffect};
use toolgate_testkit::call_with;

use crate::{FuzzTarget, InputTrace, targets::shell::parse_policy};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("paths", run, WORDS);

const WORDS: &[&str] = &[
    "src",
    "secret",
    "SECRET",
    "Secret",
    "/",
    "//",
    ".",
    "..",
    "../",
    "./",
    "src/a.txt",
    "secret/key",
    "src/link",
    "link",
    "out",
    "src/out",
    "up",
    "key",
    "/key",
    "\\",
    "..\\",
    "%2e%2e",
    "%2f",
    "file://",
    "file:///",
    "~",
    "@",
    " ",
    "\n",
    "\t",
    "\0",
    "*",
    "s*",
    "[s]ecret",
    "{secret}",
    "?",
    "secret.",
    "secret ",
    "\u{17f}ecret",
    "ſrc",
    "ﬀ",
    "\u{200b}",
    "\u{ad}",
    "secre\u{301}t",
    "::$DATA",
    "C:",
    "/proc/self/cwd",
    "/proc/self/root",
    "workspace",
    "loop",
];

/// A workspace with links out of the allowed folder, and its policies.
struct PathWorld {
    _dir: TempDir,
    root: PathBuf,
    allowing: Policy,
    denying: Policy,
}

static WORLD: LazyLock<PathWorld> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let outer = dir.path().canonicalize().expect("it exists");
    let root = outer.join("workspace");
    for folder in ["src/deep", "secret", "other"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for file in ["src/a.txt", "src/deep/b.txt", "secret/key", "other/c.txt"] {
        fs::write(root.join(file), "text").expect("a file");
    }
    for (link, to) in [
        ("src/link", "../secret"),
        ("src/out", "/"),
        ("src/up", ".."),
        ("src/loop", "loop"),
        ("link", "src"),
    ] {
        std::os::unix::fs::symlink(to, root.join(link)).expect("a link");
    }
    let base = PathBase::new(&root);
    PathWorld {
        allowing: parse_policy("default = 'ask'\n[[rules]]\neffect = 'allow'\npath = 'src/**'")
            .in_workspace(&base),
        denying: parse_policy(
            "default = 'allow'\nsecrets_files = false\n[[rules]]\neffect = 'deny'\npath = 'secret/**'",
        )
        .in_workspace(&base),
        root,
        _dir: dir,
    }
});

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let world = &*WORLD;
    let call = call_with("read_file", json!({ "path": text }));
    let allowing = world.allowing.judge(&call).effect;
    let denying = world.denying.judge(&call).effect;
    let spelled = normalize(&world.root.join(&*text));
    // No file can be opened by a name with a NUL byte.
    let opened = Some(&text).filter(|text| !text.contains('\0'));
    let opened = opened.and_then(|text| follow_links(&world.root.join(&**text)));
    let in_folder = |folder: &str, path: &Path| path.starts_with(world.root.join(folder));
    for path in opened.iter().chain([&spelled]) {
        if in_folder("secret", path) && path != &world.root.join("secret") {
            assert_ne!(
                denying,
                PolicyEffect::Allow,
                "a denied file is allowed: {path:?}"
            );
        }
    }
    if let (PolicyEffect::Allow, Some(path)) = (allowing, &opened) {
        assert!(
            in_folder("src", path),
            "a path outside is allowed: {path:?}"
        );
    }
    InputTrace::of((
        allowing,
        denying,
        opened.is_some(),
        spelled
            .strip_prefix(&world.root)
            .ok()
            .map(|path| path.components().count().min(3)),
    ))
}

/// Returns the file that a path leads to. Its last parts may not exist yet.
fn follow_links(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Some(path);
    }
    // A link that leads nowhere: creating the file would create what it names.
    let target = fs::read_link(path);
    match (target, path.parent(), path.file_name()) {
        (Ok(_), ..) => None,
        (Err(_), Some(parent), Some(name)) => Some(follow_links(parent)?.join(name)),
        (Err(_), ..) => None,
    }
}

/// Removes `.` and `..` by their spelling.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                normal.push(component)
            }
        }
    }
    normal
}
