//! Models in ONNX as graph files: read, and then run, differentiated, trained and compiled like any
//! program. And functions of graph files as models, for other runtimes.
//!
//! The model's graph becomes one function, `predict`, and its initializers of floats become the
//! parameters of that function. With [`Options::training`] there is another one,
//! `predict_training`, which normalises by the statistics of the batch and drops out.
//! `wengert_onnx` has the tables of ops.

pub use wengert_onnx::{Class, ExportOptions, Narrow, OPSETS, Options, Row, Rule};
pub use wengert_onnx::{export_rules, rows, unexported};

use crate::atomic;
use crate::data::Arrays;
use crate::data::map::Map;
use crate::format::{GraphFile, Weights};
use crate::tune::Tuning;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wengert_compiler::normalization;
use wengert_core::graph::{InputRole, Program};
use wengert_core::{Result, diagnostic};

/// A model that was imported.
#[derive(Clone, Debug)]
pub struct Model {
    /// The model's function, whose parameters are its initializers, and that of training forms.
    pub program: Program,
    /// The name of the function of training forms, if they were asked for.
    pub training: Option<String>,
    /// Initial values of the parameters.
    pub weights: Arrays,
    /// The dtypes of inputs and outputs that programs lack. These are i32 or f32 in the function.
    pub narrow: BTreeMap<String, Narrow>,
    /// The parameters that are running statistics of a normalisation.
    pub statistics: BTreeSet<String>,
}

impl Model {
    /// The model for inference: [normalisations](normalization) by running statistics are folded
    /// into the convolutions before them. The function computes the same, but for rounding, of the
    /// same parameters.
    #[must_use]
    pub fn folded(mut self) -> Model {
        let predict = normalization::folded(&self.program.functions()[0]);
        self.program.replace(predict);
        self
    }

    /// The model as a file for inference, without a recipe; [`folded`](Self::folded).
    pub fn into_file(self) -> GraphFile {
        let Model { program, weights, .. } = self.folded();
        let weights = match weights.is_empty() {
            true => Weights::None,
            false => Weights::Inline(weights),
        };
        GraphFile { weights, ..GraphFile::new(program) }
    }

    /// The model as a file that is trained. Its running statistics are frozen.
    ///
    /// # Errors
    /// As for [`Tuning::of`].
    pub fn tuned(self, tuning: Tuning) -> Result<GraphFile> {
        let tuning = Tuning { training: self.training, ..tuning };
        let tuning = self.statistics.iter().fold(tuning, |tuning, path| tuning.freeze_path(path));
        tuning.of(&self.program, self.weights)
    }
}

/// Reads a model, with the values of its parameters, as a file.
///
/// # Errors
/// As for [`import`].
pub fn read(path: impl AsRef<Path>, options: &Options) -> Result<GraphFile> {
    Ok(import(path, options)?.into_file())
}

/// Reads a model, with the values of its parameters.
///
/// # Errors
/// The file cannot be read or is no model; a part of the model is refused, with its node, the op
/// and the reason; a file with values lies outside the model's folder.
pub fn import(path: impl AsRef<Path>, options: &Options) -> Result<Model> {
    let path = path.as_ref();
    let _span = tracing::debug_span!("read", name = %path.display()).entered();
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
    let imported = |options: &Options| {
        wengert_onnx::read(&name, Bytes::from_owner(Map::open(path)?), &beside, options)
            .map_err(|error| error.context(format_args!("cannot import `{}`", path.display())))
    };
    let plain = imported(&Options { training: false, ..options.clone() })?;
    let wengert_onnx::Imported { mut program, parameters, statistics, narrow, .. } = plain;
    let mut training = None;
    if options.training {
        let function = format!("{}_training", program.functions()[0].name);
        let forms = imported(&Options { function: function.clone(), ..options.clone() })?;
        let form = &forms.program.functions()[0];
        let is_other =
            form.inputs.iter().any(|i| i.role != InputRole::Param && i.role != InputRole::Input);
        if !is_other {
            return Err(diagnostic!(
                "`{}` has no batch normalisation and no dropout to have training forms",
                path.display()
            )
            .help("leave out `--training-forms`, or `Options::training`"));
        }
        program.add(form.clone())?;
        training = Some(function);
    }
    Ok(Model { program, training, weights: parameters, narrow, statistics })
}

/// Writes a function of a file as a model, with the file's values of its variables.
///
/// # Errors
/// There is no such function; an equation has no counterpart in ONNX; a variable has no value, or
/// values lie in another file, which [`Weights::load`] reads; the file cannot be written.
pub fn write(
    path: impl AsRef<Path>,
    file: &GraphFile,
    function: &str,
    options: &ExportOptions,
) -> Result<()> {
    let path = path.as_ref();
    let none = Arrays::new();
    let arrays = match &file.weights {
        Weights::None => &none,
        Weights::Inline(arrays) => arrays,
        Weights::File(name) => {
            return Err(diagnostic!("the values of variables are in another file, `{name}`")
                .help("load them: `Weights::Inline(file.weights.load(path)?)`"));
        }
    };
    let function = file.program.get(function)?;
    let model = wengert_onnx::write(function, arrays, options)
        .map_err(|error| error.context(format_args!("cannot export `{}`", path.display())))?;
    atomic::write_bytes(path, &model)
}
