//! Assignment of a run's outputs to files: the `--output NAME=PATH` and the `--save FILE` of
//! `graphrun run`.
//!
//! Several outputs with the same `.npz` or `.safetensors` path are written to it together. Other
//! files hold one array, so a second output for one of them would overwrite the first. Two paths
//! are the same file if they lead to it, through links too. All of this is checked before the
//! run, which may be long.

use crate::console::Outcome;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wengert::data::{self, Format};
use wengert::{Literal, atomic, diagnostic};

/// A file and its outputs.
struct Target<'a> {
    path: &'a Path,
    format: Format,
    identity: PathBuf,
    names: Vec<&'a str>,
}

/// All files for outputs.
pub struct Targets<'a>(Vec<Target<'a>>);

impl<'a> Targets<'a> {
    /// The targets of pairs of an output and a path, `-` excluded. No path may equal `save`,
    /// which gets all variables.
    ///
    /// Errors: a name has no known format; a file cannot be written; two outputs have the same
    /// file and it holds only one.
    pub fn of(outputs: &[(&'a str, &'a OsStr)], save: Option<&'a Path>) -> Outcome<Targets<'a>> {
        let mut targets: Vec<Target<'a>> = Vec::new();
        for &(name, path) in outputs.iter().filter(|(_, path)| *path != "-") {
            let path = Path::new(path);
            let (format, identity) = (Format::of(path)?, atomic::identity(path));
            match targets.iter_mut().find(|target| target.identity == identity) {
                None => {
                    atomic::can_write(path)?;
                    targets.push(Target { path, format, identity, names: vec![name] });
                }
                Some(target) if target.format == format && format.holds_several() => {
                    target.names.push(name)
                }
                Some(target) => return Err(overwritten(target.names[0], name, path)),
            }
        }
        if let Some(path) = save {
            if !Format::of(path)?.holds_several() {
                return Err(diagnostic!("`{}` can hold one array only", path.display())
                    .help("save variables to a .safetensors or .npz file")
                    .into());
            }
            let identity = atomic::identity(path);
            if let Some(target) = targets.iter().find(|target| target.identity == identity) {
                return Err(overwritten(target.names[0], "the variables", path));
            }
            atomic::can_write(path)?;
        }
        Ok(Targets(targets))
    }

    /// Writes every file with the values of its outputs.
    pub fn write(&self, value: impl Fn(&str) -> wengert::Result<Literal>) -> Outcome<()> {
        for target in &self.0 {
            let values = target.names.iter().map(|name| Ok((*name, value(name)?)));
            let values = values.collect::<wengert::Result<Vec<_>>>()?;
            data::write_all(target.path, values.iter().map(|(name, value)| (*name, value)))?;
        }
        Ok(())
    }
}

fn overwritten(first: &str, second: &str, path: &Path) -> crate::Failure {
    diagnostic!("`{first}` and `{second}` are both to be written to `{}`", path.display())
        .help("give each a file of its own, or outputs one .npz or .safetensors file together")
        .into()
}
