//! The `compute` facet: an op as loops over scalar instructions, or as a call.
//!
//! An element of a result is described by *pulling*: the rule is asked for the element at an
//! index, and asks its operands for theirs. Whether an operand's element is loaded from memory or
//! computed on the spot from its own equation is the caller's affair; so one rule serves a kernel
//! of one op as well as any fusion.

use crate::call::Call;
use crate::dtype::DType;
use crate::graph::tensor::Tensor;
use crate::id::Id;
use crate::math::MathProgram;
use crate::nest::{Affine, Combine, Guard, Instr, Reg, ScalarOp};
use crate::scalar::Scalar;

/// How an op is computed.
pub enum Compute<'a> {
    /// Each element of the (only) result is an expression of elements of the operands.
    Element {
        /// Emits instructions for the element at an index.
        rule: ElementRule<'a>,
        /// Operands that are accessed at indices from data; they must be in memory.
        indirect: Vec<usize>,
    },
    /// Reduces a space of tuples along axes with a combine program; results have the remaining
    /// axes in order. There may be several operands (a tuple) with as many results as the tuple's
    /// `project`ion has.
    Reduce {
        /// Extents of the space that is reduced: most often the operands' shape.
        extents: Vec<usize>,
        /// Axes of the space that vanish, ascending.
        axes: Vec<usize>,
        /// Emits, for an index into the space, the tuple to be reduced.
        values: TupleRule<'a>,
        /// Combines two tuples.
        combine: Combine,
        /// For each result which element of the tuple it is, and its conversion is done by the
        /// consumer if dtypes differ.
        project: Vec<usize>,
    },
    /// Inclusive scan of the only operand along an axis. Where the combiner's dtype is not the
    /// operand's (halves are carried in f32), elements are converted to it before and results
    /// back.
    Prefix {
        /// Along which axis.
        axis: usize,
        /// From the last element to the first.
        reverse: bool,
        /// Combines two elements.
        combine: Combine,
    },
    /// A call over whole operands, in the order that the call documents.
    Call(Call),
    /// A call over whole operands where the target claims it; else by other ops.
    CallOrDecompose(Call, DecomposeRule<'a>),
    /// By running its regions: [`crate::op::Op::control`] says how.
    Control,
    /// By other ops: called with the operands as tensors, gives the results.
    Decompose(DecomposeRule<'a>),
}

/// Emits the element of the result at an index.
pub type ElementRule<'a> = Box<dyn Fn(&mut dyn ElementContext, &[Affine]) -> Reg + 'a>;
/// Emits the tuple to be reduced at an index into the space.
pub type TupleRule<'a> = Box<dyn Fn(&mut dyn ElementContext, &[Affine]) -> Vec<Reg> + 'a>;
/// Results of a composite from its operands.
pub type DecomposeRule<'a> = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a>;

/// What an element rule may use: elements of the operands and scalar instructions.
pub trait ElementContext {
    /// The element of operand `operand` at `index`, which is in bounds.
    fn operand(&mut self, operand: usize, index: &[Affine]) -> Reg;

    /// The element at `index` where all guards hold, which then is in bounds; else `fill`.
    fn guarded(&mut self, operand: usize, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg;

    /// The element at `index`, each index clamped to its dimension. Only for operands declared
    /// `indirect`.
    fn clamped(&mut self, operand: usize, index: &[Affine]) -> Reg;

    /// A scalar instruction whose result has the dtype of its last operand (bool for
    /// comparisons). Arithmetic on halves is done here as conversion to f32, operation,
    /// conversion back.
    fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg;

    /// `convert` to `dtype`.
    fn convert(&mut self, value: Reg, dtype: DType) -> Reg;

    /// `bitcast` to `dtype`.
    fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg;

    /// A constant.
    fn constant(&mut self, value: Scalar) -> Reg;

    /// The value of an index expression as an integer of `dtype`.
    fn index(&mut self, value: &Affine, dtype: DType) -> Reg;

    /// Whether all guards hold.
    fn test(&mut self, guards: Vec<Guard>) -> Reg;

    /// Dtype of a register.
    fn dtype(&self, reg: Reg) -> DType;
}

/// Emits the instructions of a function's program; the operands have its dtype.
pub(super) fn replay(c: &mut dyn ElementContext, program: &MathProgram, operands: &[Reg]) -> Reg {
    let mut registers = operands.to_vec();
    for instr in &program.body {
        registers.push(match instr {
            Instr::Scalar { result, op, operands } => {
                let given: Vec<Reg> = operands.iter().map(|r| registers[r.index()]).collect();
                let dtype = program.registers[*result];
                match op {
                    ScalarOp::Convert => c.convert(given[0], dtype),
                    ScalarOp::Bitcast => c.bitcast(given[0], dtype),
                    op => c.scalar(*op, &given),
                }
            }
            Instr::Const { value, .. } => c.constant(*value),
            _ => unreachable!("a program has scalar instructions and constants only"),
        });
    }
    registers[program.result.index()]
}
