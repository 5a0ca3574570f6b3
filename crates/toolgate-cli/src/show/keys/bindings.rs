//! The table of key bindings.

use crossterm::event::KeyCode;

use super::{
    KeyAction, KeyBinding, KeyCombo, KeyContext, alt_key, ctrl_char, plain_char, plain_key,
};

const fn bind_keys(
    place: KeyContext,
    keys: &'static [KeyCombo],
    action: KeyAction,
    does: &'static str,
) -> KeyBinding {
    KeyBinding {
        place,
        keys,
        action,
        does,
        label: "",
    }
}

/// Binds keys that answer an approval request, with their label in the line of keys.
const fn bind_answer(
    keys: &'static [KeyCombo],
    action: KeyAction,
    label: &'static str,
    does: &'static str,
) -> KeyBinding {
    KeyBinding {
        label,
        ..bind_keys(KeyContext::Approvals, keys, action, does)
    }
}

/// The digits, which name the pending approval requests.
const DIGITS: &[KeyCombo] = &[
    plain_char('1'),
    plain_char('2'),
    plain_char('3'),
    plain_char('4'),
    plain_char('5'),
    plain_char('6'),
    plain_char('7'),
    plain_char('8'),
    plain_char('9'),
];

/// The table of key bindings.
pub const BINDINGS: &[KeyBinding] = &[
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('c')],
        KeyAction::Interrupt,
        "stop the run (it is saved); again to quit",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('q')],
        KeyAction::Quit,
        "quit",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('p')],
        KeyAction::Palette,
        "all commands",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::F(1))],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::Tab)],
        KeyAction::NextPanel,
        "next panel; approvals first",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::BackTab)],
        KeyAction::PreviousPanel,
        "previous panel",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::Esc)],
        KeyAction::Back,
        "close, or back to the message",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('n')],
        KeyAction::NextAgent,
        "next agent",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('b')],
        KeyAction::PreviousAgent,
        "previous agent",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::PageUp)],
        KeyAction::PageUp,
        "a page up",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::PageDown)],
        KeyAction::PageDown,
        "a page down",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('f')],
        KeyAction::Search,
        "search",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('g')],
        KeyAction::SearchSessions,
        "search all sessions",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('r')],
        KeyAction::Resume,
        "resume a stopped run",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('y')],
        KeyAction::Copy,
        "copy the last reply",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('s')],
        KeyAction::Save,
        "write the conversation to a file",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('t')],
        KeyAction::Thinking,
        "show or hide thinking",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('x')],
        KeyAction::Dismiss,
        "dismiss messages",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('o')],
        KeyAction::ToastAction,
        "do what the newest message offers",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('k')],
        KeyAction::CancelCall,
        "cancel the selected call, or the oldest running one",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('z')],
        KeyAction::Suspend,
        "suspend the program; `fg` returns to it",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Send,
        "send; also while the model works",
    ),
    bind_keys(
        KeyContext::Message,
        // Few terminals tell Shift-Enter from Enter; Ctrl-J is a line feed in all of them.
        &[alt_key(KeyCode::Enter), ctrl_char('j')],
        KeyAction::NewLine,
        "new line",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Up)],
        KeyAction::Earlier,
        "line up, or an earlier message",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Down)],
        KeyAction::Later,
        "line down, or a later message",
    ),
    bind_keys(
        KeyContext::Message,
        &[ctrl_char('d')],
        KeyAction::QuitIfEmpty,
        "quit, if the message is empty",
    ),
    bind_keys(
        KeyContext::EmptyMessage,
        &[plain_char('?')],
        KeyAction::Help,
        "this help",
    ),
    bind_answer(&[plain_char('y')], KeyAction::Approve, "approve", "approve"),
    bind_answer(
        &[plain_char('v')],
        KeyAction::Open,
        "view all",
        "show all of the request",
    ),
    bind_answer(
        &[plain_char('u')],
        KeyAction::ApproveUnseen,
        "approve unread",
        "approve, although it was not shown in full",
    ),
    bind_answer(
        &[plain_char('n')],
        KeyAction::Deny,
        "deny",
        "deny, with a reason",
    ),
    bind_answer(
        &[plain_char('e')],
        KeyAction::Edit,
        "edit",
        "change the arguments in $EDITOR, then approve",
    ),
    bind_answer(
        &[plain_char('a')],
        KeyAction::Always,
        "always",
        "approve this and every call like it",
    ),
    bind_answer(
        &[plain_char('A')],
        KeyAction::ApproveAll,
        "approve all",
        "show all requests, then approve them together",
    ),
    bind_answer(
        &[plain_char('?')],
        KeyAction::Explain,
        "explain",
        "explain what each layer decides",
    ),
    bind_answer(
        &[plain_char('s')],
        KeyAction::Postpone,
        "later",
        "leave it pending",
    ),
    bind_answer(
        DIGITS,
        KeyAction::Choose,
        "another",
        "go to the request with this number",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "previous request",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "next request",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Open,
        "everything about the call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "line up",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "line down",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Home), plain_char('g')],
        KeyAction::Top,
        "to the beginning",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::End), plain_char('G')],
        KeyAction::End,
        "to the end, and follow it",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('[')],
        KeyAction::PreviousCall,
        "previous call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char(']')],
        KeyAction::NextCall,
        "next call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Open,
        "everything about the call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('/')],
        KeyAction::Search,
        "search",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('n')],
        KeyAction::NextMatch,
        "next match",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('N')],
        KeyAction::PreviousMatch,
        "previous match",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('?')],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::PreviousAgent,
        "previous agent",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::NextAgent,
        "next agent",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_char('?')],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "line up",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "line down",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Home), plain_char('g')],
        KeyAction::Top,
        "to the beginning",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::End), plain_char('G')],
        KeyAction::End,
        "to the end",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_char('q')],
        KeyAction::Back,
        "close",
    ),
];
