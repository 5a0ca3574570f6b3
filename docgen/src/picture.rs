//! The picture in the README: `toolgate demo` in a real terminal, as it was on the screen.

use std::{fmt::Write, path::Path, process::Command};

use toolgate_testkit::terminal::{CellColor, Key, ScreenCell, Terminal, TerminalScreen};

/// The path of the picture.
const PICTURE: &str = "docs/demo.svg";

/// The size of the terminal. All of the demo fits on it, so that nothing scrolls away.
const SIZE: (u16, u16) = (100, 90);

/// The size of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);

/// The border around the text, and the height of the title bar.
const BORDER: f64 = 16.0;
const TITLE: f64 = 30.0;

/// Runs the demo, approves the edit as a user would, and draws the final screen.
pub(crate) fn draw(root: &Path, mut build: Command) -> Result<(), String> {
    let built = build
        .args(["build", "--release", "--locked", "-p", "toolgate-cli"])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("toolgate could not be built".to_owned());
    }
    let screen = record(&root.join("target/release/toolgate"))?;
    std::fs::write(root.join(PICTURE), svg(&screen))
        .map_err(|error| format!("{PICTURE}: {error}"))?;
    println!("wrote {PICTURE}");
    Ok(())
}

fn record(program: &Path) -> Result<TerminalScreen, String> {
    let home = std::env::temp_dir().join(format!("toolgate-picture-{}", std::process::id()));
    let mut terminal = Terminal::builder(program)
        .arg("demo")
        .env("TOOLGATE_HOME", &home)
        .env("USER", "ann")
        .size(SIZE.0, SIZE.1)
        .spawn();
    terminal.wait_for("y yes");
    terminal.press_key(Key::Char('y'));
    let code = terminal.wait_exit();
    let _ = std::fs::remove_dir_all(home);
    if code != 0 {
        Err(format!("the demo ended with {code}\n{}", terminal.screen()))
    } else {
        Ok(terminal.screen())
    }
}

/// Draws a screen, without the empty rows at its end.
fn svg(screen: &TerminalScreen) -> String {
    let rows = screen.cells();
    let used = rows
        .iter()
        .rposition(|row| row.iter().any(|cell| !cell.text.trim().is_empty()))
        .map_or(1, |last| last + 1);
    let width = f64::from(SIZE.0) * CELL.0 + 2.0 * BORDER;
    let height = used as f64 * CELL.1 + 2.0 * BORDER + TITLE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"toolgate demo in a terminal\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n\
         <circle cx=\"20\" cy=\"18\" r=\"6\" fill=\"#ff5f57\"/><circle cx=\"40\" cy=\"18\" r=\"6\" fill=\"#febc2e\"/>\
         <circle cx=\"60\" cy=\"18\" r=\"6\" fill=\"#28c840\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for (number, row) in rows.iter().take(used).enumerate() {
        let y = TITLE + BORDER + (number as f64 + 0.75) * CELL.1;
        row_of_text(&mut out, row, y);
    }
    out.push_str("</g>\n</svg>\n");
    out
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
