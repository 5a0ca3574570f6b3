//! The text of a configuration: a policy, and the model that it is for.

use clap::ValueEnum;

/// The file that explains every option and sets none. Prose begins with `# `; a line that begins with `#`
/// and no space is an option.
pub(super) const BLANK: &str = include_str!("blank.toml");

/// The first line: editors complete and check the file with this schema.
const SCHEMA_LINE: &str = concat!(
    "#:schema ",
    env!("CARGO_PKG_REPOSITORY"),
    "/raw/main/docs/reference/toolgate.schema.json\n"
);

/// A configuration to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StartingPolicy {
    /// One user, who decides at the terminal; tests run without an approval
    Solo,
    /// Several people: shared rules, limits for each, requests that expire
    Team,
    /// A build server: what needs an approval is denied, and time and tokens are limited
    Ci,
    /// Every option explained, none set
    Blank,
}

impl StartingPolicy {
    /// All policies, in the order in which they are offered.
    pub(super) const ALL: [Self; 4] = [Self::Solo, Self::Team, Self::Ci, Self::Blank];

    /// Returns the word for the policy.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Solo => "solo",
            Self::Team => "team",
            Self::Ci => "ci",
            Self::Blank => "blank",
        }
    }

    /// Returns what the policy is for, in one line.
    pub(super) const fn summary(self) -> &'static str {
        match self {
            Self::Solo => "one user, who decides at the terminal; tests run without an approval",
            Self::Team => "several people: shared rules, limits for each, requests that expire",
            Self::Ci => {
                "a build server: what needs an approval is denied, time and tokens are limited"
            }
            Self::Blank => "every option explained, none set",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Solo => include_str!("solo.toml"),
            Self::Team => include_str!("team.toml"),
            Self::Ci => include_str!("ci.toml"),
            Self::Blank => BLANK,
        }
    }
}

/// Renders the file: with a model, the option for it is set.
pub(super) fn render_config(
    policy: StartingPolicy,
    model: Option<&str>,
    base_url: Option<&str>,
) -> String {
    let mut text = String::from(SCHEMA_LINE);
    for line in policy.text().lines() {
        let Some(model) = model else {
            text.extend([line, "\n"]);
            continue;
        };
        if line == "#[run]" {
            text.push_str("[run]\n");
        } else if line.starts_with("#model = ") {
            text.push_str(&format!("model = {}\n", quote_toml(model)));
            if let Some(url) = base_url {
                text.push_str(&format!("base_url = {}\n", quote_toml(url)));
            }
        } else if base_url.is_none() || !line.starts_with("#base_url = ") {
            text.extend([line, "\n"]);
        }
    }
    text
}

fn quote_toml(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::BLANK as TEMPLATE;
    use super::*;
    use toolgate::{Config, Registry, Resources, layers::BuildError};

    fn parse_text(text: &str) -> Result<Config, BuildError> {
        Ok(Config::parse_with_catalog(
            "init.toml",
            text,
            toolgate::gate::gate_catalog(),
        )?)
    }

    fn build_stack_of(text: &str) -> Result<(), BuildError> {
        let config = parse_text(text)?;
        let parts = Resources::new().with(toolgate::store::StoreHandle::new(
            toolgate::store::MemoryStore::new(),
        ));
        config.build(Registry::new(), &parts).map(drop)
    }

    fn is_option(line: &str) -> bool {
        line.starts_with('#') && !line.starts_with("# ") && line != "#"
    }

    /// The sections of the file, each a header and its options, uncommented.
    fn template_sections() -> Vec<(String, Vec<String>)> {
        let mut sections: Vec<(String, Vec<String>)> = Vec::new();
        for line in TEMPLATE
            .lines()
            .filter(|line| is_option(line))
            .map(|line| line[1..].to_owned())
        {
            if line.starts_with('[') {
                sections.push((line, Vec::new()))
            } else {
                sections
                    .last_mut()
                    .expect("an option is in a section")
                    .1
                    .push(line)
            }
        }
        sections
    }

    #[test]
    fn every_policy_is_valid_with_and_without_a_model() {
        for policy in StartingPolicy::ALL {
            for (model, url) in [
                (None, None),
                (Some("ollama:llama3"), None),
                (Some("compatible:a\"b"), Some("http://127.0.0.1:8000/v1")),
            ] {
                let text = render_config(policy, model, url);
                assert!(text.starts_with("#:schema https://"), "{text}");
                build_stack_of(&text).unwrap_or_else(|error| panic!("{policy:?}: {error}\n{text}"));
                let config = parse_text(&text).expect("valid");
                let run = toolgate::gate::RunSection::of(&config).expect("valid");
                assert_eq!(
                    (run.model.as_deref(), run.base_url.as_deref()),
                    (model, url)
                );
            }
        }
    }

    #[test]
    fn the_file_changes_nothing_as_it_is_written() {
        build_stack_of(TEMPLATE).expect("valid");
        assert!(
            TEMPLATE
                .lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
    }

    #[test]
    fn everything_in_the_file_is_valid_at_once_and_section_by_section() {
        let all: Vec<String> = TEMPLATE
            .lines()
            .map(|line| if is_option(line) { &line[1..] } else { line }.to_owned())
            .collect();
        build_stack_of(&all.join("\n")).expect("valid at once");
        for (header, options) in template_sections() {
            build_stack_of(&format!("{header}\n{}", options.join("\n")))
                .unwrap_or_else(|error| panic!("{header}: {error}"));
        }
    }

    #[test]
    fn every_option_of_the_file_is_valid_by_itself() {
        for (header, options) in template_sections()
            .iter()
            .filter(|(header, _)| !header.starts_with("[["))
        {
            for option in options {
                parse_text(&format!("{header}\n{option}"))
                    .unwrap_or_else(|error| panic!("{header} {option}: {error}"));
            }
        }
    }

    #[test]
    fn every_option_of_the_programs_own_sections_is_in_the_file() {
        let schema = Config::json_schema(&toolgate::gate::gate_catalog());
        for section in ["run", "tools", "tools.files", "tools.shell", "tools.fetch"] {
            let path = section
                .split('.')
                .fold(&schema, |at, name| &at["properties"][name]);
            let (_, options) = template_sections()
                .into_iter()
                .find(|(header, _)| *header == format!("[{section}]"))
                .expect(section);
            for (name, property) in path["properties"].as_object().expect("options") {
                let listed = options
                    .iter()
                    .any(|line| line.starts_with(&format!("{name} =")));
                assert!(
                    listed || property["properties"].is_object(),
                    "[{section}] {name}"
                );
            }
        }
    }
}
