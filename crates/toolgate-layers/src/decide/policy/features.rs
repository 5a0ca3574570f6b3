//! Features of a call that rules are matched against: the paths, commands and hosts in its
//! arguments.
//!
//! Argument names decide only what may be allowed. For what is forbidden, every short text of a
//! call counts, keys included, because a tool may use an argument of any name in any way.

use std::{borrow::Cow, cell::OnceCell};

use serde_json::{Map, Value};
use toolgate_core::{
    Call, Resource, ResourceKind,
    patch::{Patch, PatchedFile},
};

use crate::decide::policy::{
    argument_roles::{
        ArgumentRole, affects_commands, classify_argument, is_directory_name, normalize_name,
    },
    matching::{
        host_words::hosts_in_run,
        hosts::{
            PlainUrl, is_like_url, may_be_host, parse_plain_authority, parse_plain_url,
            possible_hosts,
        },
        patch_names::{begins_like_patch, possible_names},
        paths::{PathError, PathRoot, ResolvedPath},
        shell::{self, CommandWords, MAX_COMMAND_BYTES, ScriptCommand, ShellReading, ShellWord},
    },
};

/// The facts that some rule needs; the others are not extracted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FeatureNeeds {
    pub(crate) paths: bool,
    pub(crate) commands: bool,
    pub(crate) urls: bool,
}

/// The facts about one call.
pub(crate) struct CallFeatures<'a> {
    pub(crate) call: &'a Call,
    pub(crate) root: &'a PathRoot,
    /// Number of times the same call was made before.
    pub(crate) earlier: usize,
    pub(crate) places: Vec<ResolvedPath>,
    /// True if there is a path that cannot be resolved.
    pub(crate) lost: bool,
    /// True if every argument that names a path was understood.
    pub(crate) paths_certain: bool,
    pub(crate) commands: Vec<CallCommand>,
    pub(crate) urls: Vec<CallUrl>,
    /// True if every argument that names a URL or a host was understood.
    pub(crate) urls_certain: bool,
    /// Values of arguments with the name of a path.
    named: Vec<(Cow<'a, str>, ArgumentRole)>,
    /// Other short texts and keys that may name a path or a host.
    texts: Vec<&'a str>,
    /// The directories that the call names; relative paths may start from them.
    dirs: Vec<String>,
    /// True if another argument changes what the commands do.
    surrounded: bool,
    /// True if the call names more than is examined.
    pub(crate) crowded: bool,
    /// Number of bytes of commands that may still be read.
    unread_bytes: usize,
    hinted: OnceCell<Vec<ResolvedPath>>,
    hinted_besides_contents: OnceCell<Vec<ResolvedPath>>,
    spoken: OnceCell<Vec<ResolvedPath>>,
    words: OnceCell<Vec<String>>,
    hosts: OnceCell<CallHosts>,
}

/// The hosts of a call.
pub(crate) struct CallHosts {
    /// Hosts of URLs, of arguments that name a host, and among the words of commands.
    pub(crate) named: Vec<String>,
    /// Hosts that any other text could name.
    pub(crate) mentioned: Vec<String>,
}

/// A command that the call names.
pub(crate) struct CallCommand {
    pub(crate) text: String,
    /// The commands that it runs, as far as they can be read.
    pub(crate) reading: ShellReading,
    /// Those commands, if a rule can allow all of them.
    pub(crate) runs: Option<Vec<CommandWords>>,
    said: OnceCell<Vec<CommandWords>>,
    certain: OnceCell<Vec<CommandWords>>,
    script: OnceCell<Vec<ScriptCommand>>,
}

impl CallCommand {
    fn new(text: String, reading: ShellReading) -> Self {
        Self {
            text,
            runs: reading.plain_commands().map(without_idle_directories),
            reading,
            said: OnceCell::new(),
            certain: OnceCell::new(),
            script: OnceCell::new(),
        }
    }

    /// Returns all commands of the text, also behind what cannot be read with certainty.
    pub(crate) fn script(&self) -> &[ScriptCommand] {
        self.script.get_or_init(|| shell::read_script(&self.text))
    }

    /// Checks whether it is certain which commands run.
    pub(crate) fn is_certain(&self) -> bool {
        self.reading.unread.is_none()
    }

    /// Returns every run of words that could be a command, however it is quoted.
    pub(crate) fn possible_runs(&self) -> &[CommandWords] {
        self.said.get_or_init(|| {
            let mut runs = shell::possible_runs(&self.text);
            runs.extend(self.reading.commands.iter().map(|words| plain_texts(words)));
            runs.extend(self.reading.targets.iter().map(|file| vec![file.clone()]));
            runs
        })
    }

    /// Returns the commands that run if all is certain: as they are and, because a tool may join
    /// their words and pass them to a shell, split at blanks.
    pub(crate) fn certain_runs(&self) -> &[CommandWords] {
        self.certain.get_or_init(|| {
            let whole = self.reading.commands.iter().map(|words| plain_texts(words));
            whole.flat_map(|run| [split_run(&run), run]).collect()
        })
    }
}

/// Reads `git -C . status` as `git status`: both run in the same directory.
fn without_idle_directories(mut runs: Vec<CommandWords>) -> Vec<CommandWords> {
    let is_git = |words: &&mut CommandWords| words.first().is_some_and(|word| word == "git");
    for words in runs.iter_mut().filter(is_git) {
        while let [_, option, dir, _, ..] = words.as_slice()
            && option == "-C"
            && matches!(dir.as_str(), "." | "./")
        {
            words.drain(1..3);
        }
    }
    runs
}

fn plain_texts(words: &[ShellWord]) -> CommandWords {
    words.iter().map(|word| word.text.clone()).collect()
}

/// Splits the words of a command at blanks.
fn split_run(run: &[String]) -> CommandWords {
    run.iter()
        .flat_map(|word| shell::split_words(word))
        .collect()
}

/// A URL or host that the call names.
pub(crate) struct CallUrl {
    pub(crate) text: String,
    /// The parsed URL, if that is certain.
    pub(crate) plain: Option<PlainUrl>,
}

/// Arguments that hold the content of a file beside its path.
const FILE_CONTENTS: [&str; 8] = [
    "content",
    "contents",
    "new",
    "new_string",
    "new_text",
    "old",
    "old_string",
    "old_text",
];

/// Maximum length of a text that counts as a possible path or host without a matching name.
const MAX_HINT_BYTES: usize = 512;
/// Maximum number of texts or words that are looked up in the file system. Beyond it only the
/// spelling counts.
const MAX_LOOKUPS: usize = 256;
/// Maximum number of texts of one kind that are examined: paths, hints, URLs and words of commands.
/// A call with more is never allowed without approval.
const MAX_EXAMINED: usize = 4096;
/// The same for the different words of commands, which are cheaper.
const MAX_COMMAND_WORDS: usize = 4 * MAX_EXAMINED;
const MAX_DIRECTORIES: usize = 16;

impl<'a> CallFeatures<'a> {
    pub(crate) fn extract_from(
        call: &'a Call,
        root: &'a PathRoot,
        needs: FeatureNeeds,
        earlier: usize,
    ) -> Self {
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
            crowded: false,
            unread_bytes: MAX_COMMAND_BYTES,
            hinted: OnceCell::new(),
            hinted_besides_contents: OnceCell::new(),
            spoken: OnceCell::new(),
            words: OnceCell::new(),
            hosts: OnceCell::new(),
        };
        if needs.paths || needs.commands || needs.urls {
            facts.walk_object(call.arguments.as_map(), needs);
        }
        if needs.paths {
            let named = |it: &&Resource| it.kind == ResourceKind::Path && !it.is_workspace();
            let resources = call.annotations().resources.iter().filter(named);
            for value in resources.filter_map(|it| call.arguments.as_json().pointer(&it.argument)) {
                facts.add_paths(value, ArgumentRole::Path);
            }
        }
        facts.resolve_named_paths();
        facts
    }

    /// Returns the commands that the call runs, if all of them are certain.
    pub(crate) fn certain_runs(&self) -> Option<Vec<&CommandWords>> {
        let runs: Option<Vec<_>> = self
            .commands
            .iter()
            .map(|command| command.runs.as_ref())
            .collect();
        runs.map(|runs| runs.into_iter().flatten().collect())
    }

    /// Returns the places that texts of any name may lead to.
    pub(crate) fn hinted_places(&self) -> &[ResolvedPath] {
        self.hinted
            .get_or_init(|| self.locate_hints(self.texts.iter().copied()))
    }

    /// Returns the places that texts of any name may lead to, without the content of a file that the
    /// call writes: `AGENTS.md` as the only word of a file names no other file.
    pub(crate) fn hinted_places_without_contents(&self) -> &[ResolvedPath] {
        let named = |name: &&str| self.call.arguments.get(name)?.as_str();
        let contents: Vec<&str> = FILE_CONTENTS.iter().filter_map(named).collect();
        let is_content = |text: &&&str| contents.iter().any(|it| std::ptr::eq(*it, **text));
        // Only beside the path of the file is it its content.
        if self.places.is_empty() || !self.texts.iter().any(|text| is_content(&text)) {
            return self.hinted_places();
        }
        self.hinted_besides_contents.get_or_init(|| {
            let others = self.texts.iter().filter(|text| !is_content(text));
            self.locate_hints(others.copied())
        })
    }

    fn locate_hints<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<ResolvedPath> {
        // `event.key` is code rather than a file name, unless such a file exists.
        let is_code = |text: &str| {
            text.contains('.') && !text.contains(['/', '\\', '~']) && !text.starts_with('.')
        };
        let is_there = |text: &str| {
            let from = |dir: &String| self.root.has_entry(&format!("{dir}/{text}"));
            self.root.has_entry(text) || self.dirs.iter().any(from)
        };
        let texts = texts.map(|text| text.trim_matches(['@', ' ']));
        self.locate_texts(texts.filter(|text| !is_code(text) || is_there(text)))
    }

    /// Returns the places that words of the commands may name.
    pub(crate) fn command_places(&self) -> &[ResolvedPath] {
        self.spoken
            .get_or_init(|| self.locate_texts(self.command_words().iter().map(String::as_str)))
    }

    /// Returns every word of the commands, however they are quoted.
    pub(crate) fn command_words(&self) -> &[String] {
        self.words.get_or_init(|| {
            let runs = self.commands.iter().flat_map(CallCommand::possible_runs);
            let mut words = shell::unique_words(runs);
            words.truncate(MAX_COMMAND_WORDS);
            words
        })
    }

    /// Checks whether the call names more paths, hosts or commands than are examined.
    pub(crate) fn exceeds_limits(&self) -> bool {
        self.crowded || self.command_words().len() >= MAX_COMMAND_WORDS
    }

    /// Returns the texts that a shell or a tool may expand to other paths.
    pub(crate) fn glob_texts(&self) -> impl Iterator<Item = &str> {
        let named = self.named.iter().map(|(text, _)| &**text);
        let all = named
            .chain(self.texts.iter().copied())
            .chain(self.command_words().iter().map(String::as_str));
        all.filter(|text| text.contains(['*', '?', '[']))
    }

    /// Returns every host that the call names or may name, in any argument.
    pub(crate) fn hosts(&self) -> &CallHosts {
        self.hosts.get_or_init(|| {
            let paths = self
                .named
                .iter()
                .map(|(text, _)| &**text)
                .filter(|text| text.len() <= MAX_HINT_BYTES);
            let hints = paths
                .chain(self.texts.iter().copied())
                .chain(self.command_words().iter().map(String::as_str));
            let (urls, words): (Vec<&str>, Vec<&str>) = hints
                .filter(|text| may_be_host(text))
                .partition(|text| is_like_url(text));
            let urls = self.urls.iter().map(|url| url.text.as_str()).chain(urls);
            let runs = self.commands.iter().flat_map(CallCommand::possible_runs);
            CallHosts {
                named: urls
                    .flat_map(possible_hosts)
                    .chain(runs.flat_map(hosts_in_run))
                    .collect(),
                mentioned: words.into_iter().flat_map(possible_hosts).collect(),
            }
        })
    }

    /// Returns every text that may be a URL, in any argument.
    pub(crate) fn url_texts(&self) -> impl Iterator<Item = &str> {
        let named = self
            .named
            .iter()
            .map(|(text, _)| &**text)
            .filter(|text| text.len() <= MAX_HINT_BYTES);
        let hints = named
            .chain(self.texts.iter().copied())
            .chain(self.command_words().iter().map(String::as_str));
        self.urls
            .iter()
            .map(|url| url.text.as_str())
            .chain(hints.filter(|text| text.contains(':')))
    }

    /// Checks whether a word may be a path. `build` in `cargo build` is one only if it exists.
    fn may_be_path(&self, word: &str) -> bool {
        word.contains(['/', '.', '~', '\\', ':', '@'])
            || may_be_key_file(word)
            || self.root.has_entry(word)
    }

    /// Returns the places that texts may lead to, from the root and from every directory that the
    /// call names.
    fn locate_texts<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<ResolvedPath> {
        let mut places = Vec::new();
        let mut dirs = self.dirs.clone();
        shell::add_directories(
            self.commands.iter().flat_map(CallCommand::possible_runs),
            &mut dirs,
            MAX_DIRECTORIES,
        );
        for text in texts {
            // Beyond the limit only the spelling counts: a large call must not cost thousands of
            // file lookups.
            let cheap = places.len() >= MAX_LOOKUPS;
            let find = |text: &str| {
                if cheap {
                    self.root.spelled_place(text)
                } else {
                    self.root
                        .resolve_path(text)
                        .unwrap_or_else(|_| self.root.spelled_place(text))
                }
            };
            if cheap || self.may_be_path(text) {
                places.push(find(text));
            }
            if is_relative(text) {
                let most = if cheap {
                    MAX_DIRECTORIES / 4
                } else {
                    MAX_DIRECTORIES
                };
                places.extend(
                    dirs.iter()
                        .take(most)
                        .map(|dir| find(&format!("{dir}/{text}"))),
                );
            }
        }
        places
    }

    /// Resolves the named paths.
    fn resolve_named_paths(&mut self) {
        let mut more = Vec::new();
        for (text, means) in &self.named {
            let from_dirs = self
                .dirs
                .iter()
                .filter(|dir| is_relative(text) && *dir != text);
            let from_dirs = from_dirs.map(|dir| Cow::Owned(format!("{dir}/{text}")));
            for text in [Cow::Borrowed(&**text)].into_iter().chain(from_dirs) {
                if more.len() >= 2 * MAX_EXAMINED {
                    self.crowded = true;
                    break;
                }
                match self.root.resolve_path(&text) {
                    Ok(place) => more.push(place),
                    // Source code in an argument called `source` is not a path, and no path of that
                    // length can be opened.
                    Err(PathError::TooLong) if *means == ArgumentRole::PossiblePath => {
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
        // In another directory the same words may run other programs.
        let elsewhere = |dir: &String| {
            !self
                .root
                .resolve_path(dir)
                .is_ok_and(|place| place.is_inside_root())
        };
        let elsewhere = self.dirs.iter().any(elsewhere);
        for command in &mut self.commands {
            if self.surrounded {
                command.reading.doubt("another argument changes it");
            }
            if self.surrounded || elsewhere {
                command.runs = None;
            }
        }
    }

    fn walk_object(&mut self, object: &'a Map<String, Value>, needs: FeatureNeeds) {
        // Two paths in a tool that renames, two texts in one that edits the file it declares.
        let edits = self.declares_path();
        for (key, value) in object {
            let name = normalize_name(key);
            let means = match classify_argument(&name) {
                ArgumentRole::PossiblePath if edits && matches!(&*name, "old" | "new") => {
                    ArgumentRole::Other
                }
                means => means,
            };
            self.surrounded |= affects_commands(&name) && !is_empty_value(value);
            self.add_hint(key);
            if is_directory_name(&name) {
                for_each_string(value, &mut |dir| self.dirs.push(dir.to_owned()));
                self.dirs.truncate(MAX_DIRECTORIES);
            }
            match means {
                ArgumentRole::Path | ArgumentRole::PossiblePath if needs.paths => {
                    self.add_paths(value, means)
                }
                ArgumentRole::Patch if needs.paths => self.add_patches(value),
                ArgumentRole::Url if needs.paths => self.add_local_paths(value),
                ArgumentRole::Command if needs.commands => self.add_command(value, object),
                ArgumentRole::Commands if needs.commands => self.add_commands(value, object),
                _ => {}
            }
            if needs.urls {
                self.add_urls(value, means);
            }
            // These texts were added above, in their own role.
            let known = match means {
                ArgumentRole::Path | ArgumentRole::PossiblePath => needs.paths,
                ArgumentRole::Command | ArgumentRole::Commands => needs.commands,
                // The value of an argument called `patch` may be the path of one.
                ArgumentRole::Patch
                | ArgumentRole::Url
                | ArgumentRole::Host
                | ArgumentRole::Other => false,
            };
            if !known || !value.is_string() {
                self.walk_value(value, needs);
            }
        }
    }

    /// Checks whether the tool declares which of its arguments is the path of a file.
    fn declares_path(&self) -> bool {
        let resources = self.call.annotations().resources.iter();
        let is_file = |it: &Resource| it.kind == ResourceKind::Path && !it.is_workspace();
        resources.into_iter().any(is_file)
    }

    fn walk_value(&mut self, value: &'a Value, needs: FeatureNeeds) {
        match value {
            Value::Object(object) => self.walk_object(object, needs),
            Value::Array(items) => items.iter().for_each(|item| self.walk_value(item, needs)),
            Value::String(text) => {
                self.add_hint(text);
                if needs.paths
                    && text
                        .trim_start()
                        .get(..5)
                        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
                {
                    self.add_paths(value, ArgumentRole::Path);
                }
                if needs.paths && begins_like_patch(text) {
                    self.add_patch_files(text);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds a short text that may name a path or a host.
    fn add_hint(&mut self, text: &'a str) {
        let telling = |c: char| {
            matches!(
                c,
                '/' | '.' | '\\' | ':' | '*' | '?' | '[' | '。' | '．' | '｡'
            )
        };
        let short =
            text.len() <= MAX_HINT_BYTES && (text.contains(telling) || may_be_key_file(text));
        if short && !text.trim().contains('\n') {
            if self.texts.len() < MAX_EXAMINED {
                self.texts.push(text);
            } else {
                self.crowded = true;
            }
        }
    }

    /// Adds a text that names a path.
    fn add_named(&mut self, text: Cow<'a, str>, means: ArgumentRole) {
        if self.named.len() < MAX_EXAMINED {
            self.named.push((text, means));
        } else {
            self.crowded = true;
            self.paths_certain = false;
        }
    }

    fn add_url(&mut self, text: &str, plain: Option<PlainUrl>) {
        if self.urls.len() < MAX_EXAMINED {
            let text = text.to_owned();
            self.urls.push(CallUrl { text, plain });
        } else {
            self.crowded = true;
            self.urls_certain = false;
        }
    }

    fn add_paths(&mut self, value: &'a Value, means: ArgumentRole) {
        match value {
            Value::String(text)
                if means == ArgumentRole::PossiblePath && begins_like_patch(text) =>
            {
                self.add_patch_files(text)
            }
            Value::String(text) => self.add_named(Cow::Borrowed(text), means),
            Value::Array(items) => items.iter().for_each(|item| self.add_paths(item, means)),
            // Which value of an object is the path is unknown.
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => self.paths_certain = false,
            Value::Null => {}
        }
    }

    /// Adds URLs without a scheme, which may be paths.
    fn add_local_paths(&mut self, value: &'a Value) {
        match value {
            Value::String(text) if !text.contains("://") => {
                self.add_paths(value, ArgumentRole::PossiblePath)
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_local_paths(item)),
            Value::Object(_) => self.paths_certain = false,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Adds the files of an argument with the name of a patch.
    fn add_patches(&mut self, value: &'a Value) {
        match value {
            // Added in any argument, whatever its name.
            Value::String(text) if begins_like_patch(text) => {}
            Value::String(text) => self.add_patch_files(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_patches(item)),
            Value::Number(_) | Value::Object(_) => self.paths_certain = false,
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds the files that a patch names.
    fn add_patch_files(&mut self, text: &'a str) {
        match Patch::parse(text) {
            Ok(patch) => {
                for path in patch.files().flat_map(PatchedFile::paths) {
                    self.add_named(Cow::Owned(path.to_owned()), ArgumentRole::Path);
                }
            }
            Err(_) => {
                // Another tool may apply it, or take it for the path of a patch.
                self.paths_certain = false;
                let whole = Some(text).filter(|text| !text.contains('\n'));
                let names = possible_names(text).into_iter();
                for name in names.chain(whole.map(Cow::Borrowed)) {
                    self.add_named(name, ArgumentRole::PossiblePath);
                }
            }
        }
    }

    /// Adds a list of commands, where [`CallFeatures::add_command`] reads a list as the words of one.
    fn add_commands(&mut self, value: &Value, beside: &Map<String, Value>) {
        match value {
            Value::Array(items) => items
                .iter()
                .for_each(|item| self.add_commands(item, beside)),
            one => self.add_command(one, beside),
        }
    }

    fn add_command(&mut self, value: &Value, beside: &Map<String, Value>) {
        if matches!(value, Value::Null | Value::Bool(_)) {
            return;
        }
        let is_argument = |(key, more): &(&String, &Value)| {
            ARGUMENT_LIST_NAMES.contains(&&*normalize_name(key))
                && !is_empty_value(more)
                && !std::ptr::eq(*more, value)
        };
        let arguments: Vec<&Value> = beside
            .iter()
            .filter(is_argument)
            .map(|(_, more)| more)
            .collect();
        let mut command = read_command(value, &arguments);
        if command.text.len() > self.unread_bytes {
            self.crowded = true;
            command.reading.doubt("the text is too long");
            command.runs = None;
            let end = command.text.floor_char_boundary(self.unread_bytes);
            command.text.truncate(end);
            command.text.shrink_to_fit();
        }
        self.unread_bytes -= command.text.len();
        for word in command.text.split_whitespace() {
            if word.contains("://") {
                self.add_url(word, parse_plain_url(word));
            }
        }
        // What is left of a command beyond the limit says nothing, and there may be millions.
        if !command.text.is_empty() || !self.crowded {
            self.commands.push(command);
        }
    }

    fn add_urls(&mut self, value: &Value, means: ArgumentRole) {
        let named = matches!(means, ArgumentRole::Url | ArgumentRole::Host);
        match value {
            Value::String(text) => {
                let whole = text.trim();
                let is_url = (whole.contains("://") && !whole.contains(char::is_whitespace))
                    || whole.starts_with("//");
                if !named && !is_url {
                    return;
                }
                let host = || {
                    let (host, _) =
                        parse_plain_authority(text).filter(|_| means == ArgumentRole::Host)?;
                    Some(PlainUrl {
                        whole: format!("https://{host}/"),
                        host,
                    })
                };
                let plain = parse_plain_url(text).or_else(host);
                self.add_url(text, plain);
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_urls(item, means)),
            Value::Number(number) if named => self.add_url(&number.to_string(), None),
            Value::Object(_) if named => self.urls_certain = false,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }
}

/// Names of the arguments that hold further words of a command.
const ARGUMENT_LIST_NAMES: [&str; 8] = [
    "args",
    "arguments",
    "argv",
    "params",
    "parameters",
    "flags",
    "options",
    "opts",
];

/// Reads a command and its arguments: `{ "command": "git", "args": ["status"] }` is one command.
fn read_command(value: &Value, more: &[&Value]) -> CallCommand {
    let words_of = |value: &Value| -> Option<Vec<String>> {
        let words = value.as_array()?.iter();
        words.map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let argv = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        shell::read_argv(&words)
    };
    let unread = |value: &Value| {
        let mut reading = ShellReading::default();
        reading.doubt(&format!("a value of type {}", type_name(value)));
        reading
    };
    let reading = match value {
        Value::String(text) => shell::read_commands(text),
        other => words_of(other).map_or_else(|| unread(other), |words| argv(&words)),
    };
    let whole = more.iter().fold(join_texts(value), |text, value| {
        format!("{text} {}", join_texts(value))
    });
    let reading = match more {
        [] => reading,
        // With several lists, or something other than a list of words, it is unknown which of them
        // the tool uses: all of it counts as text of the command and none of it as certain.
        [list, rest @ ..] => match (reading.plain_commands().as_deref(), words_of(list)) {
            (Some([one]), Some(words)) if rest.is_empty() => argv(&[one.clone(), words].concat()),
            _ => unread(list),
        },
    };
    CallCommand::new(whole, reading)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Joins every text in a value, keys included, with spaces.
fn join_texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(join_texts).collect::<Vec<_>>().join(" "),
        Value::Object(object) => {
            let texts = object
                .iter()
                .map(|(key, value)| format!("{key} {}", join_texts(value)));
            texts.collect::<Vec<_>>().join(" ")
        }
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Passes a text, or each of a list of texts, to `look`.
fn for_each_string(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| for_each_string(item, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

fn is_empty_value(value: &Value) -> bool {
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

/// Checks whether a word may be the name of a private key or `_netrc`, which have no dot.
fn may_be_key_file(word: &str) -> bool {
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

    fn with_features<T>(arguments: Value, look: impl FnOnce(&CallFeatures<'_>) -> T) -> T {
        let call = call_with("x", arguments);
        let root = PathRoot::new(Path::new("/nowhere"));
        look(&CallFeatures::extract_from(
            &call,
            &root,
            FeatureNeeds {
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
                with_features(arguments.clone(), |facts| facts.places.len()),
                count,
                "{arguments}"
            );
        }
        assert!(!with_features(json!({ "path": 7 }), |facts| facts.paths_certain));
        assert!(with_features(json!({ "path": "a\0b" }), |facts| facts.lost));
        let code = json!({ "source": "x".repeat(9000) });
        assert_eq!(
            with_features(code, |facts| (facts.lost, facts.paths_certain)),
            (false, false)
        );
    }

    #[test]
    fn a_command_is_read_from_text_from_words_or_with_separate_arguments() {
        let runs = |arguments: Value| {
            with_features(arguments, |facts| {
                facts
                    .certain_runs()
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
            with_features(arguments, |facts| {
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
