//! What a rule can know about a call: the paths, commands and hosts its arguments name.

use std::cell::OnceCell;

use serde_json::{Map, Value};
use toolgate_core::{Call, ResourceKind};

use crate::{
    hosts::{PlainUrl, hosts_anywhere, plain_authority, plain_url},
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
    spoken: OnceCell<Vec<Place>>,
}

/// A command that the call names.
pub(crate) struct Command {
    pub(crate) text: String,
    /// What it runs, if that is certain.
    pub(crate) runs: Option<Vec<Words>>,
}

/// A URL or host that the call names.
pub(crate) struct Url {
    pub(crate) text: String,
    /// Where it leads, if that is certain.
    pub(crate) plain: Option<PlainUrl>,
}

impl Url {
    /// Every host that it may lead to.
    pub(crate) fn hosts(&self) -> Vec<String> {
        hosts_anywhere(&self.text)
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn of(call: &'a Call, root: &'a Root, needs: Needs, earlier: usize) -> Self {
        let (places, commands, urls) = (Vec::new(), Vec::new(), Vec::new());
        let spoken = OnceCell::new();
        let mut facts = Self { call, root, earlier, places, lost: false, paths_certain: true, commands, urls, spoken };
        if needs.paths || needs.commands || needs.urls {
            facts.walk(call.arguments.as_map(), needs);
        }
        if needs.paths {
            let resources = call.annotations().resources.iter().filter(|it| it.kind == ResourceKind::Path);
            for value in resources.filter_map(|it| call.arguments.as_json().pointer(&it.argument)) {
                facts.paths(value, Means::Path);
            }
        }
        facts
    }

    /// The commands that the call runs, if all of that is certain.
    pub(crate) fn runs(&self) -> Option<Vec<&Words>> {
        let runs: Option<Vec<_>> = self.commands.iter().map(|command| command.runs.as_ref()).collect();
        runs.map(|runs| runs.into_iter().flatten().collect())
    }

    /// The places that words of the commands may name.
    pub(crate) fn spoken(&self) -> &[Place] {
        self.spoken.get_or_init(|| {
            let texts = self.commands.iter().map(|command| command.text.as_str());
            let words = texts.flat_map(shell::words_anywhere).filter(|word| self.may_be_path(word));
            words.filter_map(|word| self.root.locate(&word).ok()).collect()
        })
    }

    /// `build` in `cargo build` is a path only if there is one.
    fn may_be_path(&self, word: &str) -> bool {
        word.contains(['/', '.', '~', '\\']) || self.root.has(word)
    }

    fn walk(&mut self, object: &Map<String, Value>, needs: Needs) {
        for (key, value) in object {
            match means(key) {
                means @ (Means::Path | Means::PerhapsPath) if needs.paths => self.paths(value, means),
                Means::Command if needs.commands => self.command(value, object),
                Means::Commands if needs.commands => self.commands(value, object),
                means if needs.urls || needs.paths => self.url(value, means, needs),
                _ => {}
            }
            self.walk_inside(value, needs);
        }
    }

    fn walk_inside(&mut self, value: &Value, needs: Needs) {
        match value {
            Value::Object(object) => self.walk(object, needs),
            Value::Array(items) => items.iter().for_each(|item| self.walk_inside(item, needs)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn paths(&mut self, value: &Value, means: Means) {
        match value {
            Value::String(text) => match self.root.locate(text) {
                Ok(place) => self.places.push(place),
                // Source code in an argument called `source` is no path, and no path that long can be opened.
                Err(Unresolved::TooLong) if means == Means::PerhapsPath => self.paths_certain = false,
                Err(_) => self.lost = true,
            },
            Value::Array(items) => items.iter().for_each(|item| self.paths(item, means)),
            Value::Bool(_) | Value::Number(_) => self.paths_certain = false,
            // What an object holds is looked at key by key.
            Value::Object(_) | Value::Null => {}
        }
    }

    /// A list of commands, where [`Facts::command`] takes a list for the words of one.
    fn commands(&mut self, value: &Value, beside: &Map<String, Value>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.commands(item, beside)),
            one => self.command(one, beside),
        }
    }

    fn command(&mut self, value: &Value, beside: &Map<String, Value>) {
        let given = |key: &str| beside.get(key).filter(|value| !value.is_null());
        let arguments = given("args").or_else(|| given("arguments"));
        // `PATH` and `LD_PRELOAD` decide what a command means.
        let surrounded = ["env", "environment"].iter().any(|key| given(key).is_some());
        let (text, runs) = match value {
            Value::Null | Value::Bool(_) => return,
            Value::String(text) => (text.clone(), shell::commands(text)),
            Value::Array(items) => {
                let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
                let text = words.as_ref().map_or_else(|| value.to_string(), |words| words.join(" "));
                (text, words.and_then(|words| shell::argv(&words)).map(|words| vec![words]))
            }
            Value::Number(_) | Value::Object(_) => (value.to_string(), None),
        };
        let command = match arguments {
            None => Command { text, runs },
            Some(more) => with_arguments(text, runs, more),
        };
        let command = if surrounded { Command { runs: None, ..command } } else { command };
        let urls = command.text.split_whitespace().filter(|word| word.contains("://"));
        self.urls.extend(urls.map(|word| Url { text: word.to_owned(), plain: plain_url(word) }));
        self.commands.push(command);
    }

    fn url(&mut self, value: &Value, means: Means, needs: Needs) {
        match value {
            Value::String(text) => {
                if needs.paths && text.trim_start().starts_with("file:") {
                    self.paths(value, Means::Path);
                }
                let named = matches!(means, Means::Url | Means::Host);
                let whole = || text.contains("://") && !text.contains(char::is_whitespace);
                if !needs.urls || !(named || whole()) {
                    return;
                }
                let host = || {
                    let (host, _) = plain_authority(text).filter(|_| means == Means::Host)?;
                    Some(PlainUrl { whole: format!("https://{host}/"), host })
                };
                self.urls.push(Url { plain: plain_url(text).or_else(host), text: text.clone() });
            }
            Value::Array(items) => items.iter().for_each(|item| self.url(item, means, needs)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }
}

/// `{ "command": "git", "args": ["status"] }` is one command.
fn with_arguments(text: String, runs: Option<Vec<Words>>, more: &Value) -> Command {
    let more: Option<Vec<&str>> = more.as_array().and_then(|items| items.iter().map(Value::as_str).collect());
    let Some(more) = more else { return Command { text, runs: None } };
    let whole = format!("{text} {}", more.join(" "));
    let runs = match runs.as_deref() {
        Some([one]) => {
            let words: Vec<&str> = one.iter().map(String::as_str).chain(more).collect();
            shell::argv(&words).map(|words| vec![words])
        }
        Some(_) | None => None,
    };
    Command { text: whole, runs }
}

/// What an argument means, going by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Path,
    /// A path in one tool and something else in another.
    PerhapsPath,
    Command,
    /// A list holds commands, not the words of one.
    Commands,
    Url,
    Host,
    Other,
}

fn means(key: &str) -> Means {
    const PATHS: [&str; 12] = [
        "path",
        "paths",
        "file",
        "files",
        "filename",
        "filenames",
        "dir",
        "dirs",
        "directory",
        "directories",
        "folder",
        "folders",
    ];
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    match key.as_str() {
        "profile" => Means::Other,
        "cwd" | "pwd" | "workdir" | "root" => Means::Path,
        "source" | "sources" | "src" | "target" | "targets" | "dest" | "destination" | "from" | "to" | "input"
        | "output" | "location" | "old" | "new" => Means::PerhapsPath,
        "command" | "commandline" | "cmd" | "argv" | "shell" | "bash" => Means::Command,
        "commands" | "cmds" | "script" | "scripts" => Means::Commands,
        "endpoint" | "href" | "link" | "links" | "origin" => Means::Url,
        key if key.ends_with("url") || key.ends_with("urls") || key.ends_with("uri") || key.ends_with("uris") => {
            Means::Url
        }
        key if key.ends_with("host") || key.ends_with("hostname") || key.ends_with("domain") => Means::Host,
        key if PATHS.iter().any(|name| key.ends_with(name)) => Means::Path,
        _ => Means::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;
    use toolgate_testkit::call_with;

    fn facts<T>(arguments: Value, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let (call, root) = (call_with("x", arguments), Root::new(Path::new("/nowhere")));
        look(&Facts::of(&call, &root, Needs { paths: true, commands: true, urls: true }, 0))
    }

    #[test]
    fn paths_are_found_by_name_at_any_depth() {
        for (arguments, count) in [
            (json!({ "path": "a" }), 1),
            (json!({ "filePath": "a", "old_path": "b", "cwd": "c", "to": "d" }), 4),
            (json!({ "edits": [{ "path": "a" }, { "path": "b" }], "files": ["c", ["d"]] }), 4),
            (json!({ "file": { "path": "a" } }), 1),
            (json!({ "text": "a", "profile": "b", "path": null }), 0),
        ] {
            assert_eq!(facts(arguments.clone(), |facts| facts.places.len()), count, "{arguments}");
        }
        assert!(!facts(json!({ "path": 7 }), |facts| facts.paths_certain));
        assert!(facts(json!({ "path": "a\0b" }), |facts| facts.lost));
        let code = json!({ "source": "x".repeat(9000) });
        assert_eq!(facts(code, |facts| (facts.lost, facts.paths_certain)), (false, false));
    }

    #[test]
    fn a_command_is_taken_as_text_as_words_or_with_its_arguments_beside_it() {
        let runs = |arguments: Value| {
            facts(arguments, |facts| {
                facts.runs().map(|runs| runs.iter().map(|words| words.join(" ")).collect::<Vec<_>>())
            })
        };
        assert_eq!(runs(json!({ "command": "ls; pwd" })), Some(vec!["ls".to_owned(), "pwd".to_owned()]));
        assert_eq!(runs(json!({ "argv": ["git", "status"] })), Some(vec!["git status".to_owned()]));
        assert_eq!(runs(json!({ "command": "git", "args": ["push"] })), Some(vec!["git push".to_owned()]));
        assert_eq!(runs(json!({ "commands": ["ls", "pwd x"] })), Some(vec!["ls".to_owned(), "pwd x".to_owned()]));
        for uncertain in [
            json!({ "command": ["sh", "-c", "ls"] }),
            json!({ "command": "ls; git", "args": ["push"] }),
            json!({ "command": "git", "args": "push" }),
            json!({ "command": "git", "args": ["; rm"] }),
            json!({ "command": { "run": "ls" } }),
            json!({ "cmd": "ls", "script": "$(x)" }),
            json!({ "command": "ls", "env": { "PATH": "." } }),
        ] {
            assert_eq!(runs(uncertain.clone()), None, "{uncertain}");
        }
    }

    #[test]
    fn hosts_are_found_by_name_in_commands_and_where_a_text_is_a_url() {
        let hosts = |arguments: Value| {
            facts(arguments, |facts| {
                facts.urls.iter().map(|url| url.plain.as_ref().map(|plain| plain.host.clone())).collect::<Vec<_>>()
            })
        };
        for arguments in [
            json!({ "url": "https://a.com/x" }),
            json!({ "hostname": "A.com:80" }),
            json!({ "command": "curl https://a.com" }),
            json!({ "what": "https://a.com" }),
        ] {
            assert_eq!(hosts(arguments.clone()), [Some("a.com".to_owned())], "{arguments}");
        }
        assert_eq!(hosts(json!({ "url": "a.com" })), [None]);
        assert_eq!(hosts(json!({ "content": "see https://a.com for more" })), []);
    }
}
