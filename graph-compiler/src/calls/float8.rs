//! Products of 8-bit floats on targets that multiply them.
//!
//! In a graph such a product is one of converted numbers, since no op computes with 8-bit floats.
//! Other targets compute it so. Here the call takes the 8-bit floats themselves, and multiplies
//! each sum by the scales of its row and column, if the graph does that next:
//!
//! ```text
//! convert x ─┐
//!            ├─ dot_general ─ mul (scale of x) ─ mul (scale of w) [─ convert to a half]
//! convert w ─┘
//! ```
//!
//! The pass `lay_out_float8` has laid out the operands before.

use crate::addend::{columns, users};
use crate::view::{View, Work};
use wengert_core::call::{Call, Gemm, Scale, Scales};
use wengert_core::graph::{Body, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Binary;
use wengert_core::{DType, Op, Target};

/// Gives the products of a view their operands as 8-bit floats, and their scales.
pub(crate) fn float8(view: &mut View<'_>, target: &Target) {
    if !target.float8_products {
        return;
    }
    let users = users(view.body);
    for n in 0..view.work.len() {
        let Work::Call(Call::Gemm(gemm)) = &view.work[n] else { continue };
        let Some(sources) = sources(view.body, &view.definitions, n) else { continue };
        let Some(gemm) = converted(gemm, sources.map(|v| view.body.ty(v).dtype)) else { continue };
        if !target.claims(&Call::Gemm(gemm.clone())) {
            continue;
        }
        // A conversion that others read as well is computed for them.
        let equation = &view.body.equations[n];
        let only = |v: &&ValueId| users[**v] == Some(n);
        let mut covered: Vec<usize> =
            equation.operands.iter().filter(only).filter_map(|v| view.definitions[*v]).collect();
        let (mut gemm, mut operands, mut last) = (gemm, sources.to_vec(), n);
        if let Some(found) = Scaled::of(view, &users, n, &gemm) {
            gemm.scales = Some(found.scales);
            gemm.result = found.result;
            operands.extend(found.operands);
            covered.push(n);
            covered.extend(found.covered);
            last = found.last;
        }
        covered.iter().for_each(|c| view.work[*c] = Work::Covered);
        view.covers[last] = covered;
        view.work[last] = Work::Call(Call::Gemm(gemm));
        view.operands[last] = operands;
    }
}

/// The 8-bit floats whose conversions a product multiplies.
pub(crate) fn sources(
    body: &Body,
    definitions: &IdVec<ValueId, Option<usize>>,
    product: usize,
) -> Option<[ValueId; 2]> {
    let equation = &body.equations[product];
    let (Op::DotGeneral(_), [x, y]) = (&equation.op, equation.operands.as_slice()) else {
        return None;
    };
    let source = |value: ValueId| {
        let conversion = &body.equations[definitions[value]?];
        let Op::ConvertElementType(_) = &conversion.op else { return None };
        let x = conversion.operands[0];
        // Every wider float has all numbers of both formats.
        (body.ty(x).dtype.is_float8() && body.ty(value).dtype.is_float()).then_some(x)
    };
    Some([source(*x)?, source(*y)?])
}

/// The product of 8-bit floats that has the numbers of a product of their conversions; `None` if
/// there is no such call.
fn converted(gemm: &Gemm, [lhs, rhs]: [DType; 2]) -> Option<Gemm> {
    let fits = gemm.accumulate == DType::F32 && gemm.scales.is_none();
    let rhs_operand = (rhs != lhs).then_some(rhs);
    let gemm = Gemm { operand: lhs, rhs_operand, ..gemm.clone() };
    (fits && Call::Gemm(gemm.clone()).verify().is_ok()).then_some(gemm)
}

/// The multiplications of a product by its scales.
struct Scaled {
    scales: Scales,
    /// The scales of lhs and of rhs.
    operands: [ValueId; 2],
    /// The equations before the last one.
    covered: Vec<usize>,
    last: usize,
    /// Dtype of the last one's result.
    result: DType,
}

/// A factor of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factor {
    Whole,
    /// A number for each row.
    OfRows,
    /// A number for each column.
    OfColumns,
}

impl Scaled {
    /// `None` if the product is not multiplied by one scale of each operand.
    fn of(
        view: &View<'_>,
        users: &IdVec<ValueId, Option<usize>>,
        product: usize,
        gemm: &Gemm,
    ) -> Option<Scaled> {
        if gemm.batch != 1 || gemm.result != DType::F32 {
            return None;
        }
        let equations = &view.body.equations;
        let next = |n: usize| {
            let next = users[equations[n].results[0]]?;
            matches!(view.work[next], Work::Compute(_)).then_some(next)
        };
        let first = next(product)?;
        let second = next(first)?;
        let columns = dot_columns(view, product);
        let one = Scaled::factor(view, equations[product].results[0], first, columns)?;
        let two = Scaled::factor(view, equations[first].results[0], second, columns)?;
        let (lhs, rhs) = match (one.0, two.0) {
            (Factor::OfRows | Factor::Whole, Factor::OfColumns | Factor::Whole) => (one, two),
            (Factor::OfColumns, Factor::OfRows | Factor::Whole)
            | (Factor::Whole, Factor::OfRows) => (two, one),
            _ => return None,
        };
        let scale = |factor: Factor| match factor {
            Factor::Whole => Scale::Whole,
            _ => Scale::Rows,
        };
        let mut scales = Scales { lhs: scale(lhs.0), rhs: scale(rhs.0) };
        // The scale of a single row is of both kinds. Libraries take two of one kind.
        if gemm.m == 1 {
            scales.lhs = scales.rhs;
        } else if gemm.n == 1 {
            scales.rhs = scales.lhs;
        }
        let (mut covered, mut last, mut result) = (vec![first], second, gemm.result);
        if let Some(rounding) = next(second)
            && let Op::ConvertElementType(op) = &equations[rounding].op
            && op.dtype.is_half()
        {
            covered.push(std::mem::replace(&mut last, rounding));
            result = op.dtype;
        }
        Some(Scaled { scales, operands: [lhs.1, rhs.1], covered, last, result })
    }

    /// What an equation multiplies a value by, whose last axes are columns.
    fn factor(
        view: &View<'_>,
        value: ValueId,
        equation: usize,
        columns: usize,
    ) -> Option<(Factor, ValueId)> {
        let equation = &view.body.equations[equation];
        let (Op::Binary(Binary::Mul), [x, y]) = (&equation.op, equation.operands.as_slice()) else {
            return None;
        };
        let factor = if *x == value { *y } else { *x };
        let (source, dims) = match view.definitions[factor].map(|n| &view.body.equations[n]) {
            Some(definition) => match (&definition.op, definition.operands.as_slice()) {
                (Op::BroadcastInDim(op), [source]) => (*source, op.dims.clone()),
                _ => (factor, (0..view.extents[factor].len()).collect()),
            },
            None => (factor, (0..view.extents[factor].len()).collect()),
        };
        // A constant is not in memory.
        let defines = view.definitions[source].map(|n| &view.body.equations[n].op);
        if matches!(defines, Some(Op::Constant(_))) {
            return None;
        }
        let (of, all) = (&view.extents[source], &view.extents[factor]);
        let first = all.len() - columns;
        let count = |axes: &[usize]| axes.iter().product::<usize>();
        let within = |range: std::ops::Range<usize>| {
            let extents: Vec<usize> = dims
                .iter()
                .zip(of)
                .filter(|(axis, extent)| **extent > 1 && range.contains(axis))
                .map(|(_, extent)| *extent)
                .collect();
            count(&extents) == count(of) && count(of) == count(&all[range])
        };
        match () {
            () if count(of) == 1 => Some((Factor::Whole, source)),
            () if within(0..first) => Some((Factor::OfRows, source)),
            () if within(first..all.len()) => Some((Factor::OfColumns, source)),
            () => None,
        }
    }
}

/// Number of the axes of a product's result that form columns.
fn dot_columns(view: &View<'_>, product: usize) -> usize {
    let equation = &view.body.equations[product];
    let Op::DotGeneral(dot) = &equation.op else { unreachable!("it is a product") };
    columns(view.body, equation, dot)
}
