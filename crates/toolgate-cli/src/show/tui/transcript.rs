//! One agent's conversation in lines: laid out only where it is visible, and cached until the width
//! changes.
//!
//! The scroll position is an item and a line in it, not a number of lines from the top. So nothing
//! has to be laid out that is not shown, whether the session has ten events or ten thousand, and
//! the visible text stays where it is while more arrives below.

use std::sync::Arc;

use ratatui::text::Line;
use toolgate::value::Timestamp;

use super::view::item;
use crate::show::screen::{AgentView, CallState, ConversationItem, SessionScreen};

/// The lines of one item.
pub(crate) type LineBlock = Arc<[Line<'static>]>;

/// One agent's conversation in lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    width: u16,
    blocks: Vec<Option<LineBlock>>,
    /// The last layout of the streaming reply, with the reply and the lengths it was made for.
    coming: Option<((u64, usize, usize), LineBlock)>,
    scroll: ScrollPosition,
}

/// A visible line, with its place in the conversation.
#[derive(Debug, Clone)]
pub(crate) struct VisibleLine {
    /// The item.
    pub(crate) item: usize,
    /// The number of the line in it.
    pub(crate) number: usize,
    pub(crate) text: Line<'static>,
}

/// The visible part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ScrollPosition {
    /// The end, as it grows.
    #[default]
    Follow,
    /// From this line of this item on.
    At {
        /// The item.
        item: usize,
        /// The line in it.
        line: usize,
    },
}

/// The data that a transcript is laid out from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TranscriptSource<'a> {
    pub(crate) screen: &'a SessionScreen,
    pub(crate) agent: &'a AgentView,
    pub(crate) now: Timestamp,
    pub(crate) thinking: bool,
}

impl TranscriptSource<'_> {
    /// Returns the number of items, including the streaming reply.
    fn len(&self) -> usize {
        self.agent.items.len() + 1
    }
}

impl Transcript {
    /// Returns the visible part.
    pub(crate) fn scroll(&self) -> ScrollPosition {
        self.scroll
    }

    /// Returns how many items were laid out since the width last changed.
    #[cfg(test)]
    pub(crate) fn laid_out_count(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    /// Discards the layout if the width has changed.
    pub(crate) fn set_width(&mut self, width: u16) {
        if self.width != width {
            self.width = width;
            self.coming = None;
            self.blocks.clear();
            if let ScrollPosition::At { line, .. } = &mut self.scroll {
                // At another width the same line number is another place in the text.
                *line = 0;
            }
        }
    }

    /// Returns the width of the layout.
    pub(crate) fn width(&self) -> u16 {
        self.width
    }

    /// Returns the visible lines.
    pub(crate) fn visible_lines(
        &mut self,
        source: TranscriptSource<'_>,
        height: usize,
    ) -> Vec<VisibleLine> {
        let (mut item, mut skip) = match self.scroll {
            ScrollPosition::Follow => self.end_position(source, height),
            ScrollPosition::At { item, line } => (item, line),
        };
        let mut lines = Vec::with_capacity(height);
        while item < source.len() && lines.len() < height {
            let block = self.item_block(source, item);
            let shown = block.iter().enumerate().skip(skip);
            lines.extend(
                shown
                    .take(height - lines.len())
                    .map(|(number, text)| VisibleLine {
                        item,
                        number,
                        text: text.clone(),
                    }),
            );
            item += 1;
            skip = 0;
        }
        lines
    }

    /// Scrolls up.
    pub(crate) fn scroll_up(&mut self, source: TranscriptSource<'_>, lines: usize, height: usize) {
        let (mut item, mut line) = match self.scroll {
            ScrollPosition::Follow => self.end_position(source, height),
            ScrollPosition::At { item, line } => (item, line),
        };
        for _ in 0..lines {
            match (item, line) {
                (0, 0) => break,
                (_, 0) => {
                    item -= 1;
                    let len = self.item_block(source, item).len();
                    line = len.saturating_sub(1);
                }
                _ => line -= 1,
            }
        }
        // If everything fits, there is nothing above the window.
        self.scroll = match self.end_position(source, height) {
            (0, 0) => ScrollPosition::Follow,
            _ => ScrollPosition::At { item, line },
        };
    }

    /// Scrolls down; at the end, follows it from then on.
    pub(crate) fn scroll_down(
        &mut self,
        source: TranscriptSource<'_>,
        lines: usize,
        height: usize,
    ) {
        let ScrollPosition::At { mut item, mut line } = self.scroll else {
            return;
        };
        for _ in 0..lines {
            line += 1;
            while item < source.len() && line >= self.item_block(source, item).len() {
                item += 1;
                line = 0;
            }
        }
        self.scroll = if (item, line) >= self.end_position(source, height) {
            ScrollPosition::Follow
        } else {
            ScrollPosition::At { item, line }
        };
    }

    /// Scrolls to the beginning.
    pub(crate) fn scroll_to_top(&mut self) {
        self.scroll = ScrollPosition::At { item: 0, line: 0 };
    }

    /// Follows the end.
    pub(crate) fn follow_end(&mut self) {
        self.scroll = ScrollPosition::Follow;
    }

    /// Scrolls to a line of an item.
    pub(crate) fn scroll_to_line(
        &mut self,
        source: TranscriptSource<'_>,
        item: usize,
        line: usize,
        height: usize,
    ) {
        self.scroll = ScrollPosition::At { item, line };
        // Some context above it, if there is room.
        self.scroll_up(source, height / 3, height);
        if let ScrollPosition::At { item, line } = self.scroll
            && (item, line) >= self.end_position(source, height)
        {
            self.scroll = ScrollPosition::Follow;
        }
    }

    /// Returns the first item and line of the window that shows the end.
    fn end_position(&mut self, source: TranscriptSource<'_>, height: usize) -> (usize, usize) {
        let mut room = height;
        for item in (0..source.len()).rev() {
            let len = self.item_block(source, item).len();
            if len >= room {
                return (item, len - room);
            }
            room -= len;
        }
        (0, 0)
    }

    fn item_block(&mut self, source: TranscriptSource<'_>, item: usize) -> LineBlock {
        let Some(shown) = source.agent.items.get(item) else {
            return self.reply_block(source);
        };
        if let Some(Some(block)) = self.blocks.get(item) {
            return block.clone();
        }
        let block: LineBlock = item::item_lines(source, item, self.width).into();
        // An open call still changes, so it is laid out again for each frame.
        if is_final(source.screen, shown) {
            self.blocks.resize(self.blocks.len().max(item + 1), None);
            self.blocks[item] = Some(block.clone());
        }
        block
    }

    fn reply_block(&mut self, source: TranscriptSource<'_>) -> LineBlock {
        let thoughts = if source.thinking {
            source.agent.thinking.len()
        } else {
            0
        };
        let size = (source.agent.reply, source.agent.coming.len(), thoughts);
        match &self.coming {
            Some((known, block)) if *known == size => block.clone(),
            _ => {
                let block: LineBlock = item::reply_lines(source, self.width).into();
                self.coming = Some((size, block.clone()));
                block
            }
        }
    }
}

/// Checks whether an item will not change any more.
fn is_final(screen: &SessionScreen, item: &ConversationItem) -> bool {
    match item {
        ConversationItem::Call(id) => screen
            .call(*id)
            .is_none_or(|call| matches!(call.state, CallState::Settled(_))),
        ConversationItem::User { .. } | ConversationItem::Model(_) | ConversationItem::Note(_) => {
            true
        }
    }
}
