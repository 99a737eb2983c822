//! A training step at a scale that is not here: memory of a rank, bytes on each link, predicted
//! time.
//!
//! [`Request::predict`] makes the function of a rank ([`TensorParallel`], [`DataParallel`], then
//! [`Shards`]) and compiles it for the target of a [`Machine`], as a rank would. Memory is that of
//! the plan, to the byte. Collectives are calls of the plan, so their bytes are exact too;
//! [`exchange`] has the bytes on each link and the time. The time of kernels is a roofline over the
//! plan's steps ([`work`]).
//!
//! # Times
//!
//! - *Computation* is the sum over the kernels of the rank's plan.
//! - *Transfers* are the sum over the collectives. In plans of GPUs a collective blocks its rank,
//!   so the time of a step is the sum of both. If all transfers took place beside kernels, it would
//!   be the greater of both: that is a bound for a runtime with perfect overlap. The overlap in
//!   plans of CPUs is not predicted.
//! - *Alone* is the computation of one rank that runs all microbatches of the same step.
//!   The *efficiency* of N ranks is alone / (N · step): work that every rank repeats, such as the
//!   optimiser without shards, counts against it.

pub mod exchange;
pub mod machine;
pub mod state;
pub mod work;

pub use exchange::Exchange;
pub use machine::Machine;
pub use state::State;

use exchange::groups;
use std::borrow::Cow;
use wengert_compiler::pipeline::{Bound, Options};
use wengert_compiler::ranks::{DataParallel, Sharding, Shards, TensorParallel};
use wengert_core::call::CollectiveKind;
use wengert_core::graph::Function;
use wengert_core::plan::{Account, Plan, Step, account};
use wengert_core::{Binding, Mesh, Result, Target, Verified, diagnostic};
use work::Work;

/// The axis of the mesh along which ranks divide the examples.
const DATA: &str = "data";

/// A step on ranks.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The step of one device. It has no dimension variables.
    pub function: &'a Function,
    /// Inputs whose first axis runs over the examples.
    pub examples: Vec<String>,
    /// Number of parts into which ranks divide the batch.
    pub data: usize,
    /// Neighbouring ranks that share products, and have the same part of the batch.
    pub tensor: Option<&'a TensorParallel>,
    /// Number of microbatches of the whole batch.
    pub microbatches: usize,
    /// What ranks store in parts.
    pub sharding: Sharding,
    /// How they exchange data.
    pub exchange: Exchange,
    /// The machine.
    pub machine: &'a Machine,
    /// The target of its name.
    pub target: Target,
}

/// Bytes of a rank.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Variables by their purpose. If the batch is not divided, no part of the function depends on
    /// examples that other ranks do not have, and purposes are unknown.
    pub state: Option<State>,
    /// The plan's bytes by purpose. The arena holds activations, gradients and all other
    /// temporaries.
    pub account: Account,
    /// Sums over the ranks among the values that the arena holds at its peak.
    pub sums_at_peak: u64,
}

/// Collectives of one kind over the same axes.
#[derive(Clone, Debug)]
pub struct Transfers {
    /// The kind.
    pub kind: CollectiveKind,
    /// Axes of the mesh.
    pub over: Vec<String>,
    /// Runs.
    pub count: f64,
    /// Bytes of the whole tensors.
    pub bytes: f64,
    /// Bytes that a rank sends over each link that the ranks use. It receives as many.
    pub sent: Vec<f64>,
    /// Seconds.
    pub seconds: f64,
}

/// What is known of a step before it runs.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Bytes of a rank.
    pub memory: Memory,
    /// Kernels of a rank.
    pub work: Work,
    /// Collectives by kind.
    pub transfers: Vec<Transfers>,
    /// Names of the links that the ranks use.
    pub links: Vec<String>,
    /// Examples of a step.
    pub examples: usize,
    /// Tokens of a step, if the first input of examples has integers [examples, tokens].
    pub tokens: Option<u64>,
    /// Number of ranks.
    pub ranks: usize,
    /// Seconds of one rank that computes the whole step.
    pub alone: f64,
}

impl Request<'_> {
    /// Compiles the step of a rank, and predicts it.
    ///
    /// Errors: those of [`DataParallel::apply`], [`TensorParallel::choose`] and of compilation;
    /// the batch has more parts than examples; the ranks do not fill the machine's nodes; the
    /// machine lacks a figure.
    pub fn predict(&self) -> Result<Prediction> {
        let (examples, tokens) = self.count()?;
        if self.data > examples {
            return Err(diagnostic!("{} ranks, and a batch of {examples} examples", self.data)
                .help(format!(
                    "each rank needs an example at least: use a batch of {}, or fewer ranks",
                    self.data
                )));
        }
        let mesh = self.mesh()?;
        let used = groups(self.machine, &mesh, &[])?.len();
        let shared = match self.tensor {
            None => Cow::Borrowed(self.function),
            Some(tensor) => Cow::Owned(tensor.choose(self.function)?.apply(self.function)?),
        };
        let whole = self.of_rank(&shared, self.data)?;
        let stored = Shards::choose(&whole, self.sharding, []).apply(&whole)?;
        let plan = self.compile(&stored)?;
        let work = Work::of(&plan, self.machine)?;
        let alone = match mesh.ranks() {
            1 => work.seconds(),
            _ => {
                let alone = self.compile(&self.of_rank(self.function, 1)?)?;
                Work::of(&alone, self.machine)?.seconds()
            }
        };
        let state = (self.data > 1).then(|| State::of(&whole, &stored, DATA));
        let links = self.machine.links.iter().take(used).map(|link| link.name.clone());
        Ok(Prediction {
            memory: Memory::of(&plan, state),
            transfers: self.transfers(&work, &mesh)?,
            work,
            links: links.collect(),
            examples,
            tokens,
            ranks: mesh.ranks(),
            alone,
        })
    }

    /// The ranks. Those that share products are neighbours.
    ///
    /// Error: there are too many.
    pub fn mesh(&self) -> Result<Mesh> {
        let tensor = self.tensor.map(|tensor| ("tensor", tensor.ranks()));
        Mesh::new([(DATA, self.data)].into_iter().chain(tensor))
    }

    /// The function of one of the ranks that divide the batch into so many parts.
    fn of_rank(&self, function: &Function, data: usize) -> Result<Function> {
        let parallel = DataParallel::new(self.examples.iter().map(String::as_str)).ranks(data);
        parallel.axis(DATA).microbatches(self.microbatches).apply(function)
    }

    /// Examples and tokens of a step. Inputs that do not exist are an error of
    /// [`DataParallel::apply`].
    fn count(&self) -> Result<(usize, Option<u64>)> {
        let name = &self.function.name;
        let below = |input: &str, of: &String| {
            input == of || input.strip_prefix(of.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        let is_wanted = |input: &str| self.examples.iter().any(|of| below(input, of));
        let index = self.function.inputs.iter().position(|input| is_wanted(&input.name));
        let Some(index) = index else {
            // The error names what exists.
            self.of_rank(self.function, self.data)?;
            return Err(diagnostic!("@{name} has no input of examples"));
        };
        let ty = self.function.input_type(index);
        let extents = ty.extents().unwrap_or_default();
        let Some(examples) = extents.first() else {
            return Err(diagnostic!("input `{}`, {ty}, has no axis of examples", self.examples[0])
                .help("axis 0 runs over the examples; name other inputs by --examples"));
        };
        let is_text = ty.dtype.is_integer() && extents.len() == 2;
        Ok((*examples, is_text.then(|| extents.iter().map(|n| *n as u64).product())))
    }

    fn compile(&self, function: &Function) -> Result<Verified<Plan>> {
        let bound = Bound::new(function, &Binding::new())?;
        Ok(bound.compile(&self.target, &Options::default())?.0)
    }

    fn transfers(&self, work: &Work, mesh: &Mesh) -> Result<Vec<Transfers>> {
        let mut found: Vec<Transfers> = vec![];
        for collective in &work.collectives {
            let (bytes, over) = (collective.bytes as f64, &collective.over);
            let groups = groups(self.machine, mesh, over)?;
            let hops = self.exchange.hops(collective.kind, bytes, &groups);
            let seconds = self.exchange.seconds(&hops, self.machine);
            let is_alike = |known: &Transfers| known.kind == collective.kind && known.over == *over;
            let index = found.iter().position(is_alike).unwrap_or_else(|| {
                let (kind, over, sent) = (collective.kind, over.clone(), vec![0.0; groups.len()]);
                found.push(Transfers { kind, over, count: 0.0, bytes: 0.0, sent, seconds: 0.0 });
                found.len() - 1
            });
            let (all, count) = (&mut found[index], collective.count);
            all.count += count;
            all.bytes += count * bytes;
            all.seconds += count * seconds;
            for (sum, hop) in all.sent.iter_mut().zip(&hops) {
                *sum += count * hop.bytes;
            }
        }
        Ok(found)
    }
}

impl Memory {
    fn of(plan: &Plan, state: Option<State>) -> Memory {
        let account = account(plan);
        let mut sums = vec![];
        plan.visit(&mut |step| {
            if step.exchange().is_some_and(|call| call.kind.is_reduction()) {
                match step {
                    // The result of a collective is its last argument.
                    Step::Call { arguments, .. } => sums.extend(arguments.last().map(|a| a.value)),
                    Step::Start { transfer, .. } => sums.push(transfer.result.value),
                    _ => {}
                }
            }
        });
        let living = account.peak.living.iter();
        let living = living.filter(|l| l.value.is_some_and(|value| sums.contains(&value)));
        Memory { sums_at_peak: living.map(|l| l.bytes).sum(), state, account }
    }
}

impl Prediction {
    /// Seconds of the kernels of a rank.
    pub fn computation(&self) -> f64 {
        self.work.seconds()
    }

    /// Seconds of the collectives.
    pub fn transfer(&self) -> f64 {
        self.transfers.iter().fold(0.0, |sum, transfers| sum + transfers.seconds)
    }

    /// Seconds of a step, by whether transfers take place beside kernels.
    pub fn step(&self, overlapped: bool) -> f64 {
        match overlapped {
            true => self.computation().max(self.transfer()),
            false => self.computation() + self.transfer(),
        }
    }

    /// The speed of the ranks over that of as many ranks that lose nothing.
    pub fn efficiency(&self, overlapped: bool) -> f64 {
        self.alone / (self.ranks as f64 * self.step(overlapped))
    }
}
