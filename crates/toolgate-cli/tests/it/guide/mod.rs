//! The pages for users are true: every command runs and prints what the page shows, every
//! configuration loads, and the references name every key, field and variable.
#![allow(missing_docs, reason = "a test has no public items")]

mod page;
mod place;
mod stub_model;
mod variables;

use clap::Parser;
use serde_json::Value;
use toolgate::{Config, model::ScriptedModel};
use toolgate_cli::Cli;

use page::{CONFIG_NAME, GuidePage, repository_root};
use place::{ASKS, GuidePlace, NOT_RUN};

const TERMINAL_GUIDE: &str = "docs/guide/terminal";
const FIND_SHARE_REMEMBER: &str = "docs/guide/14-find-share-remember.md";
const CONFIGURATION: &str = "docs/reference/configuration.md";
const ENVIRONMENT: &str = "docs/reference/environment.md";
const POLICY_RULES: &str = "docs/reference/policy-rules.md";

/// Returns the pages whose commands are run.
fn run_pages() -> Vec<GuidePage> {
    let references = [CONFIGURATION, ENVIRONMENT, POLICY_RULES].map(GuidePage::load);
    let mut pages = GuidePage::load_directory(TERMINAL_GUIDE);
    pages.extend(references);
    pages.push(GuidePage::load(FIND_SHARE_REMEMBER));
    pages
}

/// Runs the page of the terminal guide that begins with this number.
fn run_chapter(number: &str, place: &GuidePlace) {
    let pages = GuidePage::load_directory(TERMINAL_GUIDE);
    let start = format!("{TERMINAL_GUIDE}/{number}-");
    let page = pages.iter().find(|page| page.name.starts_with(&start));
    place.run_page(page.expect("the chapter exists"));
}

#[test]
fn the_commands_about_the_first_steps_do_what_the_guide_says() {
    run_chapter("01", &GuidePlace::new().with_model());
}

#[test]
fn the_commands_about_running_agents_do_what_the_guide_says() {
    run_chapter("02", &GuidePlace::new().with_model());
}

#[test]
fn the_commands_about_policy_do_what_the_guide_says() {
    run_chapter("03", &GuidePlace::new().with_model());
}

#[test]
fn the_commands_about_approvals_do_what_the_guide_says() {
    let place = GuidePlace::new().with_model().with_pending_approvals();
    run_chapter("04", &place);
}

#[test]
fn the_commands_about_sessions_do_what_the_guide_says() {
    let place = GuidePlace::new().with_model().with_pending_approvals();
    run_chapter("05", &place.with_finished_session());
}

#[test]
fn the_commands_about_tools_and_chat_do_what_the_guide_says() {
    let place = GuidePlace::new().with_model();
    run_chapter("06", &place);
    run_chapter("07", &place);
}

#[test]
#[cfg_attr(not(feature = "otlp"), ignore = "the program has no feature otlp")]
fn the_recipes_work() {
    run_chapter("08", &GuidePlace::new().with_model());
}

#[test]
#[cfg_attr(
    not(feature = "postgres"),
    ignore = "the program has no feature postgres"
)]
fn the_errors_of_the_guide_are_printed_word_for_word() {
    run_chapter("09", &GuidePlace::new());
}

#[test]
fn the_commands_about_finding_sharing_and_remembering_do_what_the_guide_says() {
    GuidePlace::new().run_page(&GuidePage::load(FIND_SHARE_REMEMBER));
}

#[test]
fn every_chapter_of_the_terminal_guide_is_run() {
    let chapters = GuidePage::load_directory(TERMINAL_GUIDE);
    let numbered = chapters
        .iter()
        .filter(|page| !page.name.ends_with("README.md"));
    assert_eq!(numbered.count(), 9, "a test above runs each of them");
}

#[test]
fn every_example_of_a_policy_rule_gets_the_verdict_that_is_shown() {
    GuidePlace::new().run_page(&GuidePage::load(POLICY_RULES));
}

#[test]
fn the_reference_of_the_configuration_is_true() {
    GuidePlace::new().run_page(&GuidePage::load(CONFIGURATION));
}

#[test]
fn the_reference_of_the_environment_is_true() {
    GuidePlace::new().run_page(&GuidePage::load(ENVIRONMENT));
}

#[test]
fn the_lists_of_exceptions_name_only_lines_of_the_guide() {
    let pages = run_pages();
    let commands: Vec<_> = pages.iter().flat_map(GuidePage::commands).collect();
    let lines = NOT_RUN.iter().map(|(line, _)| *line).chain(ASKS);
    for line in lines {
        let is_there = commands.iter().any(|command| command.command() == line);
        assert!(is_there, "no page has the line `{line}` any more");
    }
}

/// Splits a line like a shell, as far as the guide needs it.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().expect("there is one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the arguments of the program in a line, up to the next command or redirection.
fn program_arguments(line: &str) -> Option<Vec<String>> {
    let line = line.replace("cargo run --release -- ", "toolgate ");
    let line = line.replace("cargo run -- ", "toolgate ");
    let words = split_words(&line);
    let is_program = |word: &String| word == "toolgate" || word.ends_with("/bin/toolgate");
    let start = words.iter().position(is_program)?;
    let is_end = |word: &&String| matches!(word.as_str(), ">" | "<" | "|" | "&&" | "#");
    let arguments = words[start + 1..].iter().take_while(|word| !is_end(word));
    Some(
        ["toolgate".to_owned()]
            .into_iter()
            .chain(arguments.cloned())
            .collect(),
    )
}

/// The README is not run: its first command compiles the program. Workflows and units of the guide
/// run elsewhere.
#[test]
fn every_command_in_the_readme_and_in_files_of_the_guide_is_valid() {
    let readme = GuidePage::load("README.md");
    let commands = readme.commands().into_iter();
    let mut lines: Vec<String> = commands
        .map(|command| command.command().to_owned())
        .collect();
    for (name, text) in run_pages().iter().flat_map(GuidePage::files) {
        if !name.ends_with(".toml") {
            lines.extend(text.lines().map(|line| line.replace("run: ", "")));
        }
    }
    let mut seen = 0;
    for arguments in lines.iter().filter_map(|line| program_arguments(line)) {
        if let Err(error) = Cli::try_parse_from(&arguments) {
            panic!("{}\n{error}", arguments.join(" "));
        }
        seen += 1;
    }
    assert!(seen > 5, "only {seen} commands were found");
}

#[test]
fn every_configuration_and_script_in_the_guide_loads() {
    let mut pages = GuidePage::load_directory("docs/guide");
    pages.push(GuidePage::load("README.md"));
    let mut seen = 0;
    for page in &pages {
        let files = page.files().into_iter();
        for (_, text) in files.filter(|(name, _)| name == CONFIG_NAME) {
            let problem = if text.contains("[[reply]]") {
                ScriptedModel::from_toml(&text)
                    .err()
                    .map(|error| error.to_string())
            } else {
                let catalog = toolgate::gate::gate_catalog();
                let read = Config::parse_with_catalog(&page.name, &text, catalog);
                read.err().map(|error| error.to_string())
            };
            assert_eq!(problem, None, "{}\n{text}", page.name);
            seen += 1;
        }
    }
    assert!(seen > 1, "only {seen} files were found");
}

fn configuration_schema() -> Value {
    let path = repository_root().join("docs/reference/toolgate.schema.json");
    let text = std::fs::read_to_string(path).expect("the schema");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the keys of a table or of a list of tables, with those of the tables in it.
fn schema_keys(schema: &Value) -> Vec<String> {
    let table = if schema["items"].is_object() {
        &schema["items"]
    } else {
        schema
    };
    let properties = table["properties"].as_object().into_iter().flatten();
    properties
        .flat_map(|(key, value)| match schema_keys(value) {
            inner if value["properties"].is_object() => inner,
            _ => vec![key.clone()],
        })
        .collect()
}

#[test]
fn every_key_of_the_configuration_is_in_its_reference() {
    let schema = configuration_schema();
    let page = GuidePage::load(CONFIGURATION);
    let sections = schema["properties"].as_object().expect("sections");
    let mut seen = 0;
    for (section, schema) in sections.iter().filter(|(name, _)| *name != "layers") {
        for key in schema_keys(schema) {
            let row = format!("\n| `{key}` |");
            assert!(
                page.text().contains(&row),
                "{CONFIGURATION} has no row for {key} of [{section}]"
            );
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} keys were found");
}

#[test]
fn every_field_of_a_policy_rule_has_a_section() {
    let schema = configuration_schema();
    let options = &schema["properties"]["layers"]["properties"]["policy"]["properties"];
    let page = GuidePage::load(POLICY_RULES);
    let fields = schema_keys(&options["rules"]);
    assert!(fields.len() > 12, "{fields:?}");
    for field in fields {
        let row = format!("\n| [`{field}`](#");
        assert!(
            page.text().contains(&row),
            "{POLICY_RULES} has no row for {field}"
        );
    }
    for option in schema_keys(options) {
        assert!(page.text().contains(&format!("`{option}`")), "{option}");
    }
}
