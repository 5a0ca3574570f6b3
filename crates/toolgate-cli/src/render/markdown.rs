//! Markdown as lines of a terminal: wrapped at a width, with wide characters where they belong.

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Line, table::Table};

const CODE: Style = AnsiColor::Cyan.on_default();
const LINK: Style = AnsiColor::Blue.on_default().underline();
const HEADING: Style = Style::new().bold().underline();
const DIM: Style = Style::new().dimmed();

/// What a model wrote, as lines of at most `width` columns. Nothing in it can steer the terminal: links are shown with
/// where they lead, HTML as it is written, pictures by what is said about them.
pub fn markdown(text: &str, width: usize) -> Vec<Line> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer {
        width: width.max(10),
        ..Writer::default()
    };
    for event in Parser::new_ext(text, options) {
        writer.event(event);
    }
    writer.end_block();
    while writer.lines.last().is_some_and(Line::is_blank) {
        writer.lines.pop();
    }
    writer.lines
}

#[derive(Default)]
struct Writer {
    width: usize,
    lines: Vec<Line>,
    /// The line that is being written.
    line: Line,
    /// The styles that hold, each with what was around it.
    styles: Vec<Style>,
    /// What stands before every line: marks of quotes, blanks of lists.
    margins: Vec<Line>,
    /// What stands before the next line in place of the innermost margin: the mark of a list item.
    mark: Option<Line>,
    /// The numbers of the lists that are open; none for a list without numbers.
    lists: Vec<Option<u64>>,
    /// Where the links and pictures that are open lead, and how much of the line came before them.
    links: Vec<(String, usize)>,
    in_code: bool,
    table: Option<Table>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => self.code_block(&text),
            Event::Text(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => {
                self.text(&text);
            }
            Event::Html(text) => text.lines().for_each(|line| {
                self.text(line);
                self.end_line();
            }),
            Event::Code(text) => self.put(
                &text,
                CODE.effects(CODE.get_effects() | self.style().get_effects()),
            ),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
            Event::SoftBreak => self.text(" "),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.begin_block();
                self.line = Line::styled(&"─".repeat(self.room().min(40)), DIM);
                self.end_block();
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.styles.push(HEADING);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.margins.push(Line::styled("│ ", DIM));
            }
            Tag::CodeBlock(_) => {
                self.begin_block();
                self.margins.push(Line::plain("  "));
                self.in_code = true;
            }
            Tag::List(first) => {
                self.end_line();
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Emphasis => self.styles.push(self.style().italic()),
            Tag::Strong => self.styles.push(self.style().bold()),
            Tag::Strikethrough => self.styles.push(self.style().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links
                    .push((dest_url.into_string(), self.line.text().len()));
                self.styles.push(LINK);
            }
            Tag::Table(_) => {
                self.begin_block();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => self.in_table(Table::begin_row),
            Tag::TableCell => {}
            Tag::FootnoteDefinition(name) => {
                self.begin_block();
                self.text(&format!("[{name}] "));
            }
            Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::FootnoteDefinition => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => self.leave(),
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.leave();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.end_block();
                }
            }
            TagEnd::Item => {
                self.end_line();
                // An item without words has only its mark.
                if self.mark.is_some() {
                    self.line = Line::plain(" ");
                    self.end_line();
                }
                self.margins.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::Table => self.end_table(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                self.in_table(|table| table.cell(cell));
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn item(&mut self) {
        self.end_line();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        let mark = Line::styled(&mark, AnsiColor::Yellow.on_default());
        self.margins.push(Line::plain(&" ".repeat(mark.width())));
        self.mark = Some(mark);
    }

    fn end_link(&mut self) {
        self.styles.pop();
        let Some((target, start)) = self.links.pop() else {
            return;
        };
        let text = self.line.text();
        let shown = text.get(start..).unwrap_or_default();
        if !target.is_empty() && shown != target && target.strip_prefix("mailto:") != Some(shown) {
            self.put(&format!(" ({target})"), DIM);
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        for line in table.lines(self.room()) {
            self.write_row(line);
        }
        self.lines.push(Line::new());
    }

    fn in_table(&mut self, act: impl FnOnce(&mut Table)) {
        if let Some(table) = &mut self.table {
            act(table);
        }
    }

    fn code_block(&mut self, text: &str) {
        for line in text.lines() {
            self.line = Line::styled(line, CODE);
            if line.is_empty() {
                self.write_row(Line::new());
            }
            self.end_line();
        }
    }

    fn text(&mut self, text: &str) {
        self.put(text, self.style());
    }

    fn put(&mut self, text: &str, style: Style) {
        // Blanks at the start of a line come from a break in the source.
        let text = if self.line.spans.is_empty() {
            text.trim_start_matches(' ')
        } else {
            text
        };
        self.line.push(text, style);
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn room(&self) -> usize {
        let margin: usize = self.margins.iter().map(Line::width).sum();
        self.width.saturating_sub(margin).max(8)
    }

    /// Leaves an empty line before a block, but none at the start of anything.
    fn begin_block(&mut self) {
        self.end_line();
        let is_first = self.lines.last().is_none_or(Line::is_blank) || self.mark.is_some();
        if !is_first && self.lists.is_empty() {
            self.write_row(Line::new());
        }
    }

    fn end_block(&mut self) {
        self.end_line();
        if self.lists.is_empty()
            && self.margins.is_empty()
            && self.lines.last().is_some_and(|line| !line.is_blank())
        {
            self.lines.push(Line::new());
        }
    }

    /// Leaves a block that has a margin.
    fn leave(&mut self) {
        self.end_line();
        while self
            .lines
            .last()
            .is_some_and(|line| line.text().trim_end_matches(['│', ' ']).is_empty())
        {
            self.lines.pop();
        }
        self.margins.pop();
        self.end_block();
    }

    fn end_line(&mut self) {
        if self.line.spans.is_empty() {
            return;
        }
        let line = std::mem::take(&mut self.line);
        for row in line.wrap(self.room(), &Line::new()) {
            self.write_row(row);
        }
    }

    fn write_row(&mut self, row: Line) {
        let mut line = Line::new();
        let inner = self.margins.len().saturating_sub(1);
        for (at, margin) in self.margins.iter().enumerate() {
            let mark = (at == inner).then(|| self.mark.take()).flatten();
            line.extend(mark.unwrap_or_else(|| margin.clone()));
        }
        line.extend(row);
        self.lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize) -> Vec<String> {
        markdown(text, width)
            .iter()
            .map(|line| line.text().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn paragraphs_are_wrapped_and_kept_apart() {
        let text = "# Title\nSome *words* that\nare long.\n\nAnother `paragraph`.";
        assert_eq!(
            shown(text, 16),
            [
                "Title",
                "",
                "Some words that",
                "are long.",
                "",
                "Another",
                "paragraph."
            ]
        );
    }

    #[test]
    fn lists_keep_their_marks_and_what_is_under_them() {
        let text = "1. one is long enough\n   - inner\n   - more\n2. two\n\nEnd";
        assert_eq!(
            shown(text, 14),
            [
                "1. one is long",
                "   enough",
                "   • inner",
                "   • more",
                "2. two",
                "",
                "End"
            ]
        );
        assert_eq!(
            shown("- [x] done\n- [ ] open\n-\n- a\n\n  b", 20),
            ["• [x] done", "• [ ] open", "•", "• a", "  b"]
        );
    }

    #[test]
    fn code_is_kept_line_by_line() {
        let text = "Run:\n\n```sh\ncargo test\n\n  --all\n```\nThen look.";
        assert_eq!(
            shown(text, 40),
            [
                "Run:",
                "",
                "  cargo test",
                "",
                "    --all",
                "",
                "Then look."
            ]
        );
    }

    #[test]
    fn quotes_are_marked_on_every_line() {
        assert_eq!(
            shown("> one two three\n>\n> four", 10),
            ["│ one two", "│ three", "│", "│ four"]
        );
    }

    #[test]
    fn links_say_where_they_lead() {
        assert_eq!(
            shown("[here](https://x.org/a) <https://y.org>", 60),
            ["here (https://x.org/a) https://y.org"]
        );
        assert_eq!(shown("![a cat](cat.png)", 60), ["a cat (cat.png)"]);
    }

    #[test]
    fn no_line_is_wider_than_it_may_be() {
        let text = "# 日本語の見出しはとても長い\n\n- 絵文字 👩‍👩‍👧 のリスト項目です\n\n| a | 日本 |\n|---|---|\n| some long words | 界 |\n\n> quoted text that goes on";
        for width in [10, 12, 17, 23, 60] {
            for line in markdown(text, width) {
                assert!(line.width() <= width, "{:?} in {width}", line.text());
            }
        }
    }

    #[test]
    fn nothing_that_is_written_can_steer_the_terminal() {
        let text = "a\u{1b}[2J `\u{1b}]0;x\u{7}`\n\n```\n\u{1b}[31m\n```\n\n[x](https://e.org/\u{1b}[0m)\n\n<b>bold</b>";
        let all = shown(text, 80).join("\n");
        assert!(!all.contains('\u{1b}') && !all.contains('\u{7}'), "{all:?}");
        assert!(all.contains("<b>bold</b>"), "{all:?}");
    }
}
