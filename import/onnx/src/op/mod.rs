//! The ops of ONNX: a table with a rule for each.
//!
//! A rule has the operands, attributes and version of a node ([`Call`]), and gives its results. It
//! is named by the op and the first version from which on it holds; the newest row that is not
//! newer than the model's version is taken. A row whose `folds` is set is evaluated at import if
//! all operands are known, so that axes and shapes may be computed from constants.

mod attention;
mod call;
mod control;
mod determinant;
mod elementwise;
mod flex_attention;
mod indexing;
mod linear_attention;
mod loss;
mod microsoft;
mod n_grams;
mod narrow;
mod normalization;
mod optimizer;
mod product;
mod quantization;
mod recurrent;
mod reduction;
mod resize;
mod sampled;
mod selection;
mod sequence;
mod shape;
mod signal;
mod spatial;
mod suppression;
mod window;

pub(crate) use call::Call;
pub(crate) use narrow::{Carried, unknown};

use crate::value::Value;
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

/// A rule.
type Rule = fn(&Call<'_, '_, '_>) -> Result<Vec<Value>>;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The op's domain; empty for ONNX itself.
    pub domain: &'static str,
    /// The op.
    pub name: &'static str,
    /// The first version for which the rule holds.
    pub since: i64,
    /// Whether it is evaluated at import if its operands are known.
    pub folds: bool,
    pub(crate) rule: Rule,
}

/// A row of ONNX's own domain that folds.
const fn row(name: &'static str, since: i64, rule: Rule) -> Row {
    Row { domain: "", name, since, folds: true, rule }
}

/// A row of ONNX's own domain that is not evaluated at import: its bodies use names around it, or
/// its rule does it.
const fn whole(name: &'static str, since: i64, rule: Rule) -> Row {
    Row { domain: "", name, since, folds: false, rule }
}

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [
        elementwise::ROWS,
        shape::ROWS,
        indexing::ROWS,
        reduction::ROWS,
        product::ROWS,
        window::ROWS,
        normalization::ROWS,
        attention::ROWS,
        quantization::ROWS,
        loss::ROWS,
        resize::ROWS,
        recurrent::ROWS,
        control::ROWS,
        signal::ROWS,
        spatial::ROWS,
        selection::ROWS,
        suppression::ROWS,
        sampled::ROWS,
        sequence::ROWS,
        determinant::ROWS,
        n_grams::ROWS,
        flex_attention::ROWS,
        linear_attention::ROWS,
        optimizer::ROWS,
        microsoft::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// The results of an op that has one, a tensor.
fn one(tensor: Tensor) -> Result<Vec<Value>> {
    Ok(vec![Value::Tensor(tensor)])
}

/// A table of numbers in a dtype, without a copy of those that have it.
fn table(shape: &[usize], numbers: Vec<f64>, dtype: DType) -> Result<Literal> {
    let table = Literal::from_vec(shape, numbers)?;
    Ok(if dtype == DType::F64 { table } else { table.convert(dtype) })
}

/// The extent of an axis that the operand of a node may lack.
fn extent(x: &Tensor, axis: usize) -> Result<&Dim> {
    let missing = || Diagnostic::new(format!("{} has no axis {axis}", x.ty()));
    x.shape().get(axis).ok_or_else(missing)
}

/// A tensor without an error. The shape of one with an error is not known.
fn sound(tensor: &Tensor) -> Result<&Tensor> {
    match tensor.error() {
        Some(error) => Err(error.clone()),
        None => Ok(tensor),
    }
}
