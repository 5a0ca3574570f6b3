//! Resolves the paths in a call.
//!
//! What is forbidden is matched loosely: under every spelling that some system treats as the same
//! file. What is allowed is matched strictly: the path has to lead there for certain, with all its
//! links resolved.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs, io, iter,
    path::{Component, Path, PathBuf},
};

use crate::decide::policy::matching::path_patterns::{LoosePathPatterns, StrictPathPatterns};

/// The directory that relative paths start from, with links resolved.
#[derive(Debug, Clone)]
pub(crate) struct PathRoot {
    path: PathBuf,
    /// The same path in both spellings that places are compared in.
    folded: [String; 2],
    home: Option<PathBuf>,
}

/// A location that a path may lead to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathLocation {
    /// The whole path, with slashes.
    pub(crate) absolute: String,
    /// The part below the root, if it is inside; empty for the root itself.
    pub(crate) inside: Option<String>,
}

/// All locations that one path may mean.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// Folded spellings, for what is forbidden: one match is enough.
    folded: Vec<PathLocation>,
    /// Exact locations, for what is allowed: all of them have to match. `None` if that is not
    /// certain.
    exact: Option<Vec<PathLocation>>,
}

/// The reason why a path cannot be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// It contains a NUL byte, at which some systems truncate it.
    Nul,
    /// It is longer than a path can be.
    TooLong,
    /// The file system returned an error, or the links form a loop.
    LookupFailed,
}

impl PathRoot {
    pub(crate) fn new(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = resolve_links(Path::new("/"), &absolute).unwrap_or(absolute);
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let text = path.to_string_lossy();
        let text = with_slashes(&text);
        let folded = [fold_spelling(&text), fold_case(&text)]
            .map(|root| root.trim_end_matches('/').to_owned());
        Self { path, folded, home }
    }

    /// Returns the place that `text` spells, without access to the file system.
    pub(crate) fn spelled_place(&self, text: &str) -> ResolvedPath {
        let mut folded = Vec::new();
        for spelling in self.spellings(text) {
            self.add_folded(
                &normalize_lexically(&self.path, Path::new(&*spelling)),
                &mut folded,
            );
        }
        ResolvedPath {
            folded,
            exact: None,
        }
    }

    /// Resolves `text` through all links.
    pub(crate) fn resolve_path(&self, text: &str) -> Result<ResolvedPath, PathError> {
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        let certain = !text.contains('\\') && !is_ambiguous(text);
        let mut folded = Vec::new();
        let mut exact = certain.then(Vec::new);
        for spelling in self.spellings(text) {
            let tidy = normalize_lexically(&self.path, Path::new(&*spelling));
            let led = resolve_links(&self.path, Path::new(&*spelling))?;
            // A tool that normalizes a path before it opens it ends up elsewhere than the links
            // lead.
            let tidied = if has_parent_component(&spelling) {
                Some(resolve_links(&self.path, &tidy)?)
            } else {
                None
            };
            let leads_to = || iter::once(&led).chain(&tidied);
            for path in leads_to() {
                // One path that is not UTF-8 makes the whole place uncertain.
                exact = exact.and_then(|mut exact| {
                    exact.push(self.location_of(path)?);
                    Some(exact)
                });
            }
            // Usually there are no links, and both are the same, letter by letter.
            let is_tidy = |path: &PathBuf| path.as_os_str() == tidy.as_os_str() || *path == tidy;
            let also = Some(&tidy).filter(|_| !leads_to().any(is_tidy));
            for path in leads_to().chain(also) {
                self.add_folded(path, &mut folded);
            }
        }
        Ok(ResolvedPath { folded, exact })
    }

    /// Returns the path inside the root that `text` leads to, if that is certain and unique.
    pub(crate) fn resolve_inside(&self, text: &str) -> Option<PathBuf> {
        let spots = self.resolve_path(text).ok()?.exact?;
        let first = spots.first()?.absolute.clone();
        spots
            .iter()
            .all(|spot| spot.inside.is_some() && spot.absolute == first)
            .then(|| first.into())
    }

    /// Checks whether a path leads for certain to the place that it spells, through no link.
    pub(crate) fn leads_as_spelled(&self, text: &str) -> bool {
        let spelled = self.location_of(&normalize_lexically(&self.path, Path::new(text)));
        let exact = self.resolve_path(text).ok().and_then(|place| place.exact);
        exact
            .zip(spelled)
            .is_some_and(|(exact, spelled)| exact.iter().all(|spot| *spot == spelled))
    }

    /// Checks whether a text that may be a path leads to another place than it spells.
    pub(crate) fn leads_elsewhere(&self, text: &str) -> bool {
        match resolve_links(&self.path, Path::new(text)) {
            Ok(path) => path != normalize_lexically(&self.path, Path::new(text)),
            // A text that is too long for a path is none.
            Err(error) => error != PathError::TooLong,
        }
    }

    /// Returns the pattern that matches exactly this path from the root.
    pub(crate) fn absolute_pattern(&self, text: &str) -> String {
        let path = normalize_lexically(&self.path, Path::new(text));
        globset::escape(&with_slashes(&path.to_string_lossy()))
    }

    /// Returns the path from the root, if it is inside, and the path itself otherwise.
    pub(crate) fn relative_path<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.path).unwrap_or(path)
    }

    /// Returns the place that `text` leads to if a link is on the way: below the root, or absolute.
    pub(crate) fn link_target(&self, text: &str) -> Option<String> {
        let path = Path::new(text);
        let led = resolve_links(&self.path, path).ok()?;
        if led == normalize_lexically(&self.path, path) {
            return None;
        }
        let shown = self.relative_path(&led);
        let shown = if shown.as_os_str().is_empty() {
            Path::new(".")
        } else {
            shown
        };
        Some(shown.to_string_lossy().into_owned())
    }

    /// Checks whether a file or directory of that name exists.
    pub(crate) fn has_entry(&self, name: &str) -> bool {
        !name.contains('\0') && fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    /// Returns the texts that some tool or system treats as the same path.
    fn spellings<'t>(&self, text: &'t str) -> impl Iterator<Item = Cow<'t, str>> + use<'t> {
        let mut others: Vec<String> = Vec::new();
        let mut also = |other: String| {
            if other != text && !others.contains(&other) {
                others.push(other)
            }
        };
        if text.trim() != text {
            also(text.trim().to_owned());
        }
        if text.contains('\\') {
            also(text.replace('\\', "/"));
        }
        if let Some(rest) = after_file_scheme(text.trim()) {
            let rest = rest.strip_prefix("//localhost").unwrap_or(rest);
            let bare = rest.split(['?', '#']).next().unwrap_or_default();
            for rest in [rest, bare] {
                also(format!("/{}", percent_decode(rest).trim_start_matches('/')));
            }
        }
        // Some tools read the file that is named after an `@`.
        if let Some(rest) = text.trim().strip_prefix('@') {
            also(rest.to_owned());
        }
        if let (Some(rest), Some(home)) = (text.trim().strip_prefix('~'), &self.home) {
            also(format!(
                "{}/{}",
                home.display(),
                rest.trim_start_matches(['/', '\\'])
            ));
        }
        iter::once(Cow::Borrowed(text)).chain(others.into_iter().map(Cow::Owned))
    }

    fn location_of(&self, path: &Path) -> Option<PathLocation> {
        let text = path.to_str()?;
        // Usually the text begins with the root, and a prefix check is faster than a comparison
        // part by part.
        let behind_root = || {
            text.strip_prefix(self.path.to_str()?)?
                .strip_prefix('/')
                .filter(|it| !it.starts_with('/'))
        };
        let inside = behind_root().or_else(|| path.strip_prefix(&self.path).ok()?.to_str());
        let owned = |text| with_slashes(text).into_owned();
        Some(PathLocation {
            absolute: owned(text),
            inside: inside.map(owned),
        })
    }

    /// Adds the folded spelling of a path, and the one that keeps what some systems strip.
    fn add_folded(&self, path: &Path, spots: &mut Vec<PathLocation>) {
        let text = path.to_string_lossy();
        let text = with_slashes(&text);
        // For a plain path both spellings are the same.
        let spellings = if is_plain_path(&text) {
            [Some(fold_case(&text)), None]
        } else {
            [Some(fold_spelling(&text)), Some(fold_case(&text))]
        };
        for (absolute, root) in spellings.into_iter().flatten().zip(&self.folded) {
            if spots.iter().any(|spot| spot.absolute == absolute) {
                continue;
            }
            let rest = absolute.strip_prefix(root.as_str());
            let inside = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let inside = inside.map(|rest| rest.trim_start_matches('/').to_owned());
            spots.push(PathLocation { absolute, inside });
        }
    }
}

impl ResolvedPath {
    /// Checks whether the place matches a pattern in any spelling. A directory includes its
    /// contents.
    pub(crate) fn may_match(&self, patterns: &LoosePathPatterns) -> bool {
        self.folded.iter().any(|spot| patterns.matches(spot))
    }

    /// Checks whether the place is certain and matches the patterns exactly.
    pub(crate) fn is_within(&self, patterns: &StrictPathPatterns) -> bool {
        self.exact
            .as_ref()
            .is_some_and(|spots| spots.iter().all(|spot| patterns.matches(spot)))
    }

    /// Checks whether the place is certainly the root or below it.
    pub(crate) fn is_inside_root(&self) -> bool {
        self.exact
            .as_ref()
            .is_some_and(|spots| spots.iter().all(|spot| spot.inside.is_some()))
    }

    /// Returns the first answer that `look` gives about the place in any spelling.
    pub(crate) fn find_in_spellings<T>(
        &self,
        look: impl Fn(&PathLocation) -> Option<T>,
    ) -> Option<T> {
        self.folded.iter().find_map(look)
    }

    /// Checks whether the absolute path passes a test in any spelling.
    pub(crate) fn matches_any_spelling(&self, test: impl Fn(&str) -> bool) -> bool {
        self.folded.iter().any(|spot| test(&spot.absolute))
    }
}

/// Resolves `path` from `base` (an absolute path without links) through all links. Parts that do
/// not exist stay as written. `..` goes up from the target of a link, as in the kernel.
pub(crate) fn resolve_links(base: &Path, path: &Path) -> Result<PathBuf, PathError> {
    // The limit of the Linux kernel.
    const MAX_LINKS: u32 = 40;
    // The kernel rejects longer paths in any case.
    const MAX_PATH_BYTES: usize = 4_096;
    let mut at = clone_with_room(base, path);
    let mut ahead: Vec<Cow<'_, OsStr>> = Vec::new();
    let mut links = 0;
    // Number of trailing parts that do not exist: below a missing part nothing exists, so no lookup
    // is needed.
    let mut astray = 0_usize;
    push_components(path, &mut at, |part| ahead.push(Cow::Borrowed(part)));
    while let Some(part) = ahead.pop() {
        if *part == *".." {
            at.pop();
            astray = astray.saturating_sub(1);
            continue;
        }
        at.push(part);
        if astray > 0 {
            if at.as_os_str().len() >= MAX_PATH_BYTES {
                return Err(PathError::TooLong);
            }
            astray += 1;
            continue;
        }
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(PathError::LookupFailed);
                }
                let target = fs::read_link(&at).map_err(|_| PathError::LookupFailed)?;
                at.pop();
                push_components(&target, &mut at, |part| {
                    ahead.push(Cow::Owned(part.to_owned()))
                });
            }
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => astray = 1,
                io::ErrorKind::InvalidFilename => return Err(PathError::TooLong),
                _ => return Err(PathError::LookupFailed),
            },
        }
    }
    Ok(at)
}

/// Starts to walk `path` from `at`: passes on the parts ahead, the last one first.
fn push_components<'p>(path: &'p Path, at: &mut PathBuf, mut lies_ahead: impl FnMut(&'p OsStr)) {
    for part in path.components().rev() {
        match part {
            Component::Normal(_) | Component::ParentDir => lies_ahead(part.as_os_str()),
            Component::CurDir => {}
            // An absolute target replaces everything before it.
            Component::RootDir => {
                *at = at
                    .ancestors()
                    .last()
                    .map(Path::to_owned)
                    .unwrap_or_default()
            }
            Component::Prefix(_) => *at = PathBuf::from_iter([part, Component::RootDir]),
        }
    }
}

/// Returns a copy of `base` to which `path` can be added without another allocation.
fn clone_with_room(base: &Path, path: &Path) -> PathBuf {
    let mut copy = PathBuf::with_capacity(base.as_os_str().len() + path.as_os_str().len() + 1);
    copy.push(base);
    copy
}

/// Resolves `.` and `..` by text alone, as many tools do before they open anything.
fn normalize_lexically(base: &Path, path: &Path) -> PathBuf {
    let mut joined = clone_with_room(base, path);
    joined.push(path);
    if is_normalized(&joined) {
        return joined;
    }
    let mut tidy = PathBuf::with_capacity(joined.as_os_str().len());
    for part in joined.components() {
        match part {
            Component::ParentDir => drop(tidy.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => tidy.push(part),
        }
    }
    tidy
}

/// Checks whether a path needs no normalization. On Windows there are too many ways to write one.
fn is_normalized(path: &Path) -> bool {
    let below_root = path
        .to_str()
        .filter(|_| !cfg!(windows))
        .and_then(|text| text.strip_prefix('/'));
    below_root.is_some_and(|text| text.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// Folds spellings that some file system treats as equal: case, dots and spaces at the end,
/// characters without width, streams after a colon.
pub(crate) fn fold_spelling(path: &str) -> String {
    let part = |part: &str| {
        let visible: String = part.chars().filter(|c| !is_zero_width(*c)).collect();
        let name = match visible.find(':') {
            // A drive letter is part of the path.
            Some(at) if at > 1 => &visible[..at],
            _ => &visible,
        };
        let plain = name.trim().trim_end_matches(['.', ' ']);
        fold_case(if plain.is_empty() { name } else { plain })
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Checks whether a path has nothing, except case, that some file system ignores: then [`fold_spelling`]
/// changes only its case.
fn is_plain_path(path: &str) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    let cut_off = |(at, byte): (usize, u8)| {
        byte == b'.' && matches!(path.as_bytes().get(at + 1), None | Some(b'/'))
    };
    path.bytes().all(visible) && !path.bytes().enumerate().any(cut_off)
}

/// Folds case by way of upper case, because some letters reach their plain form only that way.
pub(crate) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.to_uppercase().to_lowercase()
    }
}

pub(crate) fn is_zero_width(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}')
}

/// Checks whether a tool might interpret the text differently from the kernel.
fn is_ambiguous(text: &str) -> bool {
    let expands = text.contains('$') && (text.contains("${") || text.contains("$HOME"));
    expands
        || text.starts_with(['~', '@'])
        || after_file_scheme(text).is_some()
        || text.trim() != text
}

/// Returns the text after `file:`, in any case.
fn after_file_scheme(text: &str) -> Option<&str> {
    text.get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("file:"))
        .map(|_| &text[5..])
}

pub(crate) fn has_parent_component(path: &str) -> bool {
    let dots = path.as_bytes().windows(2).any(|two| two == b"..");
    dots && path.split(['/', '\\']).any(|part| part == "..")
}

pub(crate) fn with_slashes(path: &str) -> Cow<'_, str> {
    if cfg!(windows) {
        path.replace('\\', "/").into()
    } else {
        path.into()
    }
}

/// Decodes escapes such as `%2e`; anything else stays.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = tail
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A workspace with `src`, a link to a file and a directory outside, and a link to nothing yet.
    fn workspace() -> (tempfile::TempDir, PathRoot) {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("work");
        let out = dir.path().join("outside");
        fs::create_dir_all(root.join("src/deep")).expect("created");
        fs::create_dir_all(&out).expect("created");
        fs::write(out.join("file"), "").expect("written");
        symlink(out.join("file"), root.join("src/to_file")).expect("linked");
        symlink(&out, root.join("src/to_dir")).expect("linked");
        symlink(out.join("later"), root.join("src/to_later")).expect("linked");
        symlink("deep", root.join("src/inner")).expect("linked");
        symlink("src/deep", root.join("shortcut")).expect("linked");
        symlink("loop", root.join("src/loop")).expect("linked");
        let root = PathRoot::new(&root);
        (dir, root)
    }

    fn owned_patterns(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn is_allowed(root: &PathRoot, text: &str) -> bool {
        let within = StrictPathPatterns::new(&owned_patterns(&["src/**"])).expect("valid patterns");
        root.resolve_path(text)
            .is_ok_and(|place| place.is_within(&within))
    }

    fn is_denied(root: &PathRoot, list: &[&str], text: &str) -> bool {
        let any = LoosePathPatterns::new(&owned_patterns(list)).expect("valid patterns");
        root.resolve_path(text)
            .map_or(true, |place| place.may_match(&any))
    }

    #[test]
    fn an_allowed_path_certainly_leads_inside() {
        let (_dir, root) = workspace();
        let absolute = root.path.join("src/new/leaf").display().to_string();
        for text in [
            "src/a",
            "./src/a",
            "src/deep/../a",
            "src/inner/a",
            "src//a/",
            &absolute,
        ] {
            assert!(is_allowed(&root, text), "{text}");
        }
    }

    #[test]
    fn a_link_to_a_file_outside_is_not_inside() {
        assert!(!is_allowed(&workspace().1, "src/to_file"));
    }

    #[test]
    fn a_link_to_a_directory_outside_is_not_inside() {
        let (_dir, root) = workspace();
        assert!(!is_allowed(&root, "src/to_dir/file"));
        assert!(!is_allowed(&root, "src/to_dir"));
    }

    #[test]
    fn a_missing_file_is_where_its_directory_is() {
        let (_dir, root) = workspace();
        assert!(!is_allowed(&root, "src/to_dir/new/leaf"));
        assert!(
            !is_allowed(&root, "src/to_later"),
            "a link to a missing file"
        );
        assert!(is_allowed(&root, "src/deep/new/leaf"));
    }

    #[test]
    fn dots_lead_back_from_missing_directories() {
        let (_dir, root) = workspace();
        for text in [
            "gone/../src/to_file",
            "gone/more/../../src/to_dir/x",
            "src/new/../to_dir/x",
            "src/a/b/../../to_file",
        ] {
            assert!(
                !is_allowed(&root, text),
                "{text} leads outside through a link"
            );
        }
        assert!(is_allowed(&root, "gone/more/../../src/inner/a"));
        assert!(!is_allowed(&root, "src/gone/../../x"));
        let led = |text: &str| resolve_links(&root.path, Path::new(text)).expect("resolved");
        assert_eq!(
            led("gone/more/../../src/to_file"),
            led("src/to_file"),
            "links are resolved again after `..`"
        );
        assert_eq!(led("gone/../src/to_dir/x"), led("src/to_dir").join("x"));
        assert_eq!(
            led("gone/more/../src/to_file"),
            root.path.join("gone/src/to_file"),
            "one `..` is not enough"
        );
    }

    #[test]
    fn a_path_that_is_too_long_is_rejected_wherever_it_leads() {
        let (_dir, root) = workspace();
        for text in [
            "gone/".repeat(2_000),
            "src/".repeat(2_000),
            format!("gone/{}", "x/".repeat(3_000)),
        ] {
            assert!(
                matches!(root.resolve_path(&text), Err(PathError::TooLong)),
                "{}",
                &text[..8]
            );
        }
    }

    #[test]
    fn dots_go_up_from_the_target_of_a_link() {
        let (_dir, root) = workspace();
        for text in [
            "src/../x",
            "src/../../x",
            "src/a/../../x",
            "src/to_dir/../outside/a",
            "src/to_dir/../a",
            "../x",
        ] {
            assert!(!is_allowed(&root, text), "{text}");
        }
        assert!(is_allowed(&root, "shortcut/a"));
        assert!(
            !is_allowed(&root, "shortcut/../a"),
            "a tool that normalizes first does not end up in src"
        );
        assert!(
            is_denied(&root, &["src/a"], "src/to_dir/../a"),
            "for a tool that normalizes first"
        );
        assert!(
            is_denied(&root, &["src/a"], "src/to_dir/../work/src/a"),
            "for a tool that follows links"
        );
    }

    #[test]
    fn other_spellings_are_never_allowed_and_always_denied() {
        let (_dir, root) = workspace();
        for text in [
            "SRC/a",
            "src\\a",
            " src/a",
            "src/a ",
            "~/src/a",
            "file:src/a",
            "/src/a",
            "src/$HOME/a",
            "src/${x}/a",
        ] {
            assert!(!is_allowed(&root, text), "{text}");
        }
        for text in [
            ".ENV",
            ".env.",
            ".env/",
            ".env ",
            " .env",
            ".env...",
            "a/.Env",
            "a\\.env",
            ".env::$DATA",
            ".e\u{200b}nv",
            "x/../.env",
        ] {
            assert!(is_denied(&root, &[".env"], text), "{text}");
        }
        assert!(
            is_denied(&root, &["**/.ssh/**"], ".\u{17f}sh/key"),
            "letters that differ only in case"
        );
        let absolute = root.path.join("a/.env").display().to_string();
        assert!(is_denied(&root, &[".env"], &absolute));
        assert!(is_denied(
            &root,
            &[".env"],
            &format!("file://{}", absolute.replace(".env", "%2Eenv"))
        ));
        assert!(
            is_denied(&root, &[".env"], &format!("FILE://{absolute}?x#y"))
                && is_denied(&root, &[".env"], "@.env")
        );
        for odd in ["logs:prod", "odd.", "notes.txt:more"] {
            assert!(
                is_denied(&root, &[odd], &format!("{odd}/x")),
                "a pattern matches its own spelling: {odd}"
            );
        }
        assert!(!is_denied(&root, &[".env"], "environment"));
    }

    #[test]
    fn a_plain_path_folds_to_lower_case_and_no_other_path_is_plain() {
        for plain in [
            "",
            "/",
            "/Work/src/main.rs",
            "a//b",
            "/x/.env",
            "/x/a..b/c",
            "/x/#a+b%20",
        ] {
            assert!(is_plain_path(plain), "{plain}");
            assert_eq!(fold_spelling(plain), fold_case(plain), "{plain}");
        }
        let odd = [
            "/x/a.",
            "/x/a./b",
            "/x/..",
            "/x/a b",
            "/x/a\t",
            "/x/a:b",
            "/x/\u{e4}",
            "/x/a\u{200b}",
            "/x/a\u{7f}",
        ];
        for odd in odd {
            assert!(!is_plain_path(odd), "{odd:?}");
        }
    }

    #[test]
    fn a_tilde_is_also_resolved_in_the_home_directory() {
        let (_dir, mut root) = workspace();
        root.home = Some("/home/ann".into());
        assert!(is_denied(&root, &["/home/ann/x"], "~/x"));
        assert!(!is_allowed(&root, "~/x"));
    }

    #[test]
    fn a_denied_directory_includes_its_contents_but_not_the_parents_of_the_root() {
        let (_dir, root) = workspace();
        for pattern in ["src", "src/", "src/**", "**/src", "./src", "deep"] {
            assert!(is_denied(&root, &[pattern], "src/deep/x"), "{pattern}");
        }
        assert!(is_denied(&root, &["src/**"], "src"), "listing it too");
        assert!(
            !is_denied(&root, &["work"], "src/deep/x"),
            "the name of the root"
        );
        assert!(!is_denied(&root, &["src/x"], "/src/x"), "another root");
        assert!(is_denied(&root, &["file"], "src/to_file"), "through a link");
    }

    #[test]
    fn links_in_an_absolute_pattern_are_resolved() {
        let (dir, root) = workspace();
        symlink(&root.path, dir.path().join("alias")).expect("linked");
        let pattern = format!("{}/alias/src/**", dir.path().display());
        let within =
            StrictPathPatterns::new(std::slice::from_ref(&pattern)).expect("valid patterns");
        assert!(
            root.resolve_path("src/x")
                .expect("resolved")
                .is_within(&within)
        );
        assert!(
            !root
                .resolve_path("lib/x")
                .expect("resolved")
                .is_within(&within)
        );
        assert!(is_denied(&root, &[&pattern], "src/x"));
    }

    #[test]
    fn an_unresolvable_path_is_distinguished_from_a_missing_one() {
        let (_dir, root) = workspace();
        assert_eq!(root.resolve_path("src/a\0.txt").err(), Some(PathError::Nul));
        assert_eq!(
            root.resolve_path("src/loop/x").err(),
            Some(PathError::LookupFailed)
        );
        assert_eq!(
            root.resolve_path(&"x".repeat(5000)).err(),
            Some(PathError::TooLong)
        );
        assert!(root.resolve_path("src/missing").is_ok());
    }
}
