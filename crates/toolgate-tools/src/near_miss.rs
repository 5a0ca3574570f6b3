//! Tells a model what is there instead of the text it looked for.

/// Longer files are not searched for something similar.
const MOST_LINES: usize = 20_000;
/// So many lines are shown.
const SHOWN: usize = 12;
/// Below this share of similar characters, a line is another line.
const SIMILAR: f64 = 0.6;

/// Why `old` was not found in `text`, and where something like it is.
pub(crate) fn explain(text: &str, old: &str) -> String {
    let (lines, wanted): (Vec<&str>, Vec<&str>) = (text.lines().collect(), old.lines().collect());
    let missing = "old is not in the file";
    if lines.len() > MOST_LINES || wanted.is_empty() {
        return format!("{missing}; read the part again and copy it exactly");
    }
    if let Some(at) = position(&lines, &wanted, |a, b| squeezed(a) == squeezed(b)) {
        let shown = excerpt(&lines, at, wanted.len());
        return format!(
            "{missing}, but with other blanks it is at line {}; copy it exactly:\n{shown}",
            at + 1
        );
    }
    if let Some(at) = position(&lines, &wanted, |a, b| a.eq_ignore_ascii_case(b)) {
        let shown = excerpt(&lines, at, wanted.len());
        return format!(
            "{missing}, but with other capitals it is at line {}; copy it exactly:\n{shown}",
            at + 1
        );
    }
    match nearest(&lines, &wanted) {
        Some(at) => {
            let shown = excerpt(&lines, at, wanted.len());
            format!("{missing}; the nearest is at line {}:\n{shown}", at + 1)
        }
        None => format!("{missing}, nor anything like it; read the file again"),
    }
}

/// Where all wanted lines follow each other, each like the one that is there. The first and last may be parts of lines.
fn position(lines: &[&str], wanted: &[&str], like: impl Fn(&str, &str) -> bool) -> Option<usize> {
    let last = wanted.len() - 1;
    let fits = |(n, (line, wanted)): (usize, (&&str, &&str))| {
        let (line, wanted) = (line.trim(), wanted.trim());
        let edge = n == 0 || n == last;
        like(line, wanted)
            || (edge && !wanted.is_empty() && squeezed(line).contains(&squeezed(wanted)))
    };
    lines
        .windows(wanted.len())
        .position(|window| window.iter().zip(wanted).enumerate().all(fits))
}

/// Where the most telling wanted line is most like a line of the file.
fn nearest(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let (offset, telling) = wanted
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().chars().count().min(200))?;
    let telling: String = telling.trim().chars().take(200).collect();
    let score = |line: &&str| {
        let line: String = line.trim().chars().take(200).collect();
        strsim::normalized_damerau_levenshtein(&line, &telling)
    };
    let scores = lines.iter().map(score).enumerate();
    let (at, best) = scores.max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))?;
    (best >= SIMILAR).then(|| at.saturating_sub(offset))
}

/// A line without what differs when only blanks do.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn excerpt(lines: &[&str], at: usize, count: usize) -> String {
    let shown = lines.iter().enumerate().skip(at).take(count.min(SHOWN));
    let line = |(n, line): (usize, &&str)| {
        let short: String = line.chars().take(200).collect();
        format!("{:>6}\t{short}", n + 1)
    };
    shown.map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_blanks_are_named_as_the_reason() {
        let text = "fn main() {\n\tlet x = 1;\n}\n";
        let why = explain(text, "fn main() {\n    let x = 1;\n}\n");
        assert!(
            why.contains("other blanks") && why.contains("line 1") && why.contains("\tlet x = 1;"),
            "{why}"
        );
        assert!(explain("let  x = 1;\n", "let x").contains("other blanks"));
    }

    #[test]
    fn the_nearest_line_is_shown() {
        let text = "alpha\nlet total = items.len();\nomega\n";
        let why = explain(text, "let totals = items.len();");
        assert!(
            why.contains("nearest is at line 2") && why.contains("let total = items.len();"),
            "{why}"
        );
        let why = explain(text, "LET TOTAL = ITEMS.LEN();");
        assert!(why.contains("other capitals"), "{why}");
    }

    #[test]
    fn nothing_is_made_up_where_nothing_is_similar() {
        assert!(explain("a\nb\n", "completely different text").contains("nor anything like it"));
        assert!(explain("", "x").contains("nor anything like it"));
        assert!(explain("a", "\n").contains("not in the file"));
    }
}
