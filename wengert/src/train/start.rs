//! The start of a run on several ranks: the folder that they have in common, and the variables.
//!
//! Variables that are divided are never whole all at once, except those that `init` makes on
//! rank 0:
//!
//! - From a checkpoint in the common folder, each rank reads its parts.
//! - Otherwise rank 0 sends the variables to all, one after the other. Each rank keeps its parts.

use super::checkpoint::{Opened, Progress};
use super::ranks::Ranks;
use super::shards::Stored;
use super::{Options, TrainError};
use crate::atomic::{self, cannot};
use crate::data::Arrays;
use crate::data::bytes::little_endian;
use crate::data::source::ArrayType;
use crate::session::Session;
use std::path::Path;
use std::thread;
use std::time::Duration;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// How often a rank looks for a file of rank 0. A network's file system may show it late.
const TRIES: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// The folder of a run whose checkpoints are in parts; none if rank 0 has no folder. All ranks call
/// this together. `owner` is the folder on rank 0, which exists there.
///
/// Error: a rank does not see the folder of rank 0.
pub(super) fn common_folder<'a>(
    ranks: Ranks<'_>,
    options: Options<'a>,
    owner: Option<&Path>,
) -> Result<Option<&'a Path>, TrainError> {
    let token = owner.map(|folder| {
        atomic::temporary(folder).map_err(|error| cannot("write to", folder, &error))
    });
    let token = ranks.all_or_none(token.transpose().map_err(TrainError::from))?;
    let name = token.as_ref().and_then(|token| token.path().file_name()?.to_str());
    let name = ranks.broadcast(name.unwrap_or_default().as_bytes().to_vec())?;
    let name = String::from_utf8_lossy(&name);
    let seen = match name.is_empty() {
        true => Ok(None),
        false => sees(ranks, options.folder, &name).map(Some),
    };
    ranks.all_or_none(seen.map_err(TrainError::from))
}

/// The folder of this rank, in which the file is that rank 0 has left.
fn sees<'a>(ranks: Ranks<'_>, folder: Option<&'a Path>, name: &str) -> Result<&'a Path> {
    for attempt in 0..TRIES {
        if folder.is_some_and(|folder| folder.join(name).exists()) {
            break;
        }
        if attempt + 1 == TRIES {
            let folder = folder.map_or("no folder".into(), |f| format!("`{}`", f.display()));
            return Err(diagnostic!(
                "rank {} has {folder}, which is not the folder of rank 0",
                ranks.world().map_or(0, |world| world.rank())
            )
            .help(
                "each rank writes its parts of a checkpoint: give the run a folder that all \
                 ranks see, or let rank 0 write whole checkpoints (`--whole-checkpoints`)",
            ));
        }
        thread::sleep(BETWEEN);
    }
    folder.ok_or_else(|| Diagnostic::new("the rank has no folder"))
}

/// Gives each rank the variables and the progress of rank 0: all variables, or its parts. `from` is
/// the checkpoint of rank 0; without one, its session has them.
///
/// Errors: this rank has another program, recipe or data; a checkpoint cannot be read.
pub(super) fn variables(
    session: &mut Session,
    ranks: Ranks<'_>,
    stored: Option<&Stored<'_>>,
    progress: &mut Progress,
    from: Option<Opened>,
    common: Option<&Path>,
) -> Result<(), TrainError> {
    let Some(stored) = stored.filter(|stored| stored.is_divided()) else {
        let read = from.map_or(Ok(()), |from| session.set_variables(&from.read_all()?));
        ranks.all_or_none(read.map_err(TrainError::from))?;
        let alike = ranks.begin_alike(session, progress);
        return ranks.all_or_none(alike.map_err(TrainError::from));
    };
    let alike = ranks.alike(&Arrays::new(), progress);
    ranks.all_or_none(alike.map_err(TrainError::from))?;
    let resumes = !ranks.broadcast(vec![1; usize::from(from.is_some())])?.is_empty();
    let parts = match common {
        Some(folder) if resumes => match from {
            Some(from) => read_parts(stored, &from),
            None => Opened::at(folder, progress.step).and_then(|from| read_parts(stored, &from)),
        },
        _ => receive_parts(session, ranks, stored, from.as_ref()),
    };
    let set = parts.and_then(|parts| session.set_variables(&parts));
    ranks.all_or_none(set.map_err(TrainError::from))
}

/// This rank's parts of the variables of a checkpoint.
fn read_parts(stored: &Stored<'_>, from: &Opened) -> Result<Arrays> {
    let part = |name: &str| {
        let region = stored.region(name, &from.ty(name)?.shape)?;
        Ok((name.to_owned(), from.read_region(name, &region)?))
    };
    from.names().map(part).collect()
}

/// This rank's parts of the variables of rank 0, which sends one after the other.
fn receive_parts(
    session: &Session,
    ranks: Ranks<'_>,
    stored: &Stored<'_>,
    from: Option<&Opened>,
) -> Result<Arrays> {
    let mut types: Vec<(String, ArrayType)> = vec![];
    if let Some(from) = from {
        let ty = |name: &str| Ok((name.to_owned(), from.ty(name)?));
        types = from.names().map(ty).collect::<Result<_>>()?;
    } else if ranks.is_first() {
        // None is divided yet.
        types = Stored::default().types(session).into_iter().collect();
    }
    let list = serde_json::to_vec(&types.iter().map(record).collect::<Vec<Record>>());
    let list = list.expect("a list of texts and numbers is JSON");
    let list = ranks.broadcast(if ranks.is_first() { list } else { vec![] })?;
    let wrong = |what: &dyn std::fmt::Display| diagnostic!("the variables of rank 0: {what}");
    let list: Vec<Record> = serde_json::from_slice(&list).map_err(|error| wrong(&error))?;
    let mut parts = Arrays::new();
    let mut failed: Result<()> = Ok(());
    for (name, dtype, shape) in list {
        // An error of rank 0 is an empty message: all ranks go on to the end of the list.
        let own = match (ranks.is_first(), from) {
            (false, _) => Ok(vec![]),
            (true, Some(from)) => from.read(&name).map(|value| little_endian(&value).into_owned()),
            (true, None) => session.variable(&name).map(|value| value.to_bytes()),
        };
        let own = own.unwrap_or_else(|error| {
            failed = Err(error);
            vec![]
        });
        let bytes = ranks.broadcast(own)?;
        if failed.is_ok() {
            let whole =
                dtype.parse().and_then(|dtype: DType| Literal::from_bytes(dtype, &shape, &bytes));
            let part = whole.and_then(|whole| stored.part(&name, &whole));
            match part {
                Ok(part) => drop(parts.insert(name, part)),
                Err(error) => failed = Err(error),
            }
        }
    }
    failed.map(|()| parts)
}

/// Name, dtype and shape of a variable.
type Record = (String, String, Vec<usize>);

fn record((name, ty): &(String, ArrayType)) -> Record {
    (name.clone(), ty.dtype.name().into(), ty.shape.clone())
}
