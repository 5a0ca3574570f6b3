//! The picture in the README: `toolgate demo --crash` in a real terminal, moving as it moved on the screen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use toolgate_testkit::terminal::{CellColor, Key, ScreenCell, Terminal, TerminalScreen};

/// The path of the picture.
const PICTURE: &str = "docs/demo.svg";

/// The size of the terminal.
const SIZE: (u16, u16) = (100, 32);

/// The size of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);

/// The border around the text, and the height of the title bar.
const BORDER: f64 = 16.0;
const TITLE: f64 = 30.0;

/// How long a frame is shown at least and at most. The program is faster than people can read, and waits longer than
/// they want to watch.
const SHORTEST: Duration = Duration::from_millis(350);
const LONGEST: Duration = Duration::from_millis(2500);

/// How long the question and the last frame are shown.
const READING: Duration = Duration::from_secs(5);

/// What the prompt says when the person may answer, and what the demo says at its end.
const QUESTION: &str = "y approve";
const END: &str = "is nowhere in the database";

/// One state of the screen, and how long it is shown.
struct Frame {
    rows: Vec<Vec<ScreenCell>>,
    shown: Duration,
}

/// Runs the demo, approves the edit as a user would, and draws what the screen showed.
pub(crate) fn draw(root: &Path, mut build: Command) -> Result<(), String> {
    let built = build
        .args(["build", "--locked", "-p", "toolgate-cli"])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("toolgate could not be built".to_owned());
    }
    let frames = record(&root.join("target/debug/toolgate"))?;
    std::fs::write(root.join(PICTURE), svg(&frames))
        .map_err(|error| format!("{PICTURE}: {error}"))?;
    println!("wrote {PICTURE} with {} frames", frames.len());
    Ok(())
}

fn record(program: &Path) -> Result<Vec<Frame>, String> {
    let home = std::env::temp_dir().join(format!("toolgate-picture-{}", std::process::id()));
    let mut terminal = Terminal::builder(program)
        .args(["demo", "--crash"])
        .env("TOOLGATE_HOME", &home)
        .env("USER", "ann")
        .size(SIZE.0, SIZE.1)
        .spawn();
    let mut states = Vec::new();
    let mut keep = |screen: &TerminalScreen| states.push((Instant::now(), screen.clone()));
    terminal.wait_until("the question", |screen| {
        keep(screen);
        screen.contains(QUESTION)
    });
    terminal.press_key(Key::Char('y'));
    terminal.wait_until("the end", |screen| {
        keep(screen);
        screen.contains(END)
    });
    let code = terminal.wait_exit();
    keep(&terminal.screen());
    let _ = std::fs::remove_dir_all(home);
    if code == 0 {
        Ok(frames(&states))
    } else {
        Err(format!("the demo ended with {code}\n{}", terminal.screen()))
    }
}

/// Joins states that follow each other quickly, so that every frame can be read.
fn frames(states: &[(Instant, TerminalScreen)]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut since = None;
    for (position, (at, screen)) in states.iter().enumerate() {
        let began = *since.get_or_insert(*at);
        let next = states.get(position + 1);
        let lasted = next.map_or(READING, |(next, _)| *next - began);
        let asks =
            screen.contains(QUESTION) && next.is_some_and(|(_, next)| !next.contains(QUESTION));
        if lasted < SHORTEST / 10 && !asks {
            continue;
        }
        since = None;
        let shown = match next {
            Some(_) if !asks => lasted.clamp(SHORTEST, LONGEST),
            _ => READING,
        };
        match frames.last_mut() {
            Some(last) if last.rows == screen.cells() => last.shown += shown,
            _ => frames.push(Frame {
                rows: screen.cells().to_vec(),
                shown,
            }),
        }
    }
    frames
}

/// Draws the frames. A row that stays the same over several of them is drawn once, and is visible for that long.
fn svg(frames: &[Frame]) -> String {
    let width = f64::from(SIZE.0) * CELL.0 + 2.0 * BORDER;
    let height = f64::from(SIZE.1) * CELL.1 + 2.0 * BORDER + TITLE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"toolgate demo in a terminal\">\n{}\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n\
         <circle cx=\"20\" cy=\"18\" r=\"6\" fill=\"#ff5f57\"/><circle cx=\"40\" cy=\"18\" r=\"6\" fill=\"#febc2e\"/>\
         <circle cx=\"60\" cy=\"18\" r=\"6\" fill=\"#28c840\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"14\" xml:space=\"preserve\">\n",
        styles(frames)
    );
    for ((from, until), rows) in rows_by_interval(frames) {
        let _ = writeln!(out, "<g class=\"f{from}-{until}\">");
        for row in rows {
            let y = TITLE + BORDER + (row as f64 + 0.75) * CELL.1;
            row_of_text(&mut out, &frames[from].rows[row], y);
        }
        out.push_str("</g>\n");
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// Returns the rows with text by the frames in which they stay the same: the first, and the one after the last.
fn rows_by_interval(frames: &[Frame]) -> BTreeMap<(usize, usize), BTreeSet<usize>> {
    let mut intervals = BTreeMap::<_, BTreeSet<usize>>::new();
    for row in 0..usize::from(SIZE.1) {
        let mut from = 0;
        while from < frames.len() {
            let cells = &frames[from].rows[row];
            let until = (from..frames.len())
                .find(|frame| &frames[*frame].rows[row] != cells)
                .unwrap_or(frames.len());
            if cells.iter().any(|cell| !cell.text.trim().is_empty()) {
                intervals.entry((from, until)).or_default().insert(row);
            }
            from = until;
        }
    }
    intervals
}

/// Returns the animation of every interval. Who wants no motion sees the last frame.
fn styles(frames: &[Frame]) -> String {
    let mut begins = vec![0.0];
    for frame in frames {
        begins.push(begins[begins.len() - 1] + frame.shown.as_secs_f64());
    }
    let total = begins[frames.len()];
    let percent = |frame: usize| begins[frame] / total * 100.0;
    let mut moving = String::new();
    let mut still = String::new();
    for (from, until) in rows_by_interval(frames).into_keys() {
        if (from, until) != (0, frames.len()) {
            let (begin, end) = (percent(from), percent(until));
            let _ = writeln!(
                moving,
                "@keyframes k{from}-{until}{{0%{{opacity:0}}{begin:.2}%{{opacity:1}}{end:.2}%{{opacity:{}}}}}\n\
                 .f{from}-{until}{{animation:k{from}-{until} {total:.1}s step-end infinite}}",
                u8::from(until == frames.len())
            );
        }
        if until != frames.len() {
            let _ = writeln!(still, ".f{from}-{until}{{opacity:0}}");
        }
    }
    format!(
        "<style>\n@media (prefers-reduced-motion:no-preference){{\n{moving}}}\n\
         @media (prefers-reduced-motion:reduce){{\n{still}}}\n</style>\n"
    )
}

/// Draws one row: a text for each stretch of cells that look the same.
fn row_of_text(out: &mut String, row: &[ScreenCell], y: f64) {
    let mut at = 0;
    while at < row.len() {
        let end = (at..row.len())
            .find(|next| !alike(&row[at], &row[*next]))
            .unwrap_or(row.len());
        let text: String = row[at..end]
            .iter()
            .map(|cell| {
                if cell.text.is_empty() {
                    " "
                } else {
                    &cell.text
                }
            })
            .collect();
        let wide = row[at..end].iter().any(|cell| cell.width > 1);
        // Not every program preserves spaces at the ends of a text.
        let indent = text.len() - text.trim_start().len();
        let shown = text.trim();
        if row[at].bg != CellColor::Default {
            stretch(out, &row[at], &text, at, end - at, y, wide);
        } else if !shown.is_empty() {
            stretch(
                out,
                &row[at],
                shown,
                at + indent,
                shown.chars().count(),
                y,
                wide,
            );
        }
        at = end;
    }
}

fn stretch(
    out: &mut String,
    look: &ScreenCell,
    text: &str,
    column: usize,
    cells: usize,
    y: f64,
    wide: bool,
) {
    let x = BORDER + column as f64 * CELL.0;
    let width = cells as f64 * CELL.0;
    if let Some(fill) = css(look.bg) {
        let top = y - 0.75 * CELL.1;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>",
            CELL.1
        );
    }
    let mut style = format!(
        " fill=\"{}\"",
        css(look.fg).unwrap_or_else(|| "#d7dae0".to_owned())
    );
    if look.bold {
        style.push_str(" font-weight=\"bold\"");
    }
    if look.dim {
        style.push_str(" opacity=\"0.6\"");
    }
    if look.italic {
        style.push_str(" font-style=\"italic\"");
    }
    // Fonts differ in width; the columns have to stay where they are. Wide characters fill their two cells.
    let fit = if wide {
        String::new()
    } else {
        format!(" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\"")
    };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\"{style}{fit}>{}</text>",
        escaped(text)
    );
}

fn alike(a: &ScreenCell, b: &ScreenCell) -> bool {
    (a.fg, a.bg, a.bold, a.dim, a.italic, a.width > 1)
        == (b.fg, b.bg, b.bold, b.dim, b.italic, b.width > 1)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace("  ", "\u{a0}\u{a0}")
}

/// Returns a colour in the syntax of a browser; `None` for the terminal's own.
fn css(color: CellColor) -> Option<String> {
    const NAMED: [&str; 16] = [
        "#16181d", "#f2777a", "#8fc97a", "#e5c07b", "#6fa8dc", "#c594c5", "#66c7c7", "#d7dae0",
        "#7f848e", "#ff8f92", "#a8e08f", "#f5d08b", "#8fc0f0", "#dcacdc", "#84e0e0", "#ffffff",
    ];
    match color {
        CellColor::Default => None,
        CellColor::Indexed(index) if usize::from(index) < NAMED.len() => {
            Some(NAMED[usize::from(index)].to_owned())
        }
        CellColor::Indexed(index @ 232..) => {
            let grey = 8 + 10 * (u32::from(index) - 232);
            Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
        }
        CellColor::Indexed(index) => {
            let step = |part: u8| {
                if part == 0 {
                    0
                } else {
                    55 + 40 * u32::from(part)
                }
            };
            let index = index - 16;
            let [r, g, b] = [36, 6, 1];
            Some(format!(
                "#{:02x}{:02x}{:02x}",
                step(index / r % 6),
                step(index / g % 6),
                step(index / b % 6)
            ))
        }
        CellColor::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
    }
}
