//! The cases of ONNX's node tests, as functions of the library.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use wengert::core::graph::Function;
use wengert::core::{Binding, Diagnostic, Dim, Literal};
use wengert_onnx::{Class, Imported, Narrow, Options, Stored, read, read_tensor};

/// A model, its inputs, and their results.
pub struct Case {
    /// The function, without dimension variables.
    pub function: Function,
    /// A value for each of its inputs.
    pub given: Vec<Literal>,
    /// The results that ONNX expects.
    pub expected: Vec<Literal>,
    /// The number of results that ONNX expects, if it depends on data. It is another result, after
    /// those of the model.
    pub count: Option<usize>,
    /// For each result, its dtype if programs lack it, and the one that ONNX expects.
    pub dtypes: Vec<[Option<Narrow>; 2]>,
}

/// The reason why a model is not a function.
pub enum Failure {
    /// A class of refusals, and the message.
    Refused(String, String),
    /// An error of no class.
    Other(String),
}

/// The folders of the tests, in the order of their names.
pub fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn bytes(path: &Path) -> Result<Bytes, String> {
    std::fs::read(path).map(Bytes::from).map_err(|e| e.to_string())
}

/// The tensors of a data set: inputs, then outputs.
fn data(folder: &Path, kind: &str) -> Result<Vec<Stored>, String> {
    let mut all = vec![];
    for n in 0.. {
        let path = folder.join(format!("{kind}_{n}.pb"));
        if !path.is_file() {
            break;
        }
        all.push(bytes(&path).and_then(|b| read_tensor(b).map_err(|e| e.to_string()))?);
    }
    Ok(all)
}

fn refused(message: &str) -> Failure {
    let class = Class::ALL.into_iter().find(|class| message.contains(&format!("({class})")));
    match class {
        Some(class) => Failure::Refused(class.to_string(), message.into()),
        None => Failure::Other(message.into()),
    }
}

impl Case {
    /// Imports the model of a test.
    pub fn read(test: &Path) -> Result<Case, Failure> {
        let set = test.join("test_data_set_0");
        // Files of sequences are messages of another kind.
        let of_data = |e: String| match refused(&e) {
            Failure::Other(e) => Failure::Refused(Class::Container.to_string(), e),
            refused => refused,
        };
        let inputs = data(&set, "input").map_err(of_data)?;
        let inputs: Vec<Literal> = inputs.into_iter().map(|stored| stored.literal).collect();
        let results = data(&set, "output").map_err(of_data)?;
        let model = bytes(&test.join("model.onnx")).map_err(Failure::Other)?;
        let alone = |path: &Path| Err(Diagnostic::new(format!("there is no {}", path.display())));
        let read = |options: &Options| read("model.onnx", model.clone(), &alone, options);
        let names = wengert_onnx::inputs("model.onnx", model.clone(), &alone)
            .map_err(|e| refused(&e.to_string()))?;
        // Shapes and axes are inputs of the tests. They are bound if the model needs it.
        let mut options = Options::default();
        let mut result = read(&options);
        if result.is_err() {
            let small = |l: &&Literal| l.len() <= 64 && l.shape().len() <= 1;
            let integer = |l: &&Literal| l.dtype().is_integer();
            for only_integers in [true, false] {
                for (name, value) in names.iter().zip(&inputs) {
                    if small(&value) && (integer(&value) || !only_integers) {
                        options.bound.insert(name.clone(), value.clone());
                    }
                }
                result = read(&options);
                if result.is_ok() {
                    break;
                }
            }
        }
        let mut count = None;
        if result.as_ref().is_err_and(|e| e.to_string().contains("--max")) {
            // The extent of one of the axes is the number of results.
            let outputs = wengert_onnx::outputs("model.onnx", model.clone(), &alone)
                .map_err(|e| refused(&e.to_string()))?;
            let wanted: Vec<&[usize]> = results.iter().map(|r| r.literal.shape()).collect();
            for extent in wanted[0] {
                options.max.insert(outputs[0].clone(), *extent);
                result = read(&options);
                count = Some(*extent);
                let is_wanted = |imported: &Imported| {
                    let function = &imported.program.functions()[0];
                    let shape = |n: usize| {
                        function.output_type(n).shape.iter().map(Dim::as_extent).collect::<Vec<_>>()
                    };
                    wanted.iter().enumerate().all(|(n, wanted)| {
                        shape(n) == wanted.iter().copied().map(Some).collect::<Vec<_>>()
                    })
                };
                if result.as_ref().is_ok_and(is_wanted) {
                    break;
                }
            }
        }
        let imported = result.map_err(|e| refused(&e.to_string()))?;
        let function = &imported.program.functions()[0];
        let mut binding = Binding::new();
        let mut given = vec![];
        for (n, input) in function.inputs.iter().enumerate() {
            let value = imported.parameters.get(&input.name).or_else(|| {
                let name = imported.names.get(&input.name)?;
                inputs.get(names.iter().position(|known| known == name)?)
            });
            let Some(value) = value else {
                return Err(Failure::Other(format!("no input `{}`", input.name)));
            };
            for (dim, extent) in function.input_type(n).shape.iter().zip(value.shape()) {
                if let [(product, 1)] = dim.terms() {
                    let _ = binding.insert(&product.to_string(), *extent as i64);
                }
            }
            given.push(value.clone());
        }
        let function = function.bind(&binding).map_err(|e| Failure::Other(e.to_string()))?;
        let own = |n: usize| {
            let output = function.outputs.get(n)?;
            imported.narrow.get(&output.name).copied()
        };
        let dtypes =
            results.iter().enumerate().map(|(n, wanted)| [own(n), wanted.narrow]).collect();
        let expected = results.into_iter().map(|stored| stored.literal).collect();
        Ok(Case { function, given, expected, count, dtypes })
    }
}
