//! Markdown as terminal lines, wrapped at a width that accounts for wide characters.

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::{StyledLine, TextTable, highlight::CodeHighlighter};
use crate::env::style::DIM;

const CODE: Style = AnsiColor::Cyan.on_default();
const LINK: Style = AnsiColor::Cyan.on_default().underline();
const HEADING: Style = Style::new().bold().underline();

/// Renders Markdown of a model in lines of at most `width` columns. Nothing in it can control the
/// terminal: links are shown with their target, HTML as source, images by their description.
pub fn render_markdown(text: &str, width: usize) -> Vec<StyledLine> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = MarkdownWriter {
        width: width.max(10),
        ..MarkdownWriter::default()
    };
    for event in Parser::new_ext(text, options) {
        writer.write_event(event);
    }
    writer.end_block();
    while writer.lines.last().is_some_and(StyledLine::is_blank) {
        writer.lines.pop();
    }
    writer.lines
}

#[derive(Default)]
struct MarkdownWriter {
    width: usize,
    lines: Vec<StyledLine>,
    /// The line that is being written.
    line: StyledLine,
    /// The open styles, each combined with the ones around it.
    styles: Vec<Style>,
    /// The prefixes of every line: marks of quotes, indentation of lists.
    margins: Vec<StyledLine>,
    /// The prefix of the next line that replaces the innermost margin: the mark of a list item.
    mark: Option<StyledLine>,
    /// The numbers of the open lists; `None` for a list without numbers.
    lists: Vec<Option<u64>>,
    /// The targets of the open links and images, each with the length of the line before it.
    links: Vec<(String, usize)>,
    /// The colours of the code block that is open.
    code: Option<CodeHighlighter>,
    table: Option<TextTable>,
}

impl MarkdownWriter {
    fn write_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start_tag(tag),
            Event::End(tag) => self.end_tag(tag),
            Event::Text(text) if self.code.is_some() => self.code_block(&text),
            Event::Text(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => {
                self.push_text(&text);
            }
            Event::Html(text) => text.lines().for_each(|line| {
                self.push_text(line);
                self.end_line();
            }),
            Event::Code(text) => self.push_styled(
                &text,
                CODE.effects(CODE.get_effects() | self.current_style().get_effects()),
            ),
            Event::FootnoteReference(name) => self.push_text(&format!("[{name}]")),
            Event::SoftBreak => self.push_text(" "),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.begin_block();
                self.line = StyledLine::styled(&"─".repeat(self.line_width().min(40)), DIM);
                self.end_block();
            }
            Event::TaskListMarker(done) => self.push_text(if done { "[x] " } else { "[ ] " }),
        }
    }

    fn start_tag(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.styles.push(HEADING);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.margins.push(StyledLine::styled("│ ", DIM));
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                self.margins.push(StyledLine::plain("  "));
                self.code = Some(match kind {
                    CodeBlockKind::Fenced(name) => CodeHighlighter::for_language(&name),
                    CodeBlockKind::Indented => CodeHighlighter::default(),
                });
            }
            Tag::List(first) => {
                self.end_line();
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Emphasis => self.styles.push(self.current_style().italic()),
            Tag::Strong => self.styles.push(self.current_style().bold()),
            Tag::Strikethrough => self.styles.push(self.current_style().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links
                    .push((dest_url.into_string(), self.line.text().len()));
                self.styles.push(LINK);
            }
            Tag::Table(_) => {
                self.begin_block();
                self.table = Some(TextTable::default());
            }
            Tag::TableHead | Tag::TableRow => self.with_table(TextTable::begin_row),
            Tag::TableCell => {}
            Tag::FootnoteDefinition(name) => {
                self.begin_block();
                self.push_text(&format!("[{name}] "));
            }
            Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end_tag(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::FootnoteDefinition => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => self.end_margin(),
            TagEnd::CodeBlock => {
                self.code = None;
                self.end_margin();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.end_block();
                }
            }
            TagEnd::Item => {
                self.end_line();
                // An item without text has only its mark.
                if self.mark.is_some() {
                    self.line = StyledLine::plain(" ");
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
                self.with_table(|table| table.push_cell(cell));
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

    fn start_item(&mut self) {
        self.end_line();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        let mark = StyledLine::styled(&mark, AnsiColor::Yellow.on_default());
        self.margins
            .push(StyledLine::plain(&" ".repeat(mark.width())));
        self.mark = Some(mark);
    }

    fn end_link(&mut self) {
        self.styles.pop();
        let Some((target, start)) = self.links.pop() else {
            return;
        };
        let text = self.line.text();
        let shown = text.get(start..).unwrap_or_default();
        // The target is printed, so that the text of a link cannot disguise it.
        if !target.is_empty() && shown != target && target.strip_prefix("mailto:") != Some(shown) {
            self.push_styled(&format!(" ({target})"), DIM);
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        for line in table.render_grid(self.line_width()) {
            self.write_row(line);
        }
        self.lines.push(StyledLine::new());
    }

    fn with_table(&mut self, act: impl FnOnce(&mut TextTable)) {
        if let Some(table) = &mut self.table {
            act(table);
        }
    }

    fn code_block(&mut self, text: &str) {
        let mut code = self.code.take().unwrap_or_default();
        for line in text.lines() {
            self.line = if code.is_known() {
                let pieces = code.split_line(line).into_iter();
                pieces.fold(StyledLine::new(), |row, (token, text)| {
                    row.with(text, token.style())
                })
            } else {
                StyledLine::styled(line, CODE)
            };
            if line.is_empty() {
                self.write_row(StyledLine::new());
            }
            self.end_line();
        }
        // A long block may arrive in several texts.
        self.code = Some(code);
    }

    fn push_text(&mut self, text: &str) {
        self.push_styled(text, self.current_style());
    }

    fn push_styled(&mut self, text: &str, style: Style) {
        // Spaces at the start of a line come from a break in the source.
        let text = if self.line.spans.is_empty() {
            text.trim_start_matches(' ')
        } else {
            text
        };
        self.line.push(text, style);
    }

    fn current_style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn line_width(&self) -> usize {
        let margin: usize = self.margins.iter().map(StyledLine::width).sum();
        self.width.saturating_sub(margin).max(8)
    }

    /// Adds an empty line before a block, except at the start.
    fn begin_block(&mut self) {
        self.end_line();
        let is_first = self.lines.last().is_none_or(StyledLine::is_blank) || self.mark.is_some();
        if !is_first && self.lists.is_empty() {
            self.write_row(StyledLine::new());
        }
    }

    fn end_block(&mut self) {
        self.end_line();
        if self.lists.is_empty()
            && self.margins.is_empty()
            && self.lines.last().is_some_and(|line| !line.is_blank())
        {
            self.lines.push(StyledLine::new());
        }
    }

    /// Ends a block that has a margin.
    fn end_margin(&mut self) {
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
        for row in line.wrap(self.line_width(), &StyledLine::new()) {
            self.write_row(row);
        }
    }

    fn write_row(&mut self, row: StyledLine) {
        let mut line = StyledLine::new();
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
        render_markdown(text, width)
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
    fn code_in_a_known_language_is_coloured_and_other_code_is_not() {
        let styles = |text: &str| -> Vec<Style> {
            let lines = render_markdown(text, 40);
            let spans = lines.iter().flat_map(|line| &line.spans).skip(1);
            spans.map(|span| span.style).collect()
        };
        let keyword = AnsiColor::Magenta.on_default();
        assert_eq!(styles("```rust\nlet x\n```"), [keyword, Style::new()]);
        assert_eq!(styles("```\nlet x\n```"), [CODE]);
    }

    #[test]
    fn quotes_are_marked_on_every_line() {
        assert_eq!(
            shown("> one two three\n>\n> four", 10),
            ["│ one two", "│ three", "│", "│ four"]
        );
    }

    #[test]
    fn links_show_their_target() {
        assert_eq!(
            shown("[here](https://x.org/a) <https://y.org>", 60),
            ["here (https://x.org/a) https://y.org"]
        );
        assert_eq!(shown("![a cat](cat.png)", 60), ["a cat (cat.png)"]);
    }

    #[test]
    fn no_line_exceeds_the_width() {
        let text = "# 日本語の見出しはとても長い\n\n- 絵文字 👩‍👩‍👧 のリスト項目です\n\n| a | 日本 |\n|---|---|\n| some long words | 界 |\n\n> quoted text that goes on";
        for width in [10, 12, 17, 23, 60] {
            for line in render_markdown(text, width) {
                assert!(line.width() <= width, "{:?} in {width}", line.text());
            }
        }
    }

    #[test]
    fn markdown_cannot_control_the_terminal() {
        let text = "a\u{1b}[2J `\u{1b}]0;x\u{7}`\n\n```\n\u{1b}[31m\n```\n\n[x](https://e.org/\u{1b}[0m)\n\n<b>bold</b>";
        let all = shown(text, 80).join("\n");
        assert!(!all.contains('\u{1b}') && !all.contains('\u{7}'), "{all:?}");
        assert!(all.contains("<b>bold</b>"), "{all:?}");
    }
}
