//! Ranks that store variables in parts: they have the bits of one rank, and write its files, if
//! checkpoints are whole. Ranks that share products do so for any number of their groups.

use super::{contents, data, recipe};
use std::path::Path;
use std::time::Duration;
use wengert::Differentiable;
use wengert::data::Arrays;
use wengert::nn::Linear;
use wengert::operators::value_and_grad;
use wengert::optim::{AdamW, clip_by_global_norm};
use wengert::recipe::{LastBatch, Length, Recipe};
use wengert::train::{
    Event, Flow, Options, Sharding, TensorBoard, TensorParallel, TrainError, train,
};
use wengert::transport::{Communicator, shared};
use wengert::{DType, Device, DeviceOptions, Dim, Program, Session, Tensor, TensorType};

/// A layer with weights that are divided, and others that are too small.
#[derive(Differentiable)]
struct Model {
    hidden: Linear,
    out: Linear,
}

impl Model {
    fn new() -> Self {
        Model { hidden: Linear::new(3, 1024), out: Linear::new(1024, 1) }
    }

    fn error(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.out.call(&self.hidden.call(x).tanh()).reshape([Dim::from("B")]) - y
    }
}

/// A step of AdamW, of a gradient that is clipped on request.
pub fn program(clips: bool) -> Program {
    let x = || TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]);
    let y = || TensorType::new(DType::F32, [Dim::from("B")]);
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", x()), f.input("y", y()));
            let model = f.state("model", Model::new());
            let (loss, gradient) =
                value_and_grad(&model, |m| m.error(&x, &y).square().sum() * 0.125);
            let gradient = if clips { clip_by_global_norm(&gradient, 1.0).0 } else { gradient };
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program
        .function("evaluate", |f| {
            let (x, y) = (f.input("x", x()), f.input("y", y()));
            let model = f.param("model", Model::new());
            f.output("squares", model.error(&x, &y).square().sum());
        })
        .unwrap();
    program
}

pub fn divided(steps: u64) -> Recipe {
    let mut recipe = recipe();
    recipe.microbatches = 4;
    recipe.batches.last = LastBatch::Drop;
    recipe.length = Length::Steps(steps);
    recipe
}

/// What a run is.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub program: &'a Program,
    pub sharding: Sharding,
    pub tensor: Option<&'a TensorParallel>,
    pub ranks: usize,
    pub steps: u64,
    pub folder: &'a Path,
    pub resume: bool,
    /// The observer ends the run after this step.
    pub stop_after: Option<u64>,
    /// Whether rank 0 writes whole checkpoints.
    pub whole: bool,
}

impl Case<'_> {
    fn on_rank(&self, world: Option<&Communicator>) -> Result<Arrays, TrainError> {
        let one = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut session = Session::open_with(Device::Cpu, &one)?;
        let options = Options {
            world,
            folder: Some(self.folder),
            resume: self.resume,
            sharding: self.sharding,
            tensor: self.tensor,
            tensorboard: Some(TensorBoard::default()),
            whole_checkpoints: self.whole,
            ..Options::default()
        };
        let (recipe, data) = (divided(self.steps), data());
        let report =
            train(&mut session, self.program, &recipe, &data, options, &mut |event| match event {
                Event::Step(step) if Some(step.step) == self.stop_after => Flow::Stop,
                _ => Flow::GoOn,
            })?;
        assert_eq!(report.steps, self.stop_after.unwrap_or(self.steps));
        session.variables().map_err(TrainError::from)
    }

    /// The variables of each rank at the end.
    pub fn run(&self) -> Vec<Arrays> {
        let timeout = Duration::from_secs(60);
        let options = wengert::transport::Options { timeout, ..Default::default() };
        let world = shared::threads(self.ranks, &options).unwrap();
        std::thread::scope(|scope| {
            let threads: Vec<_> = world
                .into_iter()
                .map(|world| scope.spawn(move || self.on_rank(Some(&world)).unwrap()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

/// The files of a run but for the event file, whose name and events have times.
pub fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = contents(folder);
    files.retain(|(name, _)| !name.contains("tfevents"));
    files
}

/// Checkpoints, log and weights are those of one rank, whatever is divided; also of a run that
/// goes on divided otherwise.
#[test]
fn shards_change_no_file() {
    for clips in [false, true] {
        let program = program(clips);
        let folder = tempfile::tempdir().unwrap();
        let (sharding, ranks) = (Sharding::Replicated, 1);
        let alone = Case {
            program: &program,
            sharding,
            tensor: None,
            ranks,
            steps: 20,
            folder: folder.path(),
            resume: false,
            stop_after: None,
            whole: true,
        };
        alone.run();
        let wanted = files(folder.path());
        for (sharding, ranks) in [
            (Sharding::States, 2),
            (Sharding::Gradients, 4),
            (Sharding::Parameters, 2),
            (Sharding::Parameters, 4),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let of_ranks = Case { sharding, ranks, folder: folder.path(), ..alone }.run();
            assert!(files(folder.path()) == wanted, "{sharding:?} on {ranks} ranks");
            // A rank has its part of 3 × 1024 weights, and all of 1024 + 1 small ones.
            let states = &of_ranks[1]["adamw.m.model.hidden.weight"];
            assert_eq!(states.shape().iter().product::<usize>(), 3 * 1024 / ranks);
            let parts = if sharding == Sharding::Parameters { ranks } else { 1 };
            let weights = &of_ranks[1]["model.hidden.weight"];
            assert_eq!(weights.shape().iter().product::<usize>(), 3 * 1024 / parts);
            assert_eq!(of_ranks[1]["model.out.bias"].shape(), [1]);
        }
        let folder = tempfile::tempdir().unwrap();
        for (steps, sharding, ranks) in [
            (6, Sharding::Parameters, 4),
            (12, Sharding::States, 2),
            (15, Sharding::Replicated, 1),
            (20, Sharding::Gradients, 4),
        ] {
            let resume = steps > 6;
            Case { sharding, ranks, steps, resume, folder: folder.path(), ..alone }.run();
        }
        let weights = |files: Vec<(String, Vec<u8>)>| {
            files.into_iter().find(|(name, _)| name == "weights.safetensors").unwrap()
        };
        assert!(weights(files(folder.path())) == weights(wanted));
    }
}

/// An observer is known to rank 0 only, and what is due then needs all ranks.
#[test]
fn an_observer_ends_the_run_on_all_ranks() {
    let program = program(false);
    let run = |sharding, ranks| {
        let folder = tempfile::tempdir().unwrap();
        let (steps, stop_after) = (20, Some(4));
        let folder_path = folder.path();
        let case = Case {
            program: &program,
            sharding,
            tensor: None,
            ranks,
            steps,
            folder: folder_path,
            resume: false,
            stop_after,
            whole: true,
        };
        case.run();
        files(folder.path())
    };
    let wanted = run(Sharding::Replicated, 1);
    assert!(run(Sharding::Replicated, 2) == wanted);
    assert!(run(Sharding::Parameters, 2) == wanted);
}

/// A layer by columns, and the next by rows.
pub fn tensor(ranks: usize) -> TensorParallel {
    let all = TensorParallel::new(ranks);
    all.split("model.hidden.weight", 1).unwrap().split("model.out.weight", 0).unwrap()
}

/// For a fixed degree of tensor parallelism, the files do not depend on the number of data-parallel
/// ranks, nor on what they divide. They are near those of one rank.
#[test]
fn groups_of_ranks_share_products() {
    let program = program(true);
    let degree = tensor(2);
    let run = |tensor, sharding, ranks, steps: &[(u64, bool)]| {
        let folder = tempfile::tempdir().unwrap();
        let mut of_ranks = vec![];
        for (steps, resume) in steps {
            let case = Case {
                program: &program,
                sharding,
                tensor,
                ranks,
                steps: *steps,
                folder: folder.path(),
                resume: *resume,
                stop_after: None,
                whole: true,
            };
            of_ranks = case.run();
        }
        (files(folder.path()), of_ranks)
    };
    let whole = [(12, false)];
    let (wanted, _) = run(Some(&degree), Sharding::Replicated, 2, &whole);
    for (sharding, ranks) in [
        (Sharding::Replicated, 4),
        (Sharding::States, 4),
        (Sharding::Parameters, 4),
        (Sharding::Gradients, 8),
    ] {
        let (found, of_ranks) = run(Some(&degree), sharding, ranks, &whole);
        assert!(found == wanted, "{sharding:?} on {ranks} ranks");
        let elements = |name: &str| of_ranks[1][name].shape().iter().product::<usize>();
        let data = if sharding == Sharding::Replicated { 1 } else { ranks / 2 };
        assert_eq!(elements("adamw.m.model.hidden.weight"), 3 * 1024 / 2 / data);
        // The bias follows the weight.
        assert_eq!(elements("model.hidden.bias"), 1024 / 2);
        assert_eq!(elements("model.out.bias"), 1);
    }
    let (resumed, _) = run(Some(&degree), Sharding::States, 4, &[(5, false), (12, true)]);
    let weights = |files: &[(String, Vec<u8>)]| {
        let file = files.iter().find(|(name, _)| name == "weights.safetensors").unwrap();
        file.1.clone()
    };
    assert!(weights(&resumed) == weights(&wanted));
    let (alone, _) = run(None, Sharding::Replicated, 1, &whole);
    let numbers = |files: &[(String, Vec<u8>)]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.safetensors");
        std::fs::write(&path, weights(files)).unwrap();
        let arrays = wengert::data::read_all(&path).unwrap();
        arrays.values().flat_map(|x| x.scalars().map(|s| s.to_f64()).collect::<Vec<_>>()).collect()
    };
    let [shared, alone]: [Vec<f64>; 2] = [numbers(&wanted), numbers(&alone)];
    assert_eq!(shared.len(), alone.len());
    let most = shared.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(most < 1e-4, "{most:e}");
}

#[test]
fn groups_that_do_not_fit_are_errors() {
    let program = program(false);
    let folder = tempfile::tempdir().unwrap();
    let fails = |tensor: &TensorParallel, ranks: usize, says: &str| {
        let timeout = Duration::from_secs(60);
        let options = wengert::transport::Options { timeout, ..Default::default() };
        let world = shared::threads(ranks, &options).unwrap();
        std::thread::scope(|scope| {
            let threads = world.into_iter().map(|world| {
                let (program, folder) = (&program, folder.path());
                let case = Case {
                    program,
                    sharding: Sharding::Replicated,
                    tensor: Some(tensor),
                    ranks,
                    steps: 3,
                    folder,
                    resume: false,
                    stop_after: None,
                    whole: true,
                };
                scope.spawn(move || case.on_rank(Some(&world)).unwrap_err().to_string())
            });
            for thread in threads.collect::<Vec<_>>() {
                let error = thread.join().unwrap();
                assert!(error.contains(says), "{error}");
            }
        });
    };
    fails(&tensor(2), 1, "1 rank cannot form groups of 2 that share products");
    fails(&tensor(3), 4, "4 ranks cannot form groups of 3 that share products");
    fails(&TensorParallel::new(2), 2, "no variable is divided");
}
