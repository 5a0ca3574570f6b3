//! Explains to the model what the file has instead of the text it searched for.

/// The most lines of a file that is searched for similar lines.
const MAX_LINES: usize = 20_000;
/// The most lines that are shown.
const EXCERPT_LINES: usize = 12;
/// The lowest similarity (0 to 1) at which a line is shown as the nearest one.
const MIN_SIMILARITY: f64 = 0.6;

/// Explains why `old` does not occur in `text`, and shows the most similar lines.
pub(crate) fn explain_missing_text(text: &str, old: &str) -> String {
    let (lines, wanted): (Vec<&str>, Vec<&str>) = (text.lines().collect(), old.lines().collect());
    let missing = "old is not in the file";
    if lines.len() > MAX_LINES || wanted.is_empty() {
        return format!("{missing}; read the part again and copy it exactly");
    }
    if let Some(at) = find_lines(&lines, &wanted, |a, b| {
        collapse_whitespace(a) == collapse_whitespace(b)
    }) {
        let shown = numbered_excerpt(&lines, at, wanted.len());
        return format!(
            "{missing}, but with different whitespace it is at line {}; copy it exactly:\n{shown}",
            at + 1
        );
    }
    if let Some(at) = find_lines(&lines, &wanted, |a, b| a.eq_ignore_ascii_case(b)) {
        let shown = numbered_excerpt(&lines, at, wanted.len());
        return format!(
            "{missing}, but with different letter case it is at line {}; copy it exactly:\n{shown}",
            at + 1
        );
    }
    match find_nearest(&lines, &wanted) {
        Some(at) => {
            let shown = numbered_excerpt(&lines, at, wanted.len());
            format!(
                "{missing}; the most similar text is at line {}:\n{shown}",
                at + 1
            )
        }
        None => format!("{missing}, nor anything similar; read the file again"),
    }
}

/// Finds the position where all wanted lines match in sequence according to `like`. The first and
/// the last wanted line may be parts of lines.
fn find_lines(lines: &[&str], wanted: &[&str], like: impl Fn(&str, &str) -> bool) -> Option<usize> {
    let last = wanted.len() - 1;
    let fits = |(n, (line, wanted)): (usize, (&&str, &&str))| {
        let line = line.trim();
        let wanted = wanted.trim();
        let edge = n == 0 || n == last;
        like(line, wanted)
            || (edge
                && !wanted.is_empty()
                && collapse_whitespace(line).contains(&collapse_whitespace(wanted)))
    };
    lines
        .windows(wanted.len())
        .position(|window| window.iter().zip(wanted).enumerate().all(fits))
}

/// Finds the line that is most similar to the longest wanted line.
fn find_nearest(lines: &[&str], wanted: &[&str]) -> Option<usize> {
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
    // Of equally similar lines the first one wins.
    let (at, best) = scores.max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))?;
    (best >= MIN_SIMILARITY).then(|| at.saturating_sub(offset))
}

/// Collapses whitespace, so that lines that differ only in whitespace become equal.
fn collapse_whitespace(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn numbered_excerpt(lines: &[&str], at: usize, count: usize) -> String {
    let shown = lines
        .iter()
        .enumerate()
        .skip(at)
        .take(count.min(EXCERPT_LINES));
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
    fn different_whitespace_is_named_as_the_reason() {
        let text = "fn main() {\n\tlet x = 1;\n}\n";
        let why = explain_missing_text(text, "fn main() {\n    let x = 1;\n}\n");
        assert!(
            why.contains("different whitespace")
                && why.contains("line 1")
                && why.contains("\tlet x = 1;"),
            "{why}"
        );
        assert!(explain_missing_text("let  x = 1;\n", "let x").contains("different whitespace"));
    }

    #[test]
    fn the_nearest_line_is_shown() {
        let text = "alpha\nlet total = items.len();\nomega\n";
        let why = explain_missing_text(text, "let totals = items.len();");
        assert!(
            why.contains("similar text is at line 2") && why.contains("let total = items.len();"),
            "{why}"
        );
        let why = explain_missing_text(text, "LET TOTAL = ITEMS.LEN();");
        assert!(why.contains("different letter case"), "{why}");
    }

    #[test]
    fn nothing_is_suggested_if_no_line_is_similar() {
        assert!(
            explain_missing_text("a\nb\n", "completely different text")
                .contains("nor anything similar")
        );
        assert!(explain_missing_text("", "x").contains("nor anything similar"));
        assert!(explain_missing_text("a", "\n").contains("not in the file"));
    }
}
