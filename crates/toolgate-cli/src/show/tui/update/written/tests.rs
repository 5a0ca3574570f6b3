//! Commands, completions and sessions in the message.

use toolgate::{archive::ExportFormat, value::SessionId};
use uuid::Uuid;

use crate::show::tui::{
    SessionChange, SessionChoice, UiEffect, UiMessage,
    app::OverlayWindow,
    stage::{UiStage, sample_conversation},
};

fn send(stage: &mut UiStage, text: &str) -> Vec<UiEffect> {
    stage.type_text(text);
    stage.press_keys("Enter")
}

fn told(effects: &[UiEffect]) -> String {
    match effects {
        [UiEffect::Tell(_, text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_is_carried_out_and_not_sent_to_the_model() {
    let mut stage = sample_conversation();
    assert_eq!(send(&mut stage, "/help"), []);
    assert!(matches!(stage.app.window, Some(OverlayWindow::Help { .. })));
    stage.press_keys("Esc");
    assert_eq!(send(&mut stage, "/resume"), [UiEffect::ListSessions]);
    let rename = UiEffect::Rename("The shop".to_owned());
    assert_eq!(send(&mut stage, "/rename The shop"), [rename]);
    assert!(told(&send(&mut stage, "/rename")).contains("the title"));
    let import = UiEffect::Import("old/a.jsonl".to_owned());
    assert_eq!(send(&mut stage, "/import old/a.jsonl"), [import]);
    assert!(told(&send(&mut stage, "/import")).contains("the path"));
    let memory = UiEffect::Memory("forget 4c21".to_owned());
    assert_eq!(send(&mut stage, "/memory forget 4c21"), [memory]);
    assert_eq!(
        send(&mut stage, "/clear"),
        [UiEffect::Change(SessionChange::Begin)]
    );
    let model = SessionChange::UseModel("ollama:qwen3".to_owned());
    assert_eq!(
        send(&mut stage, "/model ollama:qwen3"),
        [UiEffect::Change(model)]
    );
    assert!(matches!(
        &send(&mut stage, "/export")[..],
        [UiEffect::Save(ExportFormat::Markdown)]
    ));
    assert_eq!(
        send(&mut stage, "/export html"),
        [UiEffect::Save(ExportFormat::Html)]
    );
    assert!(told(&send(&mut stage, "/export pdf")).contains("is not a format"));
    assert_eq!(send(&mut stage, "/quit"), [UiEffect::Quit]);
    assert!(stage.app.input.is_blank());
}

#[test]
fn the_model_in_use_is_named_on_request() {
    let mut stage = UiStage::new();
    stage.type_text("/model ");
    assert!(told(&stage.press_keys("Enter")).contains("the model is scripted:captain"));
}

#[test]
fn an_unknown_command_is_not_sent_and_can_be_corrected() {
    let mut stage = UiStage::new();
    assert!(told(&send(&mut stage, "/modle x")).contains("did you mean /model?"));
    assert_eq!(stage.app.input.text(), "/modle x");
}

#[test]
fn a_leading_slash_is_sent_after_another_one_or_a_space() {
    let mut stage = UiStage::new();
    let said = |text: &str| [UiEffect::Say(text.to_owned())];
    assert_eq!(send(&mut stage, "//help"), said("/help"));
    assert_eq!(send(&mut stage, " /quit"), said("/quit"));
    // A message that is recalled is sent again, and not run.
    stage.press_keys("Up");
    assert_eq!(stage.press_keys("Enter"), said("/quit"));
}

#[test]
fn a_run_is_not_cut_off_by_another_session() {
    let mut stage = UiStage::new();
    stage.user_message("work");
    for command in ["/clear", "/model ollama:qwen3"] {
        assert!(told(&send(&mut stage, command)).contains("a run is in progress"));
    }
}

fn choice(number: u128, about: &str) -> SessionChoice {
    SessionChoice {
        session: SessionId::new(Uuid::from_u128(number)),
        used: "2026-11-17 10:00".to_owned(),
        about: about.to_owned(),
    }
}

#[test]
fn an_earlier_session_is_chosen_by_its_first_message() {
    let mut stage = UiStage::new();
    let choices = vec![
        choice(7, "fix the parser"),
        choice(8, "write the release notes"),
    ];
    stage.apply_message(UiMessage::SessionsListed(Ok(choices)));
    let listed = stage.render_screen(80, 24);
    assert!(
        listed.contains("fix the parser") && listed.contains("2026-11-17 10:00  00000008"),
        "{listed}"
    );
    stage.type_text("zzz");
    assert!(stage.render_screen(80, 24).contains("nothing found"));
    assert_eq!(stage.press_keys("Enter"), []);
    stage.press_keys("Backspace Backspace Backspace");
    stage.type_text("NOTES");
    let change = SessionChange::Resume(SessionId::new(Uuid::from_u128(8)));
    assert_eq!(stage.press_keys("Enter"), [UiEffect::Change(change)]);
    assert!(
        told(&stage.apply_message(UiMessage::SessionsListed(Ok(Vec::new())))).contains("no other")
    );
}

#[test]
fn a_slash_lists_the_commands_and_a_choice_is_run() {
    let mut stage = UiStage::new();
    stage.type_text("/");
    let listed = stage.render_screen(80, 24);
    for name in ["/help", "/model", "/clear", "/resume", "/export", "/quit"] {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    stage.type_text("res");
    assert!(!stage.render_screen(80, 24).contains("/clear"));
    assert_eq!(stage.press_keys("Enter"), [UiEffect::ListSessions]);
    // A command with an argument is completed and waits for it.
    stage.type_text("/mo");
    assert_eq!(stage.press_keys("Tab"), []);
    assert_eq!(stage.app.input.text(), "/model ");
}

#[test]
fn an_at_sign_completes_the_path_of_a_file() {
    let mut stage = UiStage::new();
    stage.type_text("look at @li");
    assert_eq!(
        stage.effects.last(),
        Some(&UiEffect::FindFiles("li".to_owned()))
    );
    let files = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let found = files(&["src/lib.rs", "docs/list.md"]);
    stage.apply_message(UiMessage::FilesFound("li".to_owned(), found));
    // An answer about an earlier word changes nothing.
    stage.apply_message(UiMessage::FilesFound("l".to_owned(), files(&["LICENSE"])));
    let screen = stage.render_screen(80, 24);
    assert!(
        screen.contains("docs/list.md") && !screen.contains("LICENSE"),
        "{screen}"
    );
    assert_eq!(
        stage.press_keys("Down Enter"),
        [],
        "Enter chooses, it does not send"
    );
    assert_eq!(stage.app.input.text(), "look at docs/list.md ");
    stage.type_text("and ann@example");
    let asked =
        |effect: &UiEffect| matches!(effect, UiEffect::FindFiles(part) if part == "example");
    assert!(
        !stage.effects.iter().any(asked),
        "a mail address is no file"
    );
    let sent = stage.press_keys("Enter");
    assert_eq!(
        sent,
        [UiEffect::Say(
            "look at docs/list.md and ann@example".to_owned()
        )]
    );
}

#[test]
fn esc_closes_the_completions_and_the_message_stays() {
    let mut stage = UiStage::new();
    stage.type_text("@a");
    stage.apply_message(UiMessage::FilesFound(
        "a".to_owned(),
        vec!["a.rs".to_owned()],
    ));
    stage.press_keys("Esc");
    assert!(!stage.render_screen(80, 24).contains("a.rs"));
    assert_eq!(stage.press_keys("Enter"), [UiEffect::Say("@a".to_owned())]);
}

#[test]
fn a_question_mark_in_an_empty_message_shows_the_help() {
    let mut stage = UiStage::new();
    stage.press_keys("?");
    assert!(matches!(stage.app.window, Some(OverlayWindow::Help { .. })));
    stage.press_keys("Esc");
    stage.type_text("why?");
    assert!(stage.app.window.is_none());
    assert_eq!(stage.app.input.text(), "why?");
}
