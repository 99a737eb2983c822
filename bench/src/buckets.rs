//! `wengert-bench buckets`: a training step on several ranks, with small collectives joined and
//! without.
//!
//! The ranks are threads of this process, which exchange bytes by shared memory; each has one
//! thread for its kernels. Every rank has both plans, and times them in turns, several steps at a
//! time. A ratio compares the two samples of one round, so a slowdown of the machine affects both.
//! Times are those of rank 0. The ranks end a step together, since each needs what the others send.

use crate::busy::look;
use crate::statistics::quantile;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::time::Instant;
use wengert::command::{Outcome, Status};
use wengert::core::build::FunctionBuilder;
use wengert::core::graph::{Function, InputRole};
use wengert::core::plan::Plan;
use wengert::core::{Scalar, Verified};
use wengert::models::{Gpt, GptSettings};
use wengert::nn::Linear;
use wengert::pipeline::{Bound, Options};
use wengert::prelude::*;
use wengert::random::SplitMix64;
use wengert::ranks::{DataParallel, Sharding, Shards};
use wengert::transport::{self, Communicator, shared};
use wengert::{DeviceOptions, diagnostic};

/// Options of `buckets`.
#[derive(Debug, Args)]
pub struct Asked {
    /// Ranks, each on one thread
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,
    /// The network
    #[arg(long, value_enum, default_value = "gpt")]
    network: Network,
    /// Layers of the network
    #[arg(long, value_name = "N", default_value_t = 4)]
    layers: usize,
    /// Elements of a layer
    #[arg(long, value_name = "N", default_value_t = 64)]
    width: usize,
    /// Examples of each rank
    #[arg(long, value_name = "N", default_value_t = 4)]
    examples: usize,
    /// Microbatches of each rank; a power of two that divides its examples
    #[arg(long, value_name = "N", default_value_t = 1)]
    microbatches: usize,
    /// Stage of ZeRO
    #[arg(long, value_name = "STAGE", default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=3))]
    zero: u8,
    /// Rounds, each with a sample of either plan
    #[arg(long, value_name = "N", default_value_t = 101)]
    rounds: u32,
    /// Steps of a sample
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Network {
    /// GPT-2's, on sequences of 32 tokens of 128 kinds.
    Gpt,
    /// Layers with biases, one after another.
    Mlp,
}

/// Tokens of a sequence.
const POSITIONS: usize = 32;
/// Kinds of tokens.
const VOCABULARY: usize = 128;

impl Asked {
    /// Measures, and prints counts and ratios.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        let function = self.function()?;
        let bound = Bound::new(&function, &Binding::new())?;
        let target = wengert::target("cpu")?;
        let plan = |options: &Options| bound.compile(&target, options).map(|(plan, _)| plan);
        let none = [("buckets".to_string(), 0)].into();
        let without = plan(&Options { fuel: none, ..Options::default() })?;
        let plans = [plan(&Options::default())?, without];
        for (name, plan) in ["joined", "single"].iter().zip(&plans) {
            let (collectives, kernels) = counts(plan);
            writeln!(
                out,
                "{name}: {collectives} collectives, {kernels} kernels, an arena of {} bytes",
                plan.arena
            )?;
        }
        let busy = look(true)?;
        let [joined, single] = self.measured(&function, &plans)?;
        let ratios: Vec<f64> = joined.iter().zip(&single).map(|(a, b)| a / b).collect();
        for (name, samples, scale) in
            [("joined, µs", joined, 1e6), ("single, µs", single, 1e6), ("ratio", ratios, 1.0)]
        {
            let mut sorted = samples;
            sorted.sort_by(f64::total_cmp);
            let [low, median, high] = [0.25, 0.5, 0.75].map(|at| quantile(&sorted, at) * scale);
            writeln!(out, "{name}: quartiles {low:.3}, {median:.3}, {high:.3}")?;
        }
        if let Some(busy) = busy {
            writeln!(out, "others used {:.2} cores, load {:.2}", busy.cores, busy.load)?;
        }
        Ok(Status::Good)
    }

    /// The step of each rank.
    fn function(&self) -> Result<Function> {
        let batch = self.examples * self.ranks as usize;
        let mut program = Program::new();
        program.function("step", |f| match self.network {
            Network::Gpt => {
                let tokens = TensorType::new(DType::I32, [batch, POSITIONS]);
                let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
                let settings = GptSettings {
                    vocabulary: VOCABULARY,
                    positions: POSITIONS,
                    width: self.width,
                    heads: (self.width / 16).max(1),
                    layers: self.layers,
                };
                descend(f, Gpt::new(&settings), |m| m.loss(&x, &y));
            }
            Network::Mlp => {
                let numbers = TensorType::new(DType::F32, [batch, self.width]);
                let (x, y) = (f.input("x", numbers.clone()), f.input("y", numbers));
                let layer = |_| Linear::new(self.width, self.width);
                let model: Vec<Linear> = (0..self.layers).map(layer).collect();
                descend(f, model, |m| {
                    let out = m.iter().fold(x.clone(), |x, layer| layer.call(&x).tanh());
                    (out - &y).square().mean()
                });
            }
        })?;
        let ranks = self.ranks as usize;
        let parallel = DataParallel::new(["x", "y"]).ranks(ranks);
        let parallel = parallel.microbatches(ranks * self.microbatches);
        let of_rank = parallel.apply(program.get("step")?)?;
        let sharding = Sharding::ALL[usize::from(self.zero)];
        Shards::choose(&of_rank, sharding, []).apply(&of_rank)
    }

    /// Seconds of a step, with each plan.
    fn measured(&self, function: &Function, plans: &[Verified<Plan>; 2]) -> Result<[Vec<f64>; 2]> {
        let options = transport::Options::default();
        let world = shared::threads(self.ranks as usize, &options)
            .map_err(|error| diagnostic!("the ranks cannot start: {error}"))?;
        let run = |rank: Communicator| self.of_rank(function, plans, rank);
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> =
                world.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
            let results = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(diagnostic!("a rank has panicked")))
            });
            let mut all = results.collect::<Result<Vec<_>>>()?;
            Ok(all.swap_remove(0))
        })
    }

    fn of_rank(
        &self,
        function: &Function,
        plans: &[Verified<Plan>; 2],
        rank: Communicator,
    ) -> Result<[Vec<f64>; 2]> {
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut session = Session::open_with(Device::Cpu, &options)?;
        let mut numbers = SplitMix64::new(rank.rank() as u64);
        session.join(rank.clone())?;
        let mut given = Vec::new();
        for (i, input) in function.inputs.iter().enumerate() {
            let value = literal(function.input_type(i), &mut numbers)?;
            match input.role {
                InputRole::State | InputRole::Param => session.set_variable(&input.name, &value)?,
                _ => given.push((input.name.as_str(), value)),
            }
        }
        let [first, second] = plans;
        let mut compiled = [session.load_plan(first.clone())?, session.load_plan(second.clone())?];
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..=self.rounds as usize {
            for turn in 0..2 {
                let which = (round + turn) % 2;
                rank.barrier().map_err(|error| diagnostic!("{error}"))?;
                let begin = Instant::now();
                for _ in 0..self.steps {
                    compiled[which].run(&given)?;
                }
                let seconds = begin.elapsed().as_secs_f64() / f64::from(self.steps.max(1));
                // The first round is warm-up.
                if round > 0 {
                    samples[which].push(seconds);
                }
            }
        }
        Ok(samples)
    }
}

/// Outputs the loss, and updates the model by AdamW.
fn descend<M: Differentiable>(f: &mut FunctionBuilder, model: M, loss: impl Fn(&M) -> Tensor) {
    let model = f.state("model", model);
    let (loss, gradient) = value_and_grad(&model, |m| loss(m));
    AdamW::new(1e-3).step(f, &model, &gradient);
    f.output("loss", loss);
}

/// Random tokens, or numbers from 0.01 to 0.02: every state is positive, and none overflows.
fn literal(ty: &TensorType, numbers: &mut SplitMix64) -> Result<Literal> {
    let shape = ty.extents().expect("the function is bound");
    let count: usize = shape.iter().product();
    match ty.dtype {
        DType::I32 => {
            let token = |_| numbers.below(VOCABULARY as u64) as i32;
            Literal::from_vec(&shape, (0..count).map(token).collect())
        }
        DType::F32 => {
            let number = |_| 0.01 + numbers.below(1000) as f32 * 1e-5;
            Literal::from_vec(&shape, (0..count).map(number).collect())
        }
        dtype => Ok(Literal::full(&shape, Scalar::zero(dtype))),
    }
}

/// Collectives of a plan, and its other kernels.
fn counts(plan: &Plan) -> (usize, usize) {
    use wengert::core::plan::Step;
    let (mut collectives, mut kernels) = (0, 0);
    plan.visit(&mut |step| match step {
        Step::Start { .. } => collectives += 1,
        Step::Call { call, .. } if call.collective().is_some() => collectives += 1,
        Step::Call { .. } | Step::Nest { .. } | Step::Copy { .. } => kernels += 1,
        _ => {}
    });
    (collectives, kernels)
}
