//! Tests of the program, in pipes and in real terminals. One program, so that it is linked once.

mod admin;
mod chat_terminal;
mod colours;
mod demo;
mod faults;
mod guide;
mod history;
mod run;

/// Returns the name of the account that runs the tests, as the system has it.
fn account_name() -> String {
    toolgate::gate::local_account().name.to_string()
}
