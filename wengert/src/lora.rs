//! Low-rank adaptation: adapted programs, the first values of their adapters, and weights with
//! their updates merged.

use crate::data::Arrays;
use crate::program::{drawn, key_of};
use wengert_core::build::Scope;
use wengert_core::ndarray::Array2;
use wengert_core::{DType, Literal, Result, Scalar, Tensor, diagnostic};

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
        let [down, up] = [DOWN, UP].map(|end| format!("{path}.{end}"));
        let (a, b) = match (weights.get(&down), weights.get(&up)) {
            (None, None) => continue,
            (Some(a), Some(b)) => (a, b),
            (a, _) => {
                let (there, missing) = if a.is_some() { (down, up) } else { (up, down) };
                return Err(diagnostic!("there is `{there}`, but no `{missing}`")
                    .help("merge the weights that training wrote, with all their adapters"));
            }
        };
        let update = update(lora, weight, a, b).ok_or_else(|| {
            diagnostic!(
                "`{path}` of type {} has an adapter of {} and {}, which is not of rank {}",
                weight.ty(),
                a.ty(),
                b.ty(),
                lora.rank()
            )
            .help("give the rank and alpha with which the adapter was trained")
        })?;
        let sums = weight
            .scalars()
            .zip(update)
            .map(|(w, update)| Scalar::from_f64(weight.dtype(), w.to_f64() + update));
        let sums: Vec<Scalar> = sums.collect();
        merged.insert(path.clone(), Literal::from_scalars(weight.dtype(), weight.shape(), &sums)?);
        merged.remove(&down);
        merged.remove(&up);
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

/// The update of a weight, element by element; `None` if the shapes do not fit.
fn update(lora: &Lora, weight: &Literal, a: &Literal, b: &Literal) -> Option<Vec<f64>> {
    let (r, shape) = (lora.rank(), weight.shape());
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
    let product = left.dot(&right) * lora.scale();
    Some(product.into_iter().collect())
}
