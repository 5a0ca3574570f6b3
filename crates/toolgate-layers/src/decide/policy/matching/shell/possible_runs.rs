//! Finds everything in a text that could be a command, for rules that forbid.

use super::CommandWords;

/// Returns every run of words in a text that could be a command, in any position and quoting.
///
/// This is for what is forbidden, so the text is read in several ways: without quotes (`r'm'`),
/// with each quote as a separator (`sh -c"rm"`), without expansions (`r$@m`), with escapes decoded
/// (`$'r\\x6d'`), braces expanded (`r{m,}`) and pattern groups opened (`r+(m)`). Words with
/// blanks are there in parts and as a whole (`git -C "a b" push`).
pub(crate) fn possible_runs(text: &str) -> Vec<CommandWords> {
    let joined = text
        .contains('\\')
        .then(|| text.replace("\\\n", "").replace("\\\r\n", ""));
    let text = joined.as_deref().unwrap_or(text);
    let unquoted = strip_quotes(text);
    let mut all = split_runs(&unquoted);
    if unquoted.len() < text.len() {
        add_quoted_runs(text, MAX_QUOTE_DEPTH, &mut all);
    }
    let mut also = |reading: &str| {
        let more = split_runs(reading);
        all.extend(more);
    };
    if unquoted.len() < text.len() {
        also(&text.replace(['\'', '"', '\\'], "\n"));
    }
    if text.contains("$'") && text.contains('\\') {
        also(&strip_quotes(&decode_escapes(text).replace("$'", "")));
    }
    if unquoted.contains(['$', '`']) {
        also(&strip_expansions(&unquoted));
    }
    if ["?(", "*(", "+(", "@("]
        .iter()
        .any(|group| unquoted.contains(group))
    {
        let opened = ["?(", "*(", "+(", "@("]
            .iter()
            .fold(unquoted.clone(), |text, group| text.replace(group, ""));
        also(&opened.replace([')', '|'], ""));
    }
    if unquoted.contains('{') && unquoted.contains(',') {
        let is_braced = |word: &&str| word.contains('{') && word.len() <= MAX_BRACED_WORD_BYTES;
        let words = unquoted
            .split_whitespace()
            .filter(is_braced)
            .take(MAX_BRACED_WORDS);
        words.flat_map(expand_braces).for_each(|word| also(&word));
        let mut left = MAX_BRACED_WORDS;
        let expanded = unquoted.split_whitespace().map(|word| {
            let expands = left > 0 && is_braced(&word);
            left -= usize::from(expands);
            if expands {
                expand_braces(word).join(" ")
            } else {
                word.to_owned()
            }
        });
        also(&expanded.collect::<Vec<_>>().join(" "));
    }
    all
}

const MAX_BRACED_WORDS: usize = 64;
const MAX_BRACED_WORD_BYTES: usize = 512;

/// Maximum depth of texts in the quotes of others: `sh -c "sh -c 'cat \"a b\"'"`.
const MAX_QUOTE_DEPTH: usize = 4;

/// Adds the runs of a text in which quotes join words, and of the texts in its quotes.
fn add_quoted_runs(text: &str, depth: usize, all: &mut Vec<CommandWords>) {
    let mut add = |text: &str| {
        let runs = split_quoted(text);
        let nested = |word: &&String| depth > 0 && word.contains(char::is_whitespace);
        for word in runs.iter().flatten().filter(nested) {
            add_quoted_runs(word, depth - 1, all);
        }
        // The others are found without their quotes.
        all.extend(runs.into_iter().filter(|run| {
            run.iter()
                .any(|word| word.contains(|c: char| c.is_whitespace() || "$;&|<>()`{}".contains(c)))
        }));
    };
    add(text);
    if text.contains('\n') {
        // A quote in a comment or a here-document does not reach the next line.
        text.lines().for_each(add);
    }
}

fn split_quoted(text: &str) -> Vec<CommandWords> {
    let mut runs = vec![CommandWords::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let opens = quote.is_none() && matches!(c, '\'' | '"');
        let splits = quote.is_none() && (c.is_whitespace() || ";&|<>()`{}".contains(c));
        if splits {
            runs.last_mut().expect("never empty").extend(word.take());
            if !matches!(c, ' ' | '\t') {
                runs.push(CommandWords::new());
            }
            continue;
        }
        let word = word.get_or_insert_default();
        match c {
            _ if opens => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            '\\' if quote != Some('\'') => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    runs.last_mut().expect("never empty").extend(word);
    runs.retain(|run| !run.is_empty());
    runs
}

fn strip_quotes(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '\'' | '"' | '\\'))
        .collect()
}

/// Removes `$x`, `${x}`, `$@`, `$(…)` and text between backquotes: they may be empty.
fn strip_expansions(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('`', _) => drop(chars.by_ref().find(|c| *c == '`')),
            ('$', Some(open @ ('{' | '('))) => {
                let close = if open == '{' { '}' } else { ')' };
                let mut depth = 0_usize;
                for c in chars.by_ref() {
                    depth = if c == open {
                        depth + 1
                    } else {
                        depth - usize::from(c == close)
                    };
                    if depth == 0 {
                        break;
                    }
                }
            }
            ('$', Some(name)) if name.is_ascii_alphabetic() || name == '_' => {
                while chars
                    .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .is_some()
                {}
            }
            ('$', Some(_)) => drop(chars.next()),
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// Decodes `\\x65`, `\\145` and `\\u0065`.
fn decode_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let (radix, skip, most) = match after.bytes().next() {
            Some(b'x') => (16, 1, 2),
            Some(b'u') => (16, 1, 4),
            Some(b'U') => (16, 1, 8),
            _ => (8, 0, 3),
        };
        let digits = after.get(skip..).unwrap_or_default();
        let length = digits
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .count();
        match u32::from_str_radix(&digits[..length], radix)
            .ok()
            .and_then(char::from_u32)
        {
            Some(c) => {
                plain.push(c);
                rest = &digits[length..];
            }
            None => rest = after,
        }
    }
    plain + rest
}

/// Expands `a{b,c}d`, up to a limit.
pub(super) fn expand_braces(word: &str) -> Vec<String> {
    const MAX_EXPANSIONS: usize = 64;
    let mut done = Vec::new();
    let mut open = vec![word.to_owned()];
    while let Some(word) = open.pop() {
        // The innermost pair first.
        let inner = word
            .find('}')
            .and_then(|end| Some((word[..end].rfind('{')?, end)));
        match inner.filter(|_| done.len() + open.len() < MAX_EXPANSIONS) {
            Some((start, end)) => {
                let head = &word[..start];
                let tail = &word[end + 1..];
                let choices = word[start + 1..end].split(',').take(MAX_EXPANSIONS);
                open.extend(choices.map(|choice| format!("{head}{choice}{tail}")));
            }
            None => done.push(word),
        }
    }
    done
}

/// Splits a text at blanks and dollar signs.
pub(crate) fn split_words(text: &str) -> CommandWords {
    let parts = |c: char| c.is_whitespace() || c == '$' || c.is_control();
    text.split(parts)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn split_runs(text: &str) -> Vec<CommandWords> {
    let ends = |c: char| ";&|<>()`{}\n\r".contains(c);
    text.split(ends)
        .map(split_words)
        .filter(|run| !run.is_empty())
        .collect()
}
