//! Lines of JSON, as most agents write their sessions.

use serde_json::Value;

use super::ForeignSession;

/// Calls `read` with the value of each line and its number. Lines that are not JSON are warnings; the
/// last one may be incomplete, because the program may be writing it.
pub(super) fn read_lines(
    session: &mut ForeignSession,
    text: &str,
    mut read: impl FnMut(&mut ForeignSession, usize, &Value),
) {
    let is_complete = text.ends_with('\n');
    let count = text.lines().count();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<Value>(line) {
            Ok(value) if value.is_object() => read(session, number, &value),
            Ok(_) => session.warn(number, "it is not a JSON object"),
            Err(_) if number == count && !is_complete => {
                session.warn(number, "it is incomplete, as if it is still being written");
            }
            Err(_) => session.warn(number, "it is not JSON"),
        }
    }
}
