//! The transcript of a first hour, `docs/first-hour.md`.

use crate::prepared;
use std::path::Path;
use wengert_testing::transcript::{blocks, files};

#[test]
fn the_commands_of_the_first_hour_print_what_it_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/first-hour.md");
    let page = std::fs::read_to_string(page).unwrap();
    let place = prepared();
    let files = files(&page);
    assert_eq!(files.len(), 3);
    for (name, text) in files {
        std::fs::write(place.path().join(name), text).unwrap();
    }
    let blocks = blocks(&page);
    assert!(blocks.len() >= 7 && blocks.iter().map(Vec::len).sum::<usize>() >= 18);
    let programs = Path::new(env!("CARGO_BIN_EXE_graphrun")).parent().unwrap();
    for shown in blocks.iter().flatten() {
        shown.check(place.path(), programs);
    }
}
