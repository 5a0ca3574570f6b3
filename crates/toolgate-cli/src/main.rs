//! The program `toolgate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_cli::run(std::env::args_os())
}
