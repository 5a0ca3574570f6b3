//! A conversation as a Markdown file.

use std::fmt::Write;

use super::{app::ChatSetup, text};
use crate::show::{
    render::result::outcome_text,
    screen::{AgentView, ConversationItem, SessionScreen},
};

/// Renders the conversation as Markdown.
pub(crate) fn export_markdown(
    screen: &SessionScreen,
    agent: &AgentView,
    setup: &ChatSetup,
) -> String {
    let mut page = format!("# Session {}\n", setup.session);
    for item in &agent.items {
        let _ = match item {
            ConversationItem::User { text, .. } => {
                write!(page, "\n## {}\n\n{}\n", setup.me, text.trim_end())
            }
            ConversationItem::Model(text) => write!(page, "\n{}\n", text.trim_end()),
            ConversationItem::Note(text) => write!(page, "\n> {}\n", text::one_line(text)),
            ConversationItem::Call(id) => match screen.call(*id) {
                Some(call) => {
                    let arguments = call
                        .arguments
                        .as_ref()
                        .map(|json| text::arguments_line(json.as_value()));
                    let state = outcome_text(call);
                    // A backtick would end the code span.
                    let arguments = arguments.unwrap_or_default().replace('`', "'");
                    write!(
                        page,
                        "\n- `{} {arguments}`: {state}\n",
                        call.invocation.tool
                    )
                }
                None => Ok(()),
            },
        };
    }
    page
}
