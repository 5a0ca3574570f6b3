//! JSON pointers (RFC 6901): the one place that escapes the names in them.

/// Returns the name that a token of a JSON pointer stands for.
pub fn unescape_pointer_token(token: &str) -> String {
    // In this order, or `~01` would become a slash, too.
    token.replace("~1", "/").replace("~0", "~")
}

/// Returns the JSON pointer to the argument `name`.
pub fn argument_pointer(name: &str) -> String {
    let mut pointer = String::new();
    push_token(&mut pointer, name);
    pointer
}

/// Returns the JSON pointer to an argument that is given by name or already as a pointer, which
/// starts with `/`.
pub fn parse_argument_pointer(given: &str) -> String {
    if given.starts_with('/') {
        given.to_owned()
    } else {
        argument_pointer(given)
    }
}

/// Runs `work` with the JSON pointer `at` extended by the token for `name`.
pub fn within_pointer<T>(at: &mut String, name: &str, work: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    push_token(at, name);
    let result = work(at);
    at.truncate(length);
    result
}

/// Appends the token for `name` to a JSON pointer.
fn push_token(pointer: &mut String, name: &str) {
    pointer.push('/');
    for c in name.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pointer_finds_the_value_whatever_its_name() {
        for name in ["a", "", "a/b", "~", "~1", "~01", "/", "a b", "日本/~0"] {
            let mut pointer = argument_pointer(name);
            assert_eq!(json!({ name: 1 }).pointer(&pointer), Some(&json!(1)));
            assert_eq!(unescape_pointer_token(&pointer[1..]), name);
            let before = pointer.clone();
            within_pointer(&mut pointer, name, |at| {
                assert_eq!(json!({ name: { name: 2 } }).pointer(at), Some(&json!(2)));
            });
            assert_eq!(pointer, before);
        }
    }

    #[test]
    fn an_argument_is_given_by_name_or_by_pointer() {
        assert_eq!(parse_argument_pointer("a~b"), "/a~0b");
        assert_eq!(parse_argument_pointer("/a~1b/0"), "/a~1b/0");
    }
}
