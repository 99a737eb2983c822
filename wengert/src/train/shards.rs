//! Variables of which each rank stores a part.
//!
//! A run with [`Options::sharding`](super::Options::sharding) or
//! [`Options::tensor`](super::Options::tensor) divides variables once they have their initial
//! values. From then on the session of a rank has parts, and every function that takes such
//! variables is rewritten for them ([`TensorSplits`], [`Shards`]), evaluations included. A variable
//! may be divided by both: the ranks with equal parts of tensor parallelism divide these.
//!
//! What leaves the run is whole: weights, which rank 0 collects one by one from the parts of the
//! others, and by its contents a checkpoint, of which each rank writes its parts. So a run goes on
//! with another number of ranks, or divided otherwise.

use super::Options;
use super::functions::Function;
use super::ranks::{Ranks, failed};
use crate::data::Arrays;
use crate::data::bytes::little_endian;
use crate::data::parts::region::{Division, Grid, Region, copy};
use crate::data::source::ArrayType;
use crate::session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_compiler::ranks::{Shards, TensorSplits};
use wengert_core::{Literal, Result, TensorType, diagnostic, graph};

/// Variables after each other are sent with so many tags.
const TAGS: u32 = 1 << 10;

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

    /// All ranks have all variables.
    pub fn replicated(ranks: Ranks<'a>) -> Self {
        Stored { ranks, ..Stored::default() }
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

    /// The ranks that divide variables.
    pub fn grid(&self) -> Grid {
        Grid { tensor: self.ranks.tensor(), data: self.ranks.count() }
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.ranks.rank() * self.ranks.tensor() + self.ranks.tensor_rank()
    }

    /// How a variable is divided.
    pub fn division(&self, name: &str) -> Division {
        let tensor = self.splits.as_ref().and_then(|splits| splits.split(name));
        Division { tensor, data: self.shards.axis(name) }
    }

    /// The part of a variable that this rank stores.
    ///
    /// Error: the variable has another shape than in the training step, and does not fall into
    /// parts.
    pub fn region(&self, name: &str, shape: &[usize]) -> Result<Region> {
        let found = self.division(name).region(shape, self.grid(), self.rank());
        found.ok_or_else(|| {
            diagnostic!("variable `{name}` of shape {shape:?} does not fall into parts")
                .help("it has another shape in the training step: a variable has one type")
        })
    }

    /// The part of a variable that this rank stores.
    pub fn part(&self, name: &str, whole: &Literal) -> Result<Literal> {
        if self.division(name).is_whole() {
            return Ok(whole.clone());
        }
        let region = self.region(name, whole.shape())?;
        let shape = region.shape();
        let size = whole.dtype().size();
        let mut bytes = vec![0; shape.iter().product::<usize>() * size];
        let all = Region::whole(whole.shape());
        copy(&mut bytes, &region, &little_endian(whole), &all, size);
        Literal::from_bytes(whole.dtype(), &shape, &bytes)
    }

    /// The types of all variables, as they are whole.
    pub fn types(&self, session: &Session) -> BTreeMap<String, ArrayType> {
        let whole = |(name, ty): (String, TensorType)| {
            let part = ty.extents().expect("the types of variables have no dimension variables");
            let shape = self.division(&name).whole(&part, self.grid());
            (name, ArrayType { dtype: ty.dtype, shape })
        };
        session.variable_types().into_iter().map(whole).collect()
    }

    /// Gives rank 0 these variables one after another, whole. Other ranks take nothing. All ranks
    /// call this together, with the same names in the same order.
    pub fn each_whole(
        &self,
        session: &Session,
        names: &[&str],
        take: &mut dyn FnMut(&str, &Literal),
    ) -> Result<()> {
        for (number, name) in names.iter().enumerate() {
            let division = self.division(name);
            if !division.is_whole() {
                let value = session.variable(name)?;
                let tag = number as u32 % TAGS;
                if let Some(whole) = self.collected(division, &value, tag)? {
                    take(name, &whole);
                }
            } else if self.ranks.is_first() {
                take(name, &session.variable(name)?);
            }
        }
        Ok(())
    }

    /// A divided variable on rank 0, from the parts of all ranks.
    fn collected(&self, division: Division, own: &Literal, tag: u32) -> Result<Option<Literal>> {
        let world = self.ranks.world().expect("variables are divided among several ranks");
        let (grid, rank) = (self.grid(), self.rank());
        let part = own.to_bytes();
        if rank > 0 {
            if division.is_first(grid, rank) {
                world.send(0, tag, part).map_err(failed)?;
            }
            return Ok(None);
        }
        let (shape, len) = (division.whole(own.shape(), grid), part.len());
        let (whole, size) = (Region::whole(&shape), own.dtype().size());
        let mut bytes = vec![0; shape.iter().product::<usize>() * size];
        for rank in (0..grid.ranks()).filter(|rank| division.is_first(grid, *rank)) {
            let received = match rank {
                0 => None,
                rank => Some(world.receive(rank, tag, len).map_err(failed)?),
            };
            let region = division.region(&shape, grid, rank).expect("a rank has such a part");
            copy(&mut bytes, &whole, received.as_ref().unwrap_or(&part), &region, size);
        }
        Literal::from_bytes(own.dtype(), &shape, &bytes).map(Some)
    }

    /// All variables, whole, on rank 0; none on other ranks. All ranks call this together.
    pub fn whole(&self, session: &Session) -> Result<Option<Arrays>> {
        let first = self.ranks.is_first();
        if !self.is_divided() {
            return first.then(|| session.variables()).transpose();
        }
        let (types, mut all) = (session.variable_types(), Arrays::new());
        let names: Vec<&str> = types.keys().map(String::as_str).collect();
        self.each_whole(session, &names, &mut |name, value| {
            all.insert(name.into(), value.clone());
        })?;
        Ok(first.then_some(all))
    }
}
