//! Compares the reader with a second one, which has the grammar of bash.

use brush_parser::{
    Parser, ParserOptions, ast,
    word::{self, WordPiece, WordPieceWithSource},
};
use proptest::prelude::*;

use super::{ShellWord, read_commands};

/// Reads a text with the second reader: its commands, if it has no others than simple ones.
fn read_again(text: &str) -> Option<Vec<Vec<ast::Word>>> {
    let options = ParserOptions::default();
    let program = Parser::new(std::io::Cursor::new(text), &options)
        .parse_program()
        .ok()?;
    let lists = program.complete_commands.iter().flat_map(|list| &list.0);
    let pipelines = lists.flat_map(|ast::CompoundListItem(list, _)| {
        let more = list.additional.iter().map(|next| match next {
            ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline,
        });
        std::iter::once(&list.first).chain(more)
    });
    pipelines
        .flat_map(|pipeline| &pipeline.seq)
        .map(|command| match command {
            ast::Command::Simple(command) => simple_words(command),
            _ => None,
        })
        // A redirection alone runs nothing.
        .filter(|words| words.as_ref().is_none_or(|words| !words.is_empty()))
        .collect()
}

fn simple_words(command: &ast::SimpleCommand) -> Option<Vec<ast::Word>> {
    let Some(name) = command.word_or_name.clone() else {
        return Some(Vec::new());
    };
    let mut words = vec![name];
    for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
        match item {
            ast::CommandPrefixOrSuffixItem::Word(word)
            | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => words.push(word.clone()),
            ast::CommandPrefixOrSuffixItem::IoRedirect(_) => {}
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => return None,
        }
    }
    Some(words)
}

/// Returns the text of a word without quotes, if nothing in it is expanded.
fn literal_text(word: &ast::Word) -> Option<String> {
    let pieces = word::parse(&word.value, &ParserOptions::default()).ok()?;
    join_pieces(&pieces)
}

fn join_pieces(pieces: &[WordPieceWithSource]) -> Option<String> {
    let text = |piece: &WordPieceWithSource| match &piece.piece {
        WordPiece::Text(text) | WordPiece::SingleQuotedText(text) => Some(text.clone()),
        WordPiece::EscapeSequence(text) => text.strip_prefix('\\').map(str::to_owned),
        WordPiece::DoubleQuotedSequence(pieces) => join_pieces(pieces),
        _ => None,
    };
    pieces.iter().map(text).collect()
}

fn agree(ours: &[ShellWord], theirs: &[ast::Word]) -> bool {
    let same = |(ours, theirs): (&ShellWord, &ast::Word)| {
        !ours.certain || literal_text(theirs).is_some_and(|text| text == ours.text)
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
}

fn any_piece() -> impl Strategy<Value = String> {
    let pieces = [
        "ls", "a", "b c", " ", " ", " ", ";", "&&", "||", "|", "&", "\n", "'", "\"", "\\", "$",
        "`", "(", ")", "{", "}", ",", "$x", "${x}", "${x:-y}", "$(", "$'", "#", "~", "*", "[a]",
        "!", "<", ">", ">>", "2>&1", ">&2", "<<<", "x=1", "CI=1 ", "=", "-o", "\t", "\r", "\\ ",
        "\\\"", "é", "%", "@", "^", "+(", "|&", "&>",
    ];
    prop_oneof![
        9 => prop::sample::select(pieces.map(str::to_owned).to_vec()),
        1 => "\\PC{0,3}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_certain_is_read_alike_by_a_second_reader(pieces in prop::collection::vec(any_piece(), 1..12)) {
        let text = pieces.concat();
        let ours = read_commands(&text);
        if ours.unread.is_none() {
            let theirs = read_again(&text);
            let alike = theirs.as_ref().is_some_and(|theirs| {
                theirs.len() == ours.commands.len()
                    && ours.commands.iter().zip(theirs).all(|(ours, theirs)| agree(ours, theirs))
            });
            prop_assert!(alike, "{text:?}: {:?} and {theirs:?}", ours.commands);
        }
    }
}
