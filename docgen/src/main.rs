//! Writes the reference pages and the picture of the docs from the code. `cargo xtask` runs it.
//!
//! It is a program of its own because it contains the whole command line: `cargo xtask test` must not wait for that
//! before it can begin.

mod cli_page;
mod pages;
mod picture;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let result = match task.as_str() {
        "pages" => pages::write(&project_root()),
        "picture" => picture::draw(&project_root(), cargo()),
        other => Err(format!(
            "there is no task named {other:?}\nhint: the tasks are pages and picture"
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.current_dir(project_root());
    command
}

fn project_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map_or_else(|| here.to_owned(), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_pages_are_what_the_code_says() {
        if let Err(problem) = pages::check(&project_root()) {
            panic!("{problem}");
        }
    }
}
