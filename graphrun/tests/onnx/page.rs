//! The commands that `docs/onnx.md` shows: each block is run in a folder with a model and images,
//! and prints what the page has.

use std::path::Path;
use wengert::data::{npy, npz};
use wengert::{DType, Literal};
use wengert_testing::transcript::blocks;

/// The images and labels of the digits from `first` on.
fn digits(first: usize, count: usize) -> [(&'static str, Literal); 2] {
    let (images, labels) = wengert_testing::digits::digits(first + count, DType::F32);
    let (images, labels) = (images.as_slice::<f32>().unwrap(), labels.as_slice::<i32>().unwrap());
    let images = images[64 * first..].to_vec();
    let images = Literal::from_vec(&[count, 1, 8, 8], images).unwrap();
    [("image", images), ("labels", Literal::from_vec(&[count], labels[first..].to_vec()).unwrap())]
}

fn prepare(folder: &Path) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wengert/tests/tune");
    std::fs::copy(model.join("convolutions.onnx"), folder.join("model.onnx")).unwrap();
    npy::write(folder.join("x.npy"), &digits(1437, 2)[0].1).unwrap();
    for (name, first, count) in [("train.npz", 0, 1437), ("test.npz", 1437, 360)] {
        let arrays = digits(first, count);
        npz::write(folder.join(name), arrays.iter().map(|(name, array)| (*name, array))).unwrap();
    }
}

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/onnx.md");
    let blocks = blocks(&std::fs::read_to_string(page).unwrap());
    assert_eq!(blocks.len(), 3);
    let programs = Path::new(env!("CARGO_BIN_EXE_graphrun")).parent().unwrap();
    for block in blocks {
        assert!((1..=5).contains(&block.len()), "{} commands", block.len());
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        for shown in block {
            assert!(shown.command.starts_with("graphrun "), "{}", shown.command);
            shown.check(folder.path(), programs);
        }
    }
}
