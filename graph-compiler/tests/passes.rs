//! `docs/passes.md` matches the compiler.

#[test]
fn the_page_of_passes_is_up_to_date() {
    let page = include_str!("../../docs/passes.md");
    assert!(
        page == wengert_compiler::catalogue::page(),
        "docs/passes.md is out of date: `cargo run -p wengert-compiler --example passes > \
         docs/passes.md`"
    );
}
