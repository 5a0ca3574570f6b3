//! What the compiler says about a tool, right and wrong.

#[test]
fn a_wrong_tool_is_refused_at_the_place_of_the_mistake() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

#[test]
fn a_tool_fits_into_any_module() {
    trybuild::TestCases::new().pass("tests/compile_pass/*.rs");
}
