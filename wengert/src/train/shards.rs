//! Variables of which each rank stores a part.
//!
//! A run with [`Options::sharding`](super::Options::sharding) or
//! [`Options::tensor`](super::Options::tensor) divides variables once they have their initial
//! values. From then on the session of a rank has parts, and every function that takes such
//! variables is rewritten for them ([`TensorSplits`], [`Shards`]), evaluations included. A variable
//! may be divided by both: the ranks with equal parts of tensor parallelism divide these.
//!
//! What leaves the run is whole: rank 0 receives the parts of the others and writes checkpoints and
//! weights as a run on one rank does. So a run goes on with another number of ranks, or divided
//! otherwise. Rank 0 has memory for all variables while it writes.

use super::Options;
use super::functions::Function;
use super::ranks::{Ranks, failed};
use crate::data::Arrays;
use crate::session::Session;
use std::collections::BTreeSet;
use std::sync::Arc;
use wengert_compiler::ranks::{Shards, Split, TensorSplits};
use wengert_core::{Literal, Result, graph};

/// How the ranks of a run store variables. By default every rank has all.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored<'a> {
    ranks: Ranks<'a>,
    /// The parts of tensor parallelism, if there is any.
    splits: Option<Arc<TensorSplits>>,
    /// Parts of these.
    shards: Arc<Shards>,
}

impl<'a> Stored<'a> {
    /// Chooses the variables that are divided, for the inputs of a batch of the training step.
    /// `model` are the variables that other functions read.
    ///
    /// Errors: those of tensor parallelism, and of the division of a batch.
    pub fn choose(
        ranks: Ranks<'a>,
        options: Options<'_>,
        step: &Function<'_>,
        inputs: &[(&str, Literal)],
        model: &BTreeSet<&str>,
    ) -> Result<Self> {
        let bound = step.bound(inputs)?;
        let tensor = options.tensor.filter(|_| ranks.tensor() > 1);
        let splits = tensor.map(|tensor| tensor.choose(&bound)).transpose()?;
        let stored = Stored { ranks, splits: splits.map(Arc::new), shards: Arc::default() };
        let of_rank = step.of_rank(stored.shared(bound)?, inputs)?;
        let shards = Shards::choose(&of_rank, options.sharding, model.iter().copied());
        Ok(Stored { shards: Arc::new(shards), ..stored })
    }

    /// Whether variables are divided.
    pub fn is_divided(&self) -> bool {
        self.splits.is_some() || !self.shards.is_empty()
    }

    /// The function of one device, as the ranks that share products compute it.
    pub fn shared(&self, function: graph::Function) -> Result<graph::Function> {
        match &self.splits {
            None => Ok(function),
            Some(splits) => splits.apply(&function),
        }
    }

    /// The function of a rank on variables as they are stored. It has no dimension variables.
    pub fn apply(&self, function: &graph::Function) -> Result<graph::Function> {
        self.shards.apply(function)
    }

    /// The division of a variable among the ranks that share products, and that of their parts.
    fn divisions(&self, name: &str) -> [Option<Split>; 2] {
        let split = self.splits.as_ref().and_then(|splits| splits.split(name));
        [split, self.shards.axis(name).map(Split::from)]
    }

    /// Leaves this rank's parts in the session, which has all variables whole.
    pub fn divide(&self, session: &mut Session) -> Result<()> {
        if !self.is_divided() {
            return Ok(());
        }
        let ranks = self.ranks;
        let mut variables = session.variables()?;
        for (name, value) in &mut variables {
            let [split, shard] = self.divisions(name);
            if let Some(split) = split {
                *value = part(value, split, ranks.tensor_rank(), ranks.tensor())?;
            }
            if let Some(shard) = shard {
                *value = part(value, shard, ranks.rank(), ranks.count())?;
            }
        }
        session.set_variables(&variables)
    }

    /// All variables, whole, on rank 0; none on other ranks. All ranks call this together.
    pub fn whole(&self, session: &Session) -> Result<Option<Arrays>> {
        let (ranks, first) = (self.ranks, self.ranks.is_first());
        if !self.is_divided() {
            return first.then(|| session.variables()).transpose();
        }
        let world = ranks.world().expect("variables are divided among several ranks");
        let mut variables = session.variables()?;
        for (number, (name, value)) in variables.iter_mut().enumerate() {
            let [split, shard] = self.divisions(name);
            let (tag, own) = (number as u32, value.to_bytes());
            let has_part = |rank: usize| {
                let [data, tensor] = [rank / ranks.tensor(), rank % ranks.tensor()];
                (split.is_some() || tensor == 0) && (shard.is_some() || data == 0)
            };
            if !first {
                if has_part(world.rank()) {
                    world.send(0, tag, own).map_err(failed)?;
                }
                continue;
            }
            let (ty, len) = (value.ty(), own.len());
            let shape = ty.extents().expect("a literal has extents");
            // The parts along `data`, for each part of tensor parallelism.
            let mut parts: Vec<Vec<Literal>> = vec![vec![]; ranks.tensor()];
            for rank in (0..world.size()).filter(|rank| has_part(*rank)) {
                let bytes = match rank {
                    0 => own.clone(),
                    rank => world.receive(rank, tag, len).map_err(failed)?,
                };
                let part = Literal::from_bytes(ty.dtype, &shape, &bytes)?;
                parts[rank % ranks.tensor()].push(part);
            }
            let joined = parts.into_iter().filter(|parts| !parts.is_empty());
            let joined = joined.map(|parts| joined_along(shard, parts));
            *value = joined_along(split, joined.collect::<Result<Vec<Literal>>>()?)?;
        }
        Ok(first.then_some(variables))
    }
}

/// Number of rows that a divided axis has, with its blocks.
fn rows(x: &Literal, split: Split) -> usize {
    x.shape()[..split.axis].iter().product::<usize>() * split.blocks
}

/// Part `rank` of `ranks`.
fn part(x: &Literal, split: Split, rank: usize, ranks: usize) -> Result<Literal> {
    let all = x.to_bytes();
    let rows = rows(x, split);
    let size = all.len() / rows / ranks;
    let of_row = |row: usize| &all[(row * ranks + rank) * size..][..size];
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
    let mut shape = x.shape().to_vec();
    shape[split.axis] /= ranks;
    Literal::from_bytes(x.dtype(), &shape, &bytes)
}

/// The tensor of these parts; the only one, if it is not divided.
fn joined_along(split: Option<Split>, mut parts: Vec<Literal>) -> Result<Literal> {
    let Some(split) = split else { return Ok(parts.swap_remove(0)) };
    let rows = rows(&parts[0], split);
    let all: Vec<_> = parts.iter().map(Literal::to_bytes).collect();
    let size = all[0].len() / rows;
    let of_row = |row: usize| all.iter().flat_map(move |part| &part[row * size..][..size]);
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
    let mut shape = parts[0].shape().to_vec();
    shape[split.axis] *= parts.len();
    Literal::from_bytes(parts[0].dtype(), &shape, &bytes)
}

#[cfg(test)]
mod tests {
    use super::{joined_along, part};
    use wengert_compiler::ranks::Split;
    use wengert_core::Literal;

    #[test]
    fn parts_along_each_axis_make_the_whole() {
        let x = Literal::from_vec(&[4, 6, 2], (0..48).collect::<Vec<i32>>()).unwrap();
        assert_eq!(
            part(&x, 1.into(), 1, 3).unwrap().to_bytes()[..16],
            Literal::from_vec(&[4], vec![4, 5, 6, 7]).unwrap().to_bytes()[..]
        );
        for (axis, blocks, ranks) in
            [(0, 1, 2), (0, 1, 4), (1, 1, 3), (1, 3, 2), (1, 2, 3), (2, 1, 2)]
        {
            let split = Split { axis, blocks };
            let parts = (0..ranks).map(|rank| part(&x, split, rank, ranks).unwrap());
            assert_eq!(joined_along(Some(split), parts.collect()).unwrap(), x);
        }
    }
}
