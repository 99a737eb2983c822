//! Blocks of a Jacobian: a linear program, mapped over the vectors of a basis.

use crate::autodiff::jvp::zeros;
use crate::autodiff::{Linear, record, unpoisoned, varying_as};
use crate::vmap::{Value, batch};
use wengert_core::{DType, Diagnostic, Dim, Location, Result, Scalar, Tensor, TensorType};

/// A row of a Jacobian: a block for each input.
pub(in crate::autodiff) type Blocks = Vec<Tensor>;

/// The Jacobian by forward mode: for each output the block of each input, with the output's axes
/// in front and the input's dtype.
pub(in crate::autodiff) fn columns(linear: &Linear) -> Result<Vec<Blocks>> {
    let mut blocks = empty(linear);
    for (i, (input, _)) in linear.inputs.iter().enumerate().filter(|(_, (_, active))| *active) {
        let column = against_basis(
            input,
            |vector| {
                let mut tangents = vec![None; linear.inputs.len()];
                tangents[i] = Some(vector);
                tangents
            },
            |tangents| linear.apply(tangents),
        )?;
        for (row, column) in blocks.iter_mut().zip(column) {
            let Some(column) = column else { continue };
            // The basis' axes are in front; they are moved behind those of the output.
            let split = column.rank();
            let order: Vec<usize> = (input.rank()..split).chain(0..input.rank()).collect();
            row[i] = Some(column.permute(&order).convert(input.dtype));
        }
    }
    filled(linear, blocks)
}

/// The Jacobian by reverse mode: for each output the block of each input, with the output's axes
/// in front and the input's dtype.
pub(in crate::autodiff) fn rows(linear: &Linear) -> Result<Vec<Blocks>> {
    let mut blocks = empty(linear);
    for (o, (output, at)) in linear.outputs.iter().enumerate() {
        if at.is_none() {
            continue;
        }
        blocks[o] = against_basis(
            output,
            |vector| {
                let mut cotangents = vec![None; linear.outputs.len()];
                cotangents[o] = Some(vector);
                cotangents
            },
            |cotangents| linear.transpose(cotangents),
        )?;
    }
    filled(linear, blocks)
}

fn empty(linear: &Linear) -> Vec<Vec<Option<Tensor>>> {
    vec![vec![None; linear.inputs.len()]; linear.outputs.len()]
}

/// Materializes symbolic zeros.
fn filled(linear: &Linear, blocks: Vec<Vec<Option<Tensor>>>) -> Result<Vec<Blocks>> {
    let row = |((output, _), row): (&(TensorType, Option<usize>), Vec<Option<Tensor>>)| {
        let block = |((input, _), block): (&(TensorType, bool), Option<Tensor>)| match block {
            Some(block) => unpoisoned([&block]).map(|()| block),
            None => zeros(&with_front(&output.shape, input, input.dtype)),
        };
        linear.inputs.iter().zip(row).map(block).collect()
    };
    linear.outputs.iter().zip(blocks).map(row).collect()
}

pub(super) fn with_front(front: &[Dim], ty: &TensorType, dtype: DType) -> TensorType {
    ty.with_dtype(dtype).with_shape(front.iter().chain(&ty.shape).cloned().collect())
}

/// `f` on each vector of the standard basis of a type. The results have the type's axes in front.
fn against_basis(
    ty: &TensorType,
    place: impl FnOnce(Tensor) -> Vec<Option<Tensor>>,
    f: impl FnOnce(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
) -> Result<Vec<Option<Tensor>>> {
    if ty.rank() == 0 {
        return f(&place(Tensor::full(ty, Scalar::one(ty.dtype))));
    }
    let count =
        ty.shape.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d)).ok_or_else(|| {
            Diagnostic::new(format!(
                "a Jacobian needs the number of elements of {ty}, which is no dimension"
            ))
            .help("give some of its dimension variables numbers")
        })?;
    // 1 where the number of the vector equals that of the element.
    let index = match count.as_constant() {
        Some(n) if n <= i32::MAX as i64 => DType::I32,
        _ => DType::I64,
    };
    let square = [count.clone(), count.clone()];
    let ones =
        Tensor::iota(index, square.clone(), 0).eq(Tensor::iota(index, square, 1)).convert(ty.dtype);
    let basis = ones.reshape(std::iter::once(count.clone()).chain(ty.shape.iter().cloned()));
    let basis = varying_as(basis, ty);
    unpoisoned([&basis])?;
    let results = mapped(&place(basis), &count, f)?;
    let unfold = |t: Tensor| {
        let shape: Vec<Dim> = ty.shape.iter().chain(&t.shape()[1..]).cloned().collect();
        t.reshape(shape)
    };
    Ok(results.into_iter().map(|t| t.map(unfold)).collect())
}

/// `f` on each vector of a batch; `None` is zero for all vectors.
pub(super) fn mapped(
    vectors: &[Option<Tensor>],
    size: &Dim,
    f: impl FnOnce(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
) -> Result<Vec<Option<Tensor>>> {
    let one = |t: &Tensor| t.ty().with_shape(t.shape()[1..].to_vec());
    let types: Vec<TensorType> = vectors.iter().flatten().map(one).collect();
    let mut present = Vec::new();
    let closure = record(&types, |inputs| {
        let mut inputs = inputs.iter().cloned();
        let vectors: Vec<Option<Tensor>> =
            vectors.iter().map(|v| v.as_ref().and_then(|_| inputs.next())).collect();
        let results = f(&vectors)?;
        present = results.iter().map(Option::is_some).collect();
        Ok(results.into_iter().flatten().collect())
    })?;
    let mut values: Vec<Value> = vectors.iter().flatten().cloned().map(Value::Batched).collect();
    values.extend(closure.captures.iter().cloned().map(Value::Shared));
    let mut results = batch(&closure.body, &values, size)?.into_iter();
    let result = |present: &bool| match present {
        true => {
            let value = results.next().expect("a result for each that is present");
            value.along(0, size, &Location::Unknown).map(Some)
        }
        false => Ok(None),
    };
    present.iter().map(result).collect()
}
