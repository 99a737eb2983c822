//! Constants: their normal form, and constant folding.
//!
//! Folding evaluates the op's own element rule with the one executable definition of scalar
//! instructions, so it gives the bits that the kernel would give. Approximated functions (`exp`,
//! `sin`, …) are not folded: devices may differ in them within their bounds. Powers are not
//! folded either: their rule rounds more than once, where the op's definition rounds only the
//! result.

use super::{Rewriter, Rule};
use wengert_core::graph::{Equation, ValueId};
use wengert_core::nest::evaluate::evaluate;
use wengert_core::nest::{Affine, Guard, Reg, ScalarOp};
use wengert_core::op::{Compute, Constant, Cost, ElementContext};
use wengert_core::{DType, Id, Literal, Op, Scalar, TensorType};

/// Maximum number of elements of a folded literal.
const MAX_ELEMENTS: usize = 256;

/// Maximum number of elements of a literal that is tested for equal elements.
const MAX_SPLAT: usize = 1 << 20;

/// Maximum number of elements of a literal whose axes are permuted, such as a filter.
const MAX_PERMUTED: usize = 1 << 24;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "constant_of_equal_elements",
        doc: "a literal of equal elements → the broadcast of a scalar",
        examples: &["%0: f32[2,2] = constant {value=f32[2,2] [[1.5, 1.5], [1.5, 1.5]]}"],
        apply: |cx, equation| {
            let Op::Constant(op) = &equation.op else { return None };
            if op.value.shape().is_empty() || op.value.len() > MAX_SPLAT {
                return None;
            }
            cx.full_like(op.value.splat()?, equation)
        },
    },
    Rule {
        name: "elementwise_on_constants",
        doc: "f(c, d, …) → its value, for elementwise exact f on constants of equal elements, and \
              for exact f without operands that gives one element",
        examples: &[
            "%0: f32[4] = constant {value=f32[4] 3.0}
             %1: f32[4] = reciprocal %0
             %2: f32[4] = sub %1, %0",
            "%0: f16[] = constant {value=f16[] 0.1}
             %1: f16[] = mul %0, %0",
        ],
        apply: |cx, equation| {
            let traits = equation.op.traits();
            let one = equation.operands.is_empty() && cx.elements(equation.results[0]) == 1;
            if matches!(equation.op, Op::Constant(_)) || !(traits.elementwise || one) {
                return None;
            }
            let operands: Vec<Scalar> =
                equation.operands.iter().map(|v| cx.splat(*v)).collect::<Option<_>>()?;
            let same_shape = |v: &ValueId| cx.ty(*v).shape == cx.ty(equation.results[0]).shape;
            if !one && (operands.is_empty() || !equation.operands.iter().all(same_shape)) {
                return None;
            }
            let zero = vec![0; cx.ty(equation.results[0]).rank()];
            let value = element(cx, equation, &|k, _| operands[k], &zero)?;
            cx.full_like(value, equation)
        },
    },
    Rule {
        name: "constants_moved",
        doc: "an exact function of small literals → a literal of its elements",
        examples: &[
            "%0: f32[3] = constant {value=f32[3] [1.0, -0.0, inf]}
             %1: f32[3] = add %0, %0",
            "%0: i32[2,3] = constant {value=i32[2,3] [[1, 2, 3], [4, 5, 6]]}
             %1: i32[3,2] = permute %0 {permutation=[1,0]}",
        ],
        apply: |cx, equation| {
            let result = equation.results[0];
            let shape = cx.extents(result);
            let count: usize = shape.iter().product();
            if equation.operands.is_empty() || !(1..=MAX_ELEMENTS).contains(&count) {
                return None;
            }
            // The broadcast of a scalar is the normal form to which `constant_of_equal_elements`
            // would bring the result.
            if matches!(equation.op, Op::BroadcastInDim(_))
                && cx.ty(equation.operands[0]).rank() == 0
            {
                return None;
            }
            let literals: Vec<Literal> =
                equation.operands.iter().map(|v| cx.literal(*v)).collect::<Option<_>>()?;
            let most = literals.iter().map(Literal::len).max().unwrap_or(0);
            // A free op, such as a broadcast, would only take memory as a literal.
            if equation.op.traits().cost == Cost::Free && count > most {
                return None;
            }
            let operand = |k: usize, at: &[usize]| {
                let literal = &literals[k];
                literal.get(at.iter().zip(literal.shape()).fold(0, |n, (i, e)| n * e + i))
            };
            let mut index = vec![0; shape.len()];
            let mut values = Vec::with_capacity(count);
            for flat in 0..count {
                let mut rest = flat;
                for axis in (0..shape.len()).rev() {
                    index[axis] = rest % shape[axis];
                    rest /= shape[axis];
                }
                values.push(element(cx, equation, &operand, &index)?);
            }
            let value = Literal::from_scalars(cx.ty(result).dtype, &shape, &values).ok()?;
            cx.emit(Constant { value }, &[])
        },
    },
    Rule {
        name: "constant_permuted",
        doc: "permute of a literal → the literal with its axes permuted",
        examples: &["%0: f32[2,3] = constant {value=f32[2,3] [[1, 2, 3], [4, 5, 6]]}
             %1: f32[3,2] = permute %0 {permutation=[1,0]}"],
        apply: |cx, equation| {
            let Op::Permute(op) = &equation.op else { return None };
            let literal = cx.literal(equation.operands[0])?;
            if literal.len() > MAX_PERMUTED {
                return None;
            }
            let axes: Vec<i64> = op.permutation.iter().map(|axis| *axis as i64).collect();
            cx.emit(Constant { value: literal.permute(axes).ok()? }, &[])
        },
    },
];

/// Whether an op rounds more than once: a power rounds each of its products.
fn rounds_often(op: &Op) -> bool {
    matches!(op, Op::IntegerPow(power) if !(-1..=2).contains(&power.exponent))
}

/// The element of an equation at an index, if its rule can be evaluated exactly.
fn element(
    cx: &Rewriter<'_>,
    equation: &Equation,
    operand: &dyn Fn(usize, &[usize]) -> Scalar,
    index: &[usize],
) -> Option<Scalar> {
    if rounds_often(&equation.op) {
        return None;
    }
    let types =
        |values: &[ValueId]| values.iter().map(|v| cx.ty(*v).clone()).collect::<Vec<TensorType>>();
    let operands = types(&equation.operands);
    let Compute::Element { rule, indirect } =
        equation.op.compute(&operands, &types(&equation.results), &equation.regions)
    else {
        return None;
    };
    if !indirect.is_empty() {
        return None;
    }
    let mut evaluation = Evaluation { operand, registers: Vec::new(), approximate: false };
    let at: Vec<Affine> = index.iter().map(|i| Affine::constant(*i as i64)).collect();
    let result = rule(&mut evaluation, &at);
    // The bits, if the result is of 8-bit floats.
    let value = evaluation.get(result).bits();
    let value = Scalar::from_bits(cx.ty(equation.results[0]).dtype, value);
    (!evaluation.approximate).then_some(value)
}

/// Evaluates a rule at an index of numbers.
struct Evaluation<'o> {
    operand: &'o dyn Fn(usize, &[usize]) -> Scalar,
    registers: Vec<Scalar>,
    /// Set if some instruction is not exact.
    approximate: bool,
}

impl Evaluation<'_> {
    fn get(&self, reg: Reg) -> Scalar {
        self.registers[reg.index()]
    }

    fn put(&mut self, value: Scalar) -> Reg {
        self.registers.push(value);
        Reg::new(self.registers.len() - 1)
    }

    fn number(&self, expression: &Affine) -> i64 {
        let reg = |r: Reg| self.get(r).to_i64().expect("an index expression is over integers");
        expression.evaluate(&|_| unreachable!("an index of numbers has no axes"), &reg)
    }

    fn holds(&self, guards: &[Guard]) -> bool {
        guards.iter().all(|g| (g.low..g.high).contains(&self.number(&g.index)))
    }
}

impl ElementContext for Evaluation<'_> {
    fn operand(&mut self, operand: usize, index: &[Affine]) -> Reg {
        let at: Vec<usize> = index
            .iter()
            .map(|i| {
                usize::try_from(self.number(i)).expect("a rule accesses its operands in bounds")
            })
            .collect();
        let value = (self.operand)(operand, &at);
        self.put(value.stored())
    }

    fn guarded(&mut self, operand: usize, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg {
        if self.holds(&guards) { self.operand(operand, index) } else { fill }
    }

    fn clamped(&mut self, _operand: usize, _index: &[Affine]) -> Reg {
        unreachable!("ops with indirect operands are not folded")
    }

    fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        self.approximate |= op.is_elementary();
        let values: Vec<Scalar> = operands.iter().map(|r| self.get(*r)).collect();
        let dtypes: Vec<DType> = values.iter().map(|s| s.dtype()).collect();
        let last = dtypes[dtypes.len() - 1];
        let value = if op.class().contains(last) {
            evaluate(op, &values, op.result(&dtypes))
        } else {
            // Halves are computed in f32.
            let wide: Vec<Scalar> = values
                .iter()
                .map(|s| if s.dtype().is_half() { convert(*s, DType::F32) } else { *s })
                .collect();
            let result = if op.is_comparison() { DType::Bool } else { DType::F32 };
            let value = evaluate(op, &wide, result);
            if op.is_comparison() { value } else { convert(value, last) }
        };
        self.put(value)
    }

    fn convert(&mut self, value: Reg, dtype: DType) -> Reg {
        let value = convert(self.get(value), dtype);
        self.put(value)
    }

    fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg {
        let value = Scalar::from_bits(dtype.stored(), self.get(value).bits());
        self.put(value)
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.put(value.stored())
    }

    fn index(&mut self, value: &Affine, dtype: DType) -> Reg {
        let value = Scalar::from_i64(dtype, self.number(value));
        self.put(value)
    }

    fn test(&mut self, guards: Vec<Guard>) -> Reg {
        let holds = self.holds(&guards);
        self.put(Scalar::of(holds))
    }

    fn dtype(&self, reg: Reg) -> DType {
        self.get(reg).dtype()
    }
}

fn convert(value: Scalar, dtype: DType) -> Scalar {
    evaluate(ScalarOp::Convert, &[value], dtype)
}
