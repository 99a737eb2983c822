//! The commands that `docs/isolate.md` shows.

use std::path::Path;
use wengert_testing::transcript::{blocks, files};

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isolate.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = files(&page);
    assert_eq!(files.len(), 3);
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let shown: Vec<_> = blocks(&page).into_iter().flatten().collect();
    assert!(shown.len() >= 9, "{} commands", shown.len());
    let programs = Path::new(env!("CARGO_BIN_EXE_graphrun")).parent().unwrap();
    shown.iter().for_each(|shown| shown.check(folder.path(), programs));
}
