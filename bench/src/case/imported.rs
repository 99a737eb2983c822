//! Inference of imported models, against the results that ONNX Runtime had.
//!
//! The models are files, with inputs and results beside them; `bench/peers/imported_models.py`
//! writes them. They lie in the folder that the environment variable [`FOLDER`] names, which all
//! contenders read.

use super::{Case, FUNCTION, Float, Kind, Made};
use crate::parity::{Comparison, Parity, digest};
use crate::record::Work;
use crate::resident::Resident;
use std::path::{Path, PathBuf};
use wengert::core::build::{FunctionBuilder, inline};
use wengert::core::graph::InputRole;
use wengert::data::{Arrays, read_all};
use wengert::onnx::{Options, import};
use wengert::{
    DType, Diagnostic, Initializer, Literal, Outputs, Program, Result, Tensor, diagnostic,
};

/// The environment variable that names the folder with the models.
pub const FOLDER: &str = "WENGERT_BENCH_MODELS";

/// Greatest deviation of a result, relative to the largest of its numbers.
const BOUND: f64 = 1e-5;

/// The models: name, parameters, and millions of operations.
const MODELS: [(&str, u64, u64); 13] = [
    ("alexnet", 60_965_224, 1_318),
    ("densenet121", 8_146_152, 5_765),
    ("inception_v1", 6_998_552, 2_891),
    ("inception_v2", 11_234_792, 4_086),
    ("resnet50", 25_610_152, 8_229),
    ("shufflenet", 1_420_152, 266),
    ("squeezenet", 1_235_496, 706),
    ("vgg19", 143_667_240, 39_298),
    ("zfnet512", 87_250_536, 2_986),
    ("minilm", 22_544_640, 2_890),
    ("gpt2", 124_320_000, 32_318),
    ("vit", 86_482_944, 35_243),
    ("silero_vad", 309_635, 1),
];

pub(super) fn cases() -> Vec<Case> {
    let case = |(name, elements, millions): (&str, u64, u64)| Case {
        id: format!("infer {name}.onnx"),
        group: "imported".into(),
        dtype: Float::F32,
        work: Work { elements, bytes: 4 * elements, flops: 1_000_000 * millions },
        reference: None,
        kind: Kind::Imported { model: name.into() },
    };
    MODELS.into_iter().map(case).collect()
}

/// Whether the models are there.
pub fn has_models() -> bool {
    std::env::var_os(FOLDER).is_some()
}

/// The folder with the models.
fn folder() -> Result<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from).ok_or_else(|| {
        diagnostic!("the environment variable {FOLDER} names no folder with models")
            .help("run `python bench/peers/imported_models.py FOLDER`, and set the variable")
    })
}

/// The arrays beside a model: inputs and results.
fn arrays(folder: &Path, model: &str) -> Result<Arrays> {
    read_all(folder.join(model).with_extension("npz"))
}

/// The arrays `KIND_0`, `KIND_1`, …
fn numbered(arrays: &Arrays, kind: &str) -> Vec<Literal> {
    (0..).map_while(|n| arrays.get(&format!("{kind}_{n}"))).cloned().collect()
}

/// The name of a result.
fn result(number: usize) -> String {
    format!("result_{number}")
}

pub(super) fn make(model: &str) -> Result<Made> {
    made(&folder()?, model)
}

fn made(folder: &Path, model: &str) -> Result<Made> {
    let arrays = arrays(folder, model)?;
    let file = folder.join(model).with_extension("onnx");
    let mut options = Options::default();
    for (name, value) in &arrays {
        if let Some(name) = name.strip_prefix("bound_") {
            options.bound.insert(name.to_owned(), value.clone());
        }
        if let Some(name) = name.strip_prefix("extent_") {
            options.extents.insert(name, value.get(0).to_f64() as i64)?;
        }
    }
    let given = numbered(&arrays, "input");
    let imported = import(&file, &options)?.folded();
    let function = imported.program.get("predict")?;
    let mut variables: Vec<(String, Literal)> = Vec::new();
    let mut program = Program::new();
    let mut wrong = None;
    program.function(FUNCTION, |f: &mut FunctionBuilder| {
        let body = f.scope().adopt(&function.body, &function.locations);
        let mut given = given.into_iter();
        let operands: Vec<Tensor> = function
            .inputs
            .iter()
            .enumerate()
            .map(|(n, input)| {
                let ty = function.input_type(n).clone();
                // An input is no variable: what depends on it is computed in each run.
                let (tensor, value) = match input.role {
                    InputRole::Input => (f.input(&input.name, ty), given.next()),
                    _ => (
                        f.param(&input.name, Tensor::variable(ty, Initializer::Zeros)),
                        imported.weights.get(&input.name).cloned(),
                    ),
                };
                match value {
                    Some(value) => variables.push((input.name.clone(), value)),
                    None => wrong = Some(diagnostic!("`{}` has no value", input.name)),
                }
                tensor
            })
            .collect();
        match inline(&body, &operands) {
            Ok(results) => results.iter().enumerate().for_each(|(n, y)| f.output(&result(n), y)),
            Err(error) => wrong = Some(error),
        }
    })?;
    match wrong {
        Some(error) => Err(error),
        None => Ok(Made { program, variables, init: None, check }),
    }
}

fn check(resident: &mut Resident, case: &Case, _: &[(String, Literal)]) -> Result<Parity> {
    let Kind::Imported { model } = &case.kind else {
        unreachable!("this is the check of imported models")
    };
    compared(&arrays(&folder()?, model)?, &resident.results()?)
}

/// Compares results with those of ONNX Runtime.
fn compared(arrays: &Arrays, results: &Outputs) -> Result<Parity> {
    let mut comparison = Comparison::default();
    let mut losses = None;
    for (number, expected) in numbered(arrays, "output").iter().enumerate() {
        let found = results.get(&result(number))?;
        if found.shape() != expected.shape() {
            return Err(Diagnostic::new(format!(
                "result {number} has shape {:?}, that of ONNX Runtime {:?}",
                found.shape(),
                expected.shape()
            )));
        }
        let numbers = |of: &Literal| -> Vec<f64> {
            of.convert(DType::F64).as_slice::<f64>().expect("it is converted").to_vec()
        };
        let (found, expected) = (numbers(found), numbers(expected));
        let greatest = expected.iter().fold(0.0f64, |a, v| a.max(v.abs()));
        found.iter().zip(&expected).for_each(|(f, e)| comparison.add(*f, *e, greatest));
        losses.get_or_insert_with(|| digest(&found));
    }
    Ok(Parity { losses, ..comparison.finish(BOUND)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert::onnx::{ExportOptions, write};
    use wengert::{Device, DeviceOptions, GraphFile, TensorType, Weights};

    /// y = w·x + b for a batch of any size, with a result that ONNX Runtime would have had.
    fn folder_with(result: [f32; 2]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Program::new();
        program
            .function("predict", |f| {
                let x = f.input("x", TensorType::new(DType::F32, ["N"]));
                let w = f.param(
                    "w",
                    Tensor::variable(TensorType::scalar(DType::F32), Initializer::Ones),
                );
                f.output("y", &(x * w + 1.0));
            })
            .unwrap();
        let w = Literal::from_vec(&[], vec![3.0f32]).unwrap();
        let weights = Weights::Inline(Arrays::from([("w".to_owned(), w)]));
        let file = GraphFile { weights, ..GraphFile::new(program) };
        let path = folder.path().join("tiny.onnx");
        write(&path, &file, "predict", &ExportOptions::default()).unwrap();
        let of = |values: [f32; 2]| Literal::from_vec(&[2], values.to_vec()).unwrap();
        let extent = Literal::from_vec(&[], vec![2i64]).unwrap();
        let arrays =
            [("input_0", &of([1.0, 2.0])), ("output_0", &of(result)), ("extent_N", &extent)];
        wengert::data::npz::write(path.with_extension("npz"), arrays).unwrap();
        folder
    }

    #[test]
    fn results_are_compared_with_those_in_the_folder() {
        let parity = |result| {
            let folder = folder_with(result);
            let made = made(folder.path(), "tiny").unwrap();
            let options = DeviceOptions { keep_invariants: true, ..DeviceOptions::default() };
            let mut resident = Resident::open(Device::Cpu, &options, &made).unwrap();
            let results = resident.results().unwrap();
            compared(&arrays(folder.path(), "tiny").unwrap(), &results)
        };
        let right = parity([4.0, 7.0]).unwrap();
        assert_eq!((right.compared, right.worst), (2, 0.0));
        assert!(parity([4.0, 7.001]).is_err());
    }

    #[test]
    fn inputs_are_given_to_each_run() {
        let folder = folder_with([4.0, 7.0]);
        let made = made(folder.path(), "tiny").unwrap();
        let function = made.program.get(FUNCTION).unwrap();
        let inputs = || function.inputs.iter().filter(|i| i.role == InputRole::Input);
        // As a parameter, `x` would be an invariant: a run would compute nothing.
        assert_eq!(inputs().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["x"]);
    }
}
