//! Pieces of replies and events arrive in every order that the bus allows, and no word is lost or
//! shown twice.

use std::sync::Arc;

use toolgate::{
    Event,
    event::{Cost, Invocation, SessionEvent, StreamPiece, ToolEvent},
    model::{Delta, FinishReason, ModelErrorKind},
    stack::{Outcome, TurnInfo},
    value::{CallId, Digest, SessionId, Timestamp, TurnId},
};
use uuid::Uuid;

use super::{ConversationItem, SessionScreen};
use crate::show::{feed::FeedItem, live::display::LiveDisplay};

fn turn() -> Arc<TurnInfo> {
    let session = SessionId::new(Uuid::from_u128(1));
    Arc::new(TurnInfo::new(session, TurnId::new(Uuid::from_u128(2))))
}

fn started(attempt: u32) -> SessionEvent {
    SessionEvent::InferenceStarted {
        attempt,
        messages: 1,
        tools: 1,
    }
}

fn finished(text: &str) -> SessionEvent {
    SessionEvent::InferenceFinished {
        message: 1,
        text: Some(text.to_owned()),
        text_bytes: None,
        calls: 0,
        finish: FinishReason::Stop,
        usage: None,
        cost: Cost::Unknown,
    }
}

fn user_message() -> SessionEvent {
    SessionEvent::UserMessage {
        message: 0,
        text: Some("Go.".to_owned()),
        text_bytes: None,
        steering: false,
    }
}

fn run_event(number: u64, event: SessionEvent) -> FeedItem {
    let event = Event::for_run(number, Timestamp::EPOCH, turn(), event);
    FeedItem::Event(Arc::new(event.expect("valid")))
}

fn tool_event(number: u64, event: ToolEvent) -> FeedItem {
    let invocation = Arc::new(Invocation {
        id: CallId::new(Uuid::from_u128(3)),
        call_id: "c1".into(),
        tool: "look".into(),
        emit_order: 0,
        turn: turn(),
    });
    let event = Event::for_invocation(number, Timestamp::EPOCH, invocation, event);
    FeedItem::Event(Arc::new(event.expect("valid")))
}

fn pieces(after: u64, texts: &[&str]) -> Vec<FeedItem> {
    let piece = |text: &&str| {
        FeedItem::Piece(Arc::new(StreamPiece {
            turn: turn(),
            after,
            delta: Delta::Text((*text).to_owned()),
        }))
    };
    texts.iter().map(piece).collect()
}

/// Calls `check` with every order of events and pieces in which each kind stays in its own order.
fn for_every_order(events: &[FeedItem], pieces: &[FeedItem], check: &mut impl FnMut(&[FeedItem])) {
    fn extend(
        events: &[FeedItem],
        pieces: &[FeedItem],
        order: &mut Vec<FeedItem>,
        check: &mut impl FnMut(&[FeedItem]),
    ) {
        if events.is_empty() && pieces.is_empty() {
            return check(order);
        }
        if let Some((first, rest)) = events.split_first() {
            order.push(first.clone());
            extend(rest, pieces, order, check);
            order.pop();
        }
        if let Some((first, rest)) = pieces.split_first() {
            order.push(first.clone());
            extend(events, rest, order, check);
            order.pop();
        }
    }
    extend(events, pieces, &mut Vec::new(), check);
}

fn apply_to_screen(screen: &mut SessionScreen, item: &FeedItem) {
    match item {
        FeedItem::Event(event) => screen.apply(event),
        FeedItem::Piece(piece) => screen.apply_piece(piece),
    }
}

fn live_display() -> LiveDisplay {
    LiveDisplay::new(SessionScreen::new(), "ann".into(), (80, 24), false)
}

/// The log of a reply that asks for a call and of the reply after it, with their pieces.
fn tool_round() -> (Vec<FeedItem>, Vec<FeedItem>) {
    let requested = ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: Digest::of_bytes(b""),
        arguments_bytes: 0,
        executor: None,
    };
    let outcome = Outcome::ok("x");
    let settled = outcome.settled().expect("settled");
    let events = vec![
        run_event(1, user_message()),
        run_event(2, started(1)),
        run_event(3, finished("Let me look.")),
        tool_event(4, requested),
        tool_event(5, ToolEvent::from_settled(settled, false, None, None)),
        run_event(6, started(1)),
        run_event(7, finished("First words.\n\nThe rest.")),
    ];
    let mut coming = pieces(2, &["Let me ", "look."]);
    coming.extend(pieces(6, &["First ", "words.\n", "\nThe ", "rest."]));
    (events, coming)
}

#[test]
fn the_first_words_of_a_reply_are_shown_even_if_they_overtake_the_end_of_a_tool_round() {
    let (events, coming) = tool_round();
    for_every_order(&events, &coming, &mut |order| {
        let mut screen = SessionScreen::new();
        let mut display = live_display();
        let mut streamed = String::new();
        let mut ended = false;
        for item in order {
            apply_to_screen(&mut screen, item);
            display.apply_item(item);
            match item {
                FeedItem::Event(event) => ended |= event.sequence() == 7,
                FeedItem::Piece(piece) if piece.after == 6 => {
                    let Delta::Text(text) = &piece.delta else {
                        panic!("{piece:?}")
                    };
                    streamed.push_str(text);
                }
                FeedItem::Piece(_) => {}
            }
            let shown = display.visible_text();
            if ended {
                assert_eq!(screen.agents()[0].coming, "", "{order:#?}");
            } else if !streamed.is_empty() {
                assert_eq!(screen.agents()[0].coming, streamed, "{order:#?}");
            }
            for word in streamed.split_whitespace() {
                assert!(shown.contains(word), "{word} in {shown}: {order:#?}");
            }
        }
        let said = |item: &ConversationItem| match item {
            ConversationItem::Model(text) => Some(text.clone()),
            _ => None,
        };
        let said: Vec<String> = screen.agents()[0].items.iter().filter_map(said).collect();
        assert_eq!(said, ["Let me look.", "First words.\n\nThe rest."]);
        let shown = display.visible_text();
        for part in ["Let me look.", "First words.", "The rest."] {
            assert_eq!(shown.matches(part).count(), 1, "{shown}: {order:#?}");
        }
    });
}

#[test]
fn the_words_of_a_retry_are_shown_even_if_they_overtake_the_failure() {
    let failed = SessionEvent::InferenceFailed {
        code: ModelErrorKind::Connection,
        error: "gone".to_owned(),
        retry_in_ms: Some(1_000),
    };
    let events = [
        run_event(1, user_message()),
        run_event(2, started(1)),
        run_event(3, failed),
        run_event(4, started(2)),
        run_event(5, finished("Second try.")),
    ];
    let mut coming = pieces(2, &["First"]);
    coming.extend(pieces(4, &["Second ", "try."]));
    for_every_order(&events, &coming, &mut |order| {
        let mut display = live_display();
        let mut heard_before_failure = false;
        for item in order {
            display.apply_item(item);
            match item {
                FeedItem::Piece(piece) => {
                    let failed = display.screen.agents()[0].items.len() > 1;
                    heard_before_failure |= piece.after == 2 && !failed;
                }
                FeedItem::Event(event) if event.sequence() == 3 => {
                    let note = display.screen.agents()[0].items.last();
                    let void = "the text above is void";
                    let says =
                        matches!(note, Some(ConversationItem::Note(note)) if note.contains(void));
                    assert_eq!(says, heard_before_failure, "{order:#?}");
                }
                FeedItem::Event(_) => {}
            }
        }
        let shown = display.visible_text();
        assert_eq!(shown.matches("Second try.").count(), 1, "{shown}");
        assert_eq!(display.screen.agents()[0].coming, "");
    });
}

#[test]
fn a_reply_that_breaks_off_stays_on_the_screen() {
    let mut display = live_display();
    let events = [run_event(1, user_message()), run_event(2, started(1))];
    let coming = pieces(2, &["Half a ", "sentence"]);
    for item in coming.iter().chain(&events) {
        display.apply_item(item);
    }
    let failed = SessionEvent::InferenceFailed {
        code: ModelErrorKind::Connection,
        error: "gone".to_owned(),
        retry_in_ms: None,
    };
    display.apply_item(&run_event(3, failed));
    let shown = display.visible_text();
    // The summary below it says why.
    assert_eq!(shown.matches("Half a sentence").count(), 1, "{shown}");
}
