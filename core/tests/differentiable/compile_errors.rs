//! What the compiler says where a type cannot be differentiated: each file of `errors/` has the mistakes, and beside it what is said.
//!
//! `TRYBUILD=overwrite cargo test -p wengert-core --test differentiable` writes what is said now.

#[test]
fn mistakes_are_explained_with_their_mend() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/differentiable/errors/*.rs");
}
