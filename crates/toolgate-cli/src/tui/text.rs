//! Text in lines of a given width: graphemes stay whole, wide characters count as wide, nothing steers the terminal.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::render;

/// Text in one line that is safe to draw: nothing in it steers the terminal.
pub(crate) fn one_line(text: &str) -> String {
    crate::style::plain(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// As much of a line as fits, with a sign that something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    render::Line::plain(text).clip(width).text()
}

/// Text in lines of at most `width` cells, broken between words where there are any.
pub(crate) fn wrap(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let rows = |line: &str| render::Line::plain(line).wrap(width.max(2), &render::Line::new());
    let styled = |row: render::Line| Line::from(Span::styled(row.text(), style));
    text.lines().flat_map(rows).map(styled).collect()
}

/// What a model wrote, in lines.
pub(crate) fn markdown(text: &str, width: usize) -> Vec<Line<'static>> {
    render::markdown(text, width)
        .into_iter()
        .map(line)
        .collect()
}

/// A diff, in lines.
pub(crate) fn diff(text: &str, width: usize) -> Vec<Line<'static>> {
    let rows = |line: render::Line| line.wrap(width.max(2), &render::Line::plain("  "));
    render::diff(text)
        .into_iter()
        .flat_map(rows)
        .map(line)
        .collect()
}

fn line(line: render::Line) -> Line<'static> {
    line.spans
        .into_iter()
        .map(|span| Span::styled(span.text, style(span.style)))
        .collect()
}

/// The same style in the words of the terminal UI: the sixteen colours and the effects that the renderers use.
pub(crate) fn style(from: anstyle::Style) -> Style {
    let effects = [
        (anstyle::Effects::BOLD, Modifier::BOLD),
        (anstyle::Effects::DIMMED, Modifier::DIM),
        (anstyle::Effects::ITALIC, Modifier::ITALIC),
        (anstyle::Effects::UNDERLINE, Modifier::UNDERLINED),
        (anstyle::Effects::STRIKETHROUGH, Modifier::CROSSED_OUT),
        (anstyle::Effects::INVERT, Modifier::REVERSED),
    ];
    let mut style = Style::new();
    for (effect, modifier) in effects {
        if from.get_effects().contains(effect) {
            style = style.add_modifier(modifier);
        }
    }
    style.fg = from.get_fg_color().and_then(color);
    style.bg = from.get_bg_color().and_then(color);
    style
}

fn color(from: anstyle::Color) -> Option<Color> {
    let index = match from {
        anstyle::Color::Ansi(color) => anstyle::Ansi256Color::from_ansi(color).index(),
        anstyle::Color::Ansi256(color) => color.index(),
        anstyle::Color::Rgb(rgb) => return Some(Color::Rgb(rgb.r(), rgb.g(), rgb.b())),
    };
    Some(match index {
        0 => Color::Black,
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        8 => Color::DarkGray,
        other => Color::Indexed(other),
    })
}

/// Puts something in front of the first line, and as much room in front of the others.
pub(crate) fn with_lead(lead: Span<'static>, lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    let room = " ".repeat(lead.content.width());
    let mut lead = Some(lead);
    let put = |mut line: Line<'static>| {
        line.spans
            .insert(0, lead.take().unwrap_or_else(|| Span::raw(room.clone())));
        line
    };
    lines.into_iter().map(put).collect()
}

/// What a call is called with, in a few words.
pub(crate) fn arguments_line(arguments: &Value) -> String {
    one_line(&render::arguments::in_short(arguments))
}

/// A value for people to read: text as text, everything else as indented JSON.
pub(crate) fn readable(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

/// A number with its thousands set apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_break_between_words_and_inside_only_what_is_too_long() {
        assert_eq!(
            texts(&wrap("one two three", 8, Style::new())),
            ["one two", "three"]
        );
        assert_eq!(
            texts(&wrap("abcdefgh", 3, Style::new())),
            ["abc", "def", "gh"]
        );
        assert_eq!(texts(&wrap("a\n\nb", 9, Style::new())), ["a", "", "b"]);
    }

    #[test]
    fn wide_characters_count_as_wide_and_stay_whole() {
        for line in texts(&wrap("日本語のテキスト👨‍👩‍👧‍👦 and 👍🏽", 7, Style::new()))
        {
            assert!(line.width() <= 7, "{line}");
        }
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("ab", 0), "");
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            (thousands(0), thousands(1234567)),
            ("0".into(), "1,234,567".into())
        );
    }
}
