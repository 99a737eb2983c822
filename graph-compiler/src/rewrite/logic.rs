//! Comparisons, negations, and selections with a known outcome.

use super::arithmetic::operand_of;
use super::{Rule, term};
use wengert_core::graph::ValueId;
use wengert_core::op::{Compare, ConvertElementType, Select, Unary};
use wengert_core::{DType, Op, Scalar};

/// The negation of a comparison. Order comparisons have one only for dtypes without NaN.
fn opposite(compare: Compare, ordered: bool) -> Option<Compare> {
    match compare {
        Compare::Eq => Some(Compare::Ne),
        Compare::Ne => Some(Compare::Eq),
        _ if !ordered => None,
        Compare::Lt => Some(Compare::Ge),
        Compare::Ge => Some(Compare::Lt),
        Compare::Gt => Some(Compare::Le),
        Compare::Le => Some(Compare::Gt),
    }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "case_of_a_condition",
        doc: "select_n(p, x, y) → select(p, y, x) for a bool p; select_n(w, x) → x",
        examples: &[
            "%p: bool[33], %x: f32[33], %y: f32[33]
             %0: f32[33] = select_n %p, %x, %y",
            "%w: i32[], %x: f32[33]
             %0: f32[33] = select_n %w, %x",
        ],
        apply: |cx, equation| match term(equation) {
            (Op::SelectN(_), &[_, x]) => Some(x),
            (Op::SelectN(_), &[which, x, y]) if cx.ty(which).dtype == DType::Bool => {
                cx.emit(Select {}, &[which, y, x])
            }
            _ => None,
        },
    },
    Rule {
        name: "double_negation",
        doc: "!!x → x; !(x = y) → x ≠ y, and likewise for ≠; !(x < y) → x ≥ y, and likewise for ≤, \
              >, ≥, except for floats (NaN is unordered)",
        examples: &[
            "%x: u8[33]
             %0: u8[33] = not %x
             %1: u8[33] = not %0",
            "%x: f32[33], %y: f32[33]
             %0: bool[33] = eq %x, %y
             %1: bool[33] = not %0",
            "%x: i32[33], %y: i32[33]
             %0: bool[33] = lt %x, %y
             %1: bool[33] = not %0",
        ],
        apply: |cx, equation| {
            let (Op::Unary(Unary::Not), &[x]) = term(equation) else { return None };
            if let Some(inner) = operand_of(cx, Unary::Not, x) {
                return Some(inner);
            }
            let (Op::Compare(compare), &[a, b]) = cx.definition(x)? else { return None };
            let compare = opposite(*compare, !cx.ty(a).dtype.is_float())?;
            cx.emit(compare, &[a, b])
        },
    },
    Rule {
        name: "comparison_with_itself",
        doc: "x < x, x > x → false; x = x, x ≤ x, x ≥ x → true and x ≠ x → false for dtypes \
              without NaN",
        examples: &[
            "%x: f32[33]
             %0: bool[33] = lt %x, %x",
            "%x: i64[33]
             %0: bool[33] = le %x, %x",
        ],
        apply: |cx, equation| {
            let (Op::Compare(compare), &[x, y]) = term(equation) else { return None };
            let float = cx.ty(x).dtype.is_float();
            let outcome = match compare {
                _ if x != y => return None,
                Compare::Lt | Compare::Gt => false,
                _ if float => return None,
                Compare::Ne => false,
                Compare::Eq | Compare::Le | Compare::Ge => true,
            };
            cx.full_like(Scalar::of(outcome), equation)
        },
    },
    Rule {
        name: "known_choice",
        doc: "select(true, x, y) → x; select(false, x, y) → y; select(p, x, x) → x",
        examples: &[
            "%x: f32[33], %y: f32[33]
             %0: bool[33] = constant {value=bool[33] true}
             %1: f32[33] = select %0, %x, %y",
            "%x: f32[33], %y: f32[33]
             %0: bool[] = constant {value=bool[] false}
             %1: f32[33] = select %0, %x, %y",
            "%p: bool[33], %x: f32[33]
             %0: f32[33] = select %p, %x, %x",
        ],
        apply: |cx, equation| {
            let (Op::Select(_), &[p, x, y]) = term(equation) else { return None };
            if x == y {
                return Some(x);
            }
            Some(if cx.splat(p)? == Scalar::of(true) { x } else { y })
        },
    },
    Rule {
        name: "choice_by_a_negation",
        doc: "select(!p, x, y) → select(p, y, x)",
        examples: &["%p: bool[33], %x: f32[33], %y: f32[33]
                     %0: bool[33] = not %p
                     %1: f32[33] = select %0, %x, %y"],
        apply: |cx, equation| {
            let (Op::Select(_), &[p, x, y]) = term(equation) else { return None };
            let p = operand_of(cx, Unary::Not, p)?;
            cx.emit(Select {}, &[p, y, x])
        },
    },
    Rule {
        name: "choice_of_truth",
        doc: "select(p, true, false) → p",
        examples: &["%p: bool[33]
                     %0: bool[33] = constant {value=bool[33] true}
                     %1: bool[33] = constant {value=bool[33] false}
                     %2: bool[33] = select %p, %0, %1"],
        apply: |cx, equation| {
            let (Op::Select(_), &[p, x, y]) = term(equation) else { return None };
            let truth = |v: ValueId, wanted: bool| cx.splat(v) == Some(Scalar::of(wanted));
            let bools = cx.ty(x).dtype == DType::Bool && cx.ty(p) == cx.ty(x);
            (bools && truth(x, true) && truth(y, false)).then_some(p)
        },
    },
    Rule {
        name: "choice_of_one",
        doc: "select(p, 1, 0) → convert(p) for numeric dtypes, if p has the result's shape",
        examples: &[
            "%p: bool[33]
             %0: f32[33] = constant {value=f32[33] 1.0}
             %1: f32[33] = constant {value=f32[33] 0.0}
             %2: f32[33] = select %p, %0, %1",
            "%x: i32[33], %y: i32[33]
             %0: f16[33] = constant {value=f16[33] 1.0}
             %1: f16[33] = constant {value=f16[33] 0.0}
             %2: bool[33] = lt %x, %y
             %3: f16[33] = select %2, %0, %1",
            "%p: bool[33]
             %0: u8[33] = constant {value=u8[33] 1}
             %1: u8[33] = constant {value=u8[33] 0}
             %2: u8[33] = select %p, %0, %1",
        ],
        apply: |cx, equation| {
            let (Op::Select(_), &[p, x, y]) = term(equation) else { return None };
            let dtype = cx.ty(x).dtype;
            let numbers = dtype != DType::Bool && cx.ty(p).shape == cx.ty(x).shape;
            let chosen =
                cx.splat(x) == Some(Scalar::one(dtype)) && cx.splat(y) == Some(Scalar::zero(dtype));
            if !numbers || !chosen {
                return None;
            }
            cx.emit(ConvertElementType { dtype }, &[p])
        },
    },
];
