//! The tensors for the inputs of a function: dimension variables are bound by the tensors that have
//! a shape of their own, and the other tensors are generated.

use super::super::inflate::InflateLimit;
use super::super::listed;
use super::{FORMS, Spec};
use crate::available_memory;
use crate::random::{SplitMix64, hash_name};
use wengert_core::{Binding, DType, Literal, Result, Scalar, TensorType, diagnostic, with_native};

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
    bind_extents(name, ty, (literal.dtype(), literal.shape()), binding)
}

/// [`bind`] to a tensor of which dtype and extents are known.
pub fn bind_extents(
    name: &str,
    ty: &TensorType,
    (dtype, extents): (DType, &[usize]),
    binding: &mut Binding,
) -> Result<()> {
    let given = || TensorType::new(dtype, extents.iter().copied());
    let wrong = || diagnostic!("input `{name}` is {ty}, the tensor given is {}", given());
    if dtype != ty.dtype {
        return Err(wrong().help(format!("convert it to {}", ty.dtype)));
    }
    if extents.len() != ty.rank() {
        return Err(wrong().help(format!("it must have {} axes", ty.rank())));
    }
    for (axis, (dim, extent)) in ty.shape.iter().zip(extents).enumerate() {
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
        d if d.is_real() => Scalar::from_f64(d, 2.0 * stream.unit_f64() - 1.0),
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
