//! What people meet around running agents: help, mistakes, and the commands that show and check how things are set up.

mod calls;
mod config;
mod doctor;
mod help;
mod mistakes;
mod place;
mod terminal;

use place::Place;
