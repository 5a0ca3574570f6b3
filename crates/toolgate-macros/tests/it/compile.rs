//! Tests of the compiler's messages about valid and invalid tools.

// One test for both: they share one build of the dependencies, and two would wait for each other.
#[test]
fn valid_tools_compile_and_an_invalid_tool_is_rejected_where_the_mistake_is() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/*.rs");
}
