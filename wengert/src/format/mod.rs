//! The binary files `.graph` and `.plan`.
//!
//! Both are [`container`]s of checksummed sections, and both are untrusted input: a damaged or
//! hostile file gives an error that names the file and the place, never a panic, a hang or a huge
//! allocation. A reader checks in three layers: the container (every byte accounted for, every
//! checksum right), the records (bounded memory, no recursion over the data, every number in
//! range: [`codec`], [`v1`]), and the core verifier, which treats a program from a file like any
//! other.
//!
//! **`.graph`** holds a [`GraphFile`]: program, locations, and optionally a recipe and weights. Its
//! records are the frozen structs of [`v1`].
//!
//! **`.plan`** holds a compiled function as text: see [`plan`].
//!
//! Checksums detect accidental damage. The checks of records and of the verifier protect against
//! deliberate changes.

pub mod codec;
pub mod container;
pub mod plan;
pub mod v1;

use crate::atomic;
use crate::data::map::Map;
use crate::data::{Arrays, safetensors, text};
use crate::recipe::Recipe;
use container::{Contents, Kind, damaged};
use std::path::Path;
use wengert_core::graph::{PrintOptions, Program, parse_program, print, verify_program};
use wengert_core::{Diagnostic, Result, diagnostic};

/// The contents of a `.graph` file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GraphFile {
    /// The functions.
    pub program: Program,
    /// The training recipe.
    pub recipe: Option<Recipe>,
    /// Values of variables.
    pub weights: Weights,
}

/// The source of a `.graph` file's variable values.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Weights {
    /// The file has no values.
    #[default]
    None,
    /// Within the file, by key path.
    Inline(Arrays),
    /// In a safetensors file of this name in the same folder.
    File(String),
}

impl Weights {
    /// The values by key path, or `None` if the file has none; `graph` is the path of the
    /// `.graph` file.
    pub fn load(&self, graph: &Path) -> Result<Option<Arrays>> {
        match self {
            Weights::None => Ok(None),
            Weights::Inline(arrays) => Ok(Some(arrays.clone())),
            Weights::File(name) => {
                let path = graph.with_file_name(checked_name(name)?);
                Ok(Some(safetensors::SafetensorsFile::open(&path)?.read_all()?))
            }
        }
    }
}

/// Checks that a name stays within its folder: a file must not make its reader open a file
/// elsewhere.
fn checked_name(name: &str) -> Result<&str> {
    let plain =
        !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0', ':']);
    if plain && name.len() <= 255 {
        Ok(name)
    } else {
        Err(diagnostic!("`{}` is not the name of a file in the same folder", name.escape_debug()))
    }
}

/// Reads and writes programs as files.
pub trait ProgramFile: Sized {
    /// Writes a `.graph` file without recipe and weights, or an `.ir` text, depending on the name
    /// of `path`.
    fn save(&self, path: impl AsRef<Path>) -> Result<()>;
    /// Reads and verifies the program of a `.graph` or `.ir` file.
    fn load(path: impl AsRef<Path>) -> Result<Self>;
}

impl ProgramFile for Program {
    fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        GraphFile::new(self.clone()).write(path)
    }

    fn load(path: impl AsRef<Path>) -> Result<Self> {
        Ok(GraphFile::read(path)?.program)
    }
}

/// The two forms of a program in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Graph,
    Text,
    /// A model of another format, which is imported.
    Onnx,
}

impl Form {
    fn of(path: &Path) -> Result<Form> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("graph") => Ok(Form::Graph),
            Some("ir") => Ok(Form::Text),
            Some("onnx") => Ok(Form::Onnx),
            _ => Err(diagnostic!("`{}` is not a program file", path.display()).help(
                "the name of a program file ends in .graph or .ir, that of a model in .onnx",
            )),
        }
    }
}

/// A section of a file that is written.
type NamedContents<'a> = (&'static str, Box<dyn Contents + 'a>);

fn borrowed<'a>(sections: &'a [NamedContents<'_>]) -> Vec<(&'a str, &'a dyn Contents)> {
    sections.iter().map(|(name, contents)| (*name, &**contents as &dyn Contents)).collect()
}

impl GraphFile {
    /// A file with a program, without recipe and weights.
    pub fn new(program: impl Into<Program>) -> Self {
        GraphFile { program: program.into(), ..GraphFile::default() }
    }

    /// Reads and verifies a `.graph` file, or an `.ir` text, which has neither recipe nor weights.
    /// An `.onnx` model is [imported](crate::onnx).
    pub fn read(path: impl AsRef<Path>) -> Result<GraphFile> {
        let path = path.as_ref();
        let form = Form::of(path)?;
        if form == Form::Onnx {
            return crate::onnx::read(path, &crate::onnx::Options::default());
        }
        let _span = tracing::debug_span!("read", name = %path.display()).entered();
        let map = Map::open(path)?;
        if form == Form::Text {
            let text =
                std::str::from_utf8(&map).map_err(|error| text::not_utf8(path, &map, error))?;
            return Ok(GraphFile::new(parse_program(text, &path.display().to_string())?));
        }
        GraphFile::from_bytes(&map)
            .map_err(|error| error.context(format_args!("cannot read `{}`", path.display())))
    }

    /// Writes a `.graph` file, or an `.ir` text, depending on the name. The same contents give
    /// the same bytes.
    ///
    /// Error: `path` ends in `.ir`, and there is a recipe or weights.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if Form::of(path)? == Form::Onnx {
            return Err(diagnostic!("cannot write `{}`: a model has one function", path.display())
                .help("write a .graph file; `graphrun export` writes a function as a model"));
        }
        if Form::of(path)? == Form::Text {
            if self.recipe.is_some() || self.weights != Weights::None {
                return Err(diagnostic!(
                    "cannot write `{}`: an .ir text cannot hold a recipe or weights",
                    path.display()
                )
                .help("write a .graph file, or the program alone"));
            }
            return atomic::write_bytes(
                path,
                print(&self.program, &PrintOptions::default()).as_bytes(),
            );
        }
        let sections = self
            .sections()
            .map_err(|error| error.context(format_args!("cannot write `{}`", path.display())))?;
        atomic::write(path, |file| {
            container::write_to(Kind::Graph, v1::VERSION, &borrowed(&sections), file)
        })
    }

    /// The contents of the file, in the newest version of the format.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (sections, mut bytes) = (self.sections()?, Vec::new());
        container::write_to(Kind::Graph, v1::VERSION, &borrowed(&sections), &mut bytes)
            .map_err(|error| Diagnostic::new(error.to_string()))?;
        Ok(bytes)
    }

    /// The sections of the file. Weights are not copied.
    fn sections(&self) -> Result<Vec<NamedContents<'_>>> {
        if let Some(function) = self.program.functions().iter().find(|f| !f.mesh.is_empty()) {
            let (name, mesh) = (&function.name, &function.mesh);
            return Err(diagnostic!("@{name} has a mesh, {mesh}, which a .graph file cannot hold")
                .help("write it as text, to an .ir file"));
        }
        let (program, literals) = v1::program::to_record(&self.program);
        let mut sections: Vec<NamedContents<'_>> = vec![
            ("program", Box::new(codec::encode("program", &program)?)),
            ("literals", Box::new(literals)),
            (
                "locations",
                Box::new(codec::encode("locations", &v1::locations::to_record(&self.program))?),
            ),
        ];
        if let Some(recipe) = &self.recipe {
            let bytes = codec::encode("recipe", &v1::recipe::to_record(recipe))?;
            sections.push(("recipe", Box::new(bytes)));
            if let Some(record) = v1::data::to_record(recipe) {
                sections.push(("recipe.data", Box::new(codec::encode("recipe.data", &record)?)));
            }
            if recipe.microbatches > 1 {
                let record = v1::Microbatches { count: recipe.microbatches };
                let bytes = codec::encode("recipe.microbatches", &record)?;
                sections.push(("recipe.microbatches", Box::new(bytes)));
            }
            if let Some(policy) = &recipe.precision {
                let (record, dtypes) = v1::precision::to_record(policy);
                sections.push(("precision", Box::new(codec::encode("precision", &record)?)));
                if let Some(dtypes) = dtypes {
                    let bytes = codec::encode("precision.dtypes", &dtypes)?;
                    sections.push(("precision.dtypes", Box::new(bytes)));
                }
            }
            if let Some(record) = v1::monitoring::to_record(&recipe.monitoring) {
                let bytes = codec::encode("monitoring", &record)?;
                sections.push(("monitoring", Box::new(bytes)));
            }
        }
        match &self.weights {
            Weights::None => {}
            Weights::Inline(arrays) => {
                let image =
                    safetensors::Image::new(arrays.iter().map(|(k, v)| (k.as_str(), v)).collect())?;
                sections.push(("weights", Box::new(image)));
            }
            Weights::File(name) => {
                sections.push(("weights.file", Box::new(checked_name(name)?.to_owned())));
            }
        }
        Ok(sections)
    }

    /// Reads and verifies the contents of a file. Errors do not name the file.
    pub fn from_bytes(bytes: &[u8]) -> Result<GraphFile> {
        let (_, sections) = container::read(Kind::Graph, &[v1::VERSION], bytes)?;
        let mut sections: Vec<_> = sections.into_iter().map(|s| (s.name, s.bytes)).collect();
        let mut take = |name: &str| {
            let at = sections.iter().position(|(n, _)| *n == name)?;
            Some(sections.swap_remove(at).1)
        };
        let missing = |name: &str| damaged(format!("section `{name}` is missing"));
        let program: v1::Program =
            codec::decode("program", take("program").ok_or_else(|| missing("program"))?)?;
        let locations = take("locations").ok_or_else(|| missing("locations"))?;
        let locations = v1::locations::from_record(
            codec::decode("locations", locations)?,
            program.functions.len(),
        )?;
        let literals = take("literals").ok_or_else(|| missing("literals"))?;
        let program = v1::program::from_record(program, literals, locations)
            .map_err(|error| error.context("section `program`"))?;
        verify_program(&program).map_err(|error| error.context("section `program`"))?;
        let mut recipe = take("recipe")
            .map(|bytes| v1::recipe::from_record(codec::decode("recipe", bytes)?))
            .transpose()
            .map_err(|error| error.context("section `recipe`"))?;
        let dtypes = take("precision.dtypes")
            .map(|bytes| codec::decode("precision.dtypes", bytes))
            .transpose()
            .map_err(|error| error.context("section `precision.dtypes`"))?;
        let precision = match take("precision") {
            Some(bytes) => codec::decode("precision", bytes)
                .and_then(|record| v1::precision::from_record(record, dtypes))
                .map(Some)
                .map_err(|error| error.context("section `precision`"))?,
            None if dtypes.is_some() => {
                return Err(damaged("there is a `precision.dtypes` without a `precision`"));
            }
            None => None,
        };
        match (&mut recipe, precision) {
            (Some(recipe), precision) => recipe.precision = precision,
            (None, Some(_)) => return Err(damaged("there is a `precision` without a `recipe`")),
            (None, None) => {}
        }
        match (&mut recipe, take("monitoring")) {
            (Some(recipe), Some(bytes)) => codec::decode("monitoring", bytes)
                .and_then(|record| v1::monitoring::from_record(record, recipe))
                .map_err(|error| error.context("section `monitoring`"))?,
            (None, Some(_)) => return Err(damaged("there is a `monitoring` without a `recipe`")),
            (_, None) => {}
        }
        if let Some(bytes) = take("recipe.data") {
            let Some(recipe) = &mut recipe else {
                return Err(damaged("there is a `recipe.data` without a `recipe`"));
            };
            codec::decode("recipe.data", bytes)
                .and_then(|record| v1::data::add_record(record, recipe))
                .map_err(|error| error.context("section `recipe.data`"))?;
        }
        if let Some(bytes) = take("recipe.microbatches") {
            let Some(recipe) = &mut recipe else {
                return Err(damaged("there is a `recipe.microbatches` without a `recipe`"));
            };
            let v1::Microbatches { count } = codec::decode("recipe.microbatches", bytes)
                .map_err(|error| error.context("section `recipe.microbatches`"))?;
            recipe.microbatches = count;
        }
        if let Some(recipe) = &recipe {
            recipe.verify_for(&program)?;
        }
        let weights = match (take("weights"), take("weights.file")) {
            (None, None) => Weights::None,
            (Some(image), None) => Weights::Inline(
                safetensors::parse(image).map_err(|e| e.context("section `weights`"))?,
            ),
            (None, Some(name)) => {
                let name = std::str::from_utf8(name)
                    .map_err(|_| damaged("section `weights.file` is not UTF-8 text"))?;
                Weights::File(checked_name(name)?.to_owned())
            }
            (Some(_), Some(_)) => {
                return Err(damaged("both `weights` and `weights.file` are present"));
            }
        };
        match sections.first() {
            Some((name, _)) => {
                Err(damaged(format!("section `{name}` is unknown to version {}", v1::VERSION)))
            }
            None => Ok(GraphFile { program, recipe, weights }),
        }
    }
}
