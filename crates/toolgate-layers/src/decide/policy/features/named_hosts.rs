//! The hosts and URLs that a call names, or may name.

use serde_json::Value;

use super::{ArgumentRole, CallCommand, CallFeatures, MAX_EXAMINED, MAX_HINT_BYTES};
use crate::decide::policy::matching::{
    host_words::hosts_in_run,
    hosts::{
        PlainUrl, is_like_url, may_be_host, parse_plain_authority, parse_plain_url, possible_hosts,
    },
};

/// The hosts of a call.
pub(crate) struct CallHosts {
    /// Hosts of URLs, of arguments that name a host, and among the words of commands.
    pub(crate) named: Vec<String>,
    /// Hosts that any other text could name.
    pub(crate) mentioned: Vec<String>,
}

/// A URL or host that the call names.
pub(crate) struct CallUrl {
    pub(crate) text: String,
    /// The parsed URL, if that is certain.
    pub(crate) plain: Option<PlainUrl>,
}

impl CallFeatures<'_> {
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

    pub(super) fn add_url(&mut self, text: &str, plain: Option<PlainUrl>) {
        if self.urls.len() < MAX_EXAMINED {
            let text = text.to_owned();
            self.urls.push(CallUrl { text, plain });
        } else {
            self.crowded = true;
            self.urls_certain = false;
        }
    }

    pub(super) fn add_urls(&mut self, value: &Value, means: ArgumentRole) {
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
