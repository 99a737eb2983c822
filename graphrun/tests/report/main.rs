//! `graphrun report` as a process: the data in its page agree with the plan, and mistakes are
//! named.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod mistakes;
mod page;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use wengert::GraphFile;
use wengert::prelude::*;

/// Exit status, standard output and standard error.
fn graphrun(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A training step of two layers, in `net.graph` of a new folder.
fn network() -> TempDir {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f32("B,12")), f.input("y", f32("B,3")));
            let layers = (Linear::new(12, 8), Linear::new(8, 3));
            let model = f.state("model", layers);
            let (loss, gradient) = value_and_grad(&model, |(first, second)| {
                let difference = second.call(&first.call(&x).tanh()) - &y;
                (&difference * &difference).mean()
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    let folder = TempDir::new().unwrap();
    GraphFile::new(program).write(folder.path().join("net.graph")).unwrap();
    folder
}

/// The data in a page.
fn data(folder: &Path, page: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(page)).unwrap();
    let (_, rest) = text.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// The report of `net.graph` with these arguments.
fn report(folder: &Path, arguments: &[&str]) -> Value {
    let all = [&["report", "net.graph@step", "--bind", "B=5", "-o", "r.html"], arguments].concat();
    let (status, _, errors) = graphrun(folder, &all);
    assert_eq!(status, 0, "{errors}");
    data(folder, "r.html")
}

/// The list of a field.
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is no list"))
}

/// The number of a field.
fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("`{name}` is no number in {value}"))
}
