//! Low-rank adaptation: adapted programs, the first values of their adapters, and weights with
//! their updates merged.

use crate::data::Arrays;
use crate::format::{GraphFile, Weights};
use crate::program::{drawn, key_of};
use wengert_core::build::Scope;
use wengert_core::graph::{Function, InputRole, Program};
use wengert_core::ndarray::Array2;
use wengert_core::{DType, Diagnostic, Literal, Result, Scalar, Tensor, diagnostic};

pub use wengert_compiler::lora::*;

/// The first values of the parameters of adapters, drawn from a seed. A value depends on the seed
/// and on its key path, and on nothing else.
///
/// # Errors
/// There is not enough memory.
pub fn beginning(adapters: &[Adapter], seed: u64) -> Result<Arrays> {
    let mut arrays = Arrays::new();
    for adapter in adapters {
        let path = adapter.down();
        let value = Scope::eager().enter(|| {
            let key = key_of(&Tensor::constant(crate::random::key(seed, 0)), &path);
            drawn(&adapter.down_type(), &adapter.beginning(), Some(&key)).value()
        })?;
        arrays.insert(path, value);
        let extents = adapter.up_type().extents().expect("an adapter has numbers as extents");
        let zero = Scalar::from_f64(adapter.weight.dtype, 0.0);
        arrays.insert(adapter.up(), Literal::full(&extents, zero));
    }
    Ok(arrays)
}

/// Weights for the program without adapters: each weight plus its update, and no adapters. Sums and
/// products are computed in f64, and rounded once to the dtype of the weight.
///
/// ```
/// use wengert::prelude::*;
/// use wengert::data::Arrays;
/// use wengert::lora::{Lora, merge};
/// # fn main() -> Result<()> {
/// let matrix = |shape: &[usize], values: Vec<f32>| Literal::from_vec(shape, values);
/// let weights = Arrays::from([
///     ("w".to_owned(), matrix(&[2, 3], vec![0.0; 6])?),
///     ("w.lora_a".to_owned(), matrix(&[2, 1], vec![1.0, 2.0])?),
///     ("w.lora_b".to_owned(), matrix(&[1, 3], vec![1.0, 0.0, 3.0])?),
/// ]);
/// let merged = merge(&Lora::new(1)?.alpha(2.0)?.path("w")?, &weights)?;
/// assert_eq!(merged.len(), 1);
/// assert_eq!(merged["w"].as_slice::<f32>(), Some(&[2.0, 0.0, 6.0, 4.0, 0.0, 12.0][..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// No weight that the policy is for has an adapter; an adapter is not complete, or its shapes do
/// not fit its weight and the rank.
pub fn merge(lora: &Lora, weights: &Arrays) -> Result<Arrays> {
    let mut merged = weights.clone();
    let mut count = 0;
    for (path, weight) in weights.iter().filter(|(path, _)| lora.is_for(path)) {
        let Some([a, b]) = factors(path, weights)? else { continue };
        let update = update(weight, a, b, lora.rank(), lora.scale()).ok_or_else(|| {
            misfit(path, weight, [a, b], lora.rank())
                .help("give the rank and alpha with which the adapter was trained")
        })?;
        add(&mut merged, path, weight, &update)?;
        count += 1;
    }
    match count {
        0 => {
            let patterns: Vec<&str> = lora.paths().collect();
            Err(diagnostic!("no weight that matches `{}` has an adapter", patterns.join("`, `"))
                .help("adapters end in `.lora_a` and `.lora_b`"))
        }
        _ => Ok(merged),
    }
}

/// Functions without their adapters, and the weights of these functions, to each of which its
/// update is added as by [`merge`]. Rank, alpha and weights are those that the functions have
/// ([`remove`]). Variables that no function takes, such as the moments of an optimiser, are left
/// out.
///
/// # Errors
/// No function has an adapter; two multiply an update by different numbers; an adapter or a weight
/// is missing among the weights, or its shape is not that of the function; the weights have an
/// adapter that no function has; those of [`remove`].
pub fn merged(functions: &[&Function], weights: &Arrays) -> Result<GraphFile> {
    let (mut plain, mut updates) = (vec![], Vec::<Update>::new());
    for function in functions {
        let removed = remove(function)?;
        for update in removed.updates {
            match updates.iter().find(|known| known.adapter.path == update.adapter.path) {
                Some(known) if *known == update => {}
                Some(known) => {
                    return Err(diagnostic!(
                        "the update of `{}` is of rank {} and multiplied by {} in one function, \
                         of rank {} and multiplied by {} in @{}",
                        known.adapter.path,
                        known.adapter.rank,
                        known.scale,
                        update.adapter.rank,
                        update.scale,
                        function.name
                    )
                    .help("merge the updates of one function"));
                }
                None => updates.push(update),
            }
        }
        plain.push(removed.function);
    }
    if updates.is_empty() {
        let names: Vec<String> = functions.iter().map(|f| format!("@{}", f.name)).collect();
        return Err(diagnostic!("{} has no adapter that could be merged", names.join(", ")).help(
            "take the file that `graphrun import --train --lora` wrote; parameters of adapters \
             end in `.lora_a` and `.lora_b`",
        ));
    }
    let is_known = |path: &str| updates.iter().any(|update| update.adapter.path == path);
    for name in weights.keys() {
        let Some(path) = name.strip_suffix(DOWN).and_then(|path| path.strip_suffix('.')) else {
            continue;
        };
        if weights.contains_key(path) && !is_known(path) {
            return Err(diagnostic!("the weights have `{name}`, an adapter that no function has")
                .help("give the file of the program that was trained to these weights"));
        }
    }
    let mut merged = weights.clone();
    for Update { adapter, scale } in &updates {
        let path = &adapter.path;
        let missing = |name: String| {
            diagnostic!("the weights have no {name}").help(
                "give the weights that training wrote, such as runs/a/weights.safetensors; weights \
                 that are merged have no adapters any more",
            )
        };
        let [a, b] = factors(path, weights)?
            .ok_or_else(|| missing(format!("`{}` and no `{}`", adapter.down(), adapter.up())))?;
        let weight = weights.get(path).ok_or_else(|| missing(format!("`{path}`")))?;
        let update = update(weight, a, b, adapter.rank, *scale).filter(|_| {
            let types = [&adapter.weight, &adapter.down_type(), &adapter.up_type()];
            [weight, a, b].iter().zip(types).all(|(value, ty)| value.ty() == *ty)
        });
        let update = update.ok_or_else(|| {
            misfit(path, weight, [a, b], adapter.rank).help(format!(
                "the program has {}: give weights that it was trained to",
                adapter.weight
            ))
        })?;
        add(&mut merged, path, weight, &update)?;
    }
    let mut taken = Arrays::new();
    for function in &plain {
        for (n, input) in function.inputs.iter().enumerate() {
            if !matches!(input.role, InputRole::Param | InputRole::State) {
                continue;
            }
            let (name, ty) = (&input.name, function.input_type(n));
            let value = merged.get(name).ok_or_else(|| {
                diagnostic!("{} `{name}` ({ty}) has no value", input.role.name())
                    .help("give the weights of all variables, as training writes them")
            })?;
            if ty.extents().is_some() && value.ty() != *ty {
                return Err(diagnostic!(
                    "`{name}` is {} among the weights, and {ty} in @{}",
                    value.ty(),
                    function.name
                )
                .help("give weights of this program"));
            }
            taken.insert(name.clone(), value.clone());
        }
    }
    let program = Program::from_functions(plain)?;
    Ok(GraphFile { weights: Weights::Inline(taken), ..GraphFile::new(program) })
}

/// The two factors of a weight's update, if there are any.
fn factors<'a>(path: &str, weights: &'a Arrays) -> Result<Option<[&'a Literal; 2]>> {
    let [down, up] = [DOWN, UP].map(|end| format!("{path}.{end}"));
    match (weights.get(&down), weights.get(&up)) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) => Ok(Some([a, b])),
        (a, _) => {
            let (there, missing) = if a.is_some() { (down, up) } else { (up, down) };
            Err(diagnostic!("there is `{there}`, but no `{missing}`")
                .help("merge the weights that training wrote, with all their adapters"))
        }
    }
}

fn misfit(path: &str, weight: &Literal, [a, b]: [&Literal; 2], rank: usize) -> Diagnostic {
    diagnostic!(
        "`{path}` of type {} has an adapter of {} and {}, which is not of rank {rank}",
        weight.ty(),
        a.ty(),
        b.ty(),
    )
}

/// Adds an update to a weight, and removes its adapter.
fn add(weights: &mut Arrays, path: &str, weight: &Literal, update: &[f64]) -> Result<()> {
    let dtype = weight.dtype();
    let sums = weight.scalars().zip(update);
    let sums: Vec<Scalar> =
        sums.map(|(w, update)| Scalar::from_f64(dtype, w.to_f64() + update)).collect();
    weights.insert(path.to_owned(), Literal::from_scalars(dtype, weight.shape(), &sums)?);
    for end in [DOWN, UP] {
        weights.remove(&format!("{path}.{end}"));
    }
    Ok(())
}

/// The update of a weight, element by element; `None` if the shapes do not fit.
fn update(weight: &Literal, a: &Literal, b: &Literal, r: usize, scale: f64) -> Option<Vec<f64>> {
    let shape = weight.shape();
    let (first, last) = (*shape.first()?, *shape.last()?);
    let with = |left: &[usize], right: &[usize]| [left, right].concat();
    // The rank is below the extent of the outputs, so at most one of the two fits.
    let (left, right) = if b.shape() == [first, r] && a.shape() == with(&[r], &shape[1..]) {
        (b, a)
    } else if b.shape() == [r, last] && a.shape() == with(&shape[..shape.len() - 1], &[r]) {
        (a, b)
    } else {
        return None;
    };
    let (left, right) = (left.convert(DType::F64), right.convert(DType::F64));
    let matrix = |literal: &Literal, rows: usize, columns: usize| {
        let values = literal.as_slice::<f64>().expect("it is converted to f64").to_vec();
        Array2::from_shape_vec((rows, columns), values).ok()
    };
    let left = matrix(&left, left.len() / r, r)?;
    let right = matrix(&right, r, right.len() / r)?;
    let product = left.dot(&right) * scale;
    Some(product.into_iter().collect())
}
