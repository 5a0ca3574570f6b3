//! One agent's conversation in lines: laid out only where somebody looks, and remembered until the width changes.
//!
//! The place is kept as an item and a line in it, not as a number of lines from the top. So nothing has to be laid out
//! that is not shown, whether the session has ten events or ten thousand, and what is read stays where it is while more
//! comes in below.

use std::sync::Arc;

use ratatui::text::Line;
use toolgate::Timestamp;

use super::view::item;
use crate::screen::{AgentView, CallState, Item, Screen};

/// Lines of one item.
pub(crate) type Block = Arc<[Line<'static>]>;

/// One agent's conversation in lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    width: u16,
    blocks: Vec<Option<Block>>,
    /// What was last laid out of the reply that is still coming: how long it was then.
    coming: Option<((usize, usize), Block)>,
    scroll: Scroll,
}

/// Which part is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// The end, whatever comes.
    #[default]
    Follow,
    /// From this line of this item on.
    At {
        /// Which item.
        item: usize,
        /// Which of its lines.
        line: usize,
    },
}

/// What a transcript is laid out from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) screen: &'a Screen,
    pub(crate) agent: &'a AgentView,
    pub(crate) now: Timestamp,
    pub(crate) thinking: bool,
}

impl Source<'_> {
    /// How many items there are, with the reply that is still coming.
    fn len(&self) -> usize {
        self.agent.items.len() + 1
    }
}

impl Transcript {
    /// Which part is shown.
    pub(crate) fn scroll(&self) -> Scroll {
        self.scroll
    }

    /// How many items were laid out since the width last changed.
    #[cfg(test)]
    pub(crate) fn laid_out(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    /// Lays out anew from here on, if the width has changed.
    pub(crate) fn set_width(&mut self, width: u16) {
        if self.width != width {
            (self.width, self.coming) = (width, None);
            self.blocks.clear();
            if let Scroll::At { line, .. } = &mut self.scroll {
                *line = 0;
            }
        }
    }

    /// The lines that are shown, each with the item it belongs to.
    pub(crate) fn window(
        &mut self,
        source: Source<'_>,
        height: usize,
    ) -> Vec<(usize, Line<'static>)> {
        let (mut item, mut skip) = match self.scroll {
            Scroll::Follow => self.top_of_end(source, height),
            Scroll::At { item, line } => (item, line),
        };
        let mut lines = Vec::with_capacity(height);
        while item < source.len() && lines.len() < height {
            let block = self.block(source, item);
            lines.extend(
                block
                    .iter()
                    .skip(skip)
                    .take(height - lines.len())
                    .map(|line| (item, line.clone())),
            );
            (item, skip) = (item + 1, 0);
        }
        lines
    }

    /// Moves up.
    pub(crate) fn up(&mut self, source: Source<'_>, lines: usize, height: usize) {
        let (mut item, mut line) = match self.scroll {
            Scroll::Follow => self.top_of_end(source, height),
            Scroll::At { item, line } => (item, line),
        };
        for _ in 0..lines {
            match (item, line) {
                (0, 0) => break,
                (_, 0) => {
                    item -= 1;
                    let len = self.block(source, item).len();
                    line = len.saturating_sub(1);
                }
                _ => line -= 1,
            }
        }
        // What fits on the screen has nothing above it.
        self.scroll = match self.top_of_end(source, height) {
            (0, 0) => Scroll::Follow,
            _ => Scroll::At { item, line },
        };
    }

    /// Moves down; at the end it is followed from then on.
    pub(crate) fn down(&mut self, source: Source<'_>, lines: usize, height: usize) {
        let Scroll::At { mut item, mut line } = self.scroll else {
            return;
        };
        for _ in 0..lines {
            line += 1;
            while item < source.len() && line >= self.block(source, item).len() {
                (item, line) = (item + 1, 0);
            }
        }
        self.scroll = match (item, line) >= self.top_of_end(source, height) {
            true => Scroll::Follow,
            false => Scroll::At { item, line },
        };
    }

    /// Shows the beginning.
    pub(crate) fn top(&mut self) {
        self.scroll = Scroll::At { item: 0, line: 0 };
    }

    /// Follows the end.
    pub(crate) fn end(&mut self) {
        self.scroll = Scroll::Follow;
    }

    /// Shows an item, from the first line on that `wanted` says yes to.
    pub(crate) fn show(
        &mut self,
        source: Source<'_>,
        item: usize,
        height: usize,
        wanted: impl Fn(&Line<'_>) -> bool,
    ) {
        let line = self
            .block(source, item)
            .iter()
            .position(wanted)
            .unwrap_or_default();
        self.scroll = Scroll::At { item, line };
        // A bit of what came before, if there is room for it.
        self.up(source, height / 3, height);
        if let Scroll::At { item, line } = self.scroll
            && (item, line) >= self.top_of_end(source, height)
        {
            self.scroll = Scroll::Follow;
        }
    }

    /// Where the window begins that shows the end.
    fn top_of_end(&mut self, source: Source<'_>, height: usize) -> (usize, usize) {
        let mut room = height;
        for item in (0..source.len()).rev() {
            let len = self.block(source, item).len();
            if len >= room {
                return (item, len - room);
            }
            room -= len;
        }
        (0, 0)
    }

    fn block(&mut self, source: Source<'_>, item: usize) -> Block {
        let Some(shown) = source.agent.items.get(item) else {
            return self.coming(source);
        };
        if let Some(Some(block)) = self.blocks.get(item) {
            return block.clone();
        }
        let block: Block = item::lines(source, item, self.width).into();
        if is_final(source.screen, shown) {
            self.blocks.resize(self.blocks.len().max(item + 1), None);
            self.blocks[item] = Some(block.clone());
        }
        block
    }

    fn coming(&mut self, source: Source<'_>) -> Block {
        let thoughts = if source.thinking {
            source.agent.thinking.len()
        } else {
            0
        };
        let size = (source.agent.coming.len(), thoughts);
        match &self.coming {
            Some((known, block)) if *known == size => block.clone(),
            _ => {
                let block: Block = item::coming(source, self.width).into();
                self.coming = Some((size, block.clone()));
                block
            }
        }
    }
}

/// Whether it will look like this from now on.
fn is_final(screen: &Screen, item: &Item) -> bool {
    match item {
        Item::Call(id) => screen
            .call(*id)
            .is_none_or(|call| matches!(call.state, CallState::Settled(_))),
        Item::User { .. } | Item::Model(_) | Item::Note(_) => true,
    }
}
