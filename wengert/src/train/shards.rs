//! Variables of which each rank stores a part.
//!
//! A run with [`Options::sharding`](super::Options::sharding) divides variables once they have
//! their initial values. From then on the session of a rank has parts, and every function that
//! takes such variables is rewritten for them ([`Shards`]), evaluations included.
//!
//! What leaves the run is whole: rank 0 receives the parts of the others and writes checkpoints and
//! weights as a run on one rank does. So a run goes on with another number of ranks, or divided
//! otherwise. Rank 0 has memory for all variables while it writes.

use super::ranks::{Ranks, failed};
use crate::data::Arrays;
use crate::session::Session;
use std::collections::BTreeSet;
use std::sync::Arc;
use wengert_compiler::ranks::{Sharding, Shards};
use wengert_core::graph::Function;
use wengert_core::{Literal, Result};

/// How the ranks of a run store variables. By default every rank has all.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored<'a> {
    ranks: Ranks<'a>,
    shards: Arc<Shards>,
}

impl<'a> Stored<'a> {
    /// Chooses the variables that are divided. `of_rank` is the training step of a rank, and
    /// `model` are the variables that other functions read.
    pub fn choose(
        ranks: Ranks<'a>,
        sharding: Sharding,
        of_rank: &Function,
        model: &BTreeSet<&str>,
    ) -> Self {
        let shards = Shards::choose(of_rank, sharding, model.iter().copied());
        Stored { ranks, shards: Arc::new(shards) }
    }

    /// Whether variables are divided.
    pub fn is_divided(&self) -> bool {
        !self.shards.is_empty()
    }

    /// The function on variables as they are stored. It has no dimension variables.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        self.shards.apply(function)
    }

    /// Leaves this rank's parts in the session, which has all variables whole.
    pub fn divide(&self, session: &mut Session) -> Result<()> {
        if !self.is_divided() {
            return Ok(());
        }
        let (rank, ranks) = (self.ranks.rank(), self.ranks.count());
        let mut variables = session.variables()?;
        for (name, value) in &mut variables {
            if let Some(axis) = self.shards.axis(name) {
                *value = part(value, axis, rank, ranks)?;
            }
        }
        session.set_variables(&variables)
    }

    /// All variables, whole, on rank 0; none on other ranks. All ranks call this together.
    pub fn whole(&self, session: &Session) -> Result<Option<Arrays>> {
        let first = self.ranks.is_first();
        if !self.is_divided() {
            return first.then(|| session.variables()).transpose();
        }
        let world = self.ranks.world().expect("variables are divided among several ranks");
        let mut variables = session.variables()?;
        for (number, (name, value)) in variables.iter_mut().enumerate() {
            let Some(axis) = self.shards.axis(name) else { continue };
            let (tag, own) = (number as u32, value.to_bytes());
            if !first {
                world.send(0, tag, own).map_err(failed)?;
                continue;
            }
            let len = own.len();
            let mut parts = vec![own];
            for rank in 1..self.ranks.count() {
                parts.push(world.receive(rank, tag, len).map_err(failed)?);
            }
            *value = joined(value, axis, &parts)?;
        }
        Ok(first.then_some(variables))
    }
}

/// Number of rows that an axis divides, and bytes of a row in one of `parts`.
fn rows(x: &Literal, axis: usize, bytes: usize, parts: usize) -> (usize, usize) {
    let rows: usize = x.shape()[..axis].iter().product();
    (rows, bytes / rows / parts)
}

/// Part `rank` of `ranks` along an axis.
fn part(x: &Literal, axis: usize, rank: usize, ranks: usize) -> Result<Literal> {
    let all = x.to_bytes();
    let (rows, size) = rows(x, axis, all.len(), ranks);
    let of_row = |row: usize| &all[(row * ranks + rank) * size..][..size];
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
    let mut shape = x.shape().to_vec();
    shape[axis] /= ranks;
    Literal::from_bytes(x.dtype(), &shape, &bytes)
}

/// The tensor of which rank r has the bytes `parts[r]`. `own` is that of one rank.
fn joined(own: &Literal, axis: usize, parts: &[Vec<u8>]) -> Result<Literal> {
    let (rows, size) = rows(own, axis, parts[0].len(), 1);
    let of_row = |row: usize| parts.iter().flat_map(move |part| &part[row * size..][..size]);
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
    let mut shape = own.shape().to_vec();
    shape[axis] *= parts.len();
    Literal::from_bytes(own.dtype(), &shape, &bytes)
}

#[cfg(test)]
mod tests {
    use super::{joined, part};
    use wengert_core::Literal;

    #[test]
    fn parts_along_each_axis_make_the_whole() {
        let x = Literal::from_vec(&[4, 6, 2], (0..48).collect::<Vec<i32>>()).unwrap();
        assert_eq!(
            part(&x, 1, 1, 3).unwrap().to_bytes()[..16],
            Literal::from_vec(&[4], vec![4, 5, 6, 7]).unwrap().to_bytes()[..]
        );
        for (axis, ranks) in [(0, 2), (0, 4), (1, 3), (2, 2)] {
            let parts: Vec<Literal> =
                (0..ranks).map(|rank| part(&x, axis, rank, ranks).unwrap()).collect();
            let bytes: Vec<Vec<u8>> = parts.iter().map(|x| x.to_bytes()).collect();
            assert_eq!(joined(&parts[0], axis, &bytes).unwrap(), x);
        }
    }
}
