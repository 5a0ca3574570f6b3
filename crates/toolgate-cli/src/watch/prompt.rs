//! The approval prompt: which question is asked, which key means what. Pure; the display carries out what it says.

use std::{collections::HashSet, sync::Arc};

use anstyle::{AnsiColor, Style};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toolgate::{ApprovalRequest, Arguments, CallId};

use super::rule::{Draft, Place, Reach};
use crate::{render::Line, screen::Screen};

const KEY: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// The questions that wait, and how far somebody is in answering one.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    questions: Vec<Arc<ApprovalRequest>>,
    at: usize,
    mode: Mode,
    /// Questions that were put off, each as it was asked.
    skipped: HashSet<(CallId, u32)>,
    /// Questions that were answered, until the log says so too.
    answered: HashSet<(CallId, u32)>,
}

/// How far somebody is in answering.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    Choosing,
    /// Writes why not.
    Reason(String),
    /// Has changed the arguments and confirms them.
    Edited(Arguments),
    /// Makes a rule.
    Rule(Box<Draft>),
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    /// Shows a question in full.
    Show(Arc<ApprovalRequest>),
    /// Approves.
    Approve(Arc<ApprovalRequest>),
    /// Approves with other arguments.
    ApproveEdited(Arc<ApprovalRequest>, Arguments),
    /// Denies, perhaps with a reason.
    Deny(Arc<ApprovalRequest>, Option<String>),
    /// Lets somebody change the arguments.
    Edit(Arc<ApprovalRequest>),
    /// Says what each layer thinks of the call.
    Explain(Arc<ApprovalRequest>),
    /// Begins a rule for the call.
    Propose(Arc<ApprovalRequest>),
    /// Shows what a rule would have covered.
    Preview(Box<Draft>),
    /// Keeps a rule and approves.
    Always(Arc<ApprovalRequest>, Box<Draft>),
    /// Says which keys there are.
    Nothing,
}

impl Prompt {
    /// Takes up the questions of `screen`. Says which one is to be shown, if another one comes up.
    pub(crate) fn sync(&mut self, screen: &Screen) -> Option<Arc<ApprovalRequest>> {
        let before = self.current().map(|request| key(request));
        let waiting = screen.pending().filter_map(|call| call.question.clone());
        let open = |request: &Arc<ApprovalRequest>| {
            !self.skipped.contains(&key(request)) && !self.answered.contains(&key(request))
        };
        self.questions = waiting.filter(open).collect();
        let same = self
            .questions
            .iter()
            .position(|request| Some(key(request)) == before);
        self.at = same.unwrap_or(self.at.min(self.questions.len().saturating_sub(1)));
        if same.is_some() {
            return None;
        }
        self.mode = Mode::Choosing;
        self.current().cloned()
    }

    /// Whether this question was put off.
    pub(crate) fn is_skipped(&self, request: &ApprovalRequest) -> bool {
        self.skipped.contains(&key(request))
    }

    /// The question that is asked.
    pub(crate) fn current(&self) -> Option<&Arc<ApprovalRequest>> {
        self.questions.get(self.at)
    }

    /// Somebody changed the arguments of the question.
    pub(crate) fn edited(&mut self, request: &ApprovalRequest, arguments: Arguments) {
        if self
            .current()
            .is_some_and(|current| key(current) == key(request))
        {
            self.mode = Mode::Edited(arguments);
        }
    }

    /// A rule is proposed for the question.
    pub(crate) fn proposed(&mut self, draft: Draft) {
        if self
            .current()
            .is_some_and(|current| key(current) == key(&draft.request))
        {
            self.mode = Mode::Rule(Box::new(draft));
        }
    }

    /// The answer was not taken: the question stays.
    pub(crate) fn not_taken(&mut self, request: &ApprovalRequest) {
        self.answered.remove(&key(request));
    }

    /// What a key means now.
    pub(crate) fn key(&mut self, pressed: KeyEvent) -> Act {
        let Some(request) = self.current().cloned() else {
            return Act::Nothing;
        };
        if pressed
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return Act::Nothing;
        }
        match &mut self.mode {
            Mode::Choosing => self.choose(pressed.code, request),
            Mode::Reason(reason) => match pressed.code {
                KeyCode::Enter => {
                    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                    self.answer(Act::Deny(request.clone(), reason), &request)
                }
                KeyCode::Esc => self.back(),
                KeyCode::Backspace => {
                    reason.pop();
                    Act::Nothing
                }
                KeyCode::Char(c) => {
                    reason.push(c);
                    Act::Nothing
                }
                _ => Act::Nothing,
            },
            Mode::Edited(arguments) => match pressed.code {
                KeyCode::Char('y') => {
                    let arguments = arguments.clone();
                    self.answer(Act::ApproveEdited(request.clone(), arguments), &request)
                }
                KeyCode::Char('e') => Act::Edit(request),
                KeyCode::Char('n') | KeyCode::Esc => self.back(),
                _ => Act::Nothing,
            },
            Mode::Rule(draft) => {
                match pressed.code {
                    KeyCode::Char('s') => draft.place = Place::Session,
                    KeyCode::Char('p') => draft.place = Place::Project,
                    KeyCode::Char('g') => draft.place = Place::Everywhere,
                    KeyCode::Char('x') => draft.turn_reach(),
                    KeyCode::Char('y') => {
                        let draft = draft.clone();
                        return self.answer(Act::Always(request.clone(), draft), &request);
                    }
                    KeyCode::Char('n') | KeyCode::Esc => return self.back(),
                    _ => return Act::Nothing,
                }
                Act::Preview(draft.clone())
            }
        }
    }

    fn choose(&mut self, code: KeyCode, request: Arc<ApprovalRequest>) -> Act {
        match code {
            KeyCode::Char('y') => self.answer(Act::Approve(request.clone()), &request),
            KeyCode::Char('n') => {
                self.mode = Mode::Reason(String::new());
                Act::Nothing
            }
            KeyCode::Char('e') => Act::Edit(request),
            KeyCode::Char('a') => Act::Propose(request),
            KeyCode::Char('?') => Act::Explain(request),
            KeyCode::Char('s') => {
                self.skipped.insert(key(&request));
                self.drop_current();
                self.shown()
            }
            KeyCode::Char(digit @ '1'..='9') => self.go_to(digit as usize - '1' as usize),
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => {
                self.go_to((self.at + 1) % self.questions.len())
            }
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => {
                self.go_to((self.at + self.questions.len() - 1) % self.questions.len())
            }
            _ => Act::Nothing,
        }
    }

    fn go_to(&mut self, at: usize) -> Act {
        if at >= self.questions.len() || at == self.at {
            return Act::Nothing;
        }
        self.at = at;
        self.shown()
    }

    /// Answers once: the question is gone from here on, also before the log says so.
    fn answer(&mut self, act: Act, request: &ApprovalRequest) -> Act {
        self.answered.insert(key(request));
        self.mode = Mode::Choosing;
        act
    }

    fn drop_current(&mut self) {
        self.questions.remove(self.at);
        self.at = self.at.min(self.questions.len().saturating_sub(1));
        self.mode = Mode::Choosing;
    }

    fn shown(&self) -> Act {
        self.current().cloned().map_or(Act::Nothing, Act::Show)
    }

    fn back(&mut self) -> Act {
        self.mode = Mode::Choosing;
        Act::Nothing
    }

    /// What stands at the bottom of the screen.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let Some(request) = self.current() else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        if self.questions.len() > 1 {
            lines.extend(
                self.questions
                    .iter()
                    .enumerate()
                    .map(|(at, request)| self.listed(at, request)),
            );
        }
        lines.extend(match &self.mode {
            Mode::Choosing => {
                let asked = Line::styled(&format!("Run {}?", request.tool), Style::new().bold());
                let more = (self.questions.len() > 1).then_some(("1-9", "another"));
                let keys = [
                    ("y", "yes"),
                    ("n", "no"),
                    ("e", "edit"),
                    ("a", "always"),
                    ("?", "why"),
                    ("s", "later"),
                ];
                vec![asked, keys_line(keys.into_iter().chain(more))]
            }
            Mode::Reason(reason) => {
                let line = Line::styled("Why not? ", KEY)
                    .with(reason, Style::new())
                    .with("▏", DIM);
                vec![
                    line,
                    Line::styled("Enter denies, also without a reason; Esc goes back", DIM),
                ]
            }
            Mode::Edited(_) => vec![
                Line::styled("Run it with these arguments?", Style::new().bold()),
                keys_line([("y", "yes"), ("e", "edit again"), ("n", "back")]),
            ],
            Mode::Rule(draft) => rule_lines(draft),
        });
        lines
    }

    fn listed(&self, at: usize, request: &ApprovalRequest) -> Line {
        let here = at == self.at;
        let style = if here { Style::new().bold() } else { DIM };
        let given = crate::render::arguments::in_short(request.arguments.as_json().as_value());
        Line::styled(if here { "▸ " } else { "  " }, KEY)
            .with(&format!("{} ", at + 1), KEY)
            .with(&format!("{} {given}", request.tool), style)
    }
}

fn rule_lines(draft: &Draft) -> Vec<Line> {
    let what = match draft.reach {
        Reach::SameCall => "with these arguments",
        Reach::SameTarget => "on the same target",
    };
    let title = format!(
        "Always allow {} {what}, {}?",
        draft.request.tool,
        draft.place.words()
    );
    let reach = draft.can_reach().then_some(match draft.reach {
        Reach::SameCall => ("x", "same target"),
        Reach::SameTarget => ("x", "exactly this"),
    });
    let keys = [("s", "session"), ("p", "project"), ("g", "everywhere")];
    let rest = [("y", "save and run"), ("n", "back")];
    vec![
        Line::styled(&title, Style::new().bold()),
        keys_line(keys.into_iter().chain(reach).chain(rest)),
    ]
}

fn keys_line<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Line {
    let mut line = Line::new();
    for (key, means) in keys {
        line.push(key, KEY);
        line.push(&format!(" {means}  "), Style::new());
    }
    line
}

fn key(request: &ApprovalRequest) -> (CallId, u32) {
    (request.approval_id.call(), request.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate::{
        Annotations, Call, CallSeed, Event, Invocation, Resource, Timestamp, ToolEvent,
    };
    use toolgate_testkit::seed;

    /// A screen on which these files are about to be written.
    fn asking(paths: &[&str]) -> Screen {
        let (mut screen, mut sequence) = (Screen::new(), 0);
        for (number, path) in paths.iter().enumerate() {
            let id = CallId::new(uuid::Uuid::from_u128(10 + number as u128));
            let call = Call::new(CallSeed {
                id,
                ..seed("write_file", json!({ "path": path, "content": "x" }))
            });
            let invocation = Arc::new(Invocation {
                id: call.id,
                call_id: (*path).into(),
                tool: call.tool.clone(),
                emit_order: 0,
                turn: call.turn().clone(),
            });
            let arguments = Some(call.arguments.as_json().clone());
            let (arguments_digest, arguments_bytes) = (call.arguments.digest(), 1);
            let requested = ToolEvent::ToolRequested {
                arguments,
                arguments_digest,
                arguments_bytes,
                executor: None,
            };
            let asked = ToolEvent::ToolApprovalRequested(Box::new(ApprovalRequest::about(&call)));
            for event in [requested, asked] {
                sequence += 1;
                let event = Event::tool(sequence, Timestamp::EPOCH, invocation.clone(), event)
                    .expect("valid");
                screen.apply(&event);
            }
        }
        screen
    }

    fn press(prompt: &mut Prompt, keys: &str) -> Vec<Act> {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        keys.chars()
            .map(|c| prompt.key(KeyEvent::new(code(c), KeyModifiers::NONE)))
            .collect()
    }

    fn current(prompt: &Prompt) -> String {
        prompt
            .current()
            .map(|request| request.arguments.as_map()["path"].to_string())
            .unwrap_or_default()
    }

    #[test]
    fn nothing_is_approved_but_by_its_key() {
        for keys in ["q", "Y", "\n", " ", "yes"] {
            let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
            let request = prompt.sync(&screen).expect("asks");
            let acts = press(&mut prompt, keys);
            let approved = acts.contains(&Act::Approve(request));
            assert_eq!(approved, keys == "yes", "{keys:?}: {acts:?}");
        }
        let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
        prompt.sync(&screen);
        assert_eq!(
            prompt.key(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::ALT)),
            Act::Nothing
        );
    }

    #[test]
    fn a_question_that_was_answered_is_not_asked_again_but_for_a_new_reason() {
        let (mut prompt, screen) = (Prompt::default(), asking(&["a", "b"]));
        let first = prompt.sync(&screen).expect("asks");
        assert_eq!(press(&mut prompt, "y"), [Act::Approve(first.clone())]);
        assert!(
            prompt
                .sync(&screen)
                .is_some_and(|next| key(&next) != key(&first)),
            "the log does not say so yet"
        );
        prompt.not_taken(&first);
        prompt.sync(&screen);
        assert_eq!(prompt.questions.len(), 2);
    }

    #[test]
    fn a_reason_may_hold_the_letters_that_are_keys_elsewhere() {
        let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
        let request = prompt.sync(&screen).expect("asks");
        let acts = press(&mut prompt, "nany y\n");
        assert_eq!(
            acts.last(),
            Some(&Act::Deny(request.clone(), Some("any y".to_owned())))
        );
        assert!(
            acts[..acts.len() - 1]
                .iter()
                .all(|act| *act == Act::Nothing)
        );
        let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
        let request = prompt.sync(&screen).expect("asks");
        assert_eq!(
            press(&mut prompt, "n\n").last(),
            Some(&Act::Deny(request, None))
        );
    }

    #[test]
    fn whoever_goes_back_has_decided_nothing() {
        let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
        let request = prompt.sync(&screen).expect("asks");
        press(&mut prompt, "nwhy\u{1b}");
        prompt.edited(&request, Arguments::empty());
        assert_eq!(press(&mut prompt, "n"), [Act::Nothing]);
        prompt.proposed(Draft::new((*request).clone(), &Annotations::default()));
        assert_eq!(press(&mut prompt, "\u{1b}"), [Act::Nothing]);
        assert_eq!(press(&mut prompt, "y"), [Act::Approve(request)]);
    }

    #[test]
    fn a_new_question_does_not_push_away_the_one_that_is_being_answered() {
        let mut prompt = Prompt::default();
        let both = asking(&["a", "b"]);
        prompt.sync(&both);
        press(&mut prompt, "2");
        assert_eq!(current(&prompt), "\"b\"");
        press(&mut prompt, "nno");
        prompt.sync(&both);
        assert!(matches!(&prompt.mode, Mode::Reason(reason) if reason == "no"));
        prompt.sync(&Screen::new());
        assert!(
            prompt.lines().is_empty() && matches!(prompt.mode, Mode::Choosing),
            "it was decided elsewhere"
        );
    }

    #[test]
    fn a_rule_is_shown_again_whenever_it_changes() {
        let (mut prompt, screen) = (Prompt::default(), asking(&["a"]));
        let request = prompt.sync(&screen).expect("asks");
        let annotations = Annotations::default().with_resource(Resource::path("path"));
        prompt.proposed(Draft::new((*request).clone(), &annotations));
        let places: Vec<Place> = press(&mut prompt, "gsp")
            .into_iter()
            .filter_map(|act| match act {
                Act::Preview(draft) => Some(draft.place),
                _ => None,
            })
            .collect();
        assert_eq!(places, [Place::Everywhere, Place::Session, Place::Project]);
        let [Act::Preview(exact)] = &press(&mut prompt, "x")[..] else {
            panic!("it is shown again")
        };
        assert_eq!(exact.reach, Reach::SameCall);
        let [Act::Always(_, kept)] = &press(&mut prompt, "y")[..] else {
            panic!("it is kept")
        };
        let rule = kept.rule(
            toolgate::SessionId::new(request.approval_id.call().uuid()),
            "p",
            &"ann".into(),
            Timestamp::EPOCH,
        );
        assert_eq!(
            rule.arguments.keys().collect::<Vec<_>>(),
            ["/content", "/path"]
        );
    }
}
