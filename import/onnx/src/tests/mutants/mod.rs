//! Models of the node tests, each with something wrong: an import gives a graph or an error, and
//! takes little time and memory.
//!
//! This is also the fuzz target: `ci/deep/onnx-mutants [COUNT] [SEED]` imports so many mutants from
//! a seed on. `WENGERT_MUTANTS` is the count, `WENGERT_MUTANTS_SEED` the first seed.

mod bombs;
mod spent;

use super::nowhere;
use crate::proto::*;
use crate::{Options, inputs, read, read_tensor};
use bytes::Bytes;
use prost::Message;
use spent::{Spent, measured};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wengert_ci::{onnx_suite, tier};
use wengert_core::Literal;
use wengert_testing::Random;

/// Integers that are wrong, or nearly, wherever one is expected.
const INTEGERS: [i64; 20] = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    5,
    7,
    100,
    -100,
    1 << 10,
    1 << 16,
    1 << 20,
    (1 << 24) - 1,
    1 << 25,
    1 << 29,
    1 << 31,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

/// The most memory that an import may take beside the file.
const MOST_MEMORY: usize = 256 << 20;

/// The most processor time. Without optimisation, checks of the graph take part, and all is slower.
const MOST_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });

thread_local! {
    /// Panics of this thread, caught or not.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn mutants_are_imported_or_refused_within_limits() {
    let mut folders = vec![];
    for folder in [onnx_suite::node_tests().unwrap(), onnx_suite::microsoft_tests().unwrap()] {
        folders.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    folders.retain(|folder| folder.join("model.onnx").is_file());
    folders.sort();
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    let usual = folders.len() as u64 * if tier::is_deep() { 30 } else { 1 };
    let count = number("WENGERT_MUTANTS").unwrap_or(usual);
    let first = number("WENGERT_MUTANTS_SEED").unwrap_or(0);
    // A panic after an error is caught by the builder, which reports the error.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        usual(info);
    }));
    let (mut bad, mut imported) = (vec![], 0);
    let (mut slowest, mut largest) = ((Duration::ZERO, 0), (0, 0));
    for seed in first..first + count {
        let folder = &folders[(seed % folders.len() as u64) as usize];
        let (bytes, options) = mutant(&mut Random(seed), folder);
        let size = bytes.len();
        let import = AssertUnwindSafe(|| read("m.onnx", bytes, &nowhere, &options).is_ok());
        let (result, Spent { time, memory }) = measured(|| catch_unwind(import));
        imported += u64::from(matches!(result, Ok(true)));
        slowest = slowest.max((time, seed));
        largest = largest.max((memory, seed));
        let fault = if result.is_err() || PANICS.take() > 0 {
            "it panics".to_owned()
        } else if time > MOST_TIME {
            format!("{time:.1?} of the processor")
        } else if memory > MOST_MEMORY + size {
            format!("{} MiB of memory", memory >> 20)
        } else {
            continue;
        };
        let name = folder.file_name().unwrap_or_default().display();
        println!("mutants: seed {seed}, {name}: {fault}");
        bad.push(format!("{name} of seed {seed}: {fault}"));
    }
    println!("{} passed, {} failed", count - bad.len() as u64, bad.len());
    println!(
        "{imported} are imported, the others refused; at the most {:.0?} (seed {}) and {} KiB \
         (seed {})",
        slowest.0,
        slowest.1,
        largest.0 >> 10,
        largest.1
    );
    assert!(bad.is_empty(), "{} of {count} fail:\n{}", bad.len(), bad.join("\n"));
}

/// The bytes of a model with one to three mutations, and inputs that are bound.
fn mutant(random: &mut Random, folder: &Path) -> (Bytes, Options) {
    let bytes = Bytes::from(std::fs::read(folder.join("model.onnx")).unwrap());
    let mut options = Options::default();
    if random.chance(50) {
        options = bound(random, folder, bytes.clone());
    }
    if random.chance(10) {
        return (bytes_changed(random, &bytes), options);
    }
    let mut model = ModelProto::decode(bytes).unwrap();
    for _ in 0..1 + random.below(3) {
        change(random, &mut model);
    }
    (model.encode_to_vec().into(), options)
}

/// Binds small inputs to their values, or to wrong ones.
fn bound(random: &mut Random, folder: &Path, model: Bytes) -> Options {
    let mut options = Options::default();
    let names = inputs("m.onnx", model, &nowhere).unwrap_or_default();
    for (n, name) in names.into_iter().enumerate() {
        let path: PathBuf = folder.join(format!("test_data_set_0/input_{n}.pb"));
        let value = std::fs::read(path).ok().and_then(|bytes| read_tensor(bytes.into()).ok());
        let value = value.map(|stored| stored.literal).filter(|value| value.len() <= 64);
        let Some(mut value) = value else { continue };
        if value.dtype().is_integer() && random.chance(50) {
            let wrong = (0..value.len()).map(|_| integer(random)).collect();
            let wrong = Literal::from_vec(value.shape(), wrong).unwrap();
            value = wrong.convert(value.dtype());
        }
        options.bound.insert(name, value);
    }
    options
}

fn integer(random: &mut Random) -> i64 {
    *random.pick(&INTEGERS)
}

fn bytes_changed(random: &mut Random, bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    match random.below(3) {
        0 => bytes.truncate(random.below(bytes.len())),
        _ => {
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    bytes.into()
}

fn change(random: &mut Random, model: &mut ModelProto) {
    let kind = random.below(12);
    if kind == 0 {
        if let Some(opset) = model.opset_import.first_mut() {
            opset.version = Some(random.below(32) as i64);
        }
        return;
    }
    if kind == 1 && !model.functions.is_empty() {
        let at = random.below(model.functions.len());
        return names(random, &mut model.functions[at].node);
    }
    let graph = model.graph.get_or_insert_default();
    match kind {
        2..=4 => inputs_changed(random, graph),
        5 => initializer(random, graph),
        6 => names(random, &mut graph.node),
        _ if !graph.node.is_empty() => {
            let at = random.below(graph.node.len());
            node(random, &mut graph.node[at]);
        }
        _ => {}
    }
}

/// Names that are given twice, cycles, and a node that calls the function that it is in.
fn names(random: &mut Random, nodes: &mut [NodeProto]) {
    if nodes.is_empty() {
        return;
    }
    let [at, from] = [random.below(nodes.len()), random.below(nodes.len())];
    let result = nodes[from].output.first().cloned().unwrap_or_default();
    match random.below(3) {
        0 if !nodes[at].input.is_empty() => {
            let operand = random.below(nodes[at].input.len());
            nodes[at].input[operand] = result;
        }
        1 => nodes[at].output = vec![result],
        _ => nodes.swap(at, from),
    }
}

/// An initializer that is changed or there twice, or another one, with values that lie elsewhere.
fn initializer(random: &mut Random, graph: &mut GraphProto) {
    if graph.initializer.is_empty() || random.chance(30) {
        let input = graph.input.first().cloned().unwrap_or_default();
        let location = StringStringEntryProto {
            key: Some("location".into()),
            value: Some((*random.pick(&["../x.bin", "/etc/passwd", "x.bin", ""])).into()),
        };
        graph.initializer.push(TensorProto {
            name: input.name,
            dims: (0..random.below(3)).map(|_| integer(random)).collect(),
            data_type: Some(1 + random.below(16) as i32),
            external_data: vec![location],
            data_location: Some(1),
            ..Default::default()
        });
        return;
    }
    let at = random.below(graph.initializer.len());
    match random.chance(15) {
        true => graph.initializer.push(graph.initializer[at].clone()),
        false => tensor(random, &mut graph.initializer[at]),
    }
}

/// Another rank, extent or dtype of an input.
fn inputs_changed(random: &mut Random, graph: &mut GraphProto) {
    if graph.input.is_empty() {
        return;
    }
    let at = random.below(graph.input.len());
    let ty = graph.input[at].r#type.get_or_insert_default();
    let ty = ty.tensor_type.get_or_insert_default();
    let dims = &mut ty.shape.get_or_insert_default().dim;
    let extent = |random: &mut Random| match random.chance(20) {
        true => DimensionProto { dim_value: None, dim_param: Some("n".into()) },
        false => DimensionProto { dim_value: Some(integer(random)), dim_param: None },
    };
    match random.below(5) {
        0 => ty.elem_type = Some(random.below(30) as i32),
        1 => dims.clear(),
        2 => drop(dims.pop()),
        3 => {
            let at = random.below(dims.len() + 1);
            dims.insert(at, extent(random));
        }
        _ if !dims.is_empty() => {
            let at = random.below(dims.len());
            dims[at] = extent(random);
        }
        _ => {}
    }
}

/// Other extents, values or another dtype.
fn tensor(random: &mut Random, tensor: &mut TensorProto) {
    match random.below(6) {
        0 => tensor.data_type = Some(random.below(30) as i32),
        1 => tensor.dims.push(integer(random)),
        2 => drop(tensor.dims.pop()),
        3 if !tensor.dims.is_empty() => {
            let at = random.below(tensor.dims.len());
            tensor.dims[at] = integer(random);
        }
        4 => {
            let cut = |length: usize, random: &mut Random| random.below(length + 1);
            if let Some(raw) = &mut tensor.raw_data {
                raw.truncate(cut(raw.len(), random));
            }
            tensor.float_data.truncate(cut(tensor.float_data.len(), random));
            tensor.int64_data.truncate(cut(tensor.int64_data.len(), random));
        }
        _ => {
            for value in &mut tensor.int64_data {
                *value = integer(random);
            }
            if let Some(raw) = &tensor.raw_data
                && tensor.data_type == Some(7)
            {
                let wrong = (0..raw.len() / 8).flat_map(|_| integer(random).to_le_bytes());
                tensor.raw_data = Some(wrong.collect::<Vec<u8>>().into());
            }
        }
    }
}

/// Other operands or attributes of a node.
fn node(random: &mut Random, node: &mut NodeProto) {
    match random.below(6) {
        0 if !node.input.is_empty() => {
            let at = random.below(node.input.len());
            node.input.remove(at);
        }
        1 if !node.input.is_empty() => {
            let (at, from) = (random.below(node.input.len()), random.below(node.input.len()));
            node.input[at] = node.input[from].clone();
        }
        2 if !node.input.is_empty() => {
            let at = random.below(node.input.len());
            node.input[at].clear();
        }
        _ if !node.attribute.is_empty() => {
            let at = random.below(node.attribute.len());
            if random.chance(15) {
                node.attribute.remove(at);
            } else {
                attribute(random, &mut node.attribute[at]);
            }
        }
        _ => {}
    }
}

fn attribute(random: &mut Random, attribute: &mut AttributeProto) {
    if let Some(graph) = &mut attribute.g {
        if !graph.node.is_empty() {
            let at = random.below(graph.node.len());
            node(random, &mut graph.node[at]);
        }
        return inputs_changed(random, graph);
    }
    match random.below(5) {
        0 => attribute.r#type = Some(random.below(15) as i32),
        1 => drop(attribute.ints.pop()),
        2 => attribute.ints.push(integer(random)),
        _ => {
            for value in &mut attribute.ints {
                if random.chance(50) {
                    *value = integer(random);
                }
            }
            if attribute.i.is_some() {
                attribute.i = Some(integer(random));
            }
            if let Some(value) = &mut attribute.f {
                *value = *random.pick(&[0.0, -1.0, f32::NAN, f32::INFINITY, 1e30]);
            }
            if let Some(text) = &mut attribute.s {
                text.pop();
            }
            if let Some(value) = &mut attribute.t {
                tensor(random, value);
            }
        }
    }
}
