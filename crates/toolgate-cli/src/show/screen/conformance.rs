//! The project's own screens pass the suite that it offers for screens.

use std::sync::Arc;

use toolgate::{Event, event::Phase, value::CallId};
use toolgate_testkit::conformance::{Screen, check_screen};

use super::SessionScreen;
use crate::show::{
    feed::FeedItem,
    live::display::LiveDisplay,
    tui::{ChatApp, ChatSetup, UiMessage, update},
};

fn phase_in(screen: &SessionScreen, call: CallId) -> Option<Phase> {
    screen.call(call).map(|call| call.state.phase())
}

/// The fold of `sessions show` and of output without a terminal.
impl Screen for SessionScreen {
    fn show_event(&mut self, event: &Event) {
        self.apply(event);
    }
    fn note_lag(&mut self, _: u64) {}
    fn shown_phase(&self, call: CallId) -> Option<Phase> {
        phase_in(self, call)
    }
}

/// The screen of `run`.
impl Screen for LiveDisplay {
    fn show_event(&mut self, event: &Event) {
        self.apply_item(&FeedItem::Event(Arc::new(event.clone())));
    }
    fn note_lag(&mut self, _: u64) {}
    fn shown_phase(&self, call: CallId) -> Option<Phase> {
        phase_in(&self.screen, call)
    }
}

/// The screen of `chat`.
impl Screen for ChatApp {
    fn show_event(&mut self, event: &Event) {
        update(self, UiMessage::Event(Arc::new(event.clone())));
    }
    fn note_lag(&mut self, _: u64) {}
    fn shown_phase(&self, call: CallId) -> Option<Phase> {
        phase_in(self.screen(), call)
    }
}

#[test]
fn the_fold_of_sessions_show_passes_the_screen_suite() {
    check_screen(SessionScreen::new).assert_all();
}

#[test]
fn the_screen_of_run_passes_the_screen_suite() {
    check_screen(|| LiveDisplay::new(SessionScreen::new(), "ann".into(), (80, 24), false))
        .assert_all();
}

#[test]
fn the_screen_of_chat_passes_the_screen_suite() {
    let setup = || ChatSetup {
        previous: None,
        session: toolgate::value::SessionId::new(uuid::Uuid::from_u128(1)),
        me: "ann".into(),
        project: "/shop".to_owned(),
        model: "scripted:captain".to_owned(),
        tools: toolgate::View::default(),
    };
    check_screen(|| ChatApp::new(setup())).assert_all();
}
