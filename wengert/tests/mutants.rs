//! Hostile files: reads 100,000 mutants of `.graph`, `.plan` and `.ir` files. None may panic, hang,
//! or allocate more than 256 MiB.
//!
//! A third of the binary mutants are damaged as whole files, and most of those are refused by a
//! checksum. The others are damaged within a section and get correct checksums, as an attacker
//! would do. They reach the decoding of records, the construction of programs and the verifier. The
//! seed determines everything, and a failure names it.
//!
//! This is also the fuzz target. `WENGERT_FUZZ_CASES=100000000 WENGERT_FUZZ_SEED=7 cargo test
//! --release --test mutants` runs that many cases.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wengert::core::graph::Program;
use wengert::core::graph::{PrintOptions, parse_program, print};
use wengert::core::{Initializer, Target, Tensor};
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

/// Counts the allocated bytes and records their maximum.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every method passes its arguments unchanged to the system's allocator and returns its
// result. The counters access no other memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises about `layout` are the ones that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `block` came from `System` by one of these methods, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        grow(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
