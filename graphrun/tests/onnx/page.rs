//! The commands that `docs/onnx.md` shows: each block is run in an empty folder, and prints what
//! the page has. `…` stands for any text of a line, and alone for any lines.

use std::path::Path;
use std::process::Command;
use wengert::data::{npy, npz};
use wengert::{DType, Literal};

/// A command with its arguments, and the lines that it prints.
struct Shown {
    arguments: Vec<String>,
    lines: Vec<String>,
}

/// The blocks of commands of the page.
fn blocks(page: &str) -> Vec<Vec<Shown>> {
    let mut blocks = vec![];
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == "```console") {
        let mut block: Vec<Shown> = vec![];
        while let Some(line) = lines.next().filter(|line| *line != "```") {
            let Some(command) = line.strip_prefix("$ ") else {
                block.last_mut().unwrap().lines.push(line.to_owned());
                continue;
            };
            let mut command = command.to_owned();
            while let Some(part) = command.strip_suffix('\\') {
                command = format!("{part}{}", lines.next().unwrap());
            }
            // Quotes keep a pattern from the shell.
            let arguments = command.split_whitespace().map(|word| word.trim_matches('\'').into());
            block.push(Shown { arguments: arguments.collect(), lines: vec![] });
        }
        blocks.push(block);
    }
    blocks
}

/// Whether a line is the one that the page shows.
fn fits(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else { return false };
    for part in parts {
        let Some(at) = rest.rfind(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// Whether lines are those that the page shows.
fn all_fit(shown: &[String], lines: &[&str]) -> bool {
    match (shown, lines) {
        ([], []) => true,
        ([all, shown @ ..], _) if all == "…" => {
            (0..=lines.len()).any(|n| all_fit(shown, &lines[n..]))
        }
        ([first, shown @ ..], [line, lines @ ..]) => fits(first, line) && all_fit(shown, lines),
        _ => false,
    }
}

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
    for block in blocks {
        assert!((1..=5).contains(&block.len()), "{} commands", block.len());
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        for Shown { arguments, lines } in block {
            assert_eq!(arguments[0], "graphrun");
            let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
            let ran = command.args(&arguments[1..]).current_dir(folder.path()).output().unwrap();
            let error = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "{arguments:?}: {error}");
            let out = String::from_utf8(ran.stdout).unwrap();
            let printed: Vec<&str> = out.lines().collect();
            let text = arguments.join(" ");
            assert!(all_fit(&lines, &printed), "{text} prints\n{out}\nnot\n{}", lines.join("\n"));
        }
    }
}

#[test]
fn lines_are_compared() {
    assert!(fits("loss 0.5, …", "loss 0.5, 3 ms") && fits("a … c", "a b c") && fits("a", "a"));
    assert!(!fits("a", "ab") && !fits("a…c", "abd") && !fits("…c", "cd"));
    let shown = ["a", "…", "d"].map(String::from);
    assert!(all_fit(&shown, &["a", "d"]) && all_fit(&shown, &["a", "b", "c", "d"]));
    assert!(!all_fit(&shown, &["a", "b"]) && !all_fit(&shown, &["b", "d"]));
}
