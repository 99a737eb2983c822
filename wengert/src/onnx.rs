//! Models in ONNX as graph files: read, and then run, differentiated, trained and compiled like any
//! program.
//!
//! The model's graph becomes one function, `predict`, and its initializers of floats become the
//! parameters of that function. `wengert_onnx` has the table of ops.

pub use wengert_onnx::{Class, Options, Row, rows};

use crate::data::map::Map;
use crate::format::{GraphFile, Weights};
use bytes::Bytes;
use std::path::Path;
use wengert_core::{Result, diagnostic};

/// Reads a model, with the values of its parameters.
///
/// # Errors
/// The file cannot be read or is no model; a part of the model is refused, with its node, the op
/// and the reason; a file with values lies outside the model's folder.
pub fn read(path: impl AsRef<Path>, options: &Options) -> Result<GraphFile> {
    let path = path.as_ref();
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = |name: &Path| {
        let file = folder.join(name);
        // A link may lead outside.
        let real = file.canonicalize();
        let root = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if let (Ok(real), Ok(root)) = (&real, root.canonicalize())
            && !real.starts_with(root)
        {
            return Err(diagnostic!(
                "its values are in `{}`, a link to outside the model's folder",
                name.display()
            ));
        }
        Ok(Bytes::from_owner(Map::open(&file)?))
    };
    let name = path.display().to_string();
    let imported = wengert_onnx::read(&name, Bytes::from_owner(Map::open(path)?), &beside, options)
        .map_err(|error| error.context(format_args!("cannot import `{}`", path.display())))?;
    let weights = match imported.parameters.is_empty() {
        true => Weights::None,
        false => Weights::Inline(imported.parameters),
    };
    Ok(GraphFile { weights, ..GraphFile::new(imported.program) })
}
