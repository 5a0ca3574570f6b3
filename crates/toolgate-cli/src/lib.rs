//! Toolgate in a terminal.
