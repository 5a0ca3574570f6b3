//! Tests of the program, in pipes and in real terminals. One program, so that it is linked once.

mod admin;
mod chat_terminal;
mod demo;
mod guide;
mod history;
mod run;
