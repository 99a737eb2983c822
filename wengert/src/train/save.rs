//! What the ranks of a run write together: checkpoints, and at the end the weights.
//!
//! A whole checkpoint is written by rank 0, which has the variables of all ranks in memory then. A
//! checkpoint [in parts](crate::data::parts) is written in stages. The ranks tell each other after
//! each of them whether one has failed:
//!
//! 1. Each rank looks for NaN in its parts. Nothing is written if there is one on any rank.
//! 2. Each rank that has parts of its own writes their file, to the disk.
//! 3. Rank 0 gets the checksums, and writes the index with the variables that are not divided.
//!
//! Weights are collected and written one variable after the other.

use super::checkpoint::{self, Opened, Progress};
use super::folder::{Output, diverged};
use super::ranks::Ranks;
use super::shards::Stored;
use super::{ADVICE, Event, TrainError, WEIGHTS, weights};
use crate::atomic::cannot;
use crate::data::parts::index::{Divided, Index, PartFile, file_name};
use crate::data::source::ArrayType;
use crate::data::{Arrays, parts, safetensors};
use crate::recipe::{FinalWeights, Recipe};
use crate::session::Session;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Literal, Result};

/// Where and how the ranks of a run write.
pub(super) struct Saving<'r, 'a> {
    pub ranks: Ranks<'a>,
    pub stored: &'r Stored<'a>,
    /// The folder that all ranks see, if checkpoints are written in parts.
    pub common: Option<&'a Path>,
}

impl Saving<'_, '_> {
    /// Writes a checkpoint. All ranks call this together; rank 0 has the output.
    ///
    /// Error: a variable has a NaN.
    pub fn checkpoint(
        &self,
        session: &Session,
        output: &mut Option<Output<'_>>,
        progress: &Progress,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let _span = tracing::debug_span!("checkpoint", number = progress.step).entered();
        match self.common {
            Some(folder) => self.in_parts(session, folder, output, progress, observe),
            None => self.whole(session, output, progress, observe),
        }
    }

    fn whole(
        &self,
        session: &Session,
        output: &mut Option<Output<'_>>,
        progress: &Progress,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let variables = self.stored.whole(session)?;
        let (Some(variables), Some(output)) = (variables, output) else { return Ok(()) };
        output.check()?;
        if let Some(name) = with_nan(&variables) {
            return Err(has_nan(name, progress, Some(output)));
        }
        output.flush()?;
        output.checkpoint(progress, observe, |folder, progress, last| {
            checkpoint::write(folder, &variables, progress, last)
        })?;
        Ok(())
    }

    fn in_parts(
        &self,
        session: &Session,
        folder: &Path,
        output: &mut Option<Output<'_>>,
        progress: &Progress,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let ranks = self.ranks;
        let checked = output.as_ref().map_or(Ok(()), Output::check);
        let variables = checked.and_then(|()| session.variables());
        let variables = ranks.all_or_none(variables.map_err(TrainError::from))?;
        let found = with_nan(&variables).unwrap_or_default();
        let found = ranks.gather(found.as_bytes().to_vec())?;
        if let Some(name) = found.iter().filter(|name| !name.is_empty()).min() {
            let name = String::from_utf8_lossy(name);
            return Err(has_nan(&name, progress, output.as_ref()));
        }
        let (grid, rank, step) = (self.stored.grid(), self.stored.rank(), progress.step);
        let (divided, others): (Arrays, Arrays) =
            variables.into_iter().partition(|(name, _)| !self.stored.division(name).is_whole());
        let own =
            divided.iter().filter(|(name, _)| self.stored.division(name).is_first(grid, rank));
        let own: Vec<(&str, &Literal)> = own.map(|(name, value)| (name.as_str(), value)).collect();
        let flushed = output.as_mut().map_or(Ok(()), Output::flush);
        let written = flushed.and_then(|()| match own.is_empty() {
            true => Ok(None),
            false => parts::write(folder, (step, grid, rank), &own).map(Some),
        });
        let is_written = matches!(written, Ok(Some(_)));
        let agreed = ranks.all_or_none(written.map_err(TrainError::from));
        if agreed.is_err() && is_written {
            let path = folder.join(file_name(step, rank, grid.ranks()));
            // The run ends with the error, and `--resume` removes what stays.
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("{}", cannot("remove", &path, &error));
            }
        }
        let file = agreed?.as_ref().map_or(vec![], to_bytes);
        let files = ranks.gather(file)?;
        let Some(output) = output else { return Ok(()) };
        let files = files.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        let files = files.map(|(rank, bytes)| Ok((rank, from_bytes(bytes)?)));
        let tensors = divided.iter().map(|(name, part)| {
            let division = self.stored.division(name);
            let shape = division.whole(part.shape(), grid);
            (name.clone(), Divided { dtype: part.dtype(), shape, division })
        });
        let index =
            Index { step, grid, tensors: tensors.collect(), files: files.collect::<Result<_>>()? };
        output.checkpoint(progress, observe, |folder, progress, last| {
            checkpoint::write_index(folder, &others, &index, progress, last)
        })?;
        Ok(())
    }

    /// Writes the weights of the trained model. All ranks call this together; rank 0 has the
    /// output.
    pub fn weights(
        &self,
        session: &Session,
        output: Option<&Output<'_>>,
        program: &Program,
        recipe: &Recipe,
        progress: &Progress,
    ) -> Result<()> {
        let wanted = weights::of_model(program, recipe);
        let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(name);
        let file = |output: &Output<'_>| output.folder.join(WEIGHTS);
        let best = progress.watch.best.first();
        if let (FinalWeights::Best, Some((step, _))) = (recipe.monitoring.kept.weights, best) {
            let Some(output) = output else { return Ok(()) };
            output.check()?;
            let best = Opened::at(output.folder, *step)?;
            let names = best.names().filter(|name| is_wanted(name));
            let types = names.map(|name| Ok((name.to_owned(), best.ty(name)?)));
            let types = types.collect::<Result<BTreeMap<String, ArrayType>>>()?;
            return safetensors::write_each(&file(output), &types, |names, take| {
                names.iter().try_for_each(|name| best.read(name).map(|value| take(&value)))
            });
        }
        let mut types = self.stored.types(session);
        types.retain(|name, _| is_wanted(name));
        let Some(output) = output else {
            let names = safetensors::order(&types);
            return self.stored.each_whole(session, &names, &mut |_, _| {});
        };
        if let Err(error) = output.check() {
            // Other ranks send all the same.
            self.stored.each_whole(session, &safetensors::order(&types), &mut |_, _| {})?;
            return Err(error);
        }
        safetensors::write_each(&file(output), &types, |names, take| {
            self.stored.each_whole(session, names, &mut |_, value| take(value))
        })
    }
}

/// The name of the first variable with a NaN.
fn with_nan(variables: &Arrays) -> Option<&str> {
    let is_nan = |literal: &Literal| match literal {
        Literal::F32(a) => a.iter().any(|v| v.is_nan()),
        Literal::F64(a) => a.iter().any(|v| v.is_nan()),
        Literal::F16(a) => a.iter().any(|v| v.is_nan()),
        Literal::BF16(a) => a.iter().any(|v| v.is_nan()),
        _ => false,
    };
    variables.iter().find(|(_, value)| is_nan(value)).map(|(name, _)| name.as_str())
}

fn has_nan(name: &str, progress: &Progress, output: Option<&Output<'_>>) -> TrainError {
    let what = format!("variable `{name}` has a NaN after step {}", progress.step);
    diverged(what, ADVICE.into(), output)
}

/// What a rank tells rank 0 about its file.
fn to_bytes(file: &PartFile) -> Vec<u8> {
    let mut bytes = file.bytes.to_le_bytes().to_vec();
    bytes.extend_from_slice(file.checksum.as_bytes());
    bytes
}

fn from_bytes(bytes: &[u8]) -> Result<PartFile> {
    let wrong = || Diagnostic::new("a rank has told something else than a size and a checksum");
    let (length, checksum) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
    let checksum = String::from_utf8(checksum.to_vec()).map_err(|_| wrong())?;
    Ok(PartFile { bytes: u64::from_le_bytes(*length), checksum })
}
