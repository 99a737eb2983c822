//! The ranks of a run, and the microbatches that they share.
//!
//! All ranks go through the same steps. Each reads and computes its part of a batch, and has all
//! variables, whose bits are the same on all ranks and on one rank alone ([`DataParallel`]). With
//! tensor parallelism, T neighbouring ranks have the same part of a batch, and share its products.
//!
//! - Rank 0 has the folder, the log and the caller's observer. It initialises the variables or
//!   reads them from a checkpoint, and sends them and the progress to the others. So the ranks need
//!   no folder in common, and a run may go on with another number of ranks. If they store variables
//!   in parts, each reads and writes its parts of a checkpoint, in a [common folder](super::start).
//! - Losses, metrics and early stopping are computed from the same values on all ranks, and so are
//!   decisions that follow from them. What ends a run otherwise, a signal or an observer, is known
//!   to one rank. The ranks tell each other before each step.
//! - Every rank computes every evaluation, whole.

use super::checkpoint::{self, Progress};
use super::{Options, TrainError};
use crate::data::Arrays;
use crate::recipe::Recipe;
use crate::session::Session;
use std::fmt;
use std::ops::Range;
use wengert_compiler::ranks::{DataParallel, TensorParallel};
use wengert_core::graph::Function;
use wengert_core::{Diagnostic, Result, diagnostic};
use wengert_transport::Communicator;

/// A rank's view of the run. The default is a run on one rank, of whole batches.
#[derive(Clone, Copy, Default)]
pub(super) struct Ranks<'a> {
    /// None if there is one rank.
    world: Option<&'a Communicator>,
    /// Parts of a batch, less 1.
    further: usize,
    /// Ranks that share products, less 1.
    sharing: usize,
}

impl<'a> Ranks<'a> {
    /// Joins the session to the options' world.
    ///
    /// Errors: the session cannot join ranks; they cannot share the recipe's microbatches; tensor
    /// parallelism needs another number of ranks.
    pub fn join(session: &mut Session, recipe: &Recipe, options: &Options<'a>) -> Result<Self> {
        let microbatches = usize::try_from(recipe.microbatches)
            .map_err(|_| diagnostic!("{} microbatches are too many", recipe.microbatches))?;
        let world = options.world.filter(|world| world.size() > 1);
        let tensor = options.tensor.map_or(1, TensorParallel::ranks);
        let all = world.map_or(1, Communicator::size);
        if tensor == 0 || !all.is_multiple_of(tensor) {
            return Err(diagnostic!(
                "{all} rank{} cannot form groups of {tensor} that share products",
                if all == 1 { "" } else { "s" }
            )
            .help(format!(
                "start a multiple of {tensor} ranks (`--ranks`), or use another degree of tensor \
                 parallelism (`--tensor`)"
            )));
        }
        let ranks = Ranks { world, further: microbatches - 1, sharing: tensor - 1 };
        let count = ranks.count();
        let shares = microbatches / count;
        if !microbatches.is_multiple_of(count) || (count > 1 && !shares.is_power_of_two()) {
            return Err(diagnostic!(
                "{count} {} cannot share {microbatches} microbatch{}",
                if tensor == 1 { "ranks" } else { "groups of ranks" },
                if microbatches == 1 { "" } else { "es" }
            )
            .help(format!(
                "each rank computes the same number of them, a power of two: give the recipe {}, \
                 {} or {} microbatches (`--microbatches`); the number decides the bits",
                count,
                count * 2,
                count * 4
            )));
        }
        if let Some(world) = world {
            session.join(world.clone())?;
        }
        Ok(ranks)
    }

    /// Number of parts into which ranks divide a batch: the ranks, or groups of them that share
    /// products.
    pub fn count(&self) -> usize {
        self.world.map_or(1, Communicator::size) / self.tensor()
    }

    /// The number of this rank's part of a batch.
    pub fn rank(&self) -> usize {
        self.world.map_or(0, Communicator::rank) / self.tensor()
    }

    /// Number of ranks that share products, T.
    pub fn tensor(&self) -> usize {
        self.sharing + 1
    }

    /// The number of this rank among those.
    pub fn tensor_rank(&self) -> usize {
        self.world.map_or(0, Communicator::rank) % self.tensor()
    }

    /// The communicator of all ranks; none if there is one.
    pub fn world(&self) -> Option<&'a Communicator> {
        self.world
    }

    /// Whether this rank has the folder and the observer.
    pub fn is_first(&self) -> bool {
        self.world.is_none_or(|world| world.rank() == 0)
    }

    /// Whether a step is another function than the recipe's.
    pub fn divides(&self) -> bool {
        self.further > 0
    }

    /// This rank's part of `count` examples.
    pub fn part(&self, count: usize) -> Range<usize> {
        let share = count / self.count();
        self.rank() * share..(self.rank() + 1) * share
    }

    /// Parts of a batch.
    pub fn microbatches(&self) -> usize {
        self.further + 1
    }

    /// The function of this rank for a training step on whole batches. `inputs` hold the examples.
    ///
    /// Error: it cannot be divided by examples.
    pub fn of_rank<'b>(
        &self,
        step: &Function,
        inputs: impl Iterator<Item = &'b str>,
    ) -> Result<Function> {
        let parallel = DataParallel::new(inputs).ranks(self.count());
        parallel.microbatches(self.microbatches()).apply(step)
    }

    /// Gives all ranks the variables and the progress of rank 0.
    pub fn begin_alike(&self, session: &mut Session, progress: &mut Progress) -> Result<()> {
        if self.world.is_none() {
            return Ok(());
        }
        let own = match self.is_first() {
            true => session.variables()?,
            false => Arrays::new(),
        };
        if let Some(variables) = self.alike(&own, progress)? {
            session.set_variables(&variables)?;
        }
        Ok(())
    }

    /// Gives all ranks the progress of rank 0, and other ranks than this the variables that it
    /// gives.
    ///
    /// Error: this rank has another program, recipe or data.
    pub fn alike(&self, variables: &Arrays, progress: &mut Progress) -> Result<Option<Arrays>> {
        let own = match self.is_first() {
            true => checkpoint::to_bytes(variables, progress)?,
            false => vec![],
        };
        let all = self.broadcast(own)?;
        if self.is_first() {
            return Ok(None);
        }
        let (variables, found) = checkpoint::from_bytes(&all)?;
        if found.fingerprint != progress.fingerprint {
            return Err(Diagnostic::new("this rank has another program, recipe or data")
                .help("start all ranks with the same files and options"));
        }
        *progress = found;
        Ok(Some(variables))
    }

    /// The bytes of rank 0, which other ranks do not know.
    pub fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        let Some(world) = self.world else { return Ok(own) };
        let count = if self.is_first() { length(&own) } else { vec![] };
        let count = world.broadcast(0, count, 8).map_err(failed)?;
        let count = <[u8; 8]>::try_from(count).expect("eight bytes were asked for");
        world.broadcast(0, own, u64::from_le_bytes(count) as usize).map_err(failed)
    }

    /// The result of this rank, if no rank has failed. Else this rank's error, or that of the first
    /// rank that failed.
    pub fn all_or_none<T>(&self, result: Result<T, TrainError>) -> Result<T, TrainError> {
        let Some(world) = self.world else { return result };
        let own = result.as_ref().err().map(|error| error.to_string()).unwrap_or_default();
        let told = self.gather(own.into_bytes());
        let value = result?;
        let told = told?;
        match told.iter().position(|text| !text.is_empty()) {
            None => Ok(value),
            Some(rank) => {
                let text = String::from_utf8_lossy(&told[rank]);
                let rank = world.world_rank(rank);
                let error = Diagnostic::of_device(format!("rank {rank} failed: {text}"));
                Err(TrainError::Elsewhere(error))
            }
        }
    }

    /// What the ranks do next: what any of them wants, and the most urgent of it.
    pub fn next(&self, own: Next) -> Result<Next> {
        let Some(world) = self.world else { return Ok(own) };
        let all = world.all_gather(vec![own as u8]).map_err(failed)?;
        let wants = |next: Next| all.contains(&(next as u8));
        let order = [Next::Stop, Next::Interrupt];
        Ok(order.into_iter().find(|next| wants(*next)).unwrap_or(Next::Step))
    }

    /// The bytes of all ranks.
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let Some(world) = self.world else { return Ok(vec![own]) };
        let lengths = world.all_gather(length(&own)).map_err(failed)?;
        let lengths: Vec<usize> = lengths
            .chunks_exact(8)
            .map(|length| u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize)
            .collect();
        if lengths.iter().all(|length| *length == 0) {
            // The usual case, after each step.
            return Ok(vec![vec![]; lengths.len()]);
        }
        let all = world.all_gather_counts(own, lengths.clone()).map_err(failed)?;
        let mut rest = &all[..];
        let parts = lengths.into_iter().map(|length| {
            let (part, after) = rest.split_at(length);
            rest = after;
            part.to_vec()
        });
        Ok(parts.collect())
    }
}

/// What a rank does before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Next {
    /// The step.
    Step,
    /// It ends the run as if its last step were done.
    Stop,
    /// It ends the run, to be resumed.
    Interrupt,
}

/// The number of bytes, as bytes.
fn length(bytes: &[u8]) -> Vec<u8> {
    (bytes.len() as u64).to_le_bytes().to_vec()
}

pub(super) fn failed(error: wengert_transport::Error) -> Diagnostic {
    Diagnostic::of_device(error.to_string())
}

impl fmt::Debug for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, tensor) = (self.count() * self.tensor(), self.tensor());
        write!(f, "{ranks} ranks, {tensor} share, {} microbatches", self.microbatches())
    }
}
