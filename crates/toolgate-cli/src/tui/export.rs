//! A conversation as a file that people read.

use std::fmt::Write;

use super::{app::Setup, text};
use crate::screen::{AgentView, CallState, Item, Screen};

/// The conversation in Markdown.
pub(crate) fn markdown(screen: &Screen, agent: &AgentView, setup: &Setup) -> String {
    let mut page = format!("# Session {}\n", setup.session);
    for item in &agent.items {
        let _ = match item {
            Item::User { text, .. } => write!(page, "\n## {}\n\n{}\n", setup.me, text.trim_end()),
            Item::Model(text) => write!(page, "\n{}\n", text.trim_end()),
            Item::Note(text) => write!(page, "\n> {}\n", text::one_line(text)),
            Item::Call(id) => match screen.call(*id) {
                Some(call) => {
                    let arguments = call
                        .arguments
                        .as_ref()
                        .map(|json| text::arguments_line(json.as_value()));
                    let state = match call.state {
                        CallState::Settled(status) => status.to_string(),
                        _ => "open".to_owned(),
                    };
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
