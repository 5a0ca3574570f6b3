//! `--help` of every command: complete, with an example, and no larger than a screen.

use clap::{Command, CommandFactory};
use toolgate_cli::Cli;

/// Returns every command and its words, the program itself first.
fn all_commands() -> Vec<(String, Command)> {
    fn walk(words: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        found.push((words.to_owned(), command.clone()));
        for inner in command.get_subcommands() {
            walk(&format!("{words} {}", inner.get_name()), inner, found);
        }
    }
    let mut program = Cli::command().term_width(100);
    program.build();
    let mut found = Vec::new();
    walk("toolgate", &program, &mut found);
    found
}

fn render_help(command: &Command) -> String {
    command.clone().term_width(100).render_help().to_string()
}

#[test]
fn every_help_fits_a_screen() {
    for (words, command) in all_commands() {
        let help = render_help(&command);
        assert!(
            help.lines().count() <= 45,
            "{words} --help has {} lines:\n{help}",
            help.lines().count()
        );
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{words}: {line}");
        }
    }
}

#[test]
fn every_command_says_what_it_does_and_shows_how() {
    for (words, command) in all_commands() {
        assert!(command.get_about().is_some(), "{words} has no summary");
        let after = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let example = after.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(
            example.contains(&format!("{words} "))
                || example.ends_with(&words)
                || example.contains(&format!("{words}\n")),
            "{words} has no example:\n{after}"
        );
    }
}

#[test]
fn every_option_and_word_is_explained() {
    for (words, command) in all_commands() {
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{words}: {} is not explained",
                argument.get_id()
            );
        }
        for inner in command.get_subcommands() {
            assert!(
                inner.get_about().is_some(),
                "{words} {} is not explained",
                inner.get_name()
            );
        }
    }
}

#[test]
fn help_matches_its_snapshots() {
    for (words, command) in all_commands() {
        insta::assert_snapshot!(words.replace(' ', "_"), render_help(&command));
    }
}

#[test]
fn both_forms_of_the_flag_give_the_same_page() {
    let place = crate::admin::AdminPlace::new();
    let short = place.run(["config", "check", "-h"]);
    let long = place.run(["config", "check", "--help"]);
    assert_eq!((short.code, long.code, short.out == long.out), (0, 0, true));
    let version = place.run(["--version"]);
    assert_eq!(
        (version.code, version.out.starts_with("toolgate ")),
        (0, true)
    );
}
