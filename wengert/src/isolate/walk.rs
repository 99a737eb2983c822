//! A walk over a run of a function in the interpreter: a visitor sees each equation with the
//! values of its operands and results, inside loops, branches and calls too.
//!
//! The walk computes what [`interpret::run`] computes, to the bit.
//! It runs the regions of loops, branches and calls itself, so that it knows the step of a loop.
//! Two ops stay whole: the combiner of a `reduce` runs on single elements in no fixed order, and
//! the rules of `custom_jvp` and `custom_vjp` are not run at all.

use crate::available_memory;
use std::fmt;
use std::ops::ControlFlow;
use wengert_core::graph::{Body, Equation, Function, Region};
use wengert_core::id::IdVec;
use wengert_core::interpret::{self, Array, Cell, Cells, Real, Regions};
use wengert_core::op::{Control, Op, Scan, While};
use wengert_core::{
    DType, Diagnostic, Literal, LocationTable, Result, Scalar, TensorType, diagnostic,
};

/// A construct around an equation, and the part of it that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Position of the construct in the body that holds it.
    pub number: usize,
    /// The op of the construct.
    pub op: &'static str,
    /// The source line of the construct.
    pub line: String,
    /// The region that runs.
    pub region: usize,
    /// The step of a loop.
    pub step: Option<usize>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.op) {
            (Some(step), "while") if self.region == 0 => {
                write!(f, "the condition of step {step} of `while`")?;
            }
            (Some(step), op) => write!(f, "step {step} of `{op}`")?,
            (None, op @ ("cond" | "switch")) => write!(f, "branch {} of `{op}`", self.region)?,
            (None, op) => write!(f, "`{op}`")?,
        }
        write!(f, " at {}", self.line)
    }
}

/// An equation that has been computed.
pub struct Visit<'v> {
    /// The constructs around it, outermost first.
    pub frames: &'v [Frame],
    /// The body that holds it.
    pub body: &'v Body,
    /// Its position in the body.
    pub number: usize,
    /// The equation.
    pub equation: &'v Equation,
    /// The values of its operands.
    pub operands: &'v [Array<f64>],
    /// The values of its results. The walk continues with what the visitor leaves here.
    pub results: &'v mut [Array<f64>],
}

/// Whether the walk goes on.
pub type Flow = ControlFlow<()>;

/// Sees a walk.
pub trait Visitor {
    /// A region begins to run on these values. The construct is the last of `frames`.
    fn enter(&mut self, frames: &[Frame], region: &Body, inputs: &[Array<f64>]) -> Flow {
        let _ = (frames, region, inputs);
        Flow::Continue(())
    }

    /// An equation has been computed.
    fn equation(&mut self, visit: Visit<'_>) -> Flow;
}

impl<F: FnMut(Visit<'_>) -> Flow> Visitor for F {
    fn equation(&mut self, visit: Visit<'_>) -> Flow {
        self(visit)
    }
}

/// Runs a function without dimension variables. `None` if the visitor has ended the walk.
///
/// Errors: the inputs do not fit; an op is not defined on its operands; there is not enough
/// memory.
pub fn walk(
    function: &Function,
    inputs: &[Literal],
    visitor: &mut dyn Visitor,
) -> Result<Option<Vec<Literal>>> {
    available_memory::check(interpret::peak_bytes(function), || {
        format!("@{} in the interpreter", function.name)
    })?;
    if let Some(i) = (0..inputs.len().min(function.inputs.len()))
        .find(|i| inputs[*i].ty() != *function.input_type(*i))
    {
        let (name, ty) = (&function.inputs[i].name, function.input_type(i));
        return Err(diagnostic!("input `{name}` is {}, not {ty}", inputs[i].ty()));
    }
    if inputs.len() != function.inputs.len() {
        let wanted = function.inputs.len();
        return Err(diagnostic!("{} values are given for {wanted} inputs", inputs.len()));
    }
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<_>>>()?;
    let mut walker = Walker { locations: &function.locations, visitor, frames: Vec::new() };
    match walker.body(&function.body, &arrays)? {
        Some(outputs) => Ok(Some(outputs.iter().map(Array::to_literal).collect::<Result<_>>()?)),
        None => Ok(None),
    }
}

/// Values, or `None` if the visitor has ended the walk.
type Values = Result<Option<Vec<Array<f64>>>>;

struct Walker<'a> {
    locations: &'a LocationTable,
    visitor: &'a mut dyn Visitor,
    frames: Vec<Frame>,
}

impl Walker<'_> {
    fn body(&mut self, body: &Body, inputs: &[Array<f64>]) -> Values {
        let mut last_use: IdVec<_, usize> = body.values.ids().map(|_| 0).collect();
        for (number, equation) in body.equations.iter().enumerate() {
            equation.operands.iter().for_each(|v| last_use[*v] = number);
        }
        body.outputs.iter().for_each(|v| last_use[*v] = usize::MAX);
        let mut values: IdVec<_, Option<Array<f64>>> = body.values.ids().map(|_| None).collect();
        for (value, array) in body.inputs.iter().zip(inputs) {
            values[*value] = Some(array.clone());
        }
        const DEFINED: &str = "the verifier found each value defined before its use";
        for (number, equation) in body.equations.iter().enumerate() {
            let operands = equation.operands.iter();
            let operands: Vec<Array<f64>> =
                operands.map(|v| values[*v].clone().expect(DEFINED)).collect();
            let types = body.types(&equation.results);
            let results = self.equation(number, equation, &operands, &types).map_err(|d| {
                let (place, name) = (self.locations.origin(equation.location), equation.op.name());
                d.at(place.clone(), name)
            })?;
            let Some(mut results) = results else { return Ok(None) };
            for array in &mut results {
                *array = rounded(std::mem::replace(array, placeholder()))?;
            }
            let visit = Visit {
                frames: &self.frames,
                body,
                number,
                equation,
                operands: &operands,
                results: &mut results,
            };
            if self.visitor.equation(visit).is_break() {
                return Ok(None);
            }
            for (value, array) in equation.results.iter().zip(results) {
                values[*value] = Some(array);
            }
            for operand in equation.operands.iter().filter(|v| last_use[**v] == number) {
                values[*operand] = None;
            }
        }
        Ok(Some(body.outputs.iter().map(|v| values[*v].clone().expect(DEFINED)).collect()))
    }

    fn equation(
        &mut self,
        number: usize,
        equation: &Equation,
        operands: &[Array<f64>],
        types: &[TensorType],
    ) -> Values {
        let mut frame = Frame {
            number,
            op: equation.op.name(),
            line: self.locations.origin(equation.location).to_string(),
            region: 0,
            step: None,
        };
        let regions = &equation.regions;
        match (&equation.op, equation.op.control()) {
            (_, Some(Control::Branch)) => {
                let chosen = chosen(&equation.op, &operands[0], regions.len());
                frame.region = chosen;
                self.region(frame, &regions[chosen], &operands[1..])
            }
            (_, Some(Control::Scan(scan))) => self.scan(frame, scan, regions, operands, types),
            (_, Some(Control::While(op))) => self.while_loop(frame, op, regions, operands, types),
            (op, None) => match whole_region(op) {
                Some(region) => {
                    frame.region = region;
                    let results = self.region(frame, &regions[region], operands)?;
                    Ok(results.map(|mut results| {
                        results.truncate(types.len());
                        results
                    }))
                }
                None => {
                    let regions =
                        Regions { bodies: regions, locations: self.locations, rounds: true };
                    Ok(Some(f64::evaluate_equation(equation, operands, types, &regions)?))
                }
            },
        }
    }

    fn region(&mut self, frame: Frame, region: &Body, inputs: &[Array<f64>]) -> Values {
        self.frames.push(frame);
        let values = match self.visitor.enter(&self.frames, region, inputs) {
            ControlFlow::Continue(()) => self.body(region, inputs),
            ControlFlow::Break(()) => Ok(None),
        };
        self.frames.pop();
        values
    }

    fn scan(
        &mut self,
        frame: Frame,
        scan: &Scan,
        regions: &[Region],
        operands: &[Array<f64>],
        types: &[TensorType],
    ) -> Values {
        let parts = scan.parts(operands)?;
        let length = scan.length.as_constant().expect("the function is bound");
        let count = parts.count.map_or(length, |count| count.cells[0].bits().clamp(0, length));
        let count = usize::try_from(count).expect("a length is not negative");
        let mut carries = parts.carries.to_vec();
        let mut stacks = stacks(&types[scan.carries..])?;
        for step in 0..count {
            let step = if scan.reverse { count - 1 - step } else { step };
            let slices = parts.slices.iter().map(|whole| part(whole, step));
            let slices = slices.collect::<Result<Vec<_>>>()?;
            let taken = [&carries[..], &slices[..], parts.captures].concat();
            let frame = Frame { step: Some(step), ..frame.clone() };
            let Some(mut made) = self.region(frame, &regions[0], &taken)? else { return Ok(None) };
            let made_parts = made.split_off(scan.carries);
            carries = made;
            write(&mut stacks, step, &made_parts);
        }
        finish(carries, stacks, &types[scan.carries..])
    }

    fn while_loop(
        &mut self,
        frame: Frame,
        op: &While,
        regions: &[Region],
        operands: &[Array<f64>],
        types: &[TensorType],
    ) -> Values {
        let carries = op.parts(operands)?.carries.len();
        let mut stacks = stacks(&types[carries..])?;
        let mut taken = operands.to_vec();
        let limit = usize::try_from(op.limit()).unwrap_or(usize::MAX);
        for step in 0..limit {
            let at = |region| Frame { region, step: Some(step), ..frame.clone() };
            let Some(goes_on) = self.region(at(0), &regions[0], &taken)? else { return Ok(None) };
            if !goes_on[0].cells[0].is_true() {
                break;
            }
            let Some(mut made) = self.region(at(1), &regions[1], &taken)? else { return Ok(None) };
            let made_parts = made.split_off(carries);
            write(&mut stacks, step, &made_parts);
            taken.splice(..carries, made);
        }
        taken.truncate(carries);
        finish(taken, stacks, &types[carries..])
    }
}

/// The region whose outputs are the results of an op, if the op runs one region once on all of its
/// operands.
pub(super) fn whole_region(op: &Op) -> Option<usize> {
    match op {
        Op::FunctionCall(_) | Op::Checkpoint(_) | Op::CustomJvp(_) | Op::CustomVjp(_) => Some(0),
        Op::CustomLinearSolve(_) => Some(1),
        _ => None,
    }
}

/// The region that a branch runs.
pub(super) fn chosen(op: &Op, selector: &Array<f64>, regions: usize) -> usize {
    let number = selector.cells[0].bits();
    match op {
        Op::Cond(_) => usize::from(number == 0),
        _ => usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(regions - 1),
    }
}

fn placeholder() -> Array<f64> {
    Array { dtype: DType::Bool, shape: vec![0], cells: Default::default() }
}

/// The array with its elements rounded to its dtype.
fn rounded(array: Array<f64>) -> Result<Array<f64>> {
    let dtype = array.dtype;
    if !dtype.is_float() || dtype == DType::F64 {
        return Ok(array);
    }
    let cells = array.cells.iter().map(|cell| match cell {
        Cell::Real(real) => Cell::Real(real.round_to(dtype)),
        Cell::Bits(bits) => Cell::Bits(*bits),
    });
    Ok(Array::new(dtype, array.shape.clone(), Cells::collect(cells)?))
}

/// Part `index` along the first axis.
fn part(whole: &Array<f64>, index: usize) -> Result<Array<f64>> {
    let shape = whole.shape[1..].to_vec();
    let size = shape.iter().product::<usize>();
    let cells = Cells::copied(&whole.cells[index * size..(index + 1) * size])?;
    Ok(Array::new(whole.dtype, shape, cells))
}

/// Zeros of these types.
fn stacks(types: &[TensorType]) -> Result<Vec<Cells<f64>>> {
    let zeros = types.iter().map(|ty| {
        let count = ty.elements().ok_or_else(|| Diagnostic::new("a stack is too large"))?;
        Cells::filled(Cell::from_scalar(Scalar::zero(ty.dtype)), count)
    });
    zeros.collect()
}

fn write(stacks: &mut [Cells<f64>], step: usize, parts: &[Array<f64>]) {
    for (stack, part) in stacks.iter_mut().zip(parts) {
        let size = part.cells.len();
        stack[step * size..(step + 1) * size].clone_from_slice(&part.cells);
    }
}

fn finish(carries: Vec<Array<f64>>, stacks: Vec<Cells<f64>>, types: &[TensorType]) -> Values {
    let stacks = stacks.into_iter().zip(types).map(|(cells, ty)| {
        let shape = ty.extents().expect("the function is bound");
        Array::new(ty.dtype, shape, cells)
    });
    Ok(Some(carries.into_iter().chain(stacks).collect()))
}
