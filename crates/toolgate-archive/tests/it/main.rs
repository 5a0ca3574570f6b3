//! Tests of exports and imports. One program, so that it is linked once.

mod archives;
mod browser;
mod foreign;
mod markdown;
mod options;
mod pages;
mod support;
