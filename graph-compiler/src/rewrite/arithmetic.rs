//! Neutral elements, signs, and exact replacements of an instruction by a cheaper one.

use super::{Rewriter, Rule, term};
use wengert_core::graph::{Equation, ValueId};
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Op, Scalar};

/// Op and operands of a binary equation.
fn binary(equation: &Equation) -> Option<(Binary, ValueId, ValueId)> {
    match term(equation) {
        (Op::Binary(op), &[x, y]) => Some((*op, x, y)),
        _ => None,
    }
}

/// The operand of this unary op, if it defines the value.
pub(super) fn operand_of(cx: &Rewriter<'_>, op: Unary, value: ValueId) -> Option<ValueId> {
    match cx.definition(value)? {
        (Op::Unary(found), &[x]) if *found == op => Some(x),
        _ => None,
    }
}

/// The operand beside one that is a repeated scalar which `wanted` accepts. For commutative ops
/// either operand may be it.
fn beside(
    cx: &Rewriter<'_>,
    equation: &Equation,
    wanted: impl Fn(Binary, Scalar) -> bool,
) -> Option<ValueId> {
    let (op, x, y) = binary(equation)?;
    let is = |v: ValueId| cx.splat(v).is_some_and(|s| wanted(op, s));
    if is(y) {
        Some(x)
    } else if equation.op.traits().commutative && is(x) {
        Some(y)
    } else {
        None
    }
}

/// Whether `s` as the second operand leaves every x unchanged.
fn is_neutral(op: Binary, s: Scalar) -> bool {
    let dtype = s.dtype();
    let all_bits = Scalar::from_bits(dtype, u64::MAX);
    match op {
        Binary::Add if dtype.is_float() => s == Scalar::from_f64(dtype, -0.0),
        Binary::Add | Binary::Sub | Binary::Or | Binary::Xor => s == Scalar::zero(dtype),
        Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => {
            s == Scalar::zero(dtype)
        }
        Binary::Mul | Binary::Div => s == Scalar::one(dtype),
        Binary::Max => s == Scalar::lowest(dtype),
        Binary::Min => s == Scalar::highest(dtype),
        Binary::And => s == all_bits,
        _ => false,
    }
}

/// The reciprocal of a power of two, if both are normal numbers.
fn exact_reciprocal(s: Scalar) -> Option<Scalar> {
    let value = s.to_f64();
    if !s.dtype().is_float() || value == 0.0 || !value.is_finite() {
        return None;
    }
    // A power of two has no mantissa bits except the implicit leading one.
    let power = value.to_bits() & ((1 << 52) - 1) == 0;
    let smallest = match s.dtype() {
        DType::F16 => 2f64.powi(-14),
        DType::BF16 | DType::F32 => 2f64.powi(-126),
        _ => f64::MIN_POSITIVE,
    };
    let reciprocal = Scalar::from_f64(s.dtype(), 1.0 / value);
    let normal = |x: f64| x.abs() >= smallest && x.is_finite();
    (power && normal(value) && normal(reciprocal.to_f64())).then_some(reciprocal)
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "stopped_gradient",
        doc: "stop_gradient(x) → x: differentiation precedes compilation",
        examples: &[
            "%x: f16[33]
             %0: f16[33] = stop_gradient %x",
            "%x: bool[33]
             %0: bool[33] = stop_gradient %x",
        ],
        apply: |_, equation| match term(equation) {
            (Op::Unary(Unary::StopGradient), &[x]) => Some(x),
            _ => None,
        },
    },
    Rule {
        name: "neutral_element",
        doc: "x + −0.0, x − 0, x · 1, x / 1, max(x, −∞), x & ~0, x | 0, x << 0, … → x",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] -0.0}
             %1: f32[33] = add %x, %0",
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] 0.0}
             %1: f32[33] = sub %x, %0",
            "%x: f16[33]
             %0: f16[33] = constant {value=f16[33] 1.0}
             %1: f16[33] = mul %0, %x",
            "%x: f64[33]
             %0: f64[33] = constant {value=f64[33] -inf}
             %1: f64[33] = max %x, %0",
            "%x: i32[33]
             %0: i32[33] = constant {value=i32[33] -1}
             %1: i32[33] = and %x, %0",
        ],
        apply: |cx, equation| beside(cx, equation, is_neutral),
    },
    Rule {
        name: "absorbing_element",
        doc: "x · 0, x & 0 → 0 and x | ~0 → ~0 for integers and bool",
        examples: &[
            "%x: i32[33]
             %0: i32[33] = constant {value=i32[33] 0}
             %1: i32[33] = mul %x, %0",
            "%x: bool[33]
             %0: bool[33] = constant {value=bool[33] true}
             %1: bool[33] = or %0, %x",
        ],
        apply: |cx, equation| {
            let absorbs = |op: Binary, s: Scalar| match op {
                Binary::Mul => !s.dtype().is_float() && s == Scalar::zero(s.dtype()),
                Binary::And => s == Scalar::zero(s.dtype()),
                Binary::Or => s == Scalar::from_bits(s.dtype(), u64::MAX),
                _ => false,
            };
            let rest = beside(cx, equation, absorbs)?;
            // If both absorb, they are the same.
            equation.operands.iter().copied().find(|v| *v != rest).or(Some(rest))
        },
    },
    Rule {
        name: "same_operands",
        doc: "max(x, x), min(x, x), x & x, x | x → x; x − x, x ^ x → 0 for integers",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = max %x, %x",
            "%x: i32[33]
             %0: i32[33] = sub %x, %x",
        ],
        apply: |cx, equation| {
            let (op, x, y) = binary(equation)?;
            let dtype = cx.ty(x).dtype;
            match op {
                _ if x != y => None,
                Binary::Max | Binary::Min | Binary::And | Binary::Or => Some(x),
                Binary::Sub | Binary::Xor if !dtype.is_float() => {
                    cx.full_like(Scalar::zero(dtype), equation)
                }
                _ => None,
            }
        },
    },
    Rule {
        name: "sign_of_a_sum",
        doc: "x + (−y) → x − y; x − (−y) → x + y; −0.0 − x → −x; 0 − x → −x for integers",
        examples: &[
            "%x: f32[33], %y: f32[33]
             %0: f32[33] = neg %y
             %1: f32[33] = add %0, %x",
            "%x: f32[33], %y: f32[33]
             %0: f32[33] = neg %y
             %1: f32[33] = sub %x, %0",
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] -0.0}
             %1: f32[33] = sub %0, %x",
        ],
        apply: |cx, equation| {
            let (op, x, y) = binary(equation)?;
            match op {
                Binary::Add => {
                    if let Some(negated) = operand_of(cx, Unary::Neg, y) {
                        return cx.emit(Binary::Sub, &[x, negated]);
                    }
                    let negated = operand_of(cx, Unary::Neg, x)?;
                    cx.emit(Binary::Sub, &[y, negated])
                }
                Binary::Sub => {
                    if let Some(negated) = operand_of(cx, Unary::Neg, y) {
                        return cx.emit(Binary::Add, &[x, negated]);
                    }
                    let dtype = cx.ty(x).dtype;
                    let zero = Scalar::from_f64(dtype, -0.0);
                    cx.splat(x).filter(|s| *s == zero)?;
                    cx.emit(Unary::Neg, &[y])
                }
                _ => None,
            }
        },
    },
    Rule {
        name: "sign_of_a_product",
        doc: "x · −1, x / −1 → −x for floats; (−x) · (−y) → x · y, (−x) / (−y) → x / y for floats; \
              −(−x) → x; |−x|, ||x|| → |x|",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] -1.0}
             %1: f32[33] = mul %0, %x",
            "%x: f32[33], %y: f32[33]
             %0: f32[33] = neg %x
             %1: f32[33] = neg %y
             %2: f32[33] = div %0, %1",
            "%x: i32[33]
             %0: i32[33] = neg %x
             %1: i32[33] = neg %0",
            "%x: f32[33]
             %0: f32[33] = neg %x
             %1: f32[33] = abs %0",
        ],
        apply: |cx, equation| {
            if let (Op::Unary(op), &[x]) = term(equation) {
                return match op {
                    Unary::Neg => operand_of(cx, Unary::Neg, x),
                    Unary::Abs if cx.ty(x).dtype.is_unsigned_integer() => None,
                    Unary::Abs if operand_of(cx, Unary::Abs, x).is_some() => Some(x),
                    Unary::Abs => {
                        let positive = operand_of(cx, Unary::Neg, x)?;
                        cx.emit(Unary::Abs, &[positive])
                    }
                    _ => None,
                };
            }
            let (op, x, y) = binary(equation)?;
            if !matches!(op, Binary::Mul | Binary::Div) || !cx.ty(x).dtype.is_float() {
                return None;
            }
            if let (Some(x), Some(y)) =
                (operand_of(cx, Unary::Neg, x), operand_of(cx, Unary::Neg, y))
            {
                return cx.emit(op, &[x, y]);
            }
            let rest = beside(cx, equation, |_, s| s == Scalar::from_f64(s.dtype(), -1.0))?;
            cx.emit(Unary::Neg, &[rest])
        },
    },
    Rule {
        name: "division_by_a_power_of_two",
        doc: "x / 2ᵏ → x · 2⁻ᵏ for floats where both powers are normal numbers; 1 / x → reciprocal \
              x",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] 64.0}
             %1: f32[33] = div %x, %0",
            "%x: bf16[33]
             %0: bf16[33] = constant {value=bf16[33] -0.125}
             %1: bf16[33] = div %x, %0",
            "%x: f16[33]
             %0: f16[33] = constant {value=f16[33] 1.0}
             %1: f16[33] = div %0, %x",
        ],
        apply: |cx, equation| {
            let (Binary::Div, x, y) = binary(equation)? else { return None };
            if let Some(factor) = cx.splat(y).and_then(exact_reciprocal) {
                let factor = cx.full_like(factor, equation)?;
                return cx.emit(Binary::Mul, &[x, factor]);
            }
            let dtype = cx.ty(x).dtype;
            cx.splat(x).filter(|s| dtype.is_float() && *s == Scalar::one(dtype))?;
            cx.emit(Unary::Reciprocal, &[y])
        },
    },
    Rule {
        name: "strong_product_of_a_known_tangent",
        doc: "mul_zero(c, 0) → 0; mul_zero(c, t) → c · t for a constant t other than 0",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] 3.0}
             %1: f32[33] = mul_zero %x, %0",
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] -0.0}
             %1: f32[33] = mul_zero %x, %0",
        ],
        apply: |cx, equation| {
            let (Binary::MulZero, coefficient, tangent) = binary(equation)? else { return None };
            let t = cx.splat(tangent)?;
            if t.to_f64() == 0.0 {
                cx.full_like(Scalar::zero(t.dtype()), equation)
            } else {
                cx.emit(Binary::Mul, &[coefficient, tangent])
            }
        },
    },
    Rule {
        name: "strong_product_with_a_known_coefficient",
        doc: "mul_zero(c, t) → c · t + 0.0 for a finite constant c with |c| ≥ 1: c · t is 0 only \
              if t is 0",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] -2.5}
             %1: f32[33] = mul_zero %0, %x",
            "%x: f16[33]
             %0: f16[33] = constant {value=f16[33] 1.0}
             %1: f16[33] = mul_zero %0, %x",
        ],
        apply: |cx, equation| {
            let (Binary::MulZero, coefficient, tangent) = binary(equation)? else { return None };
            let c = cx.splat(coefficient)?;
            if !c.to_f64().is_finite() || c.to_f64().abs() < 1.0 {
                return None;
            }
            let product = cx.emit(Binary::Mul, &[coefficient, tangent])?;
            let zero = cx.full_like(Scalar::zero(c.dtype()), equation)?;
            cx.emit(Binary::Add, &[product, zero])
        },
    },
    Rule {
        name: "zero_added_twice",
        doc: "(x + 0.0) + 0.0 → x + 0.0; |x| + 0.0 → |x|; x² + 0.0 → x²",
        examples: &[
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] 0.0}
             %1: f32[33] = add %x, %0
             %2: f32[33] = add %1, %0",
            "%x: f32[33]
             %0: f32[33] = constant {value=f32[33] 0.0}
             %1: f32[33] = abs %x
             %2: f32[33] = add %1, %0",
        ],
        apply: |cx, equation| {
            let is_zero = |s: Scalar| s.dtype().is_float() && s == Scalar::zero(s.dtype());
            let rest = beside(cx, equation, |op, s| op == Binary::Add && is_zero(s))?;
            let never_minus_zero = match cx.definition(rest)? {
                (Op::Unary(Unary::Abs | Unary::Square | Unary::Exp), _) => true,
                (Op::Binary(Binary::Add), &[x, y]) => {
                    [x, y].iter().any(|v| cx.splat(*v).is_some_and(is_zero))
                }
                _ => false,
            };
            never_minus_zero.then_some(rest)
        },
    },
];
