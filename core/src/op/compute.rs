//! The `compute` facet: an op as loops over scalar instructions, or as a call.
//!
//! A rule describes an element of a result by *pulling*: it is asked for the element at an index
//! and asks for elements of its operands. The caller decides whether an operand's element is
//! loaded from memory or computed in place from its own equation. So one rule serves the kernel
//! of one op and any fusion.

use crate::build::tensor::Tensor;
use crate::call::Call;
use crate::dtype::DType;
use crate::id::Id;
use crate::math::MathProgram;
use crate::nest::{Affine, Combine, Guard, Instr, Reg, ScalarOp};
use crate::scalar::Scalar;

/// How an op is computed.
pub enum Compute<'a> {
    /// Each element of the only result is an expression of operand elements.
    Element {
        /// Emits instructions for the element at an index.
        rule: ElementRule<'a>,
        /// Operands that are accessed at indices from data; they must be in memory.
        indirect: Vec<usize>,
    },
    /// Reduces a space of tuples along axes with a combine program. Results have the remaining
    /// axes in order. There may be several operands (a tuple); there are as many results as
    /// entries of `project`.
    Reduce {
        /// Extents of the reduced space: usually the operands' shape.
        extents: Vec<usize>,
        /// Axes of the space that are reduced, ascending.
        axes: Vec<usize>,
        /// Emits the tuple at an index into the space.
        values: TupleRule<'a>,
        /// Combines two tuples.
        combine: Combine,
        /// For each result, the element of the tuple that it is. The consumer converts it if
        /// dtypes differ.
        project: Vec<usize>,
    },
    /// Inclusive scan of the only operand along an axis. Elements are converted to the combiner's
    /// dtype and results back, where it differs from the operand's (halves are carried in f32).
    Prefix {
        /// The axis of the scan.
        axis: usize,
        /// Scans from the last element to the first.
        reverse: bool,
        /// Combines two elements.
        combine: Combine,
    },
    /// A call over whole operands, in the order that the call documents.
    Call(Call),
    /// A call over whole operands where the target supports it; else by other ops.
    CallOrDecompose(Call, DecomposeRule<'a>),
    /// By running its regions: [`crate::op::Op::control`] says how.
    Control,
    /// By other ops: maps the operands, as tensors, to the results.
    Decompose(DecomposeRule<'a>),
}

impl<'a> Compute<'a> {
    /// Each element by a rule that needs no operand in memory.
    pub(super) fn element(
        rule: impl Fn(&mut dyn ElementContext, &[Affine]) -> Reg + 'a,
    ) -> Compute<'a> {
        Compute::indirect(vec![], rule)
    }

    /// Each element by a rule that accesses the operands `indirect` at indices from data.
    pub(super) fn indirect(
        indirect: Vec<usize>,
        rule: impl Fn(&mut dyn ElementContext, &[Affine]) -> Reg + 'a,
    ) -> Compute<'a> {
        Compute::Element { rule: Box::new(rule), indirect }
    }
}

/// Emits the element of the result at an index.
pub type ElementRule<'a> = Box<dyn Fn(&mut dyn ElementContext, &[Affine]) -> Reg + 'a>;
/// Emits the tuple at an index into the reduced space.
pub type TupleRule<'a> = Box<dyn Fn(&mut dyn ElementContext, &[Affine]) -> Vec<Reg> + 'a>;
/// Maps the operands of a composite to its results.
pub type DecomposeRule<'a> = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a>;

/// The operations available to an element rule: elements of the operands and scalar instructions.
pub trait ElementContext {
    /// The element of operand `operand` at `index`, which is in bounds.
    fn operand(&mut self, operand: usize, index: &[Affine]) -> Reg;

    /// The element at `index` if all guards hold, else `fill`. The guards imply that the index is
    /// in bounds.
    fn guarded(&mut self, operand: usize, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg;

    /// The element at `index`, each index clamped to its dimension. Only for operands declared
    /// `indirect`.
    fn clamped(&mut self, operand: usize, index: &[Affine]) -> Reg;

    /// A scalar instruction whose result has the dtype of its last operand (bool for
    /// comparisons). Arithmetic on halves is done as conversion to f32, operation, conversion
    /// back.
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

/// Emits the instructions of a function's program, on operands of its dtype.
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
