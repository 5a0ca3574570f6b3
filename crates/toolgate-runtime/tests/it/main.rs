//! Tests of turns, sessions, strategies and their journal. One program, so that it is linked once.

mod bad_input;
mod bounds;
mod bus;
mod common;
mod deliveries;
mod dispatch;
mod driver_change;
mod driving;
mod held_writes;
mod hostile;
mod interleavings;
mod journal;
mod one_way;
mod operator_log;
mod recursive;
mod run_end;
mod runs;
mod screen_events;
mod skills;
mod strategies;
