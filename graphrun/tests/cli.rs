//! The command as a process: files in and out, exit statuses, streams.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use wengert::core::graph::parse_program;
use wengert::data::{self, Arrays};
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe,
};
use wengert::{GraphFile, Literal, Weights};

/// A folder with files, and the command run in it.
struct Workplace {
    folder: TempDir,
}

/// The result of a run of the command.
#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Ran {
    /// Asserts exit status 2, exactly one error that contains all of `says`, and no result.
    fn refused(&self, says: &[&str]) {
        self.failed(2, says);
        assert_eq!(self.out, "", "{self:?}");
    }

    fn failed(&self, status: i32, says: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.err.matches("error: ").count(), 1, "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for text in says {
            assert!(self.err.contains(text), "`{text}` is not said: {self:?}");
        }
    }

    fn good(&self) -> &str {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
        &self.out
    }
}

const MODEL: &str = "\
func @init() -> (state w: f32[3]) {
  %0: f32[3] = constant {value=f32[3] 0.0}
  return %0
}

func @step(%x: f32[B,3], %y: f32[B], state %w: f32[3]) -> (loss: f32[], state w: f32[3]) {
  %p: f32[B] = dot_general %x, %w {contract=[[1],[0]]}
  %e: f32[B] = sub %p, %y
  %s: f32[B] = mul %e, %e
  %loss: f32[] = reduce_sum %s {axes=[0]}
  %g: f32[3] = dot_general %e, %x {contract=[[0],[0]]}
  %r: f32[] = constant {value=f32[] RATE}
  %rs: f32[3] = broadcast_in_dim %r {dims=[], shape=[3]}
  %d: f32[3] = mul %g, %rs
  %n: f32[3] = sub %w, %d
  return %loss, %n
}

func @predict(%x: f32[B,3], param %w: f32[3]) -> (y: f32[B]) {
  %0: f32[B] = dot_general %x, %w {contract=[[1],[0]]}
  return %0
}

func @loss(%x: f32[B,3], %y: f32[B], param %w: f32[3]) -> (loss: f32[]) {
  %0: f32[B] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f32[B] = sub %0, %y
  %2: f32[B] = mul %1, %1
  %3: f32[] = reduce_sum %2 {axes=[0]}
  return %3
}
";

impl Workplace {
    /// Creates `model.graph` (with its recipe), `model.ir`, `data.npz`, `x.npy` and
    /// `w.safetensors`.
    fn new() -> Workplace {
        let place = Workplace { folder: tempfile::tempdir().unwrap() };
        place.write_model("model.graph", "0.05");
        std::fs::write(place.path("model.ir"), MODEL.replace("RATE", "0.05")).unwrap();
        let x: Vec<f32> = (0..30).map(|i| ((i * 37 % 31) as f32) / 31.0 - 0.5).collect();
        let y: Vec<f32> = x.chunks(3).map(|r| r[0] - 2.0 * r[1] + 0.5 * r[2]).collect();
        let arrays = Arrays::from([
            ("x".into(), Literal::from_vec(&[10, 3], x).unwrap()),
            ("y".into(), Literal::from_vec(&[10], y).unwrap()),
        ]);
        data::write_all(place.path("data.npz"), arrays.iter().map(|(k, v)| (k.as_str(), v)))
            .unwrap();
        data::write_one(place.path("x.npy"), "x", &arrays["x"]).unwrap();
        let w = Literal::from_vec(&[3], vec![1.0f32, 2.0, 3.0]).unwrap();
        data::write_one(place.path("w.safetensors"), "w", &w).unwrap();
        place
    }

    fn write_model(&self, name: &str, rate: &str) {
        let program = parse_program(&MODEL.replace("RATE", rate), "model.ir").unwrap();
        let inputs = vec![InputRecipe::new("x", "x"), InputRecipe::new("y", "y")];
        let metric =
            Metric { name: "mse".into(), output: "loss".into(), aggregate: Aggregate::PerExample };
        let recipe = Recipe {
            init: Some("init".into()),
            step: StepRecipe {
                function: "step".into(),
                inputs: inputs.clone(),
                loss: "loss".into(),
            },
            evaluate: Some(EvaluateRecipe {
                function: "loss".into(),
                inputs,
                batch_size: 4,
                metrics: vec![metric],
                every: Cadence::Epochs(2),
            }),
            batches: Batches { size: 4, shuffle: Some(1), blocks: None, last: LastBatch::Smaller },
            length: Length::Epochs(6),
            checkpoint: Cadence::Steps(2),
            key_seed: 0,
            microbatches: 1,
            precision: None,
            monitoring: Monitoring::default(),
        };
        let file = GraphFile { program, recipe: Some(recipe), weights: Weights::None };
        file.write(self.path(name)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn graphrun(&self, arguments: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG")
            .output()
            .unwrap();
        Ran {
            status: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `graphrun run` on the interpreter.
    fn run(&self, arguments: &[&str]) -> Ran {
        self.graphrun(&[&["run", "--device", "interpreter"], arguments].concat())
    }

    fn train(&self, arguments: &[&str]) -> Ran {
        let fixed = ["train", "--device", "interpreter", "--data", "data.npz"];
        self.graphrun(&[&fixed[..], arguments].concat())
    }
}

const PREDICT: [&str; 3] = ["model.graph@predict", "--params", "w.safetensors"];

#[test]
fn outputs_are_written_and_compared() {
    let place = Workplace::new();
    let input = ["--input", "x=@x.npy"];
    let written = place.run(&[&PREDICT[..], &input, &["--output", "y=y.npy"]].concat());
    assert_eq!(written.good(), "y written to y.npy\n");
    let y = data::read_one(place.path("y.npy"), None).unwrap();
    assert_eq!(y.shape(), [10]);

    let same = place.run(&[&PREDICT[..], &input, &["--expect", "y=y.npy"]].concat());
    assert!(same.good().ends_with("y is as expected: f32[10]\n"));
    let one = place
        .run(&[&PREDICT[..], &["--input", "x=1x3xf32=1 1 1", "--expect", "y=1xf32=6"]].concat());
    assert_eq!(one.good(), "y=1xf32=6.0\ny is as expected: f32[1]\n");

    let wrong = place
        .run(&[&PREDICT[..], &["--input", "x=1x3xf32=1 1 1", "--expect", "y=1xf32=7"]].concat());
    assert_eq!((wrong.status, wrong.err.as_str()), (1, ""));
    assert!(
        wrong
            .out
            .contains("y is not as expected: 1 of 1 elements differ; most at [0]: 6.0 is found")
    );
    let longer =
        place.run(&[&PREDICT[..], &["--input", "x=1x3xf32=1 1 1", "--expect", "y=y.npy"]].concat());
    assert_eq!(longer.status, 1, "{longer:?}");

    let near = ["--input", "x=1x3xf32=1 1 1", "--expect", "y=1xf32=6.06", "--rtol", "0.01"];
    place.run(&[&PREDICT[..], &near].concat()).good();
}

#[test]
fn a_text_gives_what_the_file_gives() {
    let place = Workplace::new();
    let of = |file: &str| {
        place.run(&[
            file,
            "--params",
            "w.safetensors",
            "--input",
            "x=random:3",
            "--bind",
            "B=2",
            "--json",
        ])
    };
    let (text, file) = (of("model.ir@predict"), of("model.graph@predict"));
    assert_eq!(text.good(), file.good());
    let json: serde_json::Value = serde_json::from_str(text.good()).unwrap();
    assert_eq!(json["outputs"]["y"]["shape"], serde_json::json!([2]));
}

#[test]
fn a_plan_gives_what_its_function_gives() {
    let place = Workplace::new();
    let made =
        place.graphrun(&["compile", "model.graph@predict", "-o", "p.plan", "--bind", "B=10"]);
    assert!(made.good().starts_with("@predict compiled for cpu with B=10: "), "{made:?}");
    assert!(made.out.ends_with("written to p.plan\n"));
    let given = ["--params", "w.safetensors", "--input", "x=@x.npy", "--output", "y=-"];
    let by = |file: &str| place.run(&[&[file][..], &given].concat());
    assert_eq!(by("p.plan").good(), by("model.graph@predict").good());
    assert_eq!(by("p.plan@predict").good(), by("p.plan").good());
    let on_cpu = |file: &str| place.graphrun(&[&["run", file][..], &given].concat());
    assert_eq!(on_cpu("p.plan").good(), on_cpu("model.graph@predict").good());
    let checked = place.graphrun(&["check", "model.graph@loss"]);
    // `check` runs the verifier, the derivatives, and every device: at least the CPU and the
    // emulated GPU.
    assert!(checked.good().matches("  good: ").count() >= 4, "{checked:?}");
    assert!(
        place
            .graphrun(&["dump", "p.plan", "--stage", "plan"])
            .good()
            .starts_with("plan @predict {")
    );

    place.run(&["p.plan@loss"]).refused(&["no function `@loss`", "the plan is of @predict"]);
    place
        .run(&["p.plan", "--params", "w.safetensors", "--input", "x=random:1", "--bind", "B=3"])
        .refused(&["B"]);
    let other = ["p.plan", "--params", "w.safetensors", "--input", "x=1x3xf32=1 2 3"];
    place.run(&other).refused(&["input `x` is f32[10,3], the tensor given is f32[1,3]"]);
    place.graphrun(&["grad", "p.plan", "--wrt", "w"]).refused(&["`p.plan` is a plan"]);
    place.graphrun(&["dump", "p.plan"]).refused(&["`p.plan` is a plan", "--stage plan"]);

    let good = std::fs::read(place.path("p.plan")).unwrap();
    std::fs::write(place.path("short.plan"), &good[..good.len() - 9]).unwrap();
    std::fs::copy(place.path("model.graph"), place.path("graph.plan")).unwrap();
    for file in ["short.plan", "graph.plan", "missing.plan"] {
        place.run(&[file]).refused(&["cannot read", file]);
    }
    let compile =
        |rest: &[&str]| place.graphrun(&[&["compile", "model.graph@predict"], rest].concat());
    compile(&["-o", "q.plan"]).refused(&["`B` of f32[B,3] is not bound", "--bind B="]);
    compile(&["-o", "q.plan", "--bind", "B=1,C=2"]).refused(&["no dimension variable `C`"]);
    compile(&["-o", "q.graph", "--bind", "B=1"]).refused(&["`q.graph` is no name for a plan"]);
    compile(&["-o", "q.plan", "--bind", "B=1", "--target", "sm_75"])
        .refused(&["unknown target `sm_75`", "targets are cpu, sm_80"]);
    // A plan for GPUs runs on the emulated GPU. No other device of this machine accepts it.
    assert!(
        compile(&["-o", "gpu.plan", "--bind", "B=10", "--target", "sm_80"])
            .good()
            .contains("for sm_80")
    );
    let on = |device: &str| {
        place.graphrun(&[&["run", "gpu.plan", "--device", device][..], &given].concat())
    };
    assert!(on("emulator").good().starts_with("y=10xf32=") && on("interpreter").status == 0);
    on("cpu").refused(&["the plan of @predict is for `sm_80`"]);
    let cpu_plan = [
        "run",
        "p.plan",
        "--device",
        "emulator",
        "--params",
        "w.safetensors",
        "--input",
        "x=@x.npy",
    ];
    place.graphrun(&cpu_plan).failed(3, &["the plan of @predict is for `cpu`", "sm_90"]);
    let ptx = place.graphrun(&["dump", "gpu.plan", "--stage", "ptx"]);
    assert!(ptx.good().contains(".visible .entry"), "{ptx:?}");
    let products = place.graphrun(&["dump", "gpu.plan", "--stage", "plan", "--products"]);
    assert!(products.good().contains("GB in all nests"), "{products:?}");
    compile(&["-o", "q.plan", "--bind", "B=1000000000000000"]).refused(&["larger than any memory"]);
    let many = ["--input", "x=zeros", "--bind", "B=100000000000000"];
    place
        .run(&[&PREDICT[..], &many].concat())
        .refused(&["f32[100000000000000,3]", "larger than any memory"]);
    assert!(!place.path("q.plan").exists());
}

#[test]
fn kernels_are_timed_on_the_cpu() {
    let place = Workplace::new();
    let given = [&PREDICT[..], &["--input", "x=random:3", "--bind", "B=4"]].concat();
    let profiled = |rest: &[&str]| place.graphrun(&[&["run"], &given[..], rest].concat());
    let timed = profiled(&["--profile", "3"]);
    assert_eq!(
        (timed.status, timed.out.as_str()),
        (0, profiled(&[]).good()),
        "the results are the same"
    );
    let table: Vec<&str> = timed.err.lines().collect();
    assert!(table[0].starts_with("kernel") && table[0].ends_with("GFLOP/s"), "{table:?}");
    assert!(table.iter().any(|line| line.starts_with("gemm") && line.contains('%')), "{table:?}");
    assert!(table[table.len() - 1].starts_with("all"), "{table:?}");
    profiled(&["--profile", "0"]).failed(2, &["--profile"]);
    place
        .run(&[&given[..], &["--profile", "1"]].concat())
        .refused(&["kernels are timed on the CPU only"]);
}

#[test]
fn variables_are_made_replaced_and_saved() {
    let place = Workplace::new();
    assert_eq!(
        place.run(&["model.ir@init", "--save", "w0.safetensors"]).good(),
        "state w: f32[3]\n"
    );
    let data = ["--input", "x=@data.npz[x]", "--input", "y=@data.npz[y]"];
    let step = [&["model.ir@step", "--params", "w0.safetensors"][..], &data].concat();
    let ran = place.run(&[&step[..], &["--save", "w1.safetensors", "--output", "w=-"]].concat());
    assert!(ran.good().contains("loss=f32=") && ran.out.contains("\nw=3xf32="), "{ran:?}");
    let w = data::read_one(place.path("w1.safetensors"), None).unwrap();
    assert_ne!(w, Literal::zeros(wengert::DType::F32, &[3]));
    let spec = format!("w={w}");
    place.run(&[&step[..], &["--expect", &spec]].concat()).good();
}

/// Files that are not programs, or are damaged.
#[test]
fn bad_program_files_are_refused() {
    let place = Workplace::new();
    let good = std::fs::read(place.path("model.graph")).unwrap();
    std::fs::write(place.path("short.graph"), &good[..good.len() / 2]).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    std::fs::write(place.path("damaged.graph"), damaged).unwrap();
    std::fs::write(place.path("foreign.graph"), b"\x89PNG\r\n\x1a\n and more").unwrap();
    std::fs::write(place.path("empty.graph"), b"").unwrap();
    std::fs::write(place.path("bytes.ir"), b"func @f() -> () {\n  return // \xff\n}\n").unwrap();
    std::fs::write(place.path("wrong.ir"), "func @f(%x: f32[2]) -> (f32[3]) {\n  return %x\n}\n")
        .unwrap();
    std::fs::write(place.path("empty.ir"), "// nothing\n").unwrap();
    let two = ["f", "g"].map(|name| format!("func @{name}() -> () {{\n  return\n}}\n"));
    std::fs::write(place.path("two.ir"), two.concat()).unwrap();
    for (file, says) in [
        ("missing.graph", &["cannot read `missing.graph`", "No such file"][..]),
        ("short.graph", &["cannot read `short.graph`"]),
        ("damaged.graph", &["cannot read `damaged.graph`"]),
        ("foreign.graph", &["cannot read `foreign.graph`"]),
        ("empty.graph", &["cannot read `empty.graph`"]),
        ("bytes.ir", &["bytes.ir", "line 2", "UTF-8"]),
        (
            "wrong.ir",
            &["declared f32[3], but f32[2] is returned", "--> wrong.ir:1:25", "    1 | func @f"],
        ),
        ("empty.ir", &["`empty.ir` holds no function"]),
        ("x.npy", &["`x.npy` is not a program file"]),
        (".", &["program file"]),
        ("two.ir", &["holds several functions", "two.ir@g"]),
        ("model.graph@prodict", &["no function `@prodict`", "@predict"]),
    ] {
        place.run(&[file]).refused(says);
    }
    for (command, rest) in [
        ("dump", &["missing.graph"][..]),
        ("check", &["damaged.graph"]),
        ("grad", &["short.graph@loss", "--wrt", "w"]),
        ("jvp", &["foreign.graph@loss", "--wrt", "w"]),
        ("train", &["damaged.graph", "--data", "data.npz", "--out", "runs"]),
        ("test", &["missing"]),
    ] {
        place.graphrun(&[&[command][..], rest].concat()).refused(&["cannot read"]);
    }
}

/// Files that are not tensors, or are the wrong ones.
#[test]
fn bad_tensors_are_refused() {
    let place = Workplace::new();
    let npy = std::fs::read(place.path("x.npy")).unwrap();
    std::fs::write(place.path("short.npy"), &npy[..npy.len() - 5]).unwrap();
    std::fs::write(place.path("foreign.npy"), b"hello").unwrap();
    std::fs::write(place.path("foreign.safetensors"), b"\xff\xff\xff\xff\xff\xff\xff\x7f{}")
        .unwrap();
    let x64 = Literal::zeros(wengert::DType::F64, &[10, 3]);
    data::write_one(place.path("x64.npy"), "x", &x64).unwrap();
    data::write_one(place.path("v.safetensors"), "v", &x64).unwrap();
    data::write_one(place.path("w2.safetensors"), "w", &Literal::zeros(wengert::DType::F32, &[2]))
        .unwrap();
    for (input, says) in [
        ("x=@short.npy", &["input `x`", "short.npy"][..]),
        ("x=@foreign.npy", &["input `x`", "foreign.npy"]),
        ("x=@missing.npy", &["input `x`", "missing.npy", "No such file"]),
        (
            "x=@x64.npy",
            &["input `x` is f32[B,3], the tensor given is f64[10,3]", "`--input x=@FILE:f32`"],
        ),
        ("x=@data.npz", &["holds 2 arrays", "`x`, `y`"]),
        ("x=@data.npz[z]", &["`z`"]),
        ("x=@data.npz[y]", &["the tensor given is f32[10]"]),
        ("x=2x2xf32=1 2 3 4", &["axis 1: expected extent 3, found 2"]),
        ("x=1x3xf32=1 2", &["2 elements do not fill"]),
        ("q=zeros", &["there is no input `q`", "`x`"]),
        ("w=zeros", &["input `x` (f32[B,3]) is not given"]),
        ("x=random:-1", &["no seed"]),
        ("x=zeros", &["`B` of f32[B,3] is not bound", "add `--bind B=NUMBER`"]),
    ] {
        place.run(&[&PREDICT[..], &["--input", input]].concat()).refused(says);
    }
    for (params, says) in [
        ("missing.safetensors", &["missing.safetensors"][..]),
        ("foreign.safetensors", &["foreign.safetensors"]),
        ("x.npy", &["param `w` (f32[3]) has no value"]),
        ("wrong.txt", &["wrong.txt"]),
        ("v.safetensors", &["param `w` (f32[3]) has no value", "--params"]),
        ("w2.safetensors", &["`w` is f32[3], the tensor given is f32[2]"]),
    ] {
        place.run(&["model.ir@predict", "--input", "x=@x.npy", "--params", params]).refused(says);
    }
    place
        .run(&["model.ir@predict", "--input", "x=@x.npy"])
        .refused(&["param `w` (f32[3]) has no value"]);
    let nowhere =
        [&PREDICT[..], &["--input", "x=@x.npy", "--output", "y=no/such/folder/y.npy"]].concat();
    place.run(&nowhere).refused(&["no/such/folder"]);
}

#[test]
fn threads_of_the_cpu_can_be_chosen() {
    let place = Workplace::new();
    let with = |options: &[&str]| {
        place.graphrun(&[&["run"], &PREDICT[..], &["--input", "x=@x.npy"], options].concat())
    };
    let expected = with(&[]).good().to_owned();
    assert_eq!(with(&["--threads", "1"]).good(), expected);
    assert_eq!(with(&["--threads", "3"]).good(), expected);
    for bad in ["0", "4097", "two"] {
        let run = with(&["--threads", bad]);
        assert_eq!(run.status, 2);
        assert!(run.err.contains("--threads"), "{run:?}");
    }
    with(&["--threads", "2", "--device", "interpreter"])
        .refused(&["device `interpreter` has no such choice", "--device cpu"]);
}

#[test]
fn usage_and_devices_have_their_statuses() {
    let place = Workplace::new();
    for bad in [
        &["fly"][..],
        &[],
        &["run"],
        &["run", "model.ir", "--rtol", "-1"],
        &["dump", "--stage", "x"],
    ] {
        assert_eq!(place.graphrun(bad).status, 2, "{bad:?}");
    }
    let on = |device| {
        place.graphrun(
            &[&["run"], &PREDICT[..], &["--input", "x=@x.npy", "--device", device]].concat(),
        )
    };
    on("abacus").refused(&["unknown device `abacus`"]);
    let choice = place
        .graphrun(&[&["run"], &PREDICT[..], &["--input", "x=@x.npy", "--no-capture"]].concat());
    choice.refused(&["device `cpu` has no such choices", "--device cuda"]);
    assert!(place.graphrun(&["--help"]).good().contains("Usage: graphrun"));
    assert!(place.graphrun(&["devices"]).good().contains("(default)"));
    let devices: serde_json::Value =
        serde_json::from_str(place.graphrun(&["devices", "--json"]).good()).unwrap();
    let devices = devices.as_array().unwrap();
    assert!(devices.iter().any(|d| d["name"] == "interpreter"));
    // On a machine without a usable GPU the error names the missing part and the remedy in one
    // line. A named device is never replaced by another.
    match devices.iter().find(|d| d["name"] == "cuda") {
        Some(absent) => {
            assert_eq!(absent["available"], false);
            let missing = absent["missing"].as_str().unwrap();
            assert!(missing.contains("NVIDIA driver"), "{missing}");
            let run = on("cuda");
            run.failed(3, &["NVIDIA driver", "help: "]);
            assert!(run.out.is_empty(), "{run:?}");
            assert!(place.graphrun(&["devices"]).good().contains("not available: "));
        }
        None => assert!(devices.iter().any(|d| d["name"] == "cuda:0"), "{devices:?}"),
    }
    let verbose = place.run(&[&PREDICT[..], &["--input", "x=@x.npy", "-v"]].concat());
    assert!(verbose.err.contains("running @predict on interpreter with {B=10}"), "{verbose:?}");
}

/// A library with the driver's name. All its functions fail, as in the toolkit's stub.
fn stub(folder: &Path) {
    let table = include_str!("../../cuda-kernels/src/driver/api.rs");
    let names = table.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
    let names = names.filter(|name| name.starts_with("cu"));
    let text: String = names.map(|name| format!("int {name}(void) {{ return 34; }}\n")).collect();
    std::fs::write(folder.join("stub.c"), text).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(folder.join("stub.c"));
    assert!(compiler.output().expect("a C compiler is among what the tests need").status.success());
}

#[test]
fn a_driver_that_cannot_be_used_leaves_the_cpu_as_default_and_is_told() {
    let place = Workplace::new();
    if place.graphrun(&["devices", "--json"]).good().contains("cuda:0") {
        wengert_testing::skipped("the loader finds this machine's driver after the stub");
        return;
    }
    stub(place.folder.path());
    let graphrun = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
        command
            .args(arguments)
            .current_dir(place.folder.path())
            .env("LD_LIBRARY_PATH", place.folder.path());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, out, err) = graphrun(&["devices"]);
    assert_eq!(status, Some(0));
    assert!(out.lines().any(|l| l.starts_with("cpu ") && l.ends_with("(default)")), "{out}");
    assert!(out.contains("not available: ") && out.contains("the CUDA toolkit's stub"), "{out}");
    assert!(
        err.starts_with("warning: running on the CPU") && err.contains("the CUDA toolkit's stub"),
        "{err}"
    );
    let run = [&["run"], &PREDICT[..], &["--input", "x=@x.npy", "--device", "cuda"]].concat();
    let (status, out, err) = graphrun(&run);
    assert_eq!((status, out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains("the CUDA toolkit's stub") && err.contains("help: "), "{err}");
}

#[test]
fn every_op_is_explained() {
    let place = Workplace::new();
    let list = place.graphrun(&["ops"]);
    assert!(list.good().lines().count() > 40);
    let json: serde_json::Value =
        serde_json::from_str(place.graphrun(&["ops", "--json"]).good()).unwrap();
    assert_eq!(json.as_array().unwrap().len(), list.out.lines().count());
    for line in list.out.lines() {
        let name = line.split_whitespace().next().unwrap();
        let explained = place.graphrun(&["ops", name]);
        assert!(explained.good().starts_with(&format!("{name}: ")));
        let equation = explained.out.contains(&format!("= {name}"));
        // A composite is made of ops and has no equation of its own.
        let composite = explained.out.contains("\nmade of: ") && line.contains("  composite  ");
        assert!(equation != composite, "{explained:?}");
    }
    // Derivative, formula.
    let line =
        |name: &str| list.out.lines().find(|l| l.split_whitespace().next() == Some(name)).unwrap();
    let words: Vec<&str> = line("exp2").split_whitespace().collect();
    assert_eq!(words[1..], ["nonlinear", "2ˣ"]);
    let slice = place.graphrun(&["ops", "slice"]);
    assert!(slice.good().contains("attributes: start, limit, stride"), "{slice:?}");
    assert!(line("split").contains("Tensor::split_key(count)"));
    let uniform = place.graphrun(&["ops", "uniform"]);
    assert!(
        uniform.good().contains("made of: ") && uniform.out.contains("random_bits"),
        "{uniform:?}"
    );
    place.graphrun(&["ops", "addd"]).refused(&["there is no op `addd`", "there is add"]);
}

#[test]
fn gradients_are_programs_again() {
    let place = Workplace::new();
    let first = place.graphrun(&["grad", "model.graph@loss", "--wrt", "w", "-o", "g.ir"]);
    assert_eq!(first.good(), "@loss_grad written to g.ir\n");
    let inputs =
        ["--input", "x=1x3xf32=1 2 3", "--input", "y=1xf32=1", "--params", "w.safetensors"];
    // 2 (x·w − y) x with w = 1 2 3.
    place.run(&[&["g.ir"], &inputs[..], &["--expect", "d_w=3xf32=26 52 78"]].concat()).good();
    // The gradient of the first component: 2 x₀ x.
    let text = std::fs::read_to_string(place.path("g.ir")).unwrap();
    let scalar = text.replace("(d_w: f32[3])", "(d_w0: f32[])").replace(
        "  return ",
        "  %s: f32[1] = slice %LAST {limit=[1], start=[0]}\n  %t: f32[] = reshape %s {shape=[]}\n  \
         return %t //",
    );
    let last =
        scalar.split("//").nth(1).unwrap().trim().trim_start_matches('%').lines().next().unwrap();
    let scalar = scalar.replace("%LAST", &format!("%{last}"));
    std::fs::write(place.path("s.ir"), scalar).unwrap();
    place.graphrun(&["grad", "s.ir", "--wrt", "w", "-o", "gg.graph"]).good();
    place.run(&[&["gg.graph"], &inputs[..], &["--expect", "d_w=3xf32=2 4 6"]].concat()).good();
    // Forward over reverse: the Hessian's product with a direction, x (x·t) · 2.
    place.graphrun(&["jvp", "g.ir", "--wrt", "w", "-o", "h.ir"]).good();
    let hessian = ["--input", "t_w=3xf32=1 1 1", "--expect", "t_d_w=3xf32=12 24 36"];
    place.run(&[&["h.ir"], &inputs[..], &hessian].concat()).good();

    place.graphrun(&["grad", "model.graph@loss", "--wrt", "v"]).refused(&["no input `v`"]);
    place
        .graphrun(&["grad", "model.graph@predict", "--wrt", "w"])
        .refused(&["grad needs a scalar output"]);
    place.graphrun(&["grad", "model.graph@loss", "--wrt", "w", "-o", "g.txt"]).refused(&["g.txt"]);
}

/// Per-example gradients of a file: the gradient, then its map.
#[test]
fn a_mapped_gradient_gives_one_for_each_example() {
    let place = Workplace::new();
    place.graphrun(&["grad", "model.graph@loss", "--wrt", "w", "-o", "g.ir"]).good();
    let mapped =
        place.graphrun(&["vmap", "g.ir", "--in", "x:0,y:0", "--size", "N", "-o", "v.graph"]);
    assert_eq!(mapped.good(), "@loss_grad_vmap written to v.graph\n");
    let inputs = [
        "--input",
        "x=2x1x3xf32=1 2 3 0 0 1",
        "--input",
        "y=2x1xf32=1 0",
        "--params",
        "w.safetensors",
    ];
    place
        .run(&[&["v.graph"], &inputs[..], &["--expect", "d_w=2x3xf32=26 52 78 0 0 6"]].concat())
        .good();

    place.graphrun(&["vmap", "g.ir", "--in", "z:0"]).refused(&["no input `z`"]);
    place.graphrun(&["vmap", "g.ir", "--in", "x:5"]).refused(&["can have no axis 5"]);
    place
        .graphrun(&["vmap", "g.ir", "--in", "x", "--size", "a-b"])
        .refused(&["`a-b` is no number of examples"]);
}

#[test]
fn training_resumes_to_the_same_bits() {
    let place = Workplace::new();
    let whole = place.train(&["model.graph", "--out", "a"]);
    assert!(whole.good().contains("18 steps done: mse "), "{whole:?}");
    assert!(whole.out.contains("epoch 6: loss ") && whole.out.contains("weights written to a"));
    place.train(&["model.graph", "--out", "b", "--steps", "7"]).good();
    place.train(&["model.graph", "--out", "b"]).refused(&["--resume"]);
    let rest = place.train(&["model.graph", "--out", "b", "--resume", "--epochs", "6"]);
    assert!(rest.good().contains("going on at step 7 of 18"), "{rest:?}");
    let weights =
        |folder: &str| std::fs::read(place.path(folder).join("weights.safetensors")).unwrap();
    assert_eq!(weights("a"), weights("b"));

    let json = place.train(&["model.graph", "--out", "c", "--json"]);
    let events: Vec<serde_json::Value> =
        json.good().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.iter().filter(|e| e["event"] == "step").count(), 18);
    assert_eq!(events.last().unwrap()["event"], "done");
}

#[test]
fn a_loss_that_is_no_number_ends_training_with_status_1() {
    let place = Workplace::new();
    place.write_model("wild.graph", "1e20");
    place.train(&["wild.graph", "--out", "runs", "--steps", "1"]).good();
    let ran = place.train(&["wild.graph", "--out", "runs", "--resume"]);
    ran.failed(1, &["the loss is", "at step", "checkpoint"]);
    // A later good checkpoint may exist, but none that holds a NaN.
    let newest = wengert::train::checkpoint::list(&place.path("runs")).unwrap().swap_remove(0).1;
    let after = data::read_all(newest).unwrap();
    assert!(
        !after.is_empty() && after.values().all(|l| l.scalars().all(|s| s.to_f64().is_finite()))
    );
}

#[test]
fn training_mistakes_are_refused() {
    let place = Workplace::new();
    place.train(&["model.ir", "--out", "runs"]).refused(&["`model.ir` has no recipe"]);
    place.train(&["model.graph", "--out", "runs", "--steps", "0"]).failed(2, &["--steps"]);
    let with = |data| {
        place.graphrun(&[
            "train",
            "model.graph",
            "--data",
            data,
            "--out",
            "runs",
            "--device",
            "interpreter",
        ])
    };
    with("missing.npz").refused(&["missing.npz"]);
    with("x.npy").refused(&["the data has no array `y`"]);
    let x = data::read_one(place.path("x.npy"), None).unwrap();
    data::write_all(place.path("less.npz"), [("x", &x)]).unwrap();
    with("less.npz").refused(&["`y`"]);
    let wide = Literal::zeros(wengert::DType::F32, &[10, 4]);
    let y = data::read_one(place.path("data.npz"), Some("y")).unwrap();
    data::write_all(place.path("wide.npz"), [("x", &wide), ("y", &y)]).unwrap();
    with("wide.npz").refused(&["`x`"]);
    let short = Literal::zeros(wengert::DType::F32, &[9]);
    data::write_all(place.path("uneven.npz"), [("x", &x), ("y", &short)]).unwrap();
    with("uneven.npz").refused(&["`y`"]);
}

#[test]
fn filetests_of_a_folder_are_run_and_blessed() {
    let place = Workplace::new();
    std::fs::create_dir_all(place.path("tests/deep")).unwrap();
    let case = "// test: dump %s\nfunc @f() -> () {\n  return\n}\n\n// expect:\n// wrong\n";
    std::fs::write(place.path("tests/deep/a.ir"), case).unwrap();
    std::fs::write(place.path("tests/b.ir"), "func @f() -> () {\n  return\n}\n").unwrap();
    let failed = place.graphrun(&["test", "tests"]);
    assert_eq!(failed.status, 1);
    assert!(
        failed
            .out
            .contains("a.ir:1: line 1 of the output is not as expected\n  - wrong\n  + func @f")
    );
    assert!(failed.out.ends_with("2 files, 2 cases, 1 failed\n"), "{failed:?}");
    assert_eq!(
        std::fs::read_to_string(place.path("tests/deep/a.ir")).unwrap(),
        case,
        "nothing is written"
    );

    let blessed = place.graphrun(&["test", "tests", "--bless"]);
    assert!(blessed.out.ends_with("2 files, 2 cases, 1 failed, 1 files blessed\n"), "{blessed:?}");
    assert!(place.graphrun(&["test", "tests"]).good().ends_with("2 files, 2 cases, 0 failed\n"));
    place.graphrun(&["test", "x.npy"]).failed(2, &["x.npy"]);
}

#[test]
fn devices_agree_on_sizes_at_which_kernels_work_in_teams() {
    let place = Workplace::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes.ir");
    let checked = place.graphrun(&["check", file]);
    assert!(
        checked.good().matches("emulator agrees with the interpreter").count() >= 15,
        "{checked:?}"
    );
}
