//! The configuration: an error is text with a place, and a file means the same when it is written
//! again from its data.

use toolgate_layers::Config;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("config", run, WORDS).with_memory(MemoryBound {
        base: 16 << 20,
        per_byte: 4096,
    });

const WORDS: &[&str] = &[
    "[stack]\n",
    "order = [",
    "\"timeout\"",
    "'policy'",
    "]",
    "\n",
    "[layers.timeout]\n",
    "max = \"30s\"\n",
    "[layers.policy]\n",
    "[[layers.policy.rules]]\n",
    "effect = \"deny\"\n",
    "effect = 'allow'\n",
    "command = [\"rm\"]\n",
    "path = 'src/**'\n",
    "domain = '*'\n",
    "tool = '*'\n",
    "arguments = { n = { max = 3 } }\n",
    "matches = '('\n",
    "default = 'ask_writes'\n",
    "[layers.research]\nuse = 'scope'\nallowed_tools = ['a*']\n",
    "on = ['x']\n",
    "enabled = false\n",
    "[[budget]]\n",
    "name = 'daily'\n",
    "scope = 'user'\n",
    "period = 'day'\n",
    "unit = 'usd'\n",
    "limit = 5.0\n",
    "limit = -1\n",
    "[layers.retry]\n",
    "attempts = 3\n",
    "[layers.redact]\n",
    "[layers.rate_limit]\n",
    "[layers.output_cap]\n",
    "[layers.approval]\n",
    "[tools.shell]\n",
    "{",
    "}",
    "=",
    "'",
    "\"",
    "\"\"\"",
    "#",
    "0x",
    "1979-05-27T07:32:00Z",
    "inf",
    "nan",
    "\\u0000",
    "a.b.c",
    "[",
    "[[",
    "]]",
    "\n%%\n",
    "TOOLGATE_LAYERS__TIMEOUT__MAX=5s",
    "TOOLGATE_",
];

/// Separates the file from variables of the environment.
const BETWEEN: &str = "\n%%\n";

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let (file, variables) = text.split_once(BETWEEN).unwrap_or((&text, ""));
    let variables = || {
        let pairs = variables.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let parse = |file: &str| {
        Config::parse(file)
            .and_then(|config| config.with_environment(variables()))
            .map_err(|error| error.to_string())
    };
    match parse(file) {
        Err(message) => {
            assert!(!message.is_empty(), "an error without text");
            InputTrace::of_message(&message)
        }
        Ok(config) => {
            let table: toml::Table = toml::from_str(file).expect("a configuration is TOML");
            let again = toml::to_string(&table).expect("what was parsed can be written");
            match parse(&again) {
                Ok(again) => {
                    assert_eq!(again.stack(), config.stack(), "another stack");
                    assert_eq!(again.budgets(), config.budgets(), "other budgets");
                }
                Err(problem) => panic!("the same data is rejected: {problem}\n{again}"),
            }
            InputTrace::of((
                table.keys().cloned().collect::<Vec<_>>(),
                config.stack().order.as_ref().map(Vec::len),
                variables().count().min(2),
            ))
        }
    }
}
