//! Markdown of messages as HTML: a short list of elements, and everything else is text.

use base64::{Engine, engine::general_purpose::STANDARD};
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use toolgate_core::{Media, MediaSource};

use super::visible;

/// The longest text that is parsed as Markdown. A longer one is shown as it is.
const MARKDOWN_BYTES: usize = 256 * 1024;

/// The deepest nesting of elements: a message cannot make the page too deep for a browser.
const MAX_DEPTH: usize = 50;

/// Renders a message.
pub(super) fn render_markdown(text: &str) -> Markup {
    if text.len() > MARKDOWN_BYTES {
        return html! { pre { (visible(text)) } };
    }
    let text = visible(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut page = MessageHtml::default();
    for event in Parser::new_ext(&text, options) {
        page.add_event(event);
    }
    while let Some(end) = page.open.pop() {
        page.out.push_str(end);
    }
    html! { div.text { (PreEscaped(page.out)) } }
}

/// The HTML of a message. Only [`MessageHtml::add_text`] adds what the message says, escaped; elements
/// come from the fixed texts below.
#[derive(Default)]
struct MessageHtml {
    out: String,
    /// The ends of the elements that are open.
    open: Vec<&'static str>,
    /// The number of elements that were left out because they are too deep.
    skipped: usize,
    in_head: bool,
}

impl MessageHtml {
    fn add_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(end) => self.end(end),
            // Elements in a message are shown as the text that they are.
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.add_text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.out.push_str("<code>");
                self.add_text(&text);
                self.out.push_str("</code>");
            }
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>"),
            Event::Rule => self.out.push_str("<hr>"),
            Event::FootnoteReference(text) => self.add_text(&text),
            Event::TaskListMarker(done) => self.add_text(if done { "[x] " } else { "[ ] " }),
        }
    }

    fn add_text(&mut self, text: &str) {
        let escaped = html! { (text) };
        self.out.push_str(&escaped.into_string());
    }

    fn start(&mut self, tag: &Tag<'_>) {
        if self.skipped > 0 || self.open.len() >= MAX_DEPTH {
            self.skipped += 1;
            return;
        }
        let (start, end) = match tag {
            Tag::Paragraph => ("<p>", "</p>"),
            // One level below the headings of the page.
            Tag::Heading { level, .. } => match level {
                HeadingLevel::H1 => ("<h2>", "</h2>"),
                HeadingLevel::H2 => ("<h3>", "</h3>"),
                _ => ("<h4>", "</h4>"),
            },
            Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(kind) => return self.start_code(kind),
            Tag::List(Some(_)) => ("<ol>", "</ol>"),
            Tag::List(None) => ("<ul>", "</ul>"),
            Tag::Item => ("<li>", "</li>"),
            Tag::Table(_) => ("<div class=\"wide\"><table>", "</table></div>"),
            Tag::TableHead => {
                self.in_head = true;
                ("<tr>", "</tr>")
            }
            Tag::TableRow => ("<tr>", "</tr>"),
            Tag::TableCell if self.in_head => ("<th>", "</th>"),
            Tag::TableCell => ("<td>", "</td>"),
            Tag::Emphasis => ("<em>", "</em>"),
            Tag::Strong => ("<strong>", "</strong>"),
            Tag::Strikethrough => ("<del>", "</del>"),
            Tag::Link { dest_url, .. } => return self.start_link(dest_url),
            // An image would be a request; its text is shown.
            Tag::Image { .. } => ("<span class=\"image\">image: ", "</span>"),
            Tag::HtmlBlock => ("<p>", "</p>"),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => ("<div>", "</div>"),
        };
        self.push(start, end);
    }

    fn push(&mut self, start: &str, end: &'static str) {
        self.out.push_str(start);
        self.open.push(end);
    }

    fn start_code(&mut self, kind: &CodeBlockKind<'_>) {
        if let CodeBlockKind::Fenced(language) = kind
            && !language.is_empty()
        {
            self.out.push_str("<p class=\"language\">");
            self.add_text(language);
            self.out.push_str("</p>");
        }
        self.push("<pre><code>", "</code></pre>");
    }

    /// Starts a link to a page. Any other link, a script for example, is text.
    fn start_link(&mut self, target: &str) {
        let lower = target.to_ascii_lowercase();
        let is_page = ["https://", "http://", "mailto:"]
            .iter()
            .any(|start| lower.starts_with(start));
        if !is_page {
            return self.push("<span class=\"link\">", "</span>");
        }
        let link = html! { a href=(target) rel="noopener noreferrer nofollow" {} };
        let link = link.into_string();
        self.push(link.strip_suffix("</a>").unwrap_or_default(), "</a>");
    }

    fn end(&mut self, end: TagEnd) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        if end == TagEnd::TableHead {
            self.in_head = false;
        }
        if let Some(text) = self.open.pop() {
            self.out.push_str(text);
        }
    }
}

/// Renders an image of a message. Other files are named.
pub(super) fn render_media(media: &Media) -> Markup {
    let kinds = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    let is_image = kinds.contains(&media.media_type.as_str());
    let data = match &media.source {
        MediaSource::Data(data) if is_image && STANDARD.decode(data).is_ok() => Some(data),
        MediaSource::Data(_) | MediaSource::Url(_) => None,
    };
    let name = visible(media.name.as_deref().unwrap_or(&media.media_type));
    html! {
        @match data {
            Some(data) => img alt=(name) src=(format!("data:{};base64,{data}", media.media_type));,
            None => p.note { "file: " (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        render_markdown(text).into_string()
    }

    #[test]
    fn elements_in_a_message_are_text() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div onclick=\"x\">\n\n**b**\n\n</div>",
            "<!-- x --><svg/onload=alert(1)>",
            "```html\n<script>\n```",
            "`<script>`",
            "| <script> |\n|---|\n| <b> |",
        ] {
            let page = render(text);
            for element in ["<script", "<img", "<svg", "<div o", "<!--", "<b>"] {
                assert!(!page.contains(element), "{page}");
            }
        }
    }

    #[test]
    fn only_links_to_pages_are_links() {
        assert!(
            render("[a](https://example.org/?a=1&b=\"x)").contains("href=\"https://example.org/")
        );
        for text in [
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert(1))",
            "[a](data:text/html,x)",
            "<javascript:alert(1)>",
            "[a](//evil.example)",
            "[a](&#106;avascript:alert(1))",
        ] {
            assert!(!render(text).contains("href"), "{}", render(text));
        }
        assert!(
            !render("![a](https://example.org/x.png)").contains("<img"),
            "no request"
        );
    }

    #[test]
    fn a_quote_cannot_leave_an_attribute() {
        let page = render("[a](https://example.org/%22onmouseover=alert(1)// \"t\")");
        assert!(!page.contains("\"onmouseover"), "{page}");
        let page = render("[a](<https://example.org/\" onmouseover=\"alert(1)>)");
        assert!(!page.contains("\" onmouseover=\""), "{page}");
    }

    #[test]
    fn deep_nesting_is_bounded_and_balanced() {
        let page = render(&"> ".repeat(5_000));
        assert!(page.matches("<blockquote>").count() <= MAX_DEPTH);
        assert_eq!(
            page.matches("<blockquote>").count(),
            page.matches("</blockquote>").count()
        );
    }
}
