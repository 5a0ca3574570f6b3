//! Tests of the stores, on SQLite and PostgreSQL. One program, so that it is linked once.

mod bad_input;
mod budgets;
mod damaged_rows;
mod driven;
mod erase;
mod memories;
mod migrations;
mod moved_rows;
mod outages;
#[cfg(feature = "postgres")]
mod pgvector;
mod processes;
mod run_end;
mod same_answers;
mod search;
mod short_texts;
mod stored_search;
mod suite;
mod support;
