//! Search over all sessions: asking, choosing a hit, and opening or reading it.

use crossterm::event::{KeyCode, KeyEvent};

use super::{
    super::{ChatApp, SessionChange, SessionHits, ShownHit, UiEffect, app::OverlayWindow},
    show_error, show_info,
    written::change_session,
};

/// Opens the window, and searches if there are words already.
pub(super) fn open_search(app: &mut ChatApp, words: String) -> Vec<UiEffect> {
    let effects = if words.is_empty() {
        Vec::new()
    } else {
        vec![UiEffect::SearchSessions(words.clone())]
    };
    app.window = Some(OverlayWindow::Hits {
        words,
        found: SessionHits::default(),
        selected: 0,
    });
    effects
}

/// Shows the hits of a search, unless the window was closed meanwhile.
pub(super) fn show_hits(app: &mut ChatApp, result: Result<SessionHits, String>) -> Vec<UiEffect> {
    let Some(OverlayWindow::Hits {
        found, selected, ..
    }) = &mut app.window
    else {
        return Vec::new();
    };
    match result {
        Ok(hits) => {
            *found = hits;
            *selected = 0;
            Vec::new()
        }
        Err(problem) => show_error(problem),
    }
}

/// Shows a hit with what is near it.
pub(super) fn show_near(app: &mut ChatApp, shown: Result<ShownHit, String>) -> Vec<UiEffect> {
    match shown {
        Ok(ShownHit { title, text }) => {
            app.window = Some(OverlayWindow::Text {
                title,
                text,
                scroll: 0,
            });
            Vec::new()
        }
        Err(problem) => show_error(problem),
    }
}

/// Handles the keys that choose among the hits.
pub(super) fn handle_hit_key(window: &mut OverlayWindow, key: KeyEvent) -> Option<Vec<UiEffect>> {
    let OverlayWindow::Hits {
        found, selected, ..
    } = window
    else {
        return None;
    };
    match key.code {
        KeyCode::Up => *selected = selected.saturating_sub(1),
        KeyCode::Down => *selected = (*selected + 1).min(found.hits.len().saturating_sub(1)),
        KeyCode::Right => {
            let hit = found.hits.get(*selected).cloned();
            return Some(
                hit.map(|hit| UiEffect::ShowHit(Box::new(hit)))
                    .into_iter()
                    .collect(),
            );
        }
        _ => return None,
    }
    Some(Vec::new())
}

/// Searches for the words if they are new; otherwise opens the selected hit, or shows one that is only
/// read.
pub(super) fn submit(
    app: &mut ChatApp,
    words: String,
    found: SessionHits,
    selected: usize,
) -> Vec<UiEffect> {
    let hit = found.hits.get(selected).cloned();
    let is_new = words != found.query;
    app.window = Some(OverlayWindow::Hits {
        words: words.clone(),
        found,
        selected,
    });
    match hit {
        _ if words.trim().is_empty() => show_info("write what to search for"),
        _ if is_new => vec![UiEffect::SearchSessions(words)],
        None => Vec::new(),
        Some(hit) if hit.is_only_read() => vec![UiEffect::ShowHit(Box::new(hit))],
        Some(hit) => {
            let effects = change_session(app, SessionChange::Resume(hit.session));
            if !app.at_work {
                app.window = None;
            }
            effects
        }
    }
}

#[cfg(test)]
mod tests {
    use toolgate::{search::SearchSnippet, value::SessionId};
    use uuid::Uuid;

    use super::*;
    use crate::show::tui::{SessionHit, UiMessage, stage::UiStage};

    fn hit(n: u128, elsewhere: Option<&str>) -> SessionHit {
        SessionHit {
            session: SessionId::new(Uuid::from_u128(n)),
            sequence: 1,
            what: "user".into(),
            at: "today".into(),
            snippet: SearchSnippet {
                text: "deploy the walrus\u{1b}[2J".into(),
                matches: std::iter::once(11..17).collect(),
                ..SearchSnippet::default()
            },
            elsewhere: elsewhere.map(str::to_owned),
            imported_from: None,
        }
    }

    fn found(stage: &mut UiStage) {
        let hits = SessionHits {
            query: "walrus".into(),
            hits: vec![hit(1, None), hit(2, Some("/elsewhere"))],
            remarks: vec!["only the newest".into()],
        };
        stage.apply_message(UiMessage::HitsFound(Ok(hits)));
    }

    #[test]
    fn the_command_searches_and_enter_resumes_a_hit_of_this_directory() {
        let mut stage = UiStage::new();
        stage.type_text("/search walrus");
        assert_eq!(
            stage.press_keys("Enter"),
            [UiEffect::SearchSessions("walrus".into())]
        );
        found(&mut stage);
        let resumed = SessionChange::Resume(hit(1, None).session);
        assert_eq!(stage.press_keys("Enter"), [UiEffect::Change(resumed)]);
    }

    #[test]
    fn a_hit_of_another_directory_is_read_and_not_resumed() {
        let mut stage = UiStage::new();
        stage.press_keys("Ctrl-G");
        stage.type_text("walrus");
        assert_eq!(
            stage.press_keys("Enter"),
            [UiEffect::SearchSessions("walrus".into())]
        );
        found(&mut stage);
        stage.press_keys("Down");
        let read = UiEffect::ShowHit(Box::new(hit(2, Some("/elsewhere"))));
        assert_eq!(stage.press_keys("Enter"), std::slice::from_ref(&read));
        assert_eq!(stage.press_keys("Right"), [read]);
    }

    #[test]
    fn a_hit_of_an_imported_session_is_read_and_not_resumed() {
        let mut stage = UiStage::new();
        stage.press_keys("Ctrl-G");
        stage.type_text("walrus");
        stage.press_keys("Enter");
        let mut imported = hit(3, None);
        imported.imported_from = Some("claude".into());
        let hits = SessionHits {
            query: "walrus".into(),
            hits: vec![imported.clone()],
            remarks: Vec::new(),
        };
        stage.apply_message(UiMessage::HitsFound(Ok(hits)));
        assert!(stage.render_screen(80, 24).contains("imported from claude"));
        let read = UiEffect::ShowHit(Box::new(imported));
        assert_eq!(stage.press_keys("Enter"), [read]);
    }

    #[test]
    fn other_words_search_again_and_escape_closes() {
        let mut stage = UiStage::new();
        stage.press_keys("Ctrl-G");
        stage.type_text("walrus");
        stage.press_keys("Enter");
        found(&mut stage);
        stage.type_text("es");
        assert_eq!(
            stage.press_keys("Enter"),
            [UiEffect::SearchSessions("walruses".into())]
        );
        stage.press_keys("Esc");
        assert!(stage.app.window.is_none());
        // Hits that arrive late open nothing.
        found(&mut stage);
        assert!(stage.app.window.is_none());
    }
}
