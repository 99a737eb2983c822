//! Checkpoints in parts: tensors of which each rank writes its part to a file of its own.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `checkpoint-STEP.RANK-of-N.safetensors` | a rank's parts of divided tensors, by their names, and [`/part`](PART): step, rank and N as u64 |
//! | `checkpoint-STEP.safetensors` | the *index*: the other tensors, and [`/parts`](INDEX) |
//!
//! `/parts` is a JSON text as a tensor of u8:
//!
//! ```json
//! {"step":200,"tensor":2,"data":2,
//!  "variables":[{"name":"w","dtype":"f32","shape":[64,192],"tensor":"1/3","data":0}],
//!  "files":[{"rank":0,"name":"checkpoint-000000200.0-of-4.safetensors","bytes":24744,
//!            "crc32":"0f1e2d3c"}]}
//! ```
//!
//! `tensor` × `data` ranks have written it. Rank r is number r mod `tensor` of the ranks that share
//! products, and number r div `tensor` of the others. `shape` is that of the whole variable. Its
//! `tensor` is an axis, with the number of blocks in it
//! ([`Split`](wengert_compiler::ranks::Split)): of each block, the ranks that share products have
//! consecutive parts. `data` is the axis along which the ranks with equal such parts divide them.
//! One of both may be absent. Several ranks have a part then, and the first of them writes it
//! ([`Division`](region::Division)).
//!
//! # Invariants
//!
//! - **An index is written last**, so a checkpoint exists if its index does.
//! - **Each file has a checksum**, and the index has the checksums and sizes of the parts. So a
//!   part of another step, or of another run, is found.
//! - **Files are untrusted.** A tensor is read only after the shapes of its parts in the files have
//!   been compared with the index, so memory is taken for bytes that exist.
//! - **Reading takes the memory of the result.** Files are mapped, and a [`Region`] is copied from
//!   the parts that have some of it. So ranks read their parts of a checkpoint that other numbers
//!   of ranks have written, and none of them has a whole variable.

pub mod index;
pub mod region;

use super::map::Map;
use super::safetensors::{self, SafetensorsFile, room};
use super::source::ArrayType;
use index::{Divided, Index, PartFile};
use region::{Grid, Region, copy};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// The tensor of an index that lists the parts.
pub const INDEX: &str = "/parts";
/// The tensor of a part that says which one it is.
pub const PART: &str = "/part";

/// Writes a rank's part of a checkpoint. `tensors` are its parts of divided tensors.
pub(crate) fn write(
    folder: &Path,
    (step, grid, rank): (u64, Grid, usize),
    tensors: &[(&str, &Literal)],
) -> Result<PartFile> {
    let path = folder.join(index::file_name(step, rank, grid.ranks()));
    let which = which(step, grid, rank);
    let tensors = tensors.iter().copied().chain([(PART, &which)]);
    let safetensors::Written { bytes, checksum } = safetensors::write_checked(path, tensors)?;
    Ok(PartFile { bytes, checksum })
}

/// The tensor that says which part a file is.
fn which(step: u64, grid: Grid, rank: usize) -> Literal {
    let numbers = vec![step, rank as u64, grid.ranks() as u64];
    Literal::from_vec(&[3], numbers).expect("three numbers have the shape [3]")
}

/// The parts of a checkpoint.
#[derive(Debug)]
pub(crate) struct Parts {
    folder: PathBuf,
    index: Index,
    /// The files that were opened and verified, by rank.
    opened: BTreeMap<usize, OnceLock<SafetensorsFile>>,
}

impl Parts {
    /// The parts that a file lists; none if it is no index.
    ///
    /// Errors: the list is wrong; the file has a tensor itself that is divided.
    pub fn of(file: &SafetensorsFile) -> Result<Option<Parts>> {
        if !file.names_of_file().any(|name| name == INDEX) {
            return Ok(None);
        }
        if file.array_type(INDEX)?.dtype != DType::U8 {
            return Err(Diagnostic::new("its list of parts is no text")
                .help("the file was not written as a checkpoint"));
        }
        let index = Index::parse(file.bytes(INDEX)?)?;
        let twice = |name: &&str| index.tensors.contains_key(*name);
        if let Some(name) = file.names_of_file().find(twice) {
            return Err(diagnostic!("it has `{name}` itself, and lists its parts")
                .help("the file was not written as a checkpoint"));
        }
        let folder = file.path().parent().unwrap_or(Path::new("")).to_owned();
        let opened = index.files.keys().map(|rank| (*rank, OnceLock::new())).collect();
        Ok(Some(Parts { folder, index, opened }))
    }

    /// Names of the divided tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.tensors.keys().map(String::as_str)
    }

    /// The type of a divided tensor; none if it is none of them.
    pub fn ty(&self, name: &str) -> Option<ArrayType> {
        let tensor = self.index.tensors.get(name)?;
        Some(ArrayType { dtype: tensor.dtype, shape: tensor.shape.clone() })
    }

    /// What is wrong with the parts. All are read.
    ///
    /// Error: one cannot be read, which is no damage.
    pub fn damage(&self) -> Result<Option<Diagnostic>> {
        for rank in self.index.files.keys() {
            if let Err(damage) = self.part(*rank)? {
                return Ok(Some(damage));
            }
        }
        Ok(None)
    }

    /// Reads a part of a divided tensor.
    ///
    /// Errors: a file with some of it cannot be read, or is damaged.
    pub fn read(&self, name: &str, region: &Region) -> Result<Literal> {
        let (Divided { dtype, shape, division }, grid) =
            (&self.index.tensors[name], self.index.grid);
        let mut bytes = room(*dtype, region)?;
        let mut copied = 0;
        for rank in self.index.files.keys().filter(|rank| division.is_first(grid, **rank)) {
            let part = division.region(shape, grid, *rank).expect("the index was checked");
            if region.meets(&part) {
                let file = self.part(*rank)??;
                copied += copy(&mut bytes, region, file.bytes(name)?, &part, dtype.size());
            }
        }
        assert_eq!(copied * dtype.size(), bytes.len(), "the parts of `{name}` make the whole");
        Literal::from_bytes(*dtype, &region.shape(), &bytes)
    }

    /// The part of a rank, opened and verified, or what is wrong with it.
    ///
    /// Error: it cannot be read, which is no damage.
    fn part(&self, rank: usize) -> Result<Result<&SafetensorsFile, Diagnostic>> {
        let opened = &self.opened[&rank];
        if let Some(file) = opened.get() {
            return Ok(Ok(file));
        }
        let name = self.index.file_name(rank);
        let damaged = |error: Diagnostic| error.context(format_args!("its part `{name}`"));
        let path = self.folder.join(&name);
        if fs::metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let missing = Diagnostic::new("there is no such file");
            return Ok(Err(damaged(missing.help("the files of a checkpoint are in one folder"))));
        }
        let map = Map::open(&path)?;
        let checked = SafetensorsFile::alone(&path, map).and_then(|file| {
            self.check(rank, &file)?;
            Ok(file)
        });
        Ok(match checked {
            Ok(file) => Ok(opened.get_or_init(|| file)),
            Err(error) => Err(damaged(error)),
        })
    }

    /// Checks that a file is the part of a rank, with all that the index says about it.
    fn check(&self, rank: usize, file: &SafetensorsFile) -> Result<()> {
        let wrong = |what: String| {
            Diagnostic::new(what).help("the file was replaced after the checkpoint was written")
        };
        let (index, listed) = (&self.index, &self.index.files[&rank]);
        let (bytes, wanted) = (file.length(), listed.bytes);
        if bytes != wanted {
            return Err(wrong(format!("it has {bytes} bytes, and {wanted} are listed")));
        }
        if file.checksum() != Some(&listed.checksum) {
            let found = file.checksum().unwrap_or("none");
            let wanted = &listed.checksum;
            return Err(wrong(format!("its checksum is {found}, and {wanted} is listed")));
        }
        let of_rank = || {
            let all = index.tensors.iter();
            all.filter(|(_, tensor)| tensor.division.is_first(index.grid, rank))
        };
        if file.names_of_file().count() != of_rank().count() + 1
            || file.read(PART)? != which(index.step, index.grid, rank)
        {
            return Err(wrong("it is another part, or has other variables".into()));
        }
        for (name, Divided { dtype, shape, division }) in of_rank() {
            let found = file.array_type(name)?;
            let part = division.part(shape, index.grid).expect("the index was checked");
            if found != (ArrayType { dtype: *dtype, shape: part.clone() }) {
                let (found_dtype, found_shape) = (found.dtype, found.shape);
                return Err(wrong(format!(
                    "`{name}` is {found_dtype} of shape {found_shape:?}, and {dtype} of shape \
                     {part:?} is listed"
                )));
            }
        }
        Ok(())
    }
}
