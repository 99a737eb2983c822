//! The value of `--input NAME=`: the source of a tensor.
//!
//! | text | tensor |
//! |---|---|
//! | `@f.npy` | the array in the file |
//! | `@f.npz[k]`, `@f.safetensors[k]` | the array `k` in the file; `[k]` may be left out if there is only one |
//! | `@f.csv`, `@f.csv.gz` | the table, converted to the input's dtype |
//! | `@f.npy:f32`, `@f.npz[k]:f32` | the array in the file, converted to this dtype |
//! | `2x2xf32=1 2 3 4` | the elements in row-major order, as a literal prints itself |
//! | `random:7` | random, from the seed 7 and the input's name: see [`random`] |
//! | `zeros` | zeros |
//!
//! A text after the last colon is a dtype, unless a file has the whole text as its name. A number
//! that an integer dtype does not hold exactly is an error; a float dtype rounds to nearest even.
//!
//! The first five have a shape of their own and bind the dimension variables of a function:
//! `x: f32[B,64]` with a file of shape `[360,64]` makes B 360. The last two take the input's
//! shape, whose variables the others, or the caller, must bind. [`find`] follows that order and
//! generates nothing: its result tells its size in bytes, so that a plan can be made for the
//! remaining memory. [`resolve`] does both.

use super::csv::{Header, Table};
use super::exact::{self, holds, not_held};
use super::inflate::InflateLimit;
use super::{Format, listed, read_one_within};
use crate::random::{SplitMix64, hash_name};
use crate::{available_memory, os_text};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wengert_core::text::Cursor;
use wengert_core::{
    Binding, DType, Diagnostic, Literal, Result, Scalar, TensorType, diagnostic, with_native,
};

/// The source of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub enum Spec {
    /// A file, and the name within it.
    File {
        /// The file.
        path: PathBuf,
        /// Name of the array in a file of several.
        key: Option<String>,
        /// The dtype that the elements are converted to, if not that of the file.
        dtype: Option<DType>,
    },
    /// The elements themselves.
    Value(Literal),
    /// Random, from this seed.
    Random(u64),
    /// Zeros.
    Zeros,
}

impl Spec {
    /// Reads a spec. The path of a file need not be UTF-8.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Spec> {
        let text = text.as_ref();
        let malformed = |message: String| Diagnostic::new(message).help(FORMS);
        if let Some(file) = os_text::strip_prefix(text, b'@') {
            return Spec::file(file).map_err(|error| match error.help {
                Some(_) => error,
                None => error.help(FORMS),
            });
        }
        let text = text.to_str().ok_or_else(|| {
            malformed(format!("`{}` is not UTF-8 text", Path::new(text).display()))
        })?;
        if text == "zeros" {
            return Ok(Spec::Zeros);
        }
        if let Some(seed) = text.strip_prefix("random:") {
            let seed = seed.parse().map_err(|_| malformed(format!("`{seed}` is no seed")))?;
            return Ok(Spec::Random(seed));
        }
        let (head, elements) = text.split_once('=').ok_or_else(|| {
            malformed(format!("`{}` does not say where a tensor comes from", short(text)))
        })?;
        let mut extents: Vec<&str> = head.split('x').collect();
        let dtype: DType = extents.pop().unwrap_or_default().parse()?;
        let shape = extents
            .iter()
            .map(|e| {
                e.parse().map_err(|_| malformed(format!("`{e}` in `{}` is no extent", short(text))))
            })
            .collect::<Result<Vec<usize>>>()?;
        Ok(Spec::Value(elements_of(dtype, &shape, elements).map_err(|e| e.context(short(text)))?))
    }

    /// `PATH` or `PATH[KEY]`, each perhaps with `:DTYPE`.
    pub fn file(text: impl AsRef<OsStr>) -> Result<Spec> {
        let (text, dtype) = conversion(text.as_ref())?;
        let (path, key) =
            match os_text::strip_suffix(text, b']').and_then(|f| os_text::split_once(f, b'[')) {
                Some((path, key)) => (path, Some(key)),
                None => (text, None),
            };
        if path.is_empty() {
            return Err(diagnostic!("`@{}` names no file", Path::new(text).display()));
        }
        let utf8 = |key: &OsStr| {
            let wrong =
                || diagnostic!("`{}` names no array: it is not UTF-8", Path::new(key).display());
            key.to_str().map(str::to_owned).ok_or_else(wrong)
        };
        Ok(Spec::File { path: path.into(), key: key.map(utf8).transpose()?, dtype })
    }

    /// The tensor, if the spec has a shape of its own; `ty` is the type of the input.
    fn own(&self, ty: &TensorType, limit: InflateLimit) -> Result<Option<Literal>> {
        Ok(match self {
            Spec::Value(literal) => Some(literal.clone()),
            // A table has no dtype: it takes the input's. A single column may be a vector.
            Spec::File { path, key: None, dtype } if Format::of(path)? == Format::Csv => {
                let table = Table::read_within(path, Header::Detect, limit)?;
                let dtype = dtype.unwrap_or(ty.dtype);
                Some(match (ty.rank(), table.columns()) {
                    (1, 1) => table.column(0, dtype)?,
                    _ => table.to_literal(dtype)?,
                })
            }
            Spec::File { path, key, dtype } => {
                let array = read_one_within(path, key.as_deref(), limit)?;
                Some(match dtype {
                    Some(dtype) => converted(&array, *dtype)
                        .map_err(|e| e.context(format_args!("`{}`", path.display())))?,
                    None => array,
                })
            }
            Spec::Random(_) | Spec::Zeros => None,
        })
    }
}

const FORMS: &str = "write @file.npy, @file.npz[name], @file.safetensors[name], @file.csv \
                     (@file.npy:f32 converts), 2x2xf32=1 2 3 4, random:SEED, or zeros";

/// Splits `FILE:DTYPE`. A file whose name has a colon keeps it: the whole text is its name if such
/// a file exists, or if no dtype follows the colon.
///
/// Error: what follows the name of a tensor file is not a dtype.
fn conversion(text: &OsStr) -> Result<(&OsStr, Option<DType>)> {
    let Some((file, suffix)) = os_text::rsplit_once(text, b':').filter(|(file, suffix)| {
        !file.is_empty() && !suffix.is_empty() && !Path::new(text).exists()
    }) else {
        return Ok((text, None));
    };
    match suffix.to_str().unwrap_or_default().parse() {
        Ok(dtype) => Ok((file, Some(dtype))),
        Err(error) => {
            let path = os_text::split_once(file, b'[').map_or(file, |(path, _)| path);
            if Format::of(Path::new(path)).is_err() || Format::of(Path::new(text)).is_ok() {
                return Ok((text, None));
            }
            Err(error.context(format_args!("`{}`", Path::new(text).display())))
        }
    }
}

/// The array in another dtype.
///
/// Error: an integer dtype does not hold an element.
fn converted(array: &Literal, dtype: DType) -> Result<Literal> {
    match not_held(array, dtype) {
        None => Ok(array.convert(dtype)),
        Some(exact::Found { number, at, more }) => {
            let more = if more == 0 { String::new() } else { format!(" (and so are {more} more)") };
            Err(diagnostic!("element {at} is {number}, which is no {dtype}{more}")
                .help(holds(dtype)))
        }
    }
}

/// Elements separated by blanks, exactly as many as the shape has.
fn elements_of(dtype: DType, shape: &[usize], text: &str) -> Result<Literal> {
    let mut cursor = Cursor::new("value", text);
    let mut values = Vec::new();
    while !cursor.is_end() {
        values.push(cursor.scalar(dtype)?);
    }
    Literal::from_scalars(dtype, shape, &values)
}

/// A tensor for an input, read or still to be generated.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The input.
    pub name: String,
    /// Its type, without dimension variables.
    pub ty: TensorType,
    source: Source,
}

/// The source of a found tensor's elements.
#[derive(Clone, PartialEq, Debug)]
enum Source {
    /// They are in memory.
    Given(Literal),
    /// They are random, from a seed.
    Random(u64),
    /// They are zeros.
    Zeros,
}

impl Found {
    /// Bytes that [`make`](Self::make) allocates.
    pub fn bytes_to_make(&self) -> u64 {
        match self.source {
            Source::Given(_) => 0,
            _ => self.ty.bytes().map_or(u64::MAX, |bytes| bytes as u64),
        }
    }

    /// The input's name and tensor.
    ///
    /// Error: there is not enough memory.
    pub fn make(self) -> Result<(String, Literal)> {
        let literal = match self.source {
            Source::Given(literal) => literal,
            Source::Random(seed) => random(&self.ty, seed, &self.name)?,
            Source::Zeros => Literal::zeros(self.ty.dtype, &extents(&self.ty)?),
        };
        Ok((self.name, literal))
    }
}

/// [`find`], followed by `make` for all tensors. Compressed files are read within the default
/// limit.
pub fn resolve(
    inputs: &[(&str, &TensorType)],
    specs: &[(&str, Spec)],
    binding: &mut Binding,
) -> Result<Vec<(String, Literal)>> {
    find(inputs, specs, binding, InflateLimit::default())?.into_iter().map(Found::make).collect()
}

/// The tensors for a function's inputs, in their order.
///
/// `inputs` are names and types (which may have variables), `specs` are names and texts.
/// Variables that files and values determine are added to `binding`. Compressed files may inflate
/// to `limit`.
///
/// Errors: a name that is no input or occurs twice, an input without a spec, another dtype, rank
/// or extent than the input's, and all errors of reading a file.
pub fn find(
    inputs: &[(&str, &TensorType)],
    specs: &[(&str, Spec)],
    binding: &mut Binding,
    limit: InflateLimit,
) -> Result<Vec<Found>> {
    for (i, (name, _)) in specs.iter().enumerate() {
        if !inputs.iter().any(|(input, _)| input == name) {
            let names: Vec<_> = inputs.iter().map(|(name, _)| *name).collect();
            return Err(diagnostic!("there is no input `{name}`")
                .help(format!("inputs are {}", listed(&names))));
        }
        if specs[..i].iter().any(|(earlier, _)| earlier == name) {
            return Err(diagnostic!("input `{name}` is given twice"));
        }
    }
    let mut found = Vec::with_capacity(inputs.len());
    for (name, ty) in inputs {
        let spec = specs.iter().find(|(given, _)| given == name).map(|(_, spec)| spec).ok_or_else(
            || {
                diagnostic!("input `{name}` ({ty}) is not given")
                    .help(format!("add `--input {name}=SPEC`; {FORMS}"))
            },
        )?;
        let own = spec.own(ty, limit).map_err(|e| e.context(format_args!("input `{name}`")))?;
        if let Some(literal) = &own {
            bind(name, ty, literal, binding).map_err(|error| match spec {
                Spec::File { .. } if literal.dtype() != ty.dtype => error.help(format!(
                    "to convert it, write `:{0}` after the file: `--input {name}=@FILE:{0}`",
                    ty.dtype
                )),
                _ => error,
            })?;
        }
        found.push((*name, *ty, spec, own));
    }
    found
        .into_iter()
        .map(|(name, ty, spec, own)| {
            let bound = bound(name, ty, binding)?;
            let source = match (own, spec) {
                (Some(literal), _) => Source::Given(literal),
                (None, Spec::Random(seed)) => Source::Random(*seed),
                (None, _) => Source::Zeros,
            };
            checked_bytes(&bound)?;
            Ok(Found { name: name.to_owned(), ty: bound, source })
        })
        .collect()
}

/// The type of an input whose shape follows from the binding.
fn bound(name: &str, ty: &TensorType, binding: &Binding) -> Result<TensorType> {
    ty.bind(binding).map_err(|error| {
        let error = error.context(format_args!("input `{name}`"));
        let dims = ty.shape.iter().filter_map(|dim| dim.bind(binding).ok());
        match dims.flat_map(|dim| dim.terms().first().map(|(p, _)| p.factors()[0].clone())).next() {
            Some(variable) => error.help(format!(
                "add `--bind {variable}=NUMBER`, or give elements or a file for an input \
                 that has `{variable}`"
            )),
            None => error,
        }
    })
}

/// Checks that `literal` can be the input `name` of type `ty`, and binds the dimension variables
/// that follow from it.
pub fn bind(name: &str, ty: &TensorType, literal: &Literal, binding: &mut Binding) -> Result<()> {
    let wrong = || diagnostic!("input `{name}` is {ty}, the tensor given is {}", literal.ty());
    if literal.dtype() != ty.dtype {
        return Err(wrong().help(format!("convert it to {}", ty.dtype)));
    }
    if literal.shape().len() != ty.rank() {
        return Err(wrong().help(format!("it must have {} axes", ty.rank())));
    }
    for (axis, (dim, extent)) in ty.shape.iter().zip(literal.shape()).enumerate() {
        dim.solve(*extent, binding).map_err(|error| {
            let help = [Some(format!("axis {axis}: {}", error.message)), error.help];
            wrong().help(help.into_iter().flatten().collect::<Vec<_>>().join("; "))
        })?;
    }
    Ok(())
}

/// A random tensor from a seed and a name: floats are uniform in [−1, 1), integers are uniform in
/// 0..10 (small enough for labels and indices), `u32` (the dtype of keys) is uniform over all
/// bits, and bools are fair coins.
pub fn random(ty: &TensorType, seed: u64, name: &str) -> Result<Literal> {
    let mut stream = SplitMix64::of(seed, &[hash_name(name)]);
    let shape = extents(ty)?;
    let count: usize = shape.iter().product();
    let mut element = || match ty.dtype {
        DType::Bool => Scalar::of(stream.next_u64() >> 63 == 1),
        DType::U32 => Scalar::of((stream.next_u64() >> 32) as u32),
        d if d.is_float() => Scalar::from_f64(d, 2.0 * stream.unit_f64() - 1.0),
        d => Scalar::from_i64(d, stream.below(10) as i64),
    };
    with_native!(ty.dtype, T => {
        Literal::from_vec(&shape, (0..count).map(|_| element().get::<T>()).collect())
    })
}

/// Bytes of a bound type. More than a process can address is an error.
fn checked_bytes(ty: &TensorType) -> Result<u64> {
    let too_large = || diagnostic!("a tensor {ty} is larger than any memory");
    let bytes = ty.bytes().ok_or_else(too_large)?;
    // The 2^47 bytes that a process can address on today's 64-bit machines.
    if bytes >= 1 << 47 { Err(too_large()) } else { Ok(bytes as u64) }
}

/// Extents of a bound type. An error if there is not enough memory for the tensor.
fn extents(ty: &TensorType) -> Result<Vec<usize>> {
    available_memory::check(checked_bytes(ty)?, || format!("a tensor {ty}"))?;
    Ok(ty.extents().expect("its bytes were counted"))
}

fn short(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(60).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> TensorType {
        Cursor::new("t", text).tensor_type().unwrap()
    }

    #[test]
    fn texts_of_every_form() {
        assert_eq!(
            Spec::parse("@a.npy").unwrap(),
            Spec::File { path: "a.npy".into(), key: None, dtype: None }
        );
        assert_eq!(
            Spec::parse("@d/w.safetensors[layers.0.w]").unwrap(),
            Spec::File {
                path: "d/w.safetensors".into(),
                key: Some("layers.0.w".into()),
                dtype: None
            }
        );
        assert_eq!(Spec::parse("zeros").unwrap(), Spec::Zeros);
        assert_eq!(Spec::parse("random:18446744073709551615").unwrap(), Spec::Random(u64::MAX));
        for text in [
            "2x2xf32=1.0 -2.5 inf nan",
            "i32=-7",
            "0x3xu8=",
            "2xbool=true false",
            "3xbf16=1.0 0.1 2.0",
        ] {
            let Spec::Value(literal) = Spec::parse(text).unwrap() else {
                panic!("{text} is a value")
            };
            assert_eq!(Spec::parse(literal.to_string()).unwrap(), Spec::Value(literal));
        }
        for (bad, says) in [
            ("2x2xf32=1 2 3", "3 elements do not fill"),
            ("2xf33=1 2", "unknown dtype"),
            ("axf32=1", "no extent"),
            ("2xi32=1 2.5", "expected an integer"),
            ("18446744073709551615x4xf32=1", "do not fill"),
            ("@", "names no file"),
            ("random:x", "no seed"),
            ("ones", "does not say"),
        ] {
            let error = Spec::parse(bad).unwrap_err();
            assert!(error.to_string().contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn files_are_converted_where_a_dtype_follows() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let wide = Literal::from_vec(&[2], vec![1.0f64, 2.5]).unwrap();
        let whole = Literal::from_vec(&[2], vec![300i64, -1]).unwrap();
        let write = |name: &str, array: &Literal| super::super::write_one(at(name), "k", array);
        write("x.npy", &wide).unwrap();
        write("x.npz", &wide).unwrap();
        write("n.npy", &whole).unwrap();
        write("u.npy:f32.npy", &wide).unwrap();
        std::fs::write(at("t.csv"), "1.5\n2.5\n").unwrap();
        let read = |text: &str, dtype: &str| {
            let ty = ty(&format!("{dtype}[N]"));
            let spec = Spec::parse(format!("@{}", at(text)))?;
            let mut found = resolve(&[("x", &ty)], &[("x", spec)], &mut Binding::new())?;
            Ok(found.swap_remove(0).1)
        };
        let narrow = Literal::from_vec(&[2], vec![1.0f32, 2.5]).unwrap();
        assert_eq!(read("x.npy:f32", "f32"), Ok(narrow.clone()));
        assert_eq!(read("x.npz[k]:f32", "f32"), Ok(narrow.clone()));
        assert_eq!(read("x.npz:f32", "f32"), Ok(narrow.clone()));
        assert_eq!(
            read("n.npy:i32", "i32"),
            Ok(Literal::from_vec(&[2], vec![300i32, -1]).unwrap())
        );
        // A colon within the name of a file.
        assert_eq!(read("u.npy:f32.npy", "f64"), Ok(wide.clone()));
        assert_eq!(read("u.npy:f32.npy:f32", "f32"), Ok(narrow));
        // A file with the whole text as its name; its format is unknown.
        std::fs::write(at("x.npy:f64"), "").unwrap();
        let says = |result: Result<Literal>, text: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        says(read("x.npy:f64", "f64"), "is no tensor file");
        says(read("x.npy:float", "f32"), "unknown dtype `float`");
        says(read("x.npz[k]:f23", "f32"), "unknown dtype `f23`");
        says(read("x.npy", "f32"), "to convert it, write `:f32` after the file");
        says(read("x.npy:f16", "f32"), "the tensor given is f16[2]");
        says(read("x.npy:i32", "i32"), "x.npy`: element 1 is 2.5, which is no i32");
        says(read("n.npy:u8", "u8"), "element 0 is 300, which is no u8 (and so are 1 more)");
        says(read("t.csv:f64", "f32"), "the tensor given is f64[2]");
    }

    #[test]
    fn files_bind_variables_that_the_others_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let x = Literal::zeros(DType::F32, &[5, 3]);
        super::super::npy::write(&path, &x).unwrap();
        let table = folder.path().join("y.csv");
        std::fs::write(&table, "1\n2\n3\n4\n5\n").unwrap();
        let (tx, ty_y, tz) = (ty("f32[B,3]"), ty("i32[B]"), ty("f64[2*B]"));
        let inputs = [("z", &tz), ("x", &tx), ("y", &ty_y)];
        let file = |p: &PathBuf| Spec::File { path: p.clone(), key: None, dtype: None };
        let specs = [("x", file(&path)), ("y", file(&table)), ("z", Spec::Random(1))];
        let mut binding = Binding::new();
        let found = resolve(&inputs, &specs, &mut binding).unwrap();
        assert_eq!(binding.get("B"), Some(5));
        assert_eq!(found[0].1.shape(), [10]);
        assert_eq!(found[1], ("x".into(), x));
        assert_eq!(found[2].1.as_slice::<i32>().unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(
            resolve(&inputs, &specs, &mut Binding::new()).unwrap(),
            found,
            "random is reproducible"
        );

        let says = |specs: &[(&str, Spec)], binding: &mut Binding, text: &str| {
            let error = resolve(&inputs, specs, binding).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        };
        says(&specs[..2], &mut Binding::new(), "input `z` (f64[2*B]) is not given");
        says(&[("w", Spec::Zeros)], &mut Binding::new(), "inputs are `z`, `x`, `y`");
        says(&[specs[0].clone(), specs[0].clone()], &mut Binding::new(), "twice");
        says(&specs, &mut Binding::new().with("B", 4), "the tensor given is f32[5,3]");
        let zeros = [("x", Spec::Zeros), ("y", Spec::Zeros), ("z", Spec::Zeros)];
        says(&zeros, &mut Binding::new(), "add `--bind B=NUMBER`");
        says(&zeros, &mut Binding::new().with("B", 1 << 60), "larger than any memory");
        let wrong =
            [("x", Spec::parse("5x3xf64=".trim_end()).unwrap_or(Spec::Zeros)), specs[1].clone()];
        assert!(resolve(&inputs, &wrong, &mut Binding::new()).is_err());
        let int =
            [("x", Spec::parse("1x3xi32=1 2 3").unwrap()), ("y", Spec::Zeros), ("z", Spec::Zeros)];
        says(&int, &mut Binding::new(), "convert it to f32");
    }

    #[test]
    fn made_up_tensors_depend_on_seed_and_name() {
        let a = random(&ty("f32[100]"), 1, "a").unwrap();
        assert_ne!(a, random(&ty("f32[100]"), 1, "b").unwrap());
        assert_ne!(a, random(&ty("f32[100]"), 2, "a").unwrap());
        assert!(a.scalars().all(|s| (-1.0..=1.0).contains(&s.to_f64())));
        let labels = random(&ty("i32[100]"), 1, "a").unwrap();
        assert!(labels.as_slice::<i32>().unwrap().iter().all(|v| (0..10).contains(v)));
    }
}
