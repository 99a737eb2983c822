//! Compiler errors for types that cannot be differentiated. Each file in `errors/` contains
//! mistakes, and the `.stderr` file of the same name the expected messages.
//!
//! `TRYBUILD=overwrite cargo test -p wengert-core --test differentiable` rewrites the expected
//! messages.

#[test]
fn mistakes_are_explained_with_a_remedy() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/differentiable/errors/*.rs");
}
