//! What a rule can know about a call: the paths, commands and hosts its arguments name.
//!
//! What an argument is called decides only what may be allowed. For what is forbidden every short text of a call
//! counts, keys included, because nobody knows what a tool does with an argument of another name.

use std::{borrow::Cow, cell::OnceCell};

use serde_json::{Map, Value};
use toolgate_core::{Call, Resource, ResourceKind};

use crate::{
    argument_names::{Means, changes_commands, means, names_directory, plain_name},
    hosts::{PlainUrl, hosts_anywhere, may_be_host, plain_authority, plain_url},
    patch_files::patch_files,
    paths::{Place, Root, Unresolved},
    shell::{self, Words},
};

/// Which of the facts any rule asks for; the others are not looked up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs {
    pub(crate) paths: bool,
    pub(crate) commands: bool,
    pub(crate) urls: bool,
}

/// What is known about one call.
pub(crate) struct Facts<'a> {
    pub(crate) call: &'a Call,
    pub(crate) root: &'a Root,
    /// How many times the same call was made before.
    pub(crate) earlier: usize,
    pub(crate) places: Vec<Place>,
    /// Whether there is a path that nobody can follow.
    pub(crate) lost: bool,
    /// Whether every argument that names a path was understood.
    pub(crate) paths_certain: bool,
    pub(crate) commands: Vec<Command>,
    pub(crate) urls: Vec<Url>,
    /// Whether every argument that names a URL or a host was understood.
    pub(crate) urls_certain: bool,
    /// What arguments with the name of a path say.
    named: Vec<(Cow<'a, str>, Means)>,
    /// Other short texts and keys that may name a path or a host.
    texts: Vec<&'a str>,
    /// The directories that the call names; relative paths may start there.
    dirs: Vec<String>,
    /// Whether something beside the commands changes what they mean.
    surrounded: bool,
    hinted: OnceCell<Vec<Place>>,
    spoken: OnceCell<Vec<Place>>,
    words: OnceCell<Vec<String>>,
    hosts: OnceCell<Vec<String>>,
}

/// A command that the call names.
pub(crate) struct Command {
    pub(crate) text: String,
    /// What it runs, if that is certain.
    pub(crate) runs: Option<Vec<Words>>,
    said: OnceCell<Vec<Words>>,
}

impl Command {
    fn new(text: String, runs: Option<Vec<Words>>) -> Self {
        Self {
            text,
            runs,
            said: OnceCell::new(),
        }
    }

    /// Every run of words that could be a command, however it is quoted.
    pub(crate) fn said(&self) -> &[Words] {
        self.said.get_or_init(|| shell::runs_anywhere(&self.text))
    }
}

/// A URL or host that the call names.
pub(crate) struct Url {
    pub(crate) text: String,
    /// Where it leads, if that is certain.
    pub(crate) plain: Option<PlainUrl>,
}

/// A longer text is not taken for a path or a host, unless its name says so.
const LONGEST_HINT: usize = 512;
/// So many texts or words are looked up; of more only the spelling counts.
const MOST_LOOKUPS: usize = 256;
const MOST_DIRS: usize = 16;

impl<'a> Facts<'a> {
    pub(crate) fn of(call: &'a Call, root: &'a Root, needs: Needs, earlier: usize) -> Self {
        let mut facts = Self {
            call,
            root,
            earlier,
            places: Vec::new(),
            lost: false,
            paths_certain: true,
            commands: Vec::new(),
            urls: Vec::new(),
            urls_certain: true,
            named: Vec::new(),
            texts: Vec::new(),
            dirs: Vec::new(),
            surrounded: false,
            hinted: OnceCell::new(),
            spoken: OnceCell::new(),
            words: OnceCell::new(),
            hosts: OnceCell::new(),
        };
        if needs.paths || needs.commands || needs.urls {
            facts.walk(call.arguments.as_map(), needs);
        }
        if needs.paths {
            let named = |it: &&Resource| it.kind == ResourceKind::Path && !it.is_workspace();
            let resources = call.annotations().resources.iter().filter(named);
            for value in resources.filter_map(|it| call.arguments.as_json().pointer(&it.argument)) {
                facts.paths(value, Means::Path);
            }
        }
        facts.resolve();
        facts
    }

    /// The commands that the call runs, if all of that is certain.
    pub(crate) fn runs(&self) -> Option<Vec<&Words>> {
        let runs: Option<Vec<_>> = self
            .commands
            .iter()
            .map(|command| command.runs.as_ref())
            .collect();
        runs.map(|runs| runs.into_iter().flatten().collect())
    }

    /// The places that texts of any name may lead to.
    pub(crate) fn hinted(&self) -> &[Place] {
        self.hinted.get_or_init(|| {
            // `event.key` is code rather than a file, unless there is one.
            let is_code = |text: &str| {
                text.contains('.') && !text.contains(['/', '\\', '~']) && !text.starts_with('.')
            };
            let is_there = |text: &str| {
                let from = |dir: &String| self.root.has(&format!("{dir}/{text}"));
                self.root.has(text) || self.dirs.iter().any(from)
            };
            let texts = self.texts.iter().map(|text| text.trim_matches(['@', ' ']));
            self.places_of(texts.filter(|text| !is_code(text) || is_there(text)))
        })
    }

    /// The places that words of the commands may name.
    pub(crate) fn spoken(&self) -> &[Place] {
        self.spoken
            .get_or_init(|| self.places_of(self.words().iter().map(String::as_str)))
    }

    /// Every word of the commands, however they are quoted.
    pub(crate) fn words(&self) -> &[String] {
        self.words
            .get_or_init(|| shell::words_of(self.commands.iter().flat_map(Command::said)))
    }

    /// What a shell or a tool may expand to other paths.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &str> {
        let named = self.named.iter().map(|(text, _)| &**text);
        let all = named
            .chain(self.texts.iter().copied())
            .chain(self.words().iter().map(String::as_str));
        all.filter(|text| text.contains(['*', '?', '[']))
    }

    /// Every host that the call may name, under whatever name.
    pub(crate) fn hosts(&self) -> &[String] {
        self.hosts.get_or_init(|| {
            let named = self
                .named
                .iter()
                .map(|(text, _)| &**text)
                .filter(|text| text.len() <= LONGEST_HINT);
            let hints = named
                .chain(self.texts.iter().copied())
                .chain(self.words().iter().map(String::as_str));
            let urls = self.urls.iter().map(|url| url.text.as_str());
            urls.chain(hints.filter(|text| may_be_host(text)))
                .flat_map(hosts_anywhere)
                .collect()
        })
    }

    /// Every text that may be a URL, under whatever name.
    pub(crate) fn url_texts(&self) -> impl Iterator<Item = &str> {
        let named = self
            .named
            .iter()
            .map(|(text, _)| &**text)
            .filter(|text| text.len() <= LONGEST_HINT);
        let hints = named
            .chain(self.texts.iter().copied())
            .chain(self.words().iter().map(String::as_str));
        self.urls
            .iter()
            .map(|url| url.text.as_str())
            .chain(hints.filter(|text| text.contains(':')))
    }

    /// `build` in `cargo build` is a path only if there is one.
    fn may_be_path(&self, word: &str) -> bool {
        word.contains(['/', '.', '~', '\\', ':', '@']) || may_be_key(word) || self.root.has(word)
    }

    /// Where texts may lead, from the root and from every directory that the call names.
    fn places_of<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<Place> {
        let mut places = Vec::new();
        let mut dirs = self.dirs.clone();
        shell::directories(
            self.commands.iter().flat_map(Command::said),
            &mut dirs,
            MOST_DIRS,
        );
        for text in texts {
            let cheap = places.len() >= MOST_LOOKUPS;
            let find = |text: &str| match cheap {
                true => self.root.spelled(text),
                false => self
                    .root
                    .locate(text)
                    .unwrap_or_else(|_| self.root.spelled(text)),
            };
            if cheap || self.may_be_path(text) {
                places.push(find(text));
            }
            if is_relative(text) {
                let most = if cheap { MOST_DIRS / 4 } else { MOST_DIRS };
                places.extend(
                    dirs.iter()
                        .take(most)
                        .map(|dir| find(&format!("{dir}/{text}"))),
                );
            }
        }
        places
    }

    /// Finds out where the named paths lead.
    fn resolve(&mut self) {
        let mut more = Vec::new();
        for (text, means) in &self.named {
            let from_dirs = self
                .dirs
                .iter()
                .filter(|dir| is_relative(text) && *dir != text);
            let from_dirs = from_dirs.map(|dir| Cow::Owned(format!("{dir}/{text}")));
            for text in [Cow::Borrowed(&**text)].into_iter().chain(from_dirs) {
                match self.root.locate(&text) {
                    Ok(place) => more.push(place),
                    // Source code in an argument called `source` is no path, and no path that long can be opened.
                    Err(Unresolved::TooLong) if *means == Means::PerhapsPath => {
                        self.paths_certain = false
                    }
                    Err(_) => self.lost = true,
                }
            }
        }
        self.places = more;
        if self.commands.is_empty() {
            return;
        }
        // In another directory the same words may run other things.
        let elsewhere = |dir: &String| {
            !self
                .root
                .locate(dir)
                .is_ok_and(|place| place.is_inside_root())
        };
        if self.surrounded || self.dirs.iter().any(elsewhere) {
            self.commands
                .iter_mut()
                .for_each(|command| command.runs = None);
        }
    }

    fn walk(&mut self, object: &'a Map<String, Value>, needs: Needs) {
        for (key, value) in object {
            let name = plain_name(key);
            let means = means(&name);
            self.surrounded |= changes_commands(&name) && !is_nothing(value);
            self.hint(key);
            if names_directory(&name) {
                strings(value, &mut |dir| self.dirs.push(dir.to_owned()));
                self.dirs.truncate(MOST_DIRS);
            }
            match means {
                Means::Path | Means::PerhapsPath if needs.paths => self.paths(value, means),
                Means::Patch if needs.paths => self.patches(value),
                Means::Url if needs.paths => self.local(value),
                Means::Command if needs.commands => self.command(value, object),
                Means::Commands if needs.commands => self.commands(value, object),
                _ => {}
            }
            if needs.urls {
                self.url(value, means);
            }
            // These texts have been looked at.
            let known = match means {
                Means::Path | Means::PerhapsPath | Means::Patch => needs.paths,
                Means::Command | Means::Commands => needs.commands,
                Means::Url | Means::Host | Means::Other => false,
            };
            if !known || !value.is_string() {
                self.walk_inside(value, needs);
            }
        }
    }

    fn walk_inside(&mut self, value: &'a Value, needs: Needs) {
        match value {
            Value::Object(object) => self.walk(object, needs),
            Value::Array(items) => items.iter().for_each(|item| self.walk_inside(item, needs)),
            Value::String(text) => {
                self.hint(text);
                if needs.paths
                    && text
                        .trim_start()
                        .get(..5)
                        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
                {
                    self.paths(value, Means::Path);
                }
                if needs.paths && is_patch(text) {
                    self.patches(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Keeps a short text that may name a path or a host.
    fn hint(&mut self, text: &'a str) {
        let telling = |c: char| {
            matches!(
                c,
                '/' | '.' | '\\' | ':' | '*' | '?' | '[' | '。' | '．' | '｡'
            )
        };
        let short = text.len() <= LONGEST_HINT && (text.contains(telling) || may_be_key(text));
        if short && !text.trim().contains('\n') {
            self.texts.push(text);
        }
    }

    fn paths(&mut self, value: &'a Value, means: Means) {
        match value {
            Value::String(text) if means == Means::PerhapsPath && is_patch(text) => {
                self.patches(value)
            }
            Value::String(text) => self.named.push((Cow::Borrowed(text), means)),
            Value::Array(items) => items.iter().for_each(|item| self.paths(item, means)),
            // Of what an object holds, nobody knows what is the path.
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => self.paths_certain = false,
            Value::Null => {}
        }
    }

    /// A URL without a scheme may be a path.
    fn local(&mut self, value: &'a Value) {
        match value {
            Value::String(text) if !text.contains("://") => self.paths(value, Means::PerhapsPath),
            Value::Array(items) => items.iter().for_each(|item| self.local(item)),
            Value::Object(_) => self.paths_certain = false,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// A patch names the files it changes.
    fn patches(&mut self, value: &Value) {
        let mut found = Vec::new();
        let mut unread = matches!(value, Value::Number(_) | Value::Object(_));
        strings(value, &mut |patch| {
            let before = found.len();
            found.extend(
                patch_files(patch)
                    .into_iter()
                    .flat_map(|file| [Some(file.path), file.old_path])
                    .flatten(),
            );
            unread |= found.len() == before;
        });
        self.paths_certain &= !unread;
        self.named.extend(
            found
                .into_iter()
                .map(|path| (Cow::Owned(path), Means::Path)),
        );
    }

    /// A list of commands, where [`Facts::command`] takes a list for the words of one.
    fn commands(&mut self, value: &Value, beside: &Map<String, Value>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.commands(item, beside)),
            one => self.command(one, beside),
        }
    }

    fn command(&mut self, value: &Value, beside: &Map<String, Value>) {
        let (text, runs) = match value {
            Value::Null | Value::Bool(_) => return,
            Value::String(text) => (text.clone(), shell::commands(text)),
            Value::Array(items) => {
                let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
                let runs = words
                    .and_then(|words| shell::argv(&words))
                    .map(|words| vec![words]);
                (all_texts(value), runs)
            }
            Value::Number(_) | Value::Object(_) => (all_texts(value), None),
        };
        let is_argument = |(key, more): &(&String, &Value)| {
            ARGUMENTS.contains(&&*plain_name(key))
                && !is_nothing(more)
                && !std::ptr::eq(*more, value)
        };
        let arguments: Vec<&Value> = beside
            .iter()
            .filter(is_argument)
            .map(|(_, more)| more)
            .collect();
        let command = with_arguments(text, runs, &arguments);
        let urls = command
            .text
            .split_whitespace()
            .filter(|word| word.contains("://"));
        self.urls.extend(urls.map(|word| Url {
            text: word.to_owned(),
            plain: plain_url(word),
        }));
        self.commands.push(command);
    }

    fn url(&mut self, value: &Value, means: Means) {
        let named = matches!(means, Means::Url | Means::Host);
        match value {
            Value::String(text) => {
                let whole = text.trim();
                let is_url = (whole.contains("://") && !whole.contains(char::is_whitespace))
                    || whole.starts_with("//");
                if !named && !is_url {
                    return;
                }
                let host = || {
                    let (host, _) = plain_authority(text).filter(|_| means == Means::Host)?;
                    Some(PlainUrl {
                        whole: format!("https://{host}/"),
                        host,
                    })
                };
                self.urls.push(Url {
                    plain: plain_url(text).or_else(host),
                    text: text.clone(),
                });
            }
            Value::Array(items) => items.iter().for_each(|item| self.url(item, means)),
            Value::Number(number) if named => self.urls.push(Url {
                text: number.to_string(),
                plain: None,
            }),
            Value::Object(_) if named => self.urls_certain = false,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }
}

/// Whether a text is a patch, under whatever name.
fn is_patch(text: &str) -> bool {
    let text = text.trim_start();
    [
        "*** Begin Patch",
        "*** Update File: ",
        "diff --git ",
        "--- ",
    ]
    .iter()
    .any(|start| text.starts_with(start))
}

/// What the arguments beside a command are called.
const ARGUMENTS: [&str; 8] = [
    "args",
    "arguments",
    "argv",
    "params",
    "parameters",
    "flags",
    "options",
    "opts",
];

/// `{ "command": "git", "args": ["status"] }` is one command. Where there are several lists, or something else than a
/// list of words, nobody knows which of them the tool takes: all of it counts as said and none of it as certain.
fn with_arguments(text: String, runs: Option<Vec<Words>>, more: &[&Value]) -> Command {
    let (first, rest) = match more {
        [] => return Command::new(text, runs),
        [first, rest @ ..] => (first, rest),
    };
    let whole = more
        .iter()
        .fold(text, |text, value| format!("{text} {}", all_texts(value)));
    let words: Option<Vec<&str>> = first
        .as_array()
        .and_then(|items| items.iter().map(Value::as_str).collect());
    let runs = match (runs.as_deref(), words) {
        (Some([one]), Some(more)) if rest.is_empty() => {
            let words: Vec<&str> = one.iter().map(String::as_str).chain(more).collect();
            shell::argv(&words).map(|words| vec![words])
        }
        _ => None,
    };
    Command::new(whole, runs)
}

/// Every text in a value, keys included, with spaces between.
fn all_texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(all_texts).collect::<Vec<_>>().join(" "),
        Value::Object(object) => {
            let texts = object
                .iter()
                .map(|(key, value)| format!("{key} {}", all_texts(value)));
            texts.collect::<Vec<_>>().join(" ")
        }
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Looks at a text or at each of a list of them.
fn strings(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_relative(text: &str) -> bool {
    !text.starts_with(['/', '~', '\\', '-']) && !text.contains("://")
}

/// Private keys have no dot in their names.
fn may_be_key(word: &str) -> bool {
    let start = |start: &str| {
        word.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    start("id_") || start("_netrc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;
    use toolgate_testkit::call_with;

    fn facts<T>(arguments: Value, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let (call, root) = (call_with("x", arguments), Root::new(Path::new("/nowhere")));
        look(&Facts::of(
            &call,
            &root,
            Needs {
                paths: true,
                commands: true,
                urls: true,
            },
            0,
        ))
    }

    #[test]
    fn paths_are_found_by_name_at_any_depth() {
        for (arguments, count) in [
            (json!({ "path": "a" }), 1),
            (
                json!({ "filePath": "a", "old_path": "b", "path2": "c", "to": "d" }),
                4,
            ),
            (
                json!({ "path": "a", "cwd": "b", "patch": "*** Update File: c\n" }),
                5,
            ),
            (
                json!({ "edits": [{ "path": "a" }, { "path": "b" }], "files": ["c", ["d"]] }),
                4,
            ),
            (json!({ "file": { "path": "a" } }), 1),
            (json!({ "text": "a", "profile": "b", "path": null }), 0),
        ] {
            assert_eq!(
                facts(arguments.clone(), |facts| facts.places.len()),
                count,
                "{arguments}"
            );
        }
        assert!(!facts(json!({ "path": 7 }), |facts| facts.paths_certain));
        assert!(facts(json!({ "path": "a\0b" }), |facts| facts.lost));
        let code = json!({ "source": "x".repeat(9000) });
        assert_eq!(
            facts(code, |facts| (facts.lost, facts.paths_certain)),
            (false, false)
        );
    }

    #[test]
    fn a_command_is_taken_as_text_as_words_or_with_its_arguments_beside_it() {
        let runs = |arguments: Value| {
            facts(arguments, |facts| {
                facts
                    .runs()
                    .map(|runs| runs.iter().map(|words| words.join(" ")).collect::<Vec<_>>())
            })
        };
        assert_eq!(
            runs(json!({ "command": "ls; pwd" })),
            Some(vec!["ls".to_owned(), "pwd".to_owned()])
        );
        assert_eq!(
            runs(json!({ "argv": ["git", "status"] })),
            Some(vec!["git status".to_owned()])
        );
        assert_eq!(
            runs(json!({ "command": "git", "args": ["push"] })),
            Some(vec!["git push".to_owned()])
        );
        assert_eq!(
            runs(json!({ "commands": ["ls", "pwd x"] })),
            Some(vec!["ls".to_owned(), "pwd x".to_owned()])
        );
        for uncertain in [
            json!({ "command": ["sh", "-c", "ls"] }),
            json!({ "command": "ls; git", "args": ["push"] }),
            json!({ "command": "git", "args": "push" }),
            json!({ "command": "git", "args": ["; rm"] }),
            json!({ "command": { "run": "ls" } }),
            json!({ "cmd": "ls", "script": "$(x)" }),
            json!({ "command": "ls", "env": { "PATH": "." } }),
            json!({ "command": "ls", "ENV": { "PATH": "." } }),
            json!({ "command": "ls", "env_vars": ["PATH=."] }),
            json!({ "command": "ls", "opts": { "env": { "PATH": "." } } }),
            json!({ "command": "git", "args": ["status"], "arguments": ["push"] }),
            json!({ "command": "git", "Args": "push" }),
            json!({ "command": "git", "args": ["push", 0] }),
            json!({ "command": "ls", "stdin": "x" }),
            json!({ "command": "python", "input": "x" }),
            json!({ "command": "ls", "cwd": "/elsewhere" }),
            json!({ "command": format!("ls {}", "x".repeat(20_000)) }),
        ] {
            assert_eq!(runs(uncertain.clone()), None, "{uncertain}");
        }
    }

    #[test]
    fn hosts_are_found_by_name_in_commands_and_where_a_text_is_a_url() {
        let hosts = |arguments: Value| {
            facts(arguments, |facts| {
                facts
                    .urls
                    .iter()
                    .map(|url| url.plain.as_ref().map(|plain| plain.host.clone()))
                    .collect::<Vec<_>>()
            })
        };
        for arguments in [
            json!({ "url": "https://a.com/x" }),
            json!({ "hostname": "A.com:80" }),
            json!({ "command": "curl https://a.com" }),
            json!({ "what": "https://a.com" }),
        ] {
            assert_eq!(
                hosts(arguments.clone()),
                [Some("a.com".to_owned())],
                "{arguments}"
            );
        }
        assert_eq!(hosts(json!({ "url": "a.com" })), [None]);
        assert_eq!(
            hosts(json!({ "content": "see https://a.com for more" })),
            []
        );
        assert_eq!(hosts(json!({ "path": " https://a.com" })), [None]);
        assert_eq!(hosts(json!({ "page": "//a.com/x" })), [None]);
    }
}
