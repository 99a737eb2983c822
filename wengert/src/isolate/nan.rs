//! The first equation that makes a NaN or an infinity.
//!
//! [`first_non_finite`] runs a function in the interpreter and examines every result in the order
//! of execution, inside loops and branches too.
//!
//! An element of a result is a **fault** if the equation made it:
//!
//! - a NaN whose operands hold no NaN. The operands may be infinite: ∞ − ∞ is a fault;
//! - an infinity whose operands are finite: an overflow, a division by zero, log 0.
//!
//! For an elementwise op the operands are their elements at the same index, for other ops all of
//! their elements.
//!
//! Infinities can be meant. A mask of −∞ is an infinite constant, and so is the initial value of a
//! running maximum. So an infinite constant is no fault, and neither is an infinity that comes
//! from an infinite operand. A NaN constant is no fault while ops only move it or select it;
//! arithmetic with it is a fault. The reduction of no elements may give an infinity, its identity.
//!
//! The function's inputs are examined first. A NaN among them is the finding. An infinite input is
//! treated like an infinite constant, unless an output is infinite and no equation is at fault:
//! then the input is the finding.
//!
//! ```
//! use wengert::isolate::nan::{Finding, first_non_finite};
//! use wengert::{Literal, core::graph::parse_program};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[2]) -> (f32[2]) {
//!     %0: f32[2] = sub %x, %x
//!     %1: f32[2] = log %0
//!     return %1
//! }";
//! let program = parse_program(text, "f.ir")?;
//! let x = Literal::from_vec(&[2], vec![1.0f32, 2.0])?;
//! let Some(Finding::Equation(made)) = first_non_finite(program.get("f")?, &[x])? else {
//!     panic!("log 0 is infinite");
//! };
//! assert_eq!((made.origin.op, made.index), ("log", vec![0]));
//! assert_eq!(made.origin.location.to_string(), "f.ir:3:18");
//! let operand = made.operands[0].to_string();
//! assert_eq!(operand, "f32[2], element [0] is 0.0, made by `sub` at f.ir:2:18");
//! # Ok(())
//! # }
//! ```

use super::walk::{Flow, Frame, Visit, walk, whole_region};
use super::{Origin, index};
use std::fmt;
use std::ops::ControlFlow;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::interpret::{Array, Cell};
use wengert_core::op::{Op, Traits};
use wengert_core::{DType, Literal, LocationTable, Result, Scalar, TensorType};

/// The first non-finite value of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Finding {
    /// An equation made it.
    Equation(Made),
    /// It was an input.
    Input {
        /// The input.
        name: String,
        /// The index of the element.
        index: Vec<usize>,
        /// The element.
        value: Scalar,
    },
}

/// A non-finite value and the equation that made it.
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    /// The equation.
    pub origin: Origin,
    /// The loops, branches and calls around it, outermost first.
    pub frames: Vec<Frame>,
    /// The number of the result that holds the value.
    pub result: usize,
    /// The type of that result.
    pub ty: TensorType,
    /// The index of the element.
    pub index: Vec<usize>,
    /// The element.
    pub value: Scalar,
    /// The number of non-finite elements of the result.
    pub elements: usize,
    /// The operands.
    pub operands: Vec<Operand>,
}

/// An operand of the equation that made a non-finite value.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Its type.
    pub ty: TensorType,
    /// The name of the function's input that it is, or the equation that made it. `None` for an
    /// input of a region.
    pub made: Option<String>,
    /// Its elements.
    pub seen: Seen,
}

/// The elements of an operand that the non-finite element depends on.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// One element, with its index.
    Element(Vec<usize>, Scalar),
    /// Several.
    Range {
        /// The number of elements.
        count: usize,
        /// The least.
        least: Scalar,
        /// The greatest.
        greatest: Scalar,
        /// The first non-finite one, with its index.
        non_finite: Option<(Vec<usize>, Scalar)>,
    },
    /// There is none.
    Nothing,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)?;
        match &self.seen {
            Seen::Element(index, value) if index.is_empty() => write!(f, ", {value}")?,
            Seen::Element(index, value) => write!(f, ", element {index:?} is {value}")?,
            Seen::Range { count, least, greatest, non_finite } => {
                write!(f, ", {count} elements from {least} to {greatest}")?;
                if let Some((index, value)) = non_finite {
                    write!(f, ", element {index:?} is {value}")?;
                }
            }
            Seen::Nothing => write!(f, ", no element")?,
        }
        match &self.made {
            Some(made) => write!(f, ", {made}"),
            None => Ok(()),
        }
    }
}

/// Runs a function without dimension variables in the interpreter, and finds its first non-finite
/// value. `None` if no equation makes one.
///
/// Errors: those of [`walk()`].
pub fn first_non_finite(function: &Function, inputs: &[Literal]) -> Result<Option<Finding>> {
    let of_inputs = |wanted: fn(f64) -> bool| {
        function.inputs.iter().zip(inputs).find_map(|(input, literal)| {
            let real = literal.dtype().is_real();
            let at = literal.scalars().position(|s| real && wanted(s.to_f64()))?;
            let index = index(literal.shape(), at);
            Some(Finding::Input { name: input.name.clone(), index, value: literal.get(at) })
        })
    };
    if let Some(nan) = of_inputs(f64::is_nan) {
        return Ok(Some(nan));
    }
    let mut made = None;
    let mut visitor = |visit: Visit<'_>| -> Flow {
        made = fault(&visit, function);
        if made.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outputs = walk(function, inputs, &mut visitor)?;
    if let Some(made) = made {
        return Ok(Some(Finding::Equation(made)));
    }
    let infinite = |literal: &Literal| {
        literal.dtype().is_real() && literal.scalars().any(|s| !s.to_f64().is_finite())
    };
    match outputs {
        Some(outputs) if outputs.iter().any(infinite) => Ok(of_inputs(f64::is_infinite)),
        _ => Ok(None),
    }
}

/// An element as a number; integers are finite.
fn number(cell: &Cell<f64>, dtype: DType) -> f64 {
    match cell {
        Cell::Real(real) => *real,
        Cell::Bits(_) if dtype.is_float8() => cell.to_scalar(dtype).to_f64(),
        Cell::Bits(_) => 0.0,
    }
}

/// The fault of an equation that has been computed.
fn fault(visit: &Visit<'_>, function: &Function) -> Option<Made> {
    let op = &visit.equation.op;
    // The equations inside have been examined.
    let examined = op.control().is_some() || whole_region(op).is_some();
    if examined || matches!(op, Op::Constant(_)) {
        return None;
    }
    let (result, at) = visit
        .results
        .iter()
        .enumerate()
        .find_map(|(number, result)| Some((number, fault_in(op, visit.operands, result)?)))?;
    let array = &visit.results[result];
    let not_finite = array.cells.iter().filter(|c| !number(c, array.dtype).is_finite()).count();
    let index = index(&array.shape, at);
    let operands = visit.operands.iter().enumerate();
    let operands = operands.map(|(n, operand)| Operand {
        ty: operand.ty(),
        made: made_by(visit, visit.equation.operands[n], function),
        seen: seen(op, n, operand, array, &index),
    });
    Some(Made {
        origin: Origin::of(visit.equation, &function.locations),
        frames: visit.frames.to_vec(),
        result,
        ty: array.ty(),
        value: array.cells[at].to_scalar(array.dtype),
        elements: not_finite,
        operands: operands.collect(),
        index,
    })
}

/// Whether the op gives some of its operands' elements as they are.
fn picks(op: &Op, traits: Traits) -> bool {
    traits.movement || matches!(op, Op::Select(_) | Op::SelectN(_) | Op::Sort(_) | Op::TopK(_))
}

/// The first element of a result that the op made non-finite.
fn fault_in(op: &Op, operands: &[Array<f64>], result: &Array<f64>) -> Option<usize> {
    let dtype = result.dtype;
    if !dtype.is_real() {
        return None;
    }
    let bad = |at: &usize| !number(&result.cells[*at], dtype).is_finite();
    let first = (0..result.cells.len()).find(bad)?;
    let traits = op.traits();
    let is_scalar = |operand: &Array<f64>| operand.shape.is_empty();
    let pointwise = traits.elementwise
        && operands.iter().all(|operand| is_scalar(operand) || operand.shape == result.shape);
    let made = |nan: bool, (nans, infinities): (bool, bool)| match nan {
        true => !nans || !picks(op, traits),
        false => !nans && !infinities,
    };
    if pointwise {
        let of = |at: usize| {
            operands.iter().fold((false, false), |(nans, infinities), operand| {
                let at = if is_scalar(operand) { 0 } else { at };
                let value = number(&operand.cells[at], operand.dtype);
                (nans || value.is_nan(), infinities || value.is_infinite())
            })
        };
        let is_made = |at: &usize| made(number(&result.cells[*at], dtype).is_nan(), of(*at));
        return (first..result.cells.len()).filter(bad).find(is_made);
    }
    if operands.iter().any(|operand| operand.cells.is_empty()) {
        // The identity of a reduction.
        return None;
    }
    let all = operands.iter().flat_map(|o| o.cells.iter().map(|cell| number(cell, o.dtype)));
    let (nans, infinities) = all.fold((false, false), |(nans, infinities), value| {
        (nans || value.is_nan(), infinities || value.is_infinite())
    });
    let is_made = |at: &usize| made(number(&result.cells[*at], dtype).is_nan(), (nans, infinities));
    (first..result.cells.len()).filter(bad).find(is_made)
}

/// The elements of an operand that the element of the result at `index` depends on.
fn seen(
    op: &Op,
    number: usize,
    operand: &Array<f64>,
    result: &Array<f64>,
    index: &[usize],
) -> Seen {
    if operand.cells.is_empty() {
        return Seen::Nothing;
    }
    if operand.cells.len() == 1 {
        return element(operand, 0);
    }
    if op.traits().elementwise && operand.shape == result.shape {
        return element(operand, operand.flat(index));
    }
    let rank = operand.shape.len();
    // For each axis of the operand, the index that is fixed by the element of the result.
    let mut fixed: Vec<Option<usize>> = vec![None; rank];
    match op {
        Op::Reduce(reduce) => {
            let kept = (0..rank).filter(|axis| !reduce.axes.contains(axis));
            kept.zip(index).for_each(|(axis, i)| fixed[axis] = Some(*i));
        }
        Op::DotGeneral(dot) => {
            let sides = [(&dot.contract.0, &dot.batch.0), (&dot.contract.1, &dot.batch.1)];
            let (contract, batch) = sides[number.min(1)];
            let free = (0..rank).filter(|a| !contract.contains(a) && !batch.contains(a));
            let free: Vec<usize> = free.collect();
            batch.iter().zip(index).for_each(|(axis, i)| fixed[*axis] = Some(*i));
            let first = match number {
                0 => batch.len(),
                _ => index.len() - free.len(),
            };
            free.iter().zip(&index[first..]).for_each(|(axis, i)| fixed[*axis] = Some(*i));
        }
        _ => {}
    }
    let flats = (0..operand.cells.len()).filter(|flat| {
        let at = self::index(&operand.shape, *flat);
        fixed.iter().zip(at).all(|(fixed, i)| fixed.is_none_or(|fixed| fixed == i))
    });
    range(operand, flats.collect())
}

fn element(operand: &Array<f64>, flat: usize) -> Seen {
    Seen::Element(index(&operand.shape, flat), operand.cells[flat].to_scalar(operand.dtype))
}

fn range(operand: &Array<f64>, flats: Vec<usize>) -> Seen {
    let scalar = |flat: usize| operand.cells[flat].to_scalar(operand.dtype);
    let Some(first) = flats.first().copied() else { return Seen::Nothing };
    let (mut least, mut greatest) = (scalar(first), scalar(first));
    let mut non_finite = None;
    for flat in &flats {
        let value = scalar(*flat);
        if value.to_f64() < least.to_f64() || least.to_f64().is_nan() {
            least = value;
        }
        if value.to_f64() > greatest.to_f64() || greatest.to_f64().is_nan() {
            greatest = value;
        }
        if non_finite.is_none() && operand.dtype.is_real() && !value.to_f64().is_finite() {
            non_finite = Some((index(&operand.shape, *flat), value));
        }
    }
    Seen::Range { count: flats.len(), least, greatest, non_finite }
}

/// What made an operand: an input of the function, or an equation of the same body.
fn made_by(visit: &Visit<'_>, operand: ValueId, function: &Function) -> Option<String> {
    let at_top = visit.frames.is_empty();
    if let Some(input) = visit.body.inputs.iter().position(|input| *input == operand) {
        return at_top.then(|| format!("the input `{}`", function.inputs[input].name));
    }
    let equation = before(visit.body, visit.number, operand)?;
    Some(format!("made by {}", short(equation, &function.locations)))
}

/// The equation in front of number `end` that defines a value.
fn before(body: &Body, end: usize, value: ValueId) -> Option<&Equation> {
    body.equations[..end].iter().rev().find(|equation| equation.results.contains(&value))
}

fn short(equation: &Equation, locations: &LocationTable) -> String {
    format!("`{}` at {}", equation.op.name(), locations.origin(equation.location))
}
