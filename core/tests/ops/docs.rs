//! `docs/ops.md` is generated from the catalogue. `WENGERT_BLESS=1 cargo test -p wengert-core --test ops docs` writes it.

use std::path::Path;
use wengert_core::op::markdown;

#[test]
fn the_table_of_ops_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
    let text = markdown();
    if std::env::var_os("WENGERT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/ops.md is not what the catalogue says; run `WENGERT_BLESS=1 cargo test -p wengert-core --test ops docs`"
    );
}
