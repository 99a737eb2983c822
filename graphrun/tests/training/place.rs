//! A folder with programs and data, and the command run in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use wengert::core::graph::parse_program;
use wengert::data::{self, Arrays};
use wengert::optim::{LossScale, Sgd};
use wengert::prelude::{Initializer, Tensor, TensorType, f32};
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe, Transform,
};
use wengert::{DType, GraphFile, Literal, Program, Weights};

/// Linear regression. A step of `slow` takes minutes.
pub const MODEL: &str = "\
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
  %r: f32[] = constant {value=f32[] 0.05}
  %rs: f32[3] = broadcast_in_dim %r {dims=[], shape=[3]}
  %d: f32[3] = mul %g, %rs
  %n: f32[3] = sub %w, %d
  return %loss, %n
}

func @slow(%x: f32[B,3], %y: f32[B], state %w: f32[3]) -> (loss: f32[], state w: f32[3]) {
  %a: i32[] = constant {value=i32[] 0}
  %b: i32[] = constant {value=i32[] 2147483647}
  %c: i32[] = while %a, %b {captures=1} region (%c: i32[], %b: i32[]) {
    %0: bool[] = lt %c, %b
    return %0
  } region (%c: i32[], %b: i32[]) {
    %1: i32[] = constant {value=i32[] 1}
    %2: i32[] = add %c, %1
    return %2
  }
  %l: f32[] = convert_element_type %c {dtype=f32}
  return %l, %w
}

func @loss(%x: f32[B,3], %y: f32[B], param %w: f32[3]) -> (loss: f32[]) {
  %0: f32[B] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f32[B] = sub %0, %y
  %2: f32[B] = mul %1, %1
  %3: f32[] = reduce_sum %2 {axes=[0]}
  return %3
}
";

/// A table of four rows and three classes.
pub const CLASSES: &str = "\
func @init() -> (state m.weight: f32[4,3]) {
  %0: f32[4,3] = constant {value=f32[4,3] 0.0}
  return %0
}

func @step(%word: i32[B], %label: i32[B], state %m.weight: f32[4,3]) \
  -> (loss: f32[], state m.weight: f32[4,3]) {
  %i: i32[B,1] = reshape %word {shape=[B,1]}
  %l: f32[B,3] = gather %m.weight, %i \
    {collapsed_slice_dims=[0], offset_dims=[1], slice_sizes=[1,3], start_index_map=[0]}
  %c: f32[B] = softmax_cross_entropy %l, %label
  %loss: f32[] = reduce_sum %c {axes=[0]}
  return %loss, %m.weight
}

func @logits(%word: i32[B], param %m.weight: f32[4,3]) -> (y: f32[B,3]) {
  %i: i32[B,1] = reshape %word {shape=[B,1]}
  %l: f32[B,3] = gather %m.weight, %i \
    {collapsed_slice_dims=[0], offset_dims=[1], slice_sizes=[1,3], start_index_map=[0]}
  return %l
}
";

pub struct Place {
    folder: TempDir,
}

/// The result of a run of the command.
#[derive(Debug)]
pub struct Ran {
    /// The exit status. `None` if a signal ended the process.
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts one error that contains all of `says`.
    pub fn failed(&self, status: i32, says: &[&str]) {
        self.sound().unwrap();
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.err.matches("error: ").count(), 1, "{self:?}");
        for text in says {
            assert!(self.err.contains(text), "`{text}` is not said: {self:?}");
        }
    }

    pub fn good(&self) {
        self.sound().unwrap();
        assert_eq!((self.status, self.err.as_str()), (Some(0), ""), "{self:?}");
    }

    /// The command has not panicked.
    pub fn sound(&self) -> Result<(), String> {
        if self.err.contains("panicked") { Err(format!("{self:?}")) } else { Ok(()) }
    }
}

impl Place {
    /// With `model.graph`, `slow.graph` and `data.npz`; `classes.graph`, `classes.ir` and
    /// `classes.npz`.
    pub fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        let inputs = || vec![InputRecipe::new("x", "x"), InputRecipe::new("y", "y")];
        let metric =
            Metric { name: "mse".into(), output: "loss".into(), aggregate: Aggregate::PerExample };
        let evaluate = EvaluateRecipe {
            function: "loss".into(),
            inputs: inputs(),
            batch_size: 4,
            metrics: vec![metric],
            every: Cadence::Epochs(100),
        };
        let recipe = Recipe {
            init: Some("init".into()),
            step: StepRecipe { function: "step".into(), inputs: inputs(), loss: "loss".into() },
            evaluate: Some(evaluate),
            batches: Batches { size: 4, shuffle: Some(1), blocks: None, last: LastBatch::Smaller },
            length: Length::Steps(60),
            checkpoint: Cadence::Steps(7),
            key_seed: 0,
            microbatches: 1,
            precision: None,
            monitoring: Monitoring::default(),
        };
        place.write("model", MODEL, &recipe);
        let slow = StepRecipe { function: "slow".into(), ..recipe.step.clone() };
        place.write("slow", MODEL, &Recipe { step: slow, ..recipe.clone() });
        let x: Vec<f32> = (0..30).map(|i| ((i * 37 % 31) as f32) / 31.0 - 0.5).collect();
        let y: Vec<f32> = x.chunks(3).map(|r| r[0] - 2.0 * r[1] + 0.5 * r[2]).collect();
        place.write_arrays(
            "data.npz",
            [
                ("x", Literal::from_vec(&[10, 3], x).unwrap()),
                ("y", Literal::from_vec(&[10], y).unwrap()),
            ],
        );
        let to_i32 = |name: &str| InputRecipe::new(name, name).then(Transform::Convert(DType::I32));
        let inputs = vec![to_i32("word"), to_i32("label")];
        let step = StepRecipe { function: "step".into(), inputs, loss: "loss".into() };
        place.write("classes", CLASSES, &Recipe { step, evaluate: None, ..recipe });
        std::fs::write(place.path("classes.ir"), CLASSES).unwrap();
        place.write_labels(Literal::from_vec(&[4], vec![0i64, 1, 2, 0]).unwrap());
        place
    }

    /// Writes a program and its recipe as `NAME.graph`.
    pub fn write(&self, name: &str, text: &str, recipe: &Recipe) {
        let program = parse_program(text, name).unwrap();
        let file = GraphFile { program, recipe: Some(recipe.clone()), weights: Weights::None };
        file.write(self.path(&format!("{name}.graph"))).unwrap();
    }

    pub fn write_arrays<const N: usize>(&self, name: &str, arrays: [(&str, Literal); N]) {
        let arrays = Arrays::from(arrays.map(|(name, value)| (name.to_owned(), value)));
        data::write_all(self.path(name), arrays.iter().map(|(k, v)| (k.as_str(), v))).unwrap();
    }

    /// `model.graph` with a step that scales its loss, for `--precision f16`. Some of the first 40
    /// steps are skipped, and later every fourth, because the scale grows soon.
    pub fn write_scaled(&self, name: &str) {
        let file = GraphFile::read(self.path("model.graph")).unwrap();
        let zeros = Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Zeros);
        let mut program = Program::new();
        program
            .function("step", |f| {
                let (x, y) = (f.input("x", f32("B,3")), f.input("y", f32("B")));
                let w = f.state("w", zeros);
                let scaled = LossScale::dynamic().interval(3).begin(f);
                let (loss, gradient) =
                    scaled.value_and_grad(&w, |w: &Tensor| (&x.dot(w) - &y).square().sum() * 64.0);
                Sgd::new(0.05 / 64.0).step(f, &w, &gradient);
                scaled.finish(f, &gradient);
                f.output("loss", loss);
            })
            .unwrap();
        let mut functions = program.into_inner();
        functions.add(file.program.get("loss").unwrap().clone()).unwrap();
        GraphFile { program: functions, ..file }.write(self.path(name)).unwrap();
    }

    /// `classes.npz` with these labels.
    pub fn write_labels(&self, labels: Literal) {
        let words = Literal::from_vec(&[4], vec![0u8, 1, 2, 3]).unwrap();
        self.write_arrays("classes.npz", [("word", words), ("label", labels)]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        // Tests may run with signals ignored, as a shell's background jobs do. graphrun keeps
        // ignored signals ignored, so they are reset here.
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_graphrun")]);
        command.args(arguments).current_dir(self.folder.path()).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn graphrun(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// `graphrun train` of a program in a folder.
    pub fn training<'a>(&self, program: &'a str, folder: &'a str, rest: &[&'a str]) -> Command {
        let data = if program == "classes.graph" { "classes.npz" } else { "data.npz" };
        self.command(&[&["train", program, "--data", data, "--out", folder], rest].concat())
    }

    pub fn train(&self, program: &str, folder: &str, rest: &[&str]) -> Ran {
        Ran::of(self.training(program, folder, rest).output().unwrap())
    }

    /// The files of a run's folder by name, except for the lock, which holds the process id of a
    /// killed trainer.
    pub fn contents(&self, folder: &str) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(self.path(folder))
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let bytes = std::fs::read(entry.path()).unwrap();
                match name.as_str() {
                    "log.jsonl" => {
                        (name, timeless(&String::from_utf8(bytes).unwrap()).into_bytes())
                    }
                    _ => (name, bytes),
                }
            })
            .filter(|(name, _)| name != "lock")
            .collect();
        files.sort();
        files
    }

    /// The checkpoints of a run, the newest first.
    pub fn checkpoints(&self, folder: &str) -> Vec<(u64, PathBuf)> {
        wengert::train::checkpoint::list(&self.path(folder)).unwrap_or_default()
    }
}

/// Waits until a condition holds. Fails after a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what} did not come to pass");
}

/// Sends signals by name, one after the other.
pub fn send(child: &Child, signals: &[&str]) {
    let kills: Vec<String> =
        signals.iter().map(|signal| format!("kill -{signal} {}", child.id())).collect();
    let sent = Command::new("sh").args(["-c", &kills.join(" && ")]).status().unwrap();
    assert!(sent.success(), "{kills:?}");
}

pub fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}

/// A log without its times, the last two fields of a step.
fn timeless(log: &str) -> String {
    let line = |line: &str| match line.split_once(",\"examples_per_second\":") {
        Some((kept, _)) => format!("{kept}}}\n"),
        None => line.to_owned(),
    };
    log.split_inclusive('\n').map(line).collect()
}
