//! Trains a recurrent network with the command, on the CPU and on the emulated GPU. The sanitizers
//! must report nothing. Also checks the dumps.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use wengert::data::{Arrays, npz};
use wengert::nn::Lstm;
use wengert::prelude::*;
use wengert::recipe::{Batches, Cadence, InputRecipe, LastBatch, Length, Monitoring, StepRecipe};
use wengert::{GraphFile, Recipe};

/// A network that outputs, at each step, the class (one of three) of the input two steps before.
#[derive(Differentiable)]
struct Echo {
    lstm: Lstm,
    out: Linear,
}

fn write(folder: &Path) {
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let x = f.input("x", i32("B,9")).permute(&[1, 0]);
        let y = f.input("y", i32("B,9")).permute(&[1, 0]);
        let model = f.state("model", Echo { lstm: Lstm::new(3, 6), out: Linear::new(6, 3) });
        let (loss, gradient) = value_and_grad(&model, |m| {
            let begin = m.lstm.zero_state(x.shape()[1].clone());
            cross_entropy(&m.out.call(&m.lstm.call(&x.one_hot(3, DType::F32), &begin).0), &y)
        });
        AdamW::new(0.03).step(f, &model, &gradient);
        f.output("loss", loss);
    };
    program.function("train_step", build).unwrap();
    let told: Vec<i32> = (0..8 * 9).map(|n: i32| (n * n + n / 9) % 3).collect();
    let wanted: Vec<i32> =
        (0..told.len()).map(|n| if n % 9 < 2 { 0 } else { told[n - 2] }).collect();
    let array = |values| Literal::from_vec(&[8, 9], values).unwrap();
    let data = Arrays::from([("x".to_owned(), array(told)), ("y".to_owned(), array(wanted))]);
    npz::write(folder.join("echo.npz"), data.iter().map(|(name, array)| (name.as_str(), array)))
        .unwrap();
    let recipe = Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![InputRecipe::new("x", "x"), InputRecipe::new("y", "y")],
            loss: "loss".into(),
        },
        evaluate: None,
        batches: Batches { size: 4, shuffle: Some(1), blocks: None, last: LastBatch::Drop },
        length: Length::Steps(12),
        checkpoint: Cadence::Never,
        key_seed: 1,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }
        .write(folder.join("echo.graph"))
        .unwrap();
}

fn graphrun(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_emulated_gpu_trains_a_recurrent_network_like_the_cpu() {
    let place = TempDir::new().unwrap();
    write(place.path());
    let losses = |device: &str| -> Vec<f64> {
        let out = format!("runs/{device}");
        let train =
            ["train", "echo.graph", "--data", "echo.npz", "--device", device, "--out", &out];
        graphrun(place.path(), &train);
        let log = std::fs::read_to_string(place.path().join(&out).join("log.jsonl")).unwrap();
        let loss =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64();
        log.lines().filter_map(loss).collect()
    };
    let (cpu, emulated) = (losses("cpu"), losses("emulator"));
    assert_eq!((cpu.len(), emulated.len()), (12, 12));
    assert!(cpu.iter().zip(&emulated).all(|(a, b)| (a - b).abs() < 1e-4), "{cpu:?}\n{emulated:?}");
    assert!(cpu[11] < cpu[0], "{cpu:?}");
}

/// One loop forward and one backward, each with its own block, for any length of the window.
#[test]
fn what_is_dumped_has_one_region_for_each_loop() {
    let place = TempDir::new().unwrap();
    write(place.path());
    let dump = |stage: &str| {
        graphrun(
            place.path(),
            &["dump", "echo.graph@train_step", "--stage", stage, "--bind", "B=4"],
        )
    };
    let count = |text: &str, what: &str| text.matches(what).count();
    let (graph, opt, nests, plan) = (dump("graph"), dump("opt"), dump("nests"), dump("plan"));
    assert_eq!((count(&graph, " = scan "), count(&graph, " region (")), (2, 2), "{graph}");
    assert_eq!((count(&opt, " = scan "), count(&opt, " region (")), (2, 2), "{opt}");
    // The gradient of the loop's captured weights is one product after the loop, over all steps.
    // The loop carries no sum.
    let gates = "f32[6,24]";
    let (_, behind) = opt.rsplit_once("    }\n").unwrap();
    assert!(
        behind
            .lines()
            .any(|l| l.contains("dot_general") && (l.contains(gates) || l.contains("f32[24,6]"))),
        "{opt}"
    );
    assert_eq!(count(&nests, "kernels of @train_step.scan"), 2, "{nests}");
    assert_eq!(count(&plan, " trip 9"), 2, "{plan}");
    // A captured value keeps its name.
    assert!(nests.contains("param model.lstm.recurrent"), "{nests}");
}
