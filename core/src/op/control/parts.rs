//! The roles of the operands and results of a loop.

use crate::op::control::{Scan, While};
use crate::op::prelude::*;

/// The operands of a scan by role, or one item for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanParts<'a, T> {
    /// The number of steps, if that is an operand.
    pub count: Option<&'a T>,
    /// The values passed from step to step.
    pub carries: &'a [T],
    /// The stacks of which each step sees one part.
    pub slices: &'a [T],
    /// The values that every step sees.
    pub captures: &'a [T],
}

/// The operands of a while loop by role, or one item for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WhileParts<'a, T> {
    /// The values passed from step to step.
    pub carries: &'a [T],
    /// The values that every step sees.
    pub captures: &'a [T],
}

impl Scan {
    /// The operands, or one item for each, split by role.
    pub fn parts<'a, T>(&self, operands: &'a [T]) -> Result<ScanParts<'a, T>> {
        let fixed = usize::from(self.counted) + self.carries + self.captures;
        if operands.len() < fixed {
            return Err(Diagnostic::new(format!(
                "has {} operands, but {} carries and {} captures{}",
                operands.len(),
                self.carries,
                self.captures,
                if self.counted { " beside its count" } else { "" }
            )));
        }
        let (count, rest) = operands.split_at(usize::from(self.counted));
        let (carries, rest) = rest.split_at(self.carries);
        let (slices, captures) = rest.split_at(rest.len() - self.captures);
        Ok(ScanParts { count: count.first(), carries, slices, captures })
    }
}

impl While {
    /// The operands, or one item for each, split by role.
    pub fn parts<'a, T>(&self, operands: &'a [T]) -> Result<WhileParts<'a, T>> {
        let count = operands.len().checked_sub(self.captures).ok_or_else(|| {
            Diagnostic::new(format!(
                "has {} operands, but {} captures",
                operands.len(),
                self.captures
            ))
        })?;
        let (carries, captures) = operands.split_at(count);
        Ok(WhileParts { carries, captures })
    }
}

/// The type of a stack of values of type `part`.
pub(super) fn stacked(part: &TensorType, length: &Dim) -> TensorType {
    let mut shape = part.shape.clone();
    shape.insert(0, length.clone());
    part.with_shape(shape)
}

/// The type of a part of `whole`, which is a stack of `length`.
pub(super) fn part_of(whole: &TensorType, length: &Dim) -> Result<TensorType> {
    match whole.shape.split_first() {
        Some((first, rest)) if first == length => Ok(whole.with_shape(rest.to_vec())),
        _ => Err(Diagnostic::new(format!(
            "cannot be sliced into {length} steps: an operand has type {whole}"
        ))
        .help(format!("the first extent of what is sliced is the number of steps, {length}"))),
    }
}

/// Checks the types of a region's inputs and of the outputs that are carries. Returns the types
/// of the other outputs.
pub(super) fn check_step(
    what: &str,
    region: &Body,
    inputs: &[TensorType],
    carries: &[TensorType],
) -> Result<Vec<TensorType>> {
    let (found, outputs) = (region.types(&region.inputs), region.types(&region.outputs));
    ensure!(found == inputs, "{what} takes ({}), not ({})", listed(&found), listed(inputs));
    match outputs.get(..carries.len()) {
        Some(given) if given == carries => Ok(outputs[carries.len()..].to_vec()),
        given => Err(Diagnostic::new(format!(
            "{what} gives ({}) where the carries have types ({})",
            listed(given.unwrap_or(&outputs)),
            listed(carries)
        ))
        .help("a carry has the same dtype and shape before and after a step")),
    }
}

/// Part `index` along the first axis.
pub(super) fn part<R: Real>(whole: &Array<R>, index: usize) -> Result<Array<R>> {
    let shape = whole.shape[1..].to_vec();
    let size = shape.iter().product::<usize>();
    let cells = Cells::copied(&whole.cells[index * size..(index + 1) * size])?;
    Ok(Array::new(whole.dtype, shape, cells))
}

/// A stack under construction: zeros where no step has written.
pub(super) struct Stack<R> {
    ty: TensorType,
    cells: Cells<R>,
}

impl<R: Real> Stack<R> {
    /// A stack of a type without variables.
    ///
    /// Errors: there is not enough memory.
    pub fn new(ty: &TensorType) -> Result<Self> {
        let zero = if ty.dtype.is_float() { Cell::Real(R::from_i64(0)) } else { Cell::Bits(0) };
        let count = ty.elements().expect("the interpreter runs bound functions only");
        Ok(Stack { ty: ty.clone(), cells: Cells::filled(zero, count)? })
    }

    /// Writes part `index`.
    pub fn write(&mut self, index: usize, part: &Array<R>) {
        let size = part.cells.len();
        self.cells[index * size..(index + 1) * size].clone_from_slice(&part.cells);
    }

    /// The complete stack.
    pub fn finish(self) -> Array<R> {
        Array::new(self.ty.dtype, self.ty.extents().expect("its type has no variables"), self.cells)
    }
}
