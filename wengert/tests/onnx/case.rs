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

/// The fields of a message that have bytes: numbers, and the bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let varint = |message: &mut &[u8]| {
        let length = message.iter().position(|byte| byte & 128 == 0).map_or(0, |n| n + 1);
        let (bytes, rest) = message.split_at(length);
        *message = rest;
        bytes.iter().rev().fold(0u64, |n, byte| (n << 7) | u64::from(byte & 127))
    };
    let mut all = vec![];
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                varint(&mut message);
                continue;
            }
            1 => 8,
            5 => 4,
            _ => varint(&mut message) as usize,
        };
        let (bytes, rest) = message.split_at(length);
        message = rest;
        if key & 7 == 2 {
            all.push((key >> 3, bytes));
        }
    }
    all
}

/// The field of a message with a number.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message).into_iter().find(|(own, _)| *own == number).map(|(_, bytes)| bytes)
}

/// A value of a data set.
#[derive(Clone)]
enum Data {
    Tensor(Stored),
    Sequence(Vec<Stored>),
    Absent,
}

impl Data {
    /// The value of a message whose `TypeProto` is given.
    fn read(ty: &[u8], message: &[u8]) -> Result<Data, String> {
        let tensor = |message: &[u8]| {
            read_tensor(Bytes::copy_from_slice(message)).map_err(|e| e.to_string())
        };
        if let Some(inner) = field(ty, 9) {
            let inner = field(inner, 1).unwrap();
            return match (field(message, 3), field(message, 5)) {
                (Some(own), _) | (None, Some(own)) => Data::read(inner, own),
                (None, None) => Ok(Data::Absent),
            };
        }
        if field(ty, 4).is_some() {
            let elements = fields(message).into_iter().filter(|(number, _)| *number == 3);
            return Ok(Data::Sequence(
                elements.map(|(_, own)| tensor(own)).collect::<Result<_, _>>()?,
            ));
        }
        Ok(Data::Tensor(tensor(message)?))
    }

    fn tensors(&self) -> Vec<Stored> {
        match self {
            Data::Tensor(own) => vec![own.clone()],
            Data::Sequence(all) => all.clone(),
            Data::Absent => vec![],
        }
    }
}

/// The values of a data set: inputs, or outputs, whose names and types the model has.
fn data(folder: &Path, model: &[u8], kind: &str) -> Result<Vec<(String, Data)>, String> {
    let graph = field(model, 7).unwrap();
    let wanted = if kind == "input" { 11 } else { 12 };
    let infos = fields(graph).into_iter().filter(|(number, _)| *number == wanted);
    let value = |(n, (_, info)): (usize, (u64, &[u8]))| {
        let name = String::from_utf8(field(info, 1).unwrap().to_vec()).unwrap();
        let message = bytes(&folder.join(format!("{kind}_{n}.pb")))?;
        Ok((name, Data::read(field(info, 2).unwrap_or_default(), &message)?))
    };
    infos.enumerate().map(value).collect()
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
        let model = bytes(&test.join("model.onnx")).map_err(Failure::Other)?;
        let inputs = data(&set, &model, "input").map_err(|e| refused(&e))?;
        let results = data(&set, &model, "output").map_err(|e| refused(&e))?;
        let results: Vec<Stored> = results.iter().flat_map(|(_, data)| data.tensors()).collect();
        let alone = |path: &Path| Err(Diagnostic::new(format!("there is no {}", path.display())));
        let read = |options: &Options| read("model.onnx", model.clone(), &alone, options);
        // Sequences have the lengths and shapes of the data. Shapes and axes are inputs of the
        // tests. They are bound if the model needs it.
        let mut options = Options::default();
        let mut tensors = vec![];
        for (name, data) in inputs {
            match data {
                Data::Tensor(own) => tensors.push((name, own.literal)),
                Data::Absent => {
                    options.absent.insert(name);
                }
                Data::Sequence(all) => {
                    let shapes = all.iter().map(|own| own.literal.ty().shape).collect();
                    options.sequences.insert(name.clone(), shapes);
                    for (n, own) in all.into_iter().enumerate() {
                        tensors.push((format!("{name}.{n}"), own.literal));
                    }
                }
            }
        }
        let names = wengert_onnx::inputs("model.onnx", model.clone(), &alone)
            .map_err(|e| refused(&e.to_string()))?;
        let mut result = read(&options);
        if result.is_err() {
            let small = |l: &&Literal| l.len() <= 64 && l.shape().len() <= 1;
            let integer = |l: &&Literal| l.dtype().is_integer();
            for only_integers in [true, false] {
                for (name, value) in tensors.iter().filter(|(name, _)| names.contains(name)) {
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
                tensors.iter().find(|(own, _)| own == name).map(|(_, value)| value)
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
