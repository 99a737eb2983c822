//! Compiler errors for types that cannot be differentiated. Each file in `errors/` contains the
//! mistakes. The `.stderr` file beside it contains the expected messages.
//!
//! `TRYBUILD=overwrite cargo test -p wengert-core --test differentiable` rewrites the expected
//! messages.

#[test]
fn mistakes_are_explained_with_their_mend() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/differentiable/errors/*.rs");
}
