//! Tests of `#[tool]`. One program, so that it is linked once.

mod compile;
mod tool;
