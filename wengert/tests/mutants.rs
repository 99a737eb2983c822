//! Hostile files: reads 100,000 mutants of `.graph`, `.plan` and `.ir` files, and 10,000 of
//! checkpoints in parts. None may panic, hang, or allocate more than 256 MiB.
//!
//! A third of the binary mutants are damaged as whole files, and most of those are refused by a
//! checksum. The others are damaged within a section and get correct checksums, as an attacker
//! would do. They reach the decoding of records, the construction of programs and the verifier. The
//! seed determines everything, and a failure names it.
//!
//! This is also the fuzz target. `WENGERT_FUZZ_CASES=100000000 WENGERT_FUZZ_SEED=7 cargo test
//! --release --test mutants` runs that many cases.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod counting;

use counting::{LIVE, PEAK};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use wengert::core::graph::Program;
use wengert::core::graph::{PrintOptions, parse_program, print};
use wengert::core::{Initializer, Target, Tensor};
use wengert::data::safetensors::SafetensorsFile;
use wengert::format::container::{self, Kind, Section};
use wengert::format::{GraphFile, Weights, plan, v1};
use wengert::pipeline::{Options, compile};
use wengert::random::SplitMix64;
use wengert::recipe::{
    Batches, Cadence, InputRecipe, LastBatch, Length, Monitoring, Recipe, StepRecipe, Transform,
};
use wengert::{Binding, DType, Dim, Literal, TensorType};
use wengert_testing::programs::random_program;

const LARGEST: usize = 256 << 20;

/// Changes some bytes in one of several ways that readers commonly mishandle.
fn mutate(bytes: &mut Vec<u8>, random: &mut SplitMix64) {
    let below = |random: &mut SplitMix64, bound: usize| random.below(bound.max(1) as u64) as usize;
    for _ in 0..=below(random, 4) {
        let at = below(random, bytes.len());
        let end = (at + 1 + below(random, 16)).min(bytes.len());
        match random.below(9) {
            _ if bytes.is_empty() => bytes.push(random.next_u64() as u8),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u64() as u8,
            // Bincode marks longer integers with these bytes.
            2 => bytes[at] = 250 + random.below(6) as u8,
            3 => bytes[at] = bytes[at].wrapping_add(1),
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..end)),
            6 => {
                let copy = bytes[at..end].to_vec();
                let to = below(random, bytes.len());
                bytes.splice(to..to, copy);
            }
            7 => {
                let noise: Vec<u8> =
                    (0..below(random, 12)).map(|_| random.next_u64() as u8).collect();
                bytes.splice(at..at, noise);
            }
            _ => bytes[at..end].fill(0xff),
        }
    }
}

/// Damages a text: changes bytes, or moves whole words and lines.
fn mutate_text(bytes: &mut Vec<u8>, random: &mut SplitMix64) {
    if random.below(2) == 0 {
        return mutate(bytes, random);
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    let separator = if random.below(2) == 0 { "\n" } else { " " };
    let mut pieces: Vec<&str> = text.split(separator).collect();
    const SPICE: [&str; 12] = [
        "9223372036854775807",
        "-1",
        "0",
        "4294967296*B",
        "[",
        "}",
        "@f",
        "%0",
        "f64[1000000,1000000]",
        "nan(0x7fc1)",
        "{",
        "\"",
    ];
    for _ in 0..=random.below(3) {
        let at = random.below(pieces.len() as u64) as usize;
        let other = random.below(pieces.len() as u64) as usize;
        match random.below(4) {
            0 => pieces.swap(at, other),
            1 => pieces.insert(at, pieces[other]),
            2 => pieces[at] = SPICE[random.below(SPICE.len() as u64) as usize],
            _ => {
                if pieces.len() > 1 {
                    pieces.remove(at);
                }
            }
        }
    }
    *bytes = pieces.join(separator).into_bytes();
}

/// Damages a file, or one of its sections with corrected checksums.
fn mutate_file(kind: Kind, version: u32, bytes: &mut Vec<u8>, random: &mut SplitMix64) {
    if random.below(3) == 0 {
        return mutate(bytes, random);
    }
    let (_, sections) = container::read(kind, &[version], bytes).unwrap();
    let mut sections: Vec<(String, Vec<u8>)> =
        sections.into_iter().map(|s| (s.name.to_owned(), s.bytes.to_vec())).collect();
    let chosen = random.below(sections.len() as u64) as usize;
    match random.below(20) {
        0 => drop(sections.remove(chosen)),
        1 => sections[chosen].0 = "unknown".into(),
        _ if sections[chosen].0 == "plan" => mutate_text(&mut sections[chosen].1, random),
        _ => mutate(&mut sections[chosen].1, random),
    }
    let sections: Vec<_> = sections.iter().map(|(name, bytes)| Section { name, bytes }).collect();
    *bytes = container::write(kind, version, &sections);
}

/// The number of mutants, and the seed of all of them.
fn extent() -> (u64, u64) {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    };
    (number("WENGERT_FUZZ_CASES", 100_000), number("WENGERT_FUZZ_SEED", 20_261_120))
}

/// Reads a mutant; true if it was accepted.
fn survives(
    (seed, case): (u64, u64),
    what: &str,
    bytes: &[u8],
    read: &dyn Fn(&[u8]) -> bool,
) -> bool {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| read(bytes)));
    let (time, bytes_used) = (began.elapsed(), PEAK.load(Relaxed) - before);
    let keep = || {
        let path = std::env::temp_dir().join(format!("wengert-mutant-{case}"));
        std::fs::write(&path, bytes).unwrap();
        format!("{what} mutant {case} of seed {seed}, kept as {}", path.display())
    };
    assert!(bytes_used <= LARGEST, "{} took {bytes_used} bytes", keep());
    assert!(time < Duration::from_secs(10), "{} took {time:?}", keep());
    result.unwrap_or_else(|_| panic!("{} made the reader panic", keep()))
}

fn program() -> Program {
    let model = || Tensor::variable(TensorType::new(DType::F32, [3usize, 4]), Initializer::Zeros);
    let x = || TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]);
    let mut program = Program::new();
    program
        .function("init", |f| {
            let key = f.key("key");
            let row = Tensor::constant(
                Literal::from_vec(&[3, 4], (0..12).map(|i| i as f32).collect()).unwrap(),
            );
            f.create("model.w", &(&row * &key.convert(DType::F32).sum()));
        })
        .unwrap();
    program
        .function("train_step", |f| {
            let (x, w) = (f.input("x", x()), f.state("model.w", model()));
            let y = x.dot(&w);
            let part = y.slice_axis(1, 1usize, 3usize).sum_axes(&[0]);
            let joined =
                Tensor::concatenate(&[&part, &part], 0).reshape([2usize, 2]).permute(&[1, 0]);
            f.update("model.w", &(&w - &(0.1 * &w)));
            f.output("loss", (&joined * &joined).sum());
        })
        .unwrap();
    program
        .function("predict", |f| {
            let (x, w) = (f.input("x", x()), f.param("model.w", model()));
            f.output("y", x.dot(&w).max_axes(&[1]).convert(DType::I32));
        })
        .unwrap();
    program
}

fn graph_file() -> Vec<u8> {
    let recipe = Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![InputRecipe::new("x", "x_train").then(Transform::Convert(DType::F32))],
            loss: "loss".into(),
        },
        evaluate: None,
        batches: Batches { size: 4, shuffle: Some(1), blocks: None, last: LastBatch::Drop },
        length: Length::Steps(10),
        checkpoint: Cadence::Never,
        key_seed: 3,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    let weights = [("model.w".to_owned(), Literal::zeros(DType::F32, &[3, 4]))].into();
    let file =
        GraphFile { program: program(), recipe: Some(recipe), weights: Weights::Inline(weights) };
    file.to_bytes().unwrap()
}

/// Reads a file. An accepted file must be accepted again after it is written.
fn read_graph(bytes: &[u8]) -> bool {
    let Ok(file) = GraphFile::from_bytes(bytes) else { return false };
    let written = file.to_bytes().expect("what was read can be written");
    assert!(GraphFile::from_bytes(&written).expect("what is written is read") == file);
    true
}

/// Reads a plan. An accepted plan must be accepted again after it is written.
fn read_plan(bytes: &[u8]) -> bool {
    let Ok(read) = plan::from_bytes(bytes) else { return false };
    let written = plan::to_bytes(&read).expect("what was read can be written");
    assert!(plan::from_bytes(&written).expect("what is written is read") == read);
    true
}

/// The plans of a program's functions, with every dimension variable bound to 2.
fn plan_files(program: &Program) -> Vec<Vec<u8>> {
    let functions = program.functions().iter().filter_map(|function| {
        let binding = function.variables().iter().fold(Binding::new(), |b, name| b.with(name, 2));
        function.bind(&binding).ok()?;
        let options = Options::default();
        let compiled =
            compile(program, &function.name, &binding, &Target::cpu(), &options).unwrap();
        Some(plan::to_bytes(std::slice::from_ref(&compiled)).unwrap())
    });
    functions.collect()
}

/// Reads a text. An accepted text must print as a text that is accepted, too.
fn read_text(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(program) = parse_program(text, "mutant.ir") else { return false };
    parse_program(&program.to_string(), "printed.ir").expect("what is printed is read");
    true
}

#[test]
fn mutants_neither_panic_nor_hang_nor_devour_memory() {
    let programs: Vec<Program> =
        (0..20).map(|seed| random_program(seed, 12)).chain([program()]).collect();
    let graphs: Vec<Vec<u8>> = programs
        .iter()
        .map(|program| GraphFile::new(program.clone()).to_bytes().unwrap())
        .chain([graph_file()])
        .collect();
    let texts: Vec<Vec<u8>> = programs
        .iter()
        .flat_map(|program| {
            [false, true].map(|locations| print(program, &PrintOptions { locations }).into_bytes())
        })
        .collect();
    let plans: Vec<Vec<u8>> = programs.iter().flat_map(plan_files).collect();
    let (mut graphs_accepted, mut texts_accepted, mut plans_accepted) = (0, 0, 0);
    let (cases, seed) = extent();
    for case in 0..cases {
        let mut random = SplitMix64::of(seed, &[case]);
        let id = (seed, case);
        let pick = |all: &[Vec<u8>], random: &mut SplitMix64| {
            all[random.below(all.len() as u64) as usize].clone()
        };
        match case % 3 {
            0 => {
                let mut bytes = pick(&graphs, &mut random);
                mutate_file(Kind::Graph, v1::VERSION, &mut bytes, &mut random);
                graphs_accepted += u64::from(survives(id, ".graph", &bytes, &read_graph));
            }
            1 => {
                let mut bytes = pick(&plans, &mut random);
                mutate_file(Kind::Plan, v1::VERSION, &mut bytes, &mut random);
                plans_accepted += u64::from(survives(id, ".plan", &bytes, &read_plan));
            }
            _ => {
                let mut bytes = pick(&texts, &mut random);
                mutate_text(&mut bytes, &mut random);
                texts_accepted += u64::from(survives(id, ".ir", &bytes, &read_text));
            }
        }
    }
    // Some damage is harmless (in a name, a location, a weight). If no mutant were accepted, the
    // deeper checks would not have run.
    let accepted = [graphs_accepted, plans_accepted, texts_accepted];
    assert!(
        accepted.iter().all(|n| *n > cases / 400),
        "accepted of {cases} graphs, plans and texts: {accepted:?}"
    );
}

/// A safetensors file with a checksum, as `docs/files.md` describes it. A tensor has a name, a
/// dtype, a shape and bytes.
fn checked_file(tensors: &[(&str, &str, &str, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (r#"{"__metadata__":{"crc32":"00000000"}"#.to_owned(), vec![]);
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (data.len(), data.len() + bytes.len());
        header += &format!(
            r#","{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#
        );
        data.extend_from_slice(bytes);
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.append(&mut data);
    let digits = checksum(&file);
    file.splice(34..42, digits.into_bytes());
    file
}

/// The digits of the checksum of a file whose digits are zeros.
fn checksum(file: &[u8]) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(file);
    format!("{:08x}", hasher.finalize())
}

/// The name of a rank's part.
fn part_name(rank: usize) -> String {
    format!("checkpoint-000000007.{rank}-of-4.safetensors")
}

/// The parts of `a`, f32 [4, 12] in three blocks, which are the numbers of the whole in order, and
/// of `b`, u8 [6], for two times two ranks.
fn parts() -> Vec<Vec<u8>> {
    let part = |rank: usize| {
        let (tensor, data) = (rank % 2, rank / 2);
        let columns = (0..3).flat_map(|block| [0, 1].map(|n| block * 4 + tensor * 2 + n));
        let rows = [0, 1].map(|n| data * 2 + n).into_iter();
        let a = rows.flat_map(|row| columns.clone().map(move |n| (row * 12 + n) as f32));
        let a: Vec<u8> = a.flat_map(f32::to_le_bytes).collect();
        let which = [7, rank as u64, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut tensors = vec![("/part", "U64", "[3]", which), ("a", "F32", "[2,6]", a)];
        if tensor == 0 {
            let b = (0..3).map(|n| (data * 3 + n) as u8).collect();
            tensors.push(("b", "U8", "[3]", b));
        }
        checked_file(&tensors)
    };
    (0..4).map(part).collect()
}

/// The list of these parts, in JSON.
fn list(parts: &[Vec<u8>]) -> String {
    let files = parts.iter().enumerate().map(|(rank, part)| {
        let (name, bytes) = (part_name(rank), part.len());
        let crc32 = String::from_utf8_lossy(part.get(34..42).unwrap_or(b"00000000"));
        format!(r#"{{"rank":{rank},"name":"{name}","bytes":{bytes},"crc32":"{crc32}"}}"#)
    });
    let files = files.collect::<Vec<_>>().join(",");
    let a = r#"{"name":"a","dtype":"f32","shape":[4,12],"tensor":"1/3","data":0}"#;
    let b = r#"{"name":"b","dtype":"u8","shape":[6],"data":0}"#;
    format!(r#"{{"step":7,"tensor":2,"data":2,"variables":[{a},{b}],"files":[{files}]}}"#)
}

/// A checkpoint with a list of parts.
fn index(list: Vec<u8>) -> Vec<u8> {
    let shape = format!("[{}]", list.len());
    let step = 7u64.to_le_bytes().to_vec();
    let c = 1.5f32.to_le_bytes().to_vec();
    checked_file(&[
        ("/step", "U64", "[]", step),
        ("c", "F32", "[]", c),
        ("/parts", "U8", &shape, list),
    ])
}

/// Replaces a number of a text by another one.
fn mutate_number(text: &mut Vec<u8>, random: &mut SplitMix64) {
    const NUMBERS: [&str; 10] = [
        "0",
        "1",
        "2",
        "3",
        "4096",
        "65536",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "-1",
    ];
    let is_digit = |n: &usize| text[*n].is_ascii_digit();
    let starts: Vec<usize> =
        (0..text.len()).filter(is_digit).filter(|n| *n == 0 || !is_digit(&(n - 1))).collect();
    let start = starts[random.below(starts.len() as u64) as usize];
    let end = (start..text.len()).find(|n| !is_digit(n)).unwrap_or(text.len());
    let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
    text.splice(start..end, number.bytes());
}

/// Writes a file anew: to write over one takes longer, since file systems flush it.
fn write_anew(path: &std::path::Path, bytes: &[u8]) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Checkpoints in parts: an index with a damaged list, or a damaged part, with correct checksums.
#[test]
fn mutants_of_checkpoints_in_parts_neither_panic_nor_devour_memory() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let good = parts();
    for (rank, part) in good.iter().enumerate() {
        std::fs::write(at(&part_name(rank)), part).unwrap();
    }
    let path = at("checkpoint-000000007.safetensors");
    std::fs::write(&path, index(list(&good).into_bytes())).unwrap();
    let whole = SafetensorsFile::open(&path).unwrap().read_all().unwrap();
    let a: Vec<f32> = (0..48).map(|n| n as f32).collect();
    assert_eq!(whole["a"], Literal::from_vec(&[4, 12], a).unwrap());
    assert_eq!(whole["b"], Literal::from_vec(&[6], vec![0u8, 1, 2, 3, 4, 5]).unwrap());
    assert_eq!(whole.keys().collect::<Vec<_>>(), ["/step", "a", "b", "c"]);
    let (cases, seed) = extent();
    let mut accepted = [0, 0];
    for case in 0..cases / 10 {
        let mut random = SplitMix64::of(seed, &[case, 1]);
        let id = (seed, case);
        if case % 2 == 0 {
            let mut text = list(&good).into_bytes();
            match random.below(3) {
                0 => mutate(&mut text, &mut random),
                1 => mutate_number(&mut text, &mut random),
                _ => {
                    mutate_number(&mut text, &mut random);
                    mutate_number(&mut text, &mut random);
                }
            }
            let read = |bytes: &[u8]| {
                write_anew(&path, bytes);
                SafetensorsFile::open(&path).and_then(|file| file.read_all()).is_ok()
            };
            accepted[0] += u64::from(survives(id, "index", &index(text), &read));
            continue;
        }
        let rank = random.below(4) as usize;
        let mut changed = good.clone();
        let part = &mut changed[rank];
        if random.below(2) == 0 {
            mutate(part, &mut random);
        } else {
            let at = 42 + random.below(part.len() as u64 - 42) as usize;
            part[at] ^= 1 << random.below(8);
        }
        if part.len() >= 42 {
            part[34..42].copy_from_slice(b"00000000");
            let digits = checksum(part);
            part[34..42].copy_from_slice(digits.as_bytes());
        }
        let index = index(list(&changed).into_bytes());
        let read = |bytes: &[u8]| {
            write_anew(&at(&part_name(rank)), bytes);
            write_anew(&path, &index);
            SafetensorsFile::open(&path).and_then(|file| file.read_all()).is_ok()
        };
        accepted[1] += u64::from(survives(id, "part", &changed[rank], &read));
        write_anew(&at(&part_name(rank)), &good[rank]);
    }
    println!("accepted of {} indices and parts: {accepted:?}", cases / 10);
    assert!(accepted.iter().all(|n| *n > cases / 2000), "{accepted:?}");
}
