//! The program `toolgate`.

use std::process::ExitCode;

/// A turn makes some two hundred small allocations; see
/// `docs/decisions/0035-an-allocator-for-the-programs.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolgate_cli::run(std::env::args_os())
}
