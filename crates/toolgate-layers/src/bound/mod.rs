//! The innermost band: layers that limit the time of one attempt, catch its panics or replace it by
//! a dry run.

pub(crate) mod catch_panic;
pub(crate) mod dry_run;
pub(crate) mod timeout;
