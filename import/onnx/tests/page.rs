//! `docs/onnx.md` matches the table.

#[test]
fn the_page_is_up_to_date() {
    let page = include_str!("../../../docs/onnx.md");
    assert!(
        page == wengert_onnx::page(),
        "docs/onnx.md is out of date: `cargo run -p wengert-onnx --example page > docs/onnx.md`"
    );
}
