//! Walks the arguments of a call and collects the texts that may name a path, a command or a host.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolgate_core::{
    Resource, ResourceKind,
    patch::{Patch, PatchedFile},
};

use super::{
    CallFeatures, FeatureNeeds, MAX_DIRECTORIES, MAX_EXAMINED, MAX_HINT_BYTES,
    call_command::read_command, named_places::may_be_key_file,
};
use crate::decide::policy::{
    argument_roles::{
        ArgumentRole, affects_commands, classify_argument, is_directory_name, normalize_name,
    },
    matching::{
        hosts::parse_plain_url,
        patch_names::{begins_like_patch, possible_names},
    },
};

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

impl<'a> CallFeatures<'a> {
    pub(super) fn walk_object(&mut self, object: &'a Map<String, Value>, needs: FeatureNeeds) {
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

    pub(super) fn add_paths(&mut self, value: &'a Value, means: ArgumentRole) {
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
