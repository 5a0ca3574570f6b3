//! The program `toolgate`.
fn main() {}
