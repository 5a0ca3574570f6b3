//! Text in lines of a given width: graphemes stay whole, wide characters count as wide, nothing
//! controls the terminal.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use toolgate::approval::ShownRequest;
use unicode_width::UnicodeWidthStr;

use crate::show::{render, screen::CallView};

/// Joins text into one line that is safe to draw: nothing in it controls the terminal.
pub(crate) fn one_line(text: &str) -> String {
    crate::env::style::escape_controls(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Truncates a line to `width`; a truncated line ends with `…`.
pub(crate) fn truncate_line(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    render::StyledLine::plain(text).clip(width).text()
}

/// Wraps text in lines of at most `width` cells, between words where possible.
pub(crate) fn wrap_text(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let rows =
        |line: &str| render::StyledLine::plain(line).wrap(width.max(2), &render::StyledLine::new());
    let styled = |row: render::StyledLine| Line::from(Span::styled(row.text(), style));
    text.lines().flat_map(rows).map(styled).collect()
}

/// Renders Markdown of a model.
pub(crate) fn markdown_lines(text: &str, width: usize) -> Vec<Line<'static>> {
    render::render_markdown(text, width)
        .into_iter()
        .map(convert_line)
        .collect()
}

/// Renders the first or last lines of a command's output.
pub(crate) fn output_lines(call: &CallView, width: usize) -> Vec<Line<'static>> {
    let rows = render::render_output(call, render::OutputRows::Few, width);
    rows.into_iter().map(convert_line).collect()
}

/// Renders what an approver sees of a request.
pub(crate) fn shown_lines(shown: &ShownRequest, width: usize) -> Vec<Line<'static>> {
    let rows = render::render_shown(shown, width);
    rows.into_iter().map(convert_line).collect()
}

pub(crate) fn convert_line(line: render::StyledLine) -> Line<'static> {
    line.spans
        .into_iter()
        .map(|span| Span::styled(span.text, convert_style(span.style)))
        .collect()
}

/// Converts a style of the renderers: the sixteen colours and the effects that they use.
pub(crate) fn convert_style(from: anstyle::Style) -> Style {
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
    style.fg = from.get_fg_color().and_then(convert_color);
    style.bg = from.get_bg_color().and_then(convert_color);
    style
}

fn convert_color(from: anstyle::Color) -> Option<Color> {
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

/// Puts a prefix before the first line, and as much space before the others.
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

/// Formats a number with thousands separators.
pub(crate) fn format_thousands(number: u64) -> String {
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
            texts(&wrap_text("one two three", 8, Style::new())),
            ["one two", "three"]
        );
        assert_eq!(
            texts(&wrap_text("abcdefgh", 3, Style::new())),
            ["abc", "def", "gh"]
        );
        assert_eq!(texts(&wrap_text("a\n\nb", 9, Style::new())), ["a", "", "b"]);
    }

    #[test]
    fn wide_characters_count_as_wide_and_stay_whole() {
        for line in texts(&wrap_text("日本語のテキスト👨‍👩‍👧‍👦 and 👍🏽", 7, Style::new()))
        {
            assert!(line.width() <= 7, "{line}");
        }
        assert_eq!(truncate_line("日本語", 5), "日本…");
        assert_eq!(truncate_line("日本語", 6), "日本語");
        assert_eq!(truncate_line("ab", 0), "");
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            (format_thousands(0), format_thousands(1234567)),
            ("0".into(), "1,234,567".into())
        );
    }
}
