//! The digits example from end to end: `graphrun` continues from the files of the Rust program and
//! gives the same bits.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use wengert::core::graph::parse_program;
use wengert::core::graph::print::{PrintOptions, print};
use wengert::core::nest::parse_nests;
use wengert::core::plan::parse_plan;
use wengert::core::{Target, Verified};
use wengert::data::{npy, npz};
use wengert::pipeline::{Options, compile, compile_kernels};
use wengert::train::checkpoint;
use wengert::{Device, GraphFile, Literal, Session, bind};

/// The example, built in the profile of this test.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--workspace", "--example", "digits"]);
    build.arg("--target-dir").arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    folder.join("examples/digits")
}

fn graphrun(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn good(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const TRAIN: [&str; 8] =
    ["train", "digits.graph", "--data", "digits.npz", "--epochs", "20", "--out", "runs/a"];

/// Trains in `runs/k`. The run is killed at twenty pseudo-random moments, and then completed.
fn train_with_kills(folder: &Path) {
    let mut arguments = TRAIN.to_vec();
    arguments[7] = "runs/k";
    let mut state = 0x9e37_79b9u64;
    for kill in 0..20 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut child = Command::new(env!("CARGO_BIN_EXE_graphrun"))
            .args(&arguments)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The time until the kill grows, so the run makes progress wherever it is killed.
        std::thread::sleep(Duration::from_millis(2 + (state >> 33) % (10 + 5 * kill)));
        child.kill().unwrap();
        child.wait().unwrap();
        let has_checkpoint =
            checkpoint::list(&folder.join("runs/k")).is_ok_and(|found| !found.is_empty());
        if has_checkpoint && arguments.len() == 8 {
            arguments.push("--resume");
        }
    }
    good(&graphrun(folder, &arguments));
}

#[test]
fn the_example_and_the_command_give_the_same_bits() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let output = Command::new(example()).current_dir(folder).output().unwrap();
    good(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let accuracy = text.lines().find_map(|l| l.strip_prefix("test accuracy after 900 steps: "));
    let accuracy: f64 = accuracy.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    assert!(accuracy >= 0.97, "{accuracy}");

    // `graphrun run` gives the session's results, for all images and for one.
    let file = GraphFile::read(folder.join("digits.graph")).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.load(folder.join("digits.safetensors")).unwrap();
    let all = npy::read(folder.join("x.npy")).unwrap();
    let first = Literal::from_vec(&[1, 64], all.as_slice::<f32>().unwrap()[..64].to_vec()).unwrap();
    npy::write(folder.join("x1.npy"), &first).unwrap();
    for (name, x) in [("x.npy", &all), ("x1.npy", &first)] {
        let (input, result) = (format!("x=@{name}"), format!("y=y{name}"));
        let predict = ["run", "digits.graph@predict", "--params", "digits.safetensors"];
        good(&graphrun(
            folder,
            &[&predict[..], &["--input", &input, "--output", &result]].concat(),
        ));
        let batch = x.shape()[0] as i64;
        let mut compiled = session.compile(&file.program, "predict", bind!(B = batch)).unwrap();
        let expected = compiled.run(&[("x", x)]).unwrap();
        assert_eq!(
            npy::read(folder.join(format!("y{name}"))).unwrap(),
            *expected.get("y").unwrap()
        );
    }

    // `graphrun train` gives the weights of the Rust program, with and without kills.
    good(&graphrun(folder, &TRAIN));
    train_with_kills(folder);
    let bytes = |path: &str| std::fs::read(folder.join(path)).unwrap();
    assert!(bytes("runs/a/weights.safetensors") == bytes("digits.safetensors"));
    assert!(bytes("runs/k/weights.safetensors") == bytes("digits.safetensors"));

    // A gradient is a program, and so is the gradient of a gradient.
    good(&graphrun(
        folder,
        &["grad", "digits.graph@loss", "--wrt", "model", "--of", "loss", "-o", "g.ir"],
    ));
    let run = ["--params", "digits.safetensors", "--input", "x=@x.npy", "--input", "y=zeros"];
    let weight = ["--output", "d_model.out.weight=g.npy"];
    good(&graphrun(folder, &[&["run", "g.ir"], &run[..], &weight[..]].concat()));
    let second = [
        "grad",
        "g.ir",
        "--wrt",
        "model.out.bias",
        "--of",
        "d_model.out.bias",
        "--seed",
        "-o",
        "h.ir",
    ];
    good(&graphrun(folder, &second));
    let seed = ["--input", "ct_d_model.out.bias=random:3"];
    good(&graphrun(folder, &[&["run", "h.ir"], &run[..], &seed[..]].concat()));
}

#[test]
fn every_stage_of_every_function_reads_back() {
    let place = TempDir::new().unwrap();
    good(&Command::new(example()).current_dir(place.path()).output().unwrap());
    let program = GraphFile::read(place.path().join("digits.graph")).unwrap().program;
    assert!(program.functions().len() >= 4);
    let options = PrintOptions { locations: true };
    assert_eq!(parse_program(&print(&program, &options), "x").unwrap(), program);
    for function in program.functions() {
        let mut binding = bind!();
        for variable in function.variables() {
            binding = binding.with(&variable, 32);
        }
        let bound = function.bind(&binding).unwrap();
        let kernels = compile_kernels(&bound, &Target::cpu(), &Options::default()).unwrap().kernels;
        for kernel in &kernels.kernels {
            if let Some(nest) = kernel.nest() {
                let text = nest.to_string();
                assert_eq!(parse_nests("x", &text).unwrap()[0].0, *nest, "{text}");
            }
        }
        let plan = compile(&program, &function.name, &binding, &Target::cpu(), &Options::default())
            .unwrap();
        assert!(parse_plan("x", &plan.to_string()).unwrap().0 == *plan);
    }
}

/// Two hundred steps of training on the emulated GPU and on the CPU, from the same weights and on
/// the same batches.
///
/// The plan for GPUs has its own reduction trees. Run on the CPU, the same plan gives the same
/// losses, bit for bit: nests have equal bits on all machines, and the sums of its matrix products
/// are so short that both machines compute them as one chain of fused multiply-adds. The CPU's own
/// plan has other trees, so its last bits differ, and training propagates the difference.
#[test]
fn the_emulated_gpu_trains_like_the_cpu() {
    const STEPS: usize = 200;
    const BATCH: usize = 64;
    let place = TempDir::new().unwrap();
    good(&Command::new(example()).current_dir(place.path()).output().unwrap());
    let file = GraphFile::read(place.path().join("digits.graph")).unwrap();
    let data = npz::Npz::open(place.path().join("digits.npz")).unwrap().read_all().unwrap();
    let (images, labels) = (&data["train_images"], &data["train_labels"]);
    let batch = |step: usize| {
        let rows = (0..BATCH).map(|k| (step * BATCH + k) % labels.len());
        let pixel =
            |row: usize| (0..64).map(move |p| images.get(row * 64 + p).to_f64() as f32 / 16.0);
        let x: Vec<f32> = rows.clone().flat_map(pixel).collect();
        let y: Vec<i32> = rows.map(|row| labels.get(row).to_i64().unwrap() as i32).collect();
        (Literal::from_vec(&[BATCH, 64], x).unwrap(), Literal::from_vec(&[BATCH], y).unwrap())
    };
    let mut first = Session::open(Device::Cpu).unwrap();
    let key = Literal::from_vec(&[2], vec![1u32, 7]).unwrap();
    first.compile(&file.program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
    let weights = first.variables().unwrap();
    let plan = |target: &Target| {
        compile(&file.program, "train_step", &bind!(B = BATCH as i64), target, &Options::default())
            .unwrap()
    };
    let losses = |device: Device, plan| -> Vec<f32> {
        let mut session = Session::open(device).unwrap();
        session.set_variables(&weights).unwrap();
        let mut step = session.load_plan(plan).unwrap();
        let run = |n| {
            let (x, y) = batch(n);
            step.run(&[("x", x), ("y", y)]).unwrap().scalar("loss").unwrap() as f32
        };
        (0..STEPS).map(run).collect()
    };
    let for_gpus = plan(&wengert::target("sm_90").unwrap());
    let emulated = losses(Device::Emulator, for_gpus.clone());
    let mut renamed = for_gpus.into_inner();
    renamed.target.name = "cpu".into();
    let same_plan = losses(Device::Cpu, Verified::new(renamed).unwrap());
    let cpu = losses(Device::Cpu, plan(&Target::cpu()));
    let equal =
        |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
    let worst = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| ((a - b) / b).abs()).fold(0.0, f32::max)
    };
    println!(
        "to the CPU's own plan: {} of {STEPS} equal, worst {:e}",
        equal(&emulated, &cpu),
        worst(&emulated, &cpu)
    );
    assert_eq!(equal(&emulated, &same_plan), STEPS);
    assert!(worst(&emulated, &cpu) < 1e-2);
    assert!(emulated[STEPS - 1] < 0.2 * emulated[0], "{emulated:?}");
}
