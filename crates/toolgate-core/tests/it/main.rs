//! Tests of the stack, the tools and the turn. One program, so that it is linked once.

mod billing;
mod choosing;
mod host_values;
mod interleavings;
mod observers;
mod passes;
mod stack;
mod tools;
mod tower;
mod waiting;
