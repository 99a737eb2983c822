//! What the help of the commands shows works as typed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod bench;
mod digits;
mod documents;
mod first_hour;
mod help;

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use wengert::data::npz;
use wengert::{DType, Literal};
use wengert_ci::toolkit::{self, Toolkit};

/// The result of a run of the command.
#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn graphrun(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    // `profile` looks at machine code.
    command.env(toolkit::VARIABLE, Toolkit::find().unwrap().root());
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        status: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

const BUFFERS: &str = "id,lower,upper,size\na,0,4,64\nb,2,6,32\nc,4,8,64\n";

const FILETEST: &str = "\
// test: run %s --input 'x=2xf32=1 2'
func @double(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = add %x, %x
  return %0
}

// expect:
// y=2xf32=2.0 4.0
";

/// A function whose derivative differs from differences.
const STEPS: &str = "\
func @f(%x: f32[4]) -> (f32[]) {
  %0: f32[4] = tanh %x
  %1: f32[4] = floor %x
  %2: f32[4] = mul %0, %1
  %3: f32[] = reduce_sum %2 {axes=[0]}
  return %3
}
";

/// A folder with the files that the examples name: those of the example `digits`, a model, images,
/// a filetest, a function that fails its check, and a table of buffers.
fn prepared() -> TempDir {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    digits::write(folder).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../wengert/tests/tune/convolutions.onnx");
    std::fs::copy(model, folder.join("model.onnx")).unwrap();
    let (images, labels) = wengert_testing::digits::digits(64, DType::F32);
    let images = Literal::from_vec(&[64, 1, 8, 8], images.as_slice::<f32>().unwrap().to_vec());
    let images = images.unwrap();
    npz::write(folder.join("images.npz"), [("image", &images), ("labels", &labels)]).unwrap();
    std::fs::write(folder.join("buffers.csv"), BUFFERS).unwrap();
    std::fs::write(folder.join("steps.ir"), STEPS).unwrap();
    std::fs::create_dir(folder.join("filetests")).unwrap();
    std::fs::write(folder.join("filetests/double.ir"), FILETEST).unwrap();
    place
}

/// A copy of a folder.
fn copied(from: &Path) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let (path, to) = {
                let entry = entry.unwrap();
                (entry.path(), to.join(entry.file_name()))
            };
            if path.is_dir() {
                std::fs::create_dir(&to).unwrap();
                copy(&path, &to);
            } else {
                std::fs::copy(&path, &to).unwrap();
            }
        }
    }
    let place = TempDir::new().unwrap();
    copy(from, place.path());
    place
}
