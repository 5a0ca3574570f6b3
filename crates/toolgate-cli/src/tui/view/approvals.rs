//! The calls that wait for a decision, and what the selected one is about.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};
use toolgate::{ApprovalRequest, Timestamp};

use super::{
    super::{App, app::Focus, text},
    item, paint, panel,
};
use crate::{
    render::{risk, took},
    screen::CallView,
};

/// The most lines of a diff or of arguments that the panel looks at; more never fits.
const MOST_SHOWN: usize = 100;
/// The most calls that are listed at once.
const MOST_LISTED: usize = 5;

/// How many lines the panel would like to have.
pub(super) fn height(app: &App, width: u16) -> u16 {
    let waiting = app.screen.pending().count().min(MOST_LISTED);
    let about = app.asked().map_or(0, |(_, request)| {
        about(request, app.now, usize::from(width.max(8)) - 2, MOST_SHOWN).len()
    });
    u16::try_from(if waiting == 0 { 0 } else { 1 + waiting + about }).unwrap_or(u16::MAX)
}

pub(super) fn draw(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let focused = app.focus == Focus::Approvals && app.window.is_none();
    let block = panel(title(app, focused, area.width), focused).border_style(paint::WARN);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let mut lines = listed(app, width, focused, usize::from(inner.height));
    if let Some((_, request)) = app.asked() {
        let room = usize::from(inner.height).saturating_sub(lines.len());
        let mut about = about(request, app.now, width.max(8) - 2, MOST_SHOWN);
        if about.len() > room {
            about.truncate(room.saturating_sub(1));
            about.push(Line::styled("… Enter shows everything", paint::DIM));
        }
        lines.extend(text::with_lead(Span::raw("  "), about));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn title(app: &App, focused: bool, width: u16) -> String {
    let waiting = app.screen.pending().count();
    let calls = if waiting == 1 {
        "1 call waits".to_owned()
    } else {
        format!("{waiting} calls wait")
    };
    let keys = match (focused, width) {
        (true, 70..) => "y approve  n deny  e edit  a always  ? explain",
        (true, _) => "y n e a ?",
        (false, _) => "Tab to decide",
    };
    text::cut(&format!(" {calls} for you · {keys} "), usize::from(width))
}

/// The calls, around the one that is selected.
fn listed(app: &App, width: usize, focused: bool, height: usize) -> Vec<Line<'static>> {
    let waiting: Vec<&CallView> = app.screen.pending().collect();
    let chosen = app.asked().map(|(call, _)| call.invocation.id);
    let at = waiting
        .iter()
        .position(|call| Some(call.invocation.id) == chosen)
        .unwrap_or_default();
    let most = MOST_LISTED.min(height.saturating_sub(1)).max(1);
    let skip = (at + 1).saturating_sub(most);
    let row = |(number, call): (usize, &&CallView)| {
        let here = number == at;
        let sign = if here { "▸" } else { " " };
        let on_its_way = if app.deciding.contains(&call.invocation.id) {
            " …"
        } else {
            ""
        };
        let who = match &call.invocation.turn.agent_name {
            Some(name) => format!(" ({})", text::one_line(name)),
            None => String::new(),
        };
        let tool = text::one_line(call.invocation.tool.as_str());
        let row = format!(
            "{sign}{} {tool} {}{who}{on_its_way}",
            number + 1,
            item::summary(call)
        );
        let style = match (here, focused) {
            (true, true) => paint::CHOSEN,
            (true, false) => paint::BOLD,
            (false, _) => paint::PLAIN,
        };
        Line::styled(text::cut(&row, width), style)
    };
    waiting
        .iter()
        .enumerate()
        .skip(skip)
        .take(most)
        .map(row)
        .collect()
}

/// What the question says: why, how risky, until when, and what would change.
pub(crate) fn about(
    request: &ApprovalRequest,
    now: Timestamp,
    width: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let mut facts = vec![risk(request.risk).to_owned()];
    facts.extend(request.expires_at.map(|until| expiry(until, now)));
    facts.extend(
        request
            .quorum
            .as_ref()
            .map(|quorum| format!("{} have to agree", quorum.needed)),
    );
    let reason = request
        .reason
        .as_deref()
        .map(|reason| format!("{} · ", text::one_line(reason)))
        .unwrap_or_default();
    let mut lines = text::wrap(
        &format!("{reason}{}", facts.join(" · ")),
        width,
        paint::WARN,
    );
    for changed in &request.changed {
        let code = changed.code().replace('_', " ");
        lines.extend(text::wrap(
            &format!("asked again: {code}"),
            width,
            paint::BAD,
        ));
    }
    lines.extend(shown(request, width, most));
    lines
}

/// The diff if there is one, otherwise the arguments.
fn shown(request: &ApprovalRequest, width: usize, most: usize) -> Vec<Line<'static>> {
    let begin = |text: String| text.lines().take(most).collect::<Vec<_>>().join("\n");
    match &request.shown {
        Some(shown) => text::diff(&begin(text::readable(shown)), width),
        None if request.withheld => {
            text::wrap("the arguments are not shown here", width, paint::DIM)
        }
        None => text::wrap(
            &begin(text::readable(request.arguments.as_json().as_value())),
            width,
            paint::PLAIN,
        ),
    }
}

fn expiry(until: Timestamp, now: Timestamp) -> String {
    match u64::try_from(until.since(now).as_millis()) {
        Ok(ms) if until > now => format!("lapses in {}", took(ms)),
        _ => "has lapsed".to_owned(),
    }
}
