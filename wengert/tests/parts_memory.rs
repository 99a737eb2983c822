//! No rank has all variables in memory when a run with divided variables goes on from a checkpoint
//! and writes its weights: the memory of all ranks together is counted.
//!
//! It is a test binary of its own, because its allocator counts the bytes of all threads.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod counting;

use counting::{LIVE, PEAK};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wengert::core::graph::{Program, parse_program};
use wengert::data::Arrays;
use wengert::recipe::{
    Batches, Cadence, InputRecipe, LastBatch, Length, Monitoring, Recipe, StepRecipe,
};
use wengert::train::{Options, Sharding, train};
use wengert::transport::shared;
use wengert::{DType, Device, DeviceOptions, Literal, Session};

/// Variables of the program.
const COUNT: usize = 16;
/// Bytes of one of them.
const BYTES: usize = 4 << 20;
const RANKS: usize = 4;

/// A step that scales the variables by numbers of the examples.
fn program() -> Program {
    let ty = format!("f32[{}]", BYTES / 4);
    let (mut inputs, mut states, mut body, mut next) =
        (String::new(), String::new(), String::new(), String::new());
    for n in 0..COUNT {
        write!(inputs, ", state %w{n}: {ty}").unwrap();
        write!(states, ", state w{n}: {ty}").unwrap();
        writeln!(body, "  %n{n}: {ty} = mul %w{n}, %s").unwrap();
        write!(next, ", %n{n}").unwrap();
    }
    let created: Vec<String> = (0..COUNT).map(|n| format!("state w{n}: {ty}")).collect();
    let zeros = vec!["%0"; COUNT].join(", ");
    let shape = &ty[3..];
    let text = format!(
        "func @init() -> ({}) {{\n  %0: {ty} = constant {{value={ty} 1.0}}\n  \
         return {zeros}\n}}\n\n\
         func @step(%x: f32[B]{inputs}) -> (loss: f32[]{states}) {{\n  \
         %loss: f32[] = reduce_sum %x {{axes=[0]}}\n  \
         %s: {ty} = broadcast_in_dim %loss {{dims=[], shape={shape}}}\n\
         {body}  return %loss{next}\n}}\n",
        created.join(", ")
    );
    parse_program(&text, "scaled.ir").unwrap()
}

fn recipe(steps: u64) -> Recipe {
    let inputs = vec![InputRecipe::new("x", "x")];
    Recipe {
        init: Some("init".into()),
        step: StepRecipe { function: "step".into(), inputs, loss: "loss".into() },
        evaluate: None,
        batches: Batches { size: 4, shuffle: None, blocks: None, last: LastBatch::Drop },
        length: Length::Steps(steps),
        checkpoint: Cadence::Never,
        key_seed: 0,
        microbatches: 4,
        precision: None,
        monitoring: Monitoring::default(),
    }
}

/// Runs on ranks that are threads. Returns the most bytes that they had at once.
fn run(program: &Program, folder: &Path, resume: bool, sharding: Sharding) -> usize {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let timeout = Duration::from_secs(120);
    let options = wengert::transport::Options { timeout, ..Default::default() };
    let world = shared::threads(RANKS, &options).unwrap();
    let x = Literal::from_vec(&[4], vec![0.5f32, 0.25, 1.0, 0.5]).unwrap();
    let data = Arrays::from([("x".to_owned(), x)]);
    std::thread::scope(|scope| {
        for world in world {
            let data = &data;
            scope.spawn(move || {
                let one = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
                let mut session = Session::open_with(Device::Cpu, &one).unwrap();
                let options = Options {
                    world: Some(&world),
                    folder: Some(folder),
                    resume,
                    sharding,
                    ..Options::default()
                };
                train(&mut session, program, &recipe(1), data, options, &mut |_| {}).unwrap();
                let ty = &session.variable_types()["w0"];
                assert_eq!(ty.dtype, DType::F32);
            });
        }
    });
    PEAK.load(Relaxed) - before
}

#[test]
fn no_rank_has_all_variables() {
    let program = program();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all = COUNT * BYTES;
    run(&program, folder, false, Sharding::Parameters);
    // The sizes of files: a rank's part of all, and an index without variables.
    let size = |name: &str| std::fs::metadata(folder.join(name)).unwrap().len() as usize;
    for rank in 0..RANKS {
        let part = size(&format!("checkpoint-000000001.{rank}-of-{RANKS}.safetensors"));
        assert!((all / RANKS..all / RANKS + 4096).contains(&part), "{part} bytes");
    }
    assert!(size("checkpoint-000000001.safetensors") < 8192);
    // The run has no step left: it reads the checkpoint and writes the weights. The ranks together
    // have their parts while these are set in the sessions, whose memory is not counted, and some
    // variables. Were all on one rank, they would have 1.75 times all variables with the parts of
    // the others.
    let parts = run(&program, folder, true, Sharding::Parameters);
    let mib = |bytes: usize| bytes >> 20;
    println!("{} MiB of variables, at the most {} MiB", mib(all), mib(parts));
    assert!(parts < all + all / 2, "{} MiB", mib(parts));
    assert!(size("weights.safetensors") >= all);
    // Without parts, each rank has all.
    let whole = run(&program, folder, true, Sharding::Replicated);
    println!("not divided: {} MiB", mib(whole));
    assert!(whole > RANKS * all, "{} MiB", mib(whole));
}
