//! A step on the ranks of `mesh(data=N, tensor=T)`, beside the step of one device.

use wengert_compiler::certificate::worst_case;
use wengert_compiler::ranks::{DataParallel, Shards, Split, TensorParallel, TensorSplits};
use wengert_core::Literal;
use wengert_core::graph::{Function, OutputRole, parse_program};
use wengert_core::interpret::{run, run_ranks};
use wengert_core::target::Approximations;
use wengert_testing::ranks::{inputs, join, numbers, part};

/// A step, the inputs of examples, and the divided variables.
pub struct Case<'a> {
    pub function: Function,
    pub batch: &'a [&'a str],
    pub classes: i32,
    /// Patterns of variables, with axis and blocks.
    pub splits: &'a [(&'a str, [usize; 2])],
    /// The variables that are divided in the end, with axis and blocks.
    pub divided: &'a [(&'a str, &'a str)],
}

impl Case<'_> {
    pub fn parallel(&self, ranks: usize) -> TensorParallel {
        let split = |all: TensorParallel, (path, [axis, blocks]): &(&str, [usize; 2])| {
            all.split(path, Split::from(*axis).blocks(*blocks)).unwrap()
        };
        self.splits.iter().fold(TensorParallel::new(ranks), split)
    }

    /// The divided variables, and the function of a rank.
    pub fn of_rank(&self, ranks: usize) -> (TensorSplits, Function) {
        let splits = self.parallel(ranks).choose(&self.function).unwrap_or_else(|e| panic!("{e}"));
        let of_rank = splits.apply(&self.function).unwrap_or_else(|e| panic!("{e}"));
        let text = of_rank.to_string();
        let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again.to_string(), text);
        (splits, of_rank)
    }

    /// Compares the step on T ranks with that of one device, within twice the worst-case bound of
    /// the latter, and the bits for several numbers of data-parallel ranks with those of one.
    pub fn check(&self, degrees: &[usize], microbatches: usize) {
        for seed in 0..2 {
            let given = inputs(&self.function, self.classes, seed);
            let wanted = run(&self.function, &given).unwrap();
            let bounds = worst_case(&self.function, &given, Approximations::None).unwrap();
            for ranks in degrees {
                let (splits, of_rank) = self.of_rank(*ranks);
                let found: Vec<(String, String)> =
                    splits.iter().map(|(name, split)| (name.into(), split.to_string())).collect();
                let divided = self.divided.iter().map(|(name, at)| ((*name).into(), (*at).into()));
                assert_eq!(found, divided.collect::<Vec<(String, String)>>());
                let made = outputs(&of_rank, self.batch, &splits, &given);
                for (i, (made, wanted)) in made.iter().zip(&wanted).enumerate() {
                    let name = &self.function.outputs[i].name;
                    let bound = bounds.error(i).unwrap_or_else(|_| panic!("`{name}` has no bound"));
                    let pairs = numbers(made).into_iter().zip(numbers(wanted));
                    let most = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let bound = bound * 2.0;
                    assert!(
                        most <= bound,
                        "T = {ranks}, `{name}`: {most:e}, the bound is {bound:e}"
                    );
                }
                let arranged = |data: usize| {
                    let options = DataParallel::new(self.batch.to_vec()).ranks(data);
                    let both = options.microbatches(microbatches).apply(&of_rank);
                    let both = both.unwrap_or_else(|e| panic!("{e}"));
                    assert_eq!(both.mesh.ranks(), data * ranks);
                    outputs(&both, self.batch, &splits, &given)
                };
                let one = arranged(1);
                for data in [2, 4].into_iter().filter(|n| n <= &microbatches) {
                    assert!(one == arranged(data), "T = {ranks}: the bits of {data} ranks differ");
                }
            }
        }
    }
}

/// The whole outputs of a function on its ranks. Variables are joined along `tensor`, and outputs
/// by example along `data`; all others are the same on all ranks.
pub fn outputs(
    of_rank: &Function,
    batch: &[&str],
    splits: &TensorSplits,
    inputs: &[Literal],
) -> Vec<Literal> {
    outputs_of_shards(of_rank, batch, splits, &Shards::default(), inputs)
}

/// [`outputs`] of a function whose variables are divided along `data`, too.
pub fn outputs_of_shards(
    of_rank: &Function,
    batch: &[&str],
    splits: &TensorSplits,
    shards: &Shards,
    inputs: &[Literal],
) -> Vec<Literal> {
    let data = of_rank.mesh.extent("data").unwrap_or(1);
    let tensor = of_rank.mesh.extent("tensor").unwrap_or(1);
    let of = |split: Split| [split.axis, split.blocks];
    let given = |rank: usize| {
        let pairs = of_rank.inputs.iter().zip(inputs);
        let own = pairs.map(|(input, x)| {
            let x = match splits.split(&input.name) {
                Some(split) => part(x, of(split), rank % tensor, tensor),
                None => x.clone(),
            };
            let axis = match batch.contains(&&*input.name) {
                true => Some(0),
                false => shards.axis(&input.name),
            };
            axis.map_or(x.clone(), |axis| part(&x, [axis, 1], rank / tensor, data))
        });
        own.collect::<Vec<Literal>>()
    };
    let given: Vec<Vec<Literal>> = (0..data * tensor).map(given).collect();
    let made = run_ranks(of_rank, &given).unwrap_or_else(|e| panic!("{e}\n{of_rank}"));
    let output = |i: usize| {
        let (declared, varying) = (&of_rank.outputs[i], &of_rank.output_type(i).varying);
        let state = declared.role == OutputRole::State;
        let varies = |axis: &str| varying.contains(axis);
        let split = splits.split(&declared.name).filter(|_| state);
        let shard = if state { shards.axis(&declared.name) } else { varies("data").then_some(0) };
        assert_eq!(varies("tensor"), split.is_some());
        assert_eq!(varies("data"), shard.is_some());
        // Along `data`, then along `tensor`.
        let of_data = |t: usize| {
            let along: Vec<&Literal> = made.iter().skip(t).step_by(tensor).map(|x| &x[i]).collect();
            let same = along.iter().all(|x| *x == along[0]);
            assert!(shard.is_some() || same, "`{}` is invariant over `data`", declared.name);
            shard.map_or(along[0].clone(), |axis| join(&along, [axis, 1]))
        };
        let along: Vec<Literal> = (0..tensor).map(of_data).collect();
        let same = along.iter().all(|x| *x == along[0]);
        assert!(split.is_some() || same, "`{}` is invariant over `tensor`", declared.name);
        let all = along.iter().collect::<Vec<_>>();
        split.map_or(along[0].clone(), |split| join(&all, of(split)))
    };
    (0..of_rank.outputs.len()).map(output).collect()
}
