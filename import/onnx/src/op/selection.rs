//! Elements that are selected by data. Their number is bounded, as [`crate::counted`] says, unless
//! all operands are known at import.

use super::{Call, Row, one, whole};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::build::Scope;
use wengert_core::build::indexing::{ScatterDimensionNumbers, ScatterMode};
use wengert_core::op::{Argsort, Binary};
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Scalar, Tensor, TensorType};

pub(super) const ROWS: &[Row] = &[
    whole("NonZero", 9, |call| folded(call, non_zero)),
    whole("Compress", 9, |call| folded(call, compress)),
    whole("Unique", 11, |call| folded(call, unique)),
];

/// Most numbers of a row that is compared with others.
const ROW: usize = 256;

/// The results of a rule, evaluated at import if all operands are known.
pub(super) fn folded(
    call: &Call<'_, '_, '_>,
    rule: fn(&Call<'_, '_, '_>) -> Result<Vec<Value>>,
) -> Result<Vec<Value>> {
    if !call.is_known() {
        return rule(call);
    }
    let constant = |value: Value| match value {
        Value::Tensor(tensor) => Ok(Value::Tensor(Tensor::constant(tensor.value()?))),
        other => Ok(other),
    };
    Scope::eager().enter(|| rule(call))?.into_iter().map(constant).collect()
}

/// Places of elements of a list.
pub(super) struct Places {
    /// The places in ascending order, then zeros, as i32.
    pub at: Tensor,
    /// The extent of `at`.
    pub most: usize,
    /// Whether a number of `at` is the place of an element; `None` if all are.
    pub is_there: Option<Tensor>,
}

impl Places {
    /// The places at which a list of bools holds. Their number is that of result 0.
    pub fn of(call: &Call<'_, '_, '_>, mask: &Tensor) -> Result<Places> {
        let known = match mask.literal() {
            Some(literal) => Some(literal.clone()),
            None if call.is_known() => Some(mask.value()?),
            None => None,
        };
        if let Some(known) = known {
            let places = (0i32..).zip(known.scalars()).filter(|(_, s)| s.to_f64() != 0.0);
            let places: Vec<i32> = places.map(|(n, _)| n).collect();
            let most = places.len();
            let at = Tensor::constant(Literal::from_vec(&[most], places)?);
            return Ok(Places { at, most, is_there: None });
        }
        let most = call.most(0)?;
        let ordinals = mask.convert(DType::I32).cumsum(0);
        let count = mask.convert(DType::I64).sum();
        let beyond = ordinals.full_like(most as f64);
        let to = mask.select(&ordinals - 1, &beyond);
        let own = Tensor::iota(DType::I32, mask.shape().to_vec(), 0);
        let at = gathered(&to, &own, most);
        let is_there = Tensor::iota(DType::I64, [most], 0).lt(&count.broadcast_to(&[most.into()]));
        call.count_of(0, count);
        Ok(Places { at, most, is_there: Some(is_there) })
    }

    /// The slices of an axis at the places, then zeros.
    fn select(&self, x: &Tensor, axis: usize) -> Tensor {
        if self.most == 0 || x.shape()[axis] == Dim::constant(0) {
            let mut shape = x.shape().to_vec();
            shape[axis] = self.most.into();
            return Tensor::zeros(&TensorType::of(x.dtype(), shape));
        }
        self.masked(&x.index_select(axis, &self.at), axis)
    }

    /// Slices of an axis that are those of places, and zeros after them.
    pub fn masked(&self, x: &Tensor, axis: usize) -> Tensor {
        match &self.is_there {
            Some(is_there) => {
                let rest: Vec<i64> = (1..(x.rank() - axis) as i64).collect();
                let mask =
                    if rest.is_empty() { is_there.clone() } else { is_there.unsqueeze(&rest) };
                mask.broadcast_to(x.shape()).select(x, &x.zeros_like())
            }
            None => x.clone(),
        }
    }
}

/// A list of `most` sums of the numbers whose place in the list is given.
fn gathered(to: &Tensor, numbers: &Tensor, most: usize) -> Tensor {
    let list = Tensor::zeros(&TensorType::of(numbers.dtype(), vec![most.into()]));
    let of_list = ScatterDimensionNumbers {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        ..Default::default()
    };
    match most {
        0 => list,
        _ => list.scatter_add(&to.unsqueeze(-1), numbers, &of_list, ScatterMode::Drop),
    }
}

fn non_zero(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let mask = match x.dtype() {
        DType::Bool => x.clone(),
        _ => x.ne(&x.zeros_like()),
    };
    let places = Places::of(call, &mask.reshape([-1]))?;
    // The position along each axis, the last axis first.
    let mut rest = places.at.convert(DType::I64);
    let mut axes = vec![];
    for extent in x.shape().iter().rev() {
        let extent = Tensor::dim_as_value(extent.clone(), DType::I64);
        axes.push(rest.binary(Binary::Rem, &extent));
        rest = rest.binary(Binary::Div, &extent);
    }
    axes.reverse();
    if axes.is_empty() || places.most == 0 {
        let shape = vec![x.rank().into(), places.most.into()];
        return one(Tensor::zeros(&TensorType::of(DType::I64, shape)));
    }
    one(Tensor::stack(&axes, 0))
}

fn compress(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, condition) = (call.tensor(0)?, call.tensor(1)?);
    let (x, axis) = match call.some_int("axis")? {
        Some(axis) => (x.clone(), call.axis(axis, x.rank())?),
        None => (x.reshape([-1]), 0),
    };
    one(Places::of(call, &condition)?.select(&x, axis))
}

/// Rows of a matrix that differ, or numbers of a list.
fn unique(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.some_int("axis")?.map(|axis| call.axis(axis, x.rank())).transpose()?;
    let sorted = call.flag("sorted", true)?;
    // The slices, as rows.
    let first = match axis {
        Some(axis) => {
            let mut order: Vec<i64> = (0..x.rank() as i64).filter(|a| *a != axis as i64).collect();
            order.insert(0, axis as i64);
            x.permute(&order)
        }
        None => x.reshape([-1]),
    };
    let width = first.shape()[1..].iter().try_fold(1, |n, d| Some(n * d.as_extent()?));
    let width = width.filter(|width| (1..=ROW).contains(width)).ok_or_else(|| {
        let text = format!("slices of {} with more than {ROW} numbers, or none", first.ty());
        refuse(Class::Shape, text)
    })?;
    let count = first.shape()[0].clone();
    if count == Dim::constant(0) {
        return Err(Diagnostic::new(format!("{} has no elements", x.ty())));
    }
    let rows = first.reshape([count.clone(), width.into()]);
    let keys: Vec<Tensor> =
        (0..width as i64).map(|n| rows.slice_axis(1, n, n + 1).squeeze(1)).collect();
    let keys: Vec<&Tensor> = keys.iter().collect();
    let order = Tensor::apply(Argsort { axis: 0, descending: false }, &keys);
    let in_order = rows.index_select(0, &order);
    // Whether each row, in order, differs from the one before.
    let last = count.checked_sub(&Dim::constant(1));
    let last = last.ok_or_else(|| Diagnostic::new("its elements are too many"))?;
    let (before, after) = (in_order.slice_axis(0, 0, last), in_order.slice_axis(0, 1, count));
    let differs = before.ne(&after).convert(DType::I32).max_axes(1);
    let is_new = differs.pad(&[(1, 0)], 1).ne(0);
    // Sorting is stable, so the first of equal rows is the first in x.
    let places = Places::of(call, &is_new)?;
    let group = is_new.convert(DType::I32).cumsum(0) - 1;
    let mut firsts = places.select(&order, 0);
    let mut inverse = group.take_along_axis(&order.argsort(0), 0);
    let ones = TensorType::of(DType::I32, group.shape().to_vec());
    let ones = Tensor::full(&ones, Scalar::one(DType::I32));
    let mut counts = gathered(&group, &ones, places.most);
    if !sorted && places.most > 0 {
        // Those that are not there come last.
        let found = match &places.is_there {
            Some(is_there) => is_there.select(&firsts, &firsts.full_like(f64::from(i32::MAX))),
            None => firsts.clone(),
        };
        let turn = found.argsort(0);
        inverse = turn.argsort(0).index_select(0, &inverse);
        firsts = firsts.index_select(0, &turn);
        counts = counts.index_select(0, &turn);
    }
    let slices = places.masked(&first.index_select(0, &firsts), 0);
    let slices = match axis {
        Some(axis) => {
            let mut order: Vec<i64> = (1..x.rank() as i64).collect();
            order.insert(axis, 0);
            slices.permute(&order)
        }
        None => slices,
    };
    let wide = |x: Tensor| Value::Tensor(x.convert(DType::I64));
    Ok(vec![Value::Tensor(slices), wide(firsts), wide(inverse), wide(counts)])
}
