//! Where a path in a call leads.
//!
//! What is forbidden is looked for generously: under every spelling that some system takes for the same file. What is
//! allowed is looked for strictly: the path has to lead there for certain, through whatever links are in the way.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs, io, iter,
    path::{Component, Path, PathBuf},
};

use crate::path_patterns::{AnyOf, Within};

/// The directory that relative paths start from, with links resolved.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    path: PathBuf,
    /// The same under both spellings that places are compared in.
    folded: [String; 2],
    home: Option<PathBuf>,
}

/// A place that a path may lead to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The whole path, with slashes.
    pub(crate) absolute: String,
    /// The part below the root, if it is there; empty for the root itself.
    pub(crate) inside: Option<String>,
}

/// Everything that one path may mean.
#[derive(Debug)]
pub(crate) struct Place {
    /// Spelled as plainly as possible, for what is forbidden: one of them is enough.
    folded: Vec<Spot>,
    /// Exactly, for what is allowed: all of them have to fit. Nothing if that is not certain.
    exact: Option<Vec<Spot>>,
}

/// Why nobody can say where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// It has a zero byte in it, behind which some systems stop to read.
    Nul,
    /// It is longer than a path can be.
    TooLong,
    /// The file system would not say, or the links go round in circles.
    Failed,
}

impl Root {
    pub(crate) fn new(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = follow(Path::new("/"), &absolute).unwrap_or(absolute);
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let text = path.to_string_lossy();
        let text = slashes(&text);
        let folded =
            [fold(&text), fold_case(&text)].map(|root| root.trim_end_matches('/').to_owned());
        Self { path, folded, home }
    }

    /// What `text` spells, without a look at what is there.
    pub(crate) fn spelled(&self, text: &str) -> Place {
        let mut folded = Vec::new();
        for spelling in self.spellings(text) {
            self.fold_into(&lexical(&self.path, Path::new(&*spelling)), &mut folded);
        }
        Place {
            folded,
            exact: None,
        }
    }

    /// Finds out where `text` leads.
    pub(crate) fn locate(&self, text: &str) -> Result<Place, Unresolved> {
        if text.contains('\0') {
            return Err(Unresolved::Nul);
        }
        let certain = !text.contains('\\') && !is_odd(text);
        let mut folded = Vec::new();
        let mut exact = certain.then(Vec::new);
        for spelling in self.spellings(text) {
            let tidy = lexical(&self.path, Path::new(&*spelling));
            let led = follow(&self.path, Path::new(&*spelling))?;
            // A tool that tidies a path before it opens it does not end up where the links lead.
            let tidied = if climbs(&spelling) {
                Some(follow(&self.path, &tidy)?)
            } else {
                None
            };
            let leads_to = || iter::once(&led).chain(&tidied);
            for path in leads_to() {
                exact = exact.and_then(|mut exact| {
                    exact.push(self.spot(path)?);
                    Some(exact)
                });
            }
            // Mostly there are no links in the way, and both are the same, letter by letter.
            let is_tidy = |path: &PathBuf| path.as_os_str() == tidy.as_os_str() || *path == tidy;
            let also = Some(&tidy).filter(|_| !leads_to().any(is_tidy));
            for path in leads_to().chain(also) {
                self.fold_into(path, &mut folded);
            }
        }
        Ok(Place { folded, exact })
    }

    /// The one place inside the root that `text` leads to for certain.
    pub(crate) fn inside(&self, text: &str) -> Option<PathBuf> {
        let spots = self.locate(text).ok()?.exact?;
        let first = spots.first()?.absolute.clone();
        spots
            .iter()
            .all(|spot| spot.inside.is_some() && spot.absolute == first)
            .then(|| first.into())
    }

    /// Whether there is something of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        !name.contains('\0') && fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    /// The texts that some tool or system takes for the same path.
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
                also(format!(
                    "/{}",
                    percent_decoded(rest).trim_start_matches('/')
                ));
            }
        }
        // Some tools read the file that is named behind an `@`.
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

    fn spot(&self, path: &Path) -> Option<Spot> {
        let text = path.to_str()?;
        // Mostly the root is written in front, which takes less time to see than to compare part by part.
        let behind_root = || {
            text.strip_prefix(self.path.to_str()?)?
                .strip_prefix('/')
                .filter(|it| !it.starts_with('/'))
        };
        let inside = behind_root().or_else(|| path.strip_prefix(&self.path).ok()?.to_str());
        let owned = |text| slashes(text).into_owned();
        Some(Spot {
            absolute: owned(text),
            inside: inside.map(owned),
        })
    }

    /// Adds the plainest spelling of a path, and the one that keeps what some systems cut off.
    fn fold_into(&self, path: &Path, spots: &mut Vec<Spot>) {
        let text = path.to_string_lossy();
        let text = slashes(&text);
        // Of what is plain, both spellings are one.
        let spellings = match is_plain(&text) {
            true => [Some(fold_case(&text)), None],
            false => [Some(fold(&text)), Some(fold_case(&text))],
        };
        for (absolute, root) in spellings.into_iter().flatten().zip(&self.folded) {
            if spots.iter().any(|spot| spot.absolute == absolute) {
                continue;
            }
            let rest = absolute.strip_prefix(root.as_str());
            let inside = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let inside = inside.map(|rest| rest.trim_start_matches('/').to_owned());
            spots.push(Spot { absolute, inside });
        }
    }
}

impl Place {
    /// Whether the place fits a pattern under any of its spellings. A directory stands for what is inside it.
    pub(crate) fn may_be(&self, patterns: &AnyOf) -> bool {
        self.folded.iter().any(|spot| patterns.matches(spot))
    }

    /// Whether the place is certain and fits the patterns exactly.
    pub(crate) fn is_within(&self, patterns: &Within) -> bool {
        self.exact
            .as_ref()
            .is_some_and(|spots| spots.iter().all(|spot| patterns.matches(spot)))
    }

    /// Whether the place is for certain the root or below it.
    pub(crate) fn is_inside_root(&self) -> bool {
        self.exact
            .as_ref()
            .is_some_and(|spots| spots.iter().all(|spot| spot.inside.is_some()))
    }

    /// Whether the place, as a whole path, passes a test under any of its spellings.
    pub(crate) fn any_spelling(&self, test: impl Fn(&str) -> bool) -> bool {
        self.folded.iter().any(|spot| test(&spot.absolute))
    }
}

/// Follows `path` from `base` (an absolute path without links) through all links; what is not there yet is kept as it
/// is written. `..` goes up from where the links led, as the kernel does it.
pub(crate) fn follow(base: &Path, path: &Path) -> Result<PathBuf, Unresolved> {
    const MOST_LINKS: u32 = 40;
    // The kernel takes no longer path, whatever is there.
    const LONGEST: usize = 4_096;
    let mut at = with_room(base, path);
    let mut ahead: Vec<Cow<'_, OsStr>> = Vec::new();
    let mut links = 0;
    // So many steps ago there was nothing any more: what is below is not there either.
    let mut astray = 0_usize;
    set_out(path, &mut at, |part| ahead.push(Cow::Borrowed(part)));
    while let Some(part) = ahead.pop() {
        if *part == *".." {
            at.pop();
            astray = astray.saturating_sub(1);
            continue;
        }
        at.push(part);
        if astray > 0 {
            if at.as_os_str().len() >= LONGEST {
                return Err(Unresolved::TooLong);
            }
            astray += 1;
            continue;
        }
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Unresolved::Failed);
                }
                let target = fs::read_link(&at).map_err(|_| Unresolved::Failed)?;
                at.pop();
                set_out(&target, &mut at, |part| {
                    ahead.push(Cow::Owned(part.to_owned()))
                });
            }
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => astray = 1,
                io::ErrorKind::InvalidFilename => return Err(Unresolved::TooLong),
                _ => return Err(Unresolved::Failed),
            },
        }
    }
    Ok(at)
}

/// Begins to walk along `path` from `at`: hands out the parts that lie ahead, the last one first.
fn set_out<'p>(path: &'p Path, at: &mut PathBuf, mut lies_ahead: impl FnMut(&'p OsStr)) {
    for part in path.components().rev() {
        match part {
            Component::Normal(_) | Component::ParentDir => lies_ahead(part.as_os_str()),
            Component::CurDir => {}
            // Nothing before a root counts.
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

/// A copy of `base` to which `path` can be added without another allocation.
fn with_room(base: &Path, path: &Path) -> PathBuf {
    let mut copy = PathBuf::with_capacity(base.as_os_str().len() + path.as_os_str().len() + 1);
    copy.push(base);
    copy
}

/// Resolves `.` and `..` by text alone, as many tools do before they open anything.
fn lexical(base: &Path, path: &Path) -> PathBuf {
    let mut joined = with_room(base, path);
    joined.push(path);
    if is_tidy(&joined) {
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

/// Whether there is nothing to resolve in a path. On Windows there are too many ways to write one.
fn is_tidy(path: &Path) -> bool {
    let below_root = path
        .to_str()
        .filter(|_| !cfg!(windows))
        .and_then(|text| text.strip_prefix('/'));
    below_root.is_some_and(|text| text.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// One spelling for all that differ only in what some file system does not see: case, dots and spaces at the end,
/// characters without width, streams behind a colon.
pub(crate) fn fold(path: &str) -> String {
    let part = |part: &str| {
        let visible: String = part.chars().filter(|c| !has_no_width(*c)).collect();
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

/// Whether there is nothing in a path that some file system does not see, case aside: then [`fold`] changes nothing else.
fn is_plain(path: &str) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    let cut_off = |(at, byte): (usize, u8)| {
        byte == b'.' && matches!(path.as_bytes().get(at + 1), None | Some(b'/'))
    };
    path.bytes().all(visible) && !path.bytes().enumerate().any(cut_off)
}

/// Up and down again: some letters only meet their plain form that way.
pub(crate) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.to_uppercase().to_lowercase()
    }
}

pub(crate) fn has_no_width(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}')
}

/// Whether a tool might read the text otherwise than the kernel does.
fn is_odd(text: &str) -> bool {
    let expands = text.contains('$') && (text.contains("${") || text.contains("$HOME"));
    expands
        || text.starts_with(['~', '@'])
        || after_file_scheme(text).is_some()
        || text.trim() != text
}

/// What follows `file:`, however that is written.
fn after_file_scheme(text: &str) -> Option<&str> {
    text.get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("file:"))
        .map(|_| &text[5..])
}

pub(crate) fn climbs(path: &str) -> bool {
    let dots = path.as_bytes().windows(2).any(|two| two == b"..");
    dots && path.split(['/', '\\']).any(|part| part == "..")
}

pub(crate) fn slashes(path: &str) -> Cow<'_, str> {
    if cfg!(windows) {
        path.replace('\\', "/").into()
    } else {
        path.into()
    }
}

/// Text with `%2e` and the like written out; what is no escape stays.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = tail
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).1,
            None => (bytes.push(*first), rest = tail).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A workspace with `src`, a link to a file and a directory outside, and a link to nothing yet.
    fn workspace() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, out) = (dir.path().join("work"), dir.path().join("outside"));
        fs::create_dir_all(root.join("src/deep")).expect("made");
        fs::create_dir_all(&out).expect("made");
        fs::write(out.join("file"), "").expect("written");
        symlink(out.join("file"), root.join("src/to_file")).expect("linked");
        symlink(&out, root.join("src/to_dir")).expect("linked");
        symlink(out.join("later"), root.join("src/to_later")).expect("linked");
        symlink("deep", root.join("src/inner")).expect("linked");
        symlink("src/deep", root.join("shortcut")).expect("linked");
        symlink("loop", root.join("src/loop")).expect("linked");
        let root = Root::new(&root);
        (dir, root)
    }

    fn patterns(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn allowed(root: &Root, text: &str) -> bool {
        let within = Within::new(&patterns(&["src/**"])).expect("readable");
        root.locate(text)
            .is_ok_and(|place| place.is_within(&within))
    }

    fn denied(root: &Root, list: &[&str], text: &str) -> bool {
        let any = AnyOf::new(&patterns(list)).expect("readable");
        root.locate(text).map_or(true, |place| place.may_be(&any))
    }

    #[test]
    fn an_allowed_path_leads_there_for_certain() {
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
            assert!(allowed(&root, text), "{text}");
        }
    }

    #[test]
    fn a_link_to_a_file_outside_is_not_inside() {
        assert!(!allowed(&workspace().1, "src/to_file"));
    }

    #[test]
    fn a_link_to_a_directory_outside_is_not_inside() {
        let (_dir, root) = workspace();
        assert!(!allowed(&root, "src/to_dir/file"));
        assert!(!allowed(&root, "src/to_dir"));
    }

    #[test]
    fn a_leaf_that_does_not_exist_yet_is_where_its_directory_is() {
        let (_dir, root) = workspace();
        assert!(!allowed(&root, "src/to_dir/new/leaf"));
        assert!(
            !allowed(&root, "src/to_later"),
            "a link to what is not there yet"
        );
        assert!(allowed(&root, "src/deep/new/leaf"));
    }

    #[test]
    fn dots_lead_back_from_what_is_not_there() {
        let (_dir, root) = workspace();
        for text in [
            "gone/../src/to_file",
            "gone/more/../../src/to_dir/x",
            "src/new/../to_dir/x",
            "src/a/b/../../to_file",
        ] {
            assert!(!allowed(&root, text), "{text} leads out through a link");
        }
        assert!(allowed(&root, "gone/more/../../src/inner/a"));
        assert!(!allowed(&root, "src/gone/../../x"));
        let led = |text: &str| follow(&root.path, Path::new(text)).expect("leads somewhere");
        assert_eq!(
            led("gone/more/../../src/to_file"),
            led("src/to_file"),
            "links count again on the way back"
        );
        assert_eq!(led("gone/../src/to_dir/x"), led("src/to_dir").join("x"));
        assert_eq!(
            led("gone/more/../src/to_file"),
            root.path.join("gone/src/to_file"),
            "one step back is not enough"
        );
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_wherever_it_leads() {
        let (_dir, root) = workspace();
        for text in [
            "gone/".repeat(2_000),
            "src/".repeat(2_000),
            format!("gone/{}", "x/".repeat(3_000)),
        ] {
            assert!(
                matches!(root.locate(&text), Err(Unresolved::TooLong)),
                "{}",
                &text[..8]
            );
        }
    }

    #[test]
    fn dots_go_up_from_where_the_links_led() {
        let (_dir, root) = workspace();
        for text in [
            "src/../x",
            "src/../../x",
            "src/a/../../x",
            "src/to_dir/../outside/a",
            "src/to_dir/../a",
            "../x",
        ] {
            assert!(!allowed(&root, text), "{text}");
        }
        assert!(allowed(&root, "shortcut/a"));
        assert!(
            !allowed(&root, "shortcut/../a"),
            "a tool that tidies first does not end up in src"
        );
        assert!(
            denied(&root, &["src/a"], "src/to_dir/../a"),
            "for a tool that tidies first"
        );
        assert!(
            denied(&root, &["src/a"], "src/to_dir/../work/src/a"),
            "for one that follows"
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
            assert!(!allowed(&root, text), "{text}");
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
            assert!(denied(&root, &[".env"], text), "{text}");
        }
        assert!(
            denied(&root, &["**/.ssh/**"], ".\u{17f}sh/key"),
            "letters that differ only in case"
        );
        let absolute = root.path.join("a/.env").display().to_string();
        assert!(denied(&root, &[".env"], &absolute));
        assert!(denied(
            &root,
            &[".env"],
            &format!("file://{}", absolute.replace(".env", "%2Eenv"))
        ));
        assert!(
            denied(&root, &[".env"], &format!("FILE://{absolute}?x#y"))
                && denied(&root, &[".env"], "@.env")
        );
        for odd in ["logs:prod", "odd.", "notes.txt:more"] {
            assert!(
                denied(&root, &[odd], &format!("{odd}/x")),
                "a pattern fits what it spells: {odd}"
            );
        }
        assert!(!denied(&root, &[".env"], "environment"));
    }

    #[test]
    fn what_is_plain_folds_to_its_small_letters_and_nothing_else_is_plain() {
        for plain in [
            "",
            "/",
            "/Work/src/main.rs",
            "a//b",
            "/x/.env",
            "/x/a..b/c",
            "/x/#a+b%20",
        ] {
            assert!(is_plain(plain), "{plain}");
            assert_eq!(fold(plain), fold_case(plain), "{plain}");
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
            assert!(!is_plain(odd), "{odd:?}");
        }
    }

    #[test]
    fn a_tilde_is_looked_for_at_home_too() {
        let (_dir, mut root) = workspace();
        root.home = Some("/home/ann".into());
        assert!(denied(&root, &["/home/ann/x"], "~/x"));
        assert!(!allowed(&root, "~/x"));
    }

    #[test]
    fn a_denied_directory_stands_for_what_is_in_it_but_not_for_what_is_around_the_root() {
        let (_dir, root) = workspace();
        for pattern in ["src", "src/", "src/**", "**/src", "./src", "deep"] {
            assert!(denied(&root, &[pattern], "src/deep/x"), "{pattern}");
        }
        assert!(denied(&root, &["src/**"], "src"), "listing it too");
        assert!(
            !denied(&root, &["work"], "src/deep/x"),
            "the name of the root"
        );
        assert!(!denied(&root, &["src/x"], "/src/x"), "another root");
        assert!(denied(&root, &["file"], "src/to_file"), "through a link");
    }

    #[test]
    fn an_absolute_pattern_is_followed_like_a_path() {
        let (dir, root) = workspace();
        symlink(&root.path, dir.path().join("alias")).expect("linked");
        let pattern = format!("{}/alias/src/**", dir.path().display());
        let within = Within::new(std::slice::from_ref(&pattern)).expect("readable");
        assert!(root.locate("src/x").expect("there").is_within(&within));
        assert!(!root.locate("lib/x").expect("there").is_within(&within));
        assert!(denied(&root, &[&pattern], "src/x"));
    }

    #[test]
    fn what_cannot_be_resolved_is_told_apart_from_what_is_not_there() {
        let (_dir, root) = workspace();
        assert_eq!(root.locate("src/a\0.txt").err(), Some(Unresolved::Nul));
        assert_eq!(root.locate("src/loop/x").err(), Some(Unresolved::Failed));
        assert_eq!(
            root.locate(&"x".repeat(5000)).err(),
            Some(Unresolved::TooLong)
        );
        assert!(root.locate("src/missing").is_ok());
    }
}
