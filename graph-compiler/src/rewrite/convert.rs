//! Consecutive lossless conversions, and those of operands in memory or of moved values. A rounding
//! is never removed.

use super::{Rule, term};
use wengert_core::op::{BitcastConvertType, ConvertElementType};
use wengert_core::{DType, Op};

/// Whether `to` represents every value of `from` exactly.
fn is_exact(from: DType, to: DType) -> bool {
    use DType::*;
    from == to
        || match from {
            Bool => true,
            U8 => !matches!(to, Bool | I8 | F8E4M3FN | F8E5M2),
            I8 => matches!(to, I32 | I64 | F16 | BF16 | F32 | F64),
            I32 => matches!(to, I64 | F64),
            U32 => matches!(to, I64 | U64 | F64),
            I64 | U64 | F64 => false,
            F16 | BF16 => matches!(to, F32 | F64),
            F32 => to == F64,
            F8E4M3FN | F8E5M2 => matches!(to, F16 | BF16 | F32 | F64),
        }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "conversion_to_the_same_dtype",
        doc: "convert(x) → x if x already has the dtype",
        examples: &["%x: f16[33]
                     %0: f16[33] = convert_element_type %x {dtype=f16}"],
        apply: |cx, equation| {
            let (Op::ConvertElementType(op), &[x]) = term(equation) else { return None };
            (cx.ty(x).dtype == op.dtype).then_some(x)
        },
    },
    Rule {
        name: "conversion_of_an_exact_conversion",
        doc: "convert(convert(x, d), e) → convert(x, e) if d represents all values of x's dtype \
              exactly; for integer → float → integer only if e does so too, since the conversion \
              to e saturates",
        examples: &[
            "%x: f16[33]
             %0: f32[33] = convert_element_type %x {dtype=f32}
             %1: f16[33] = convert_element_type %0 {dtype=f16}",
            "%x: u8[33]
             %0: i32[33] = convert_element_type %x {dtype=i32}
             %1: bf16[33] = convert_element_type %0 {dtype=bf16}",
            "%x: i32[33]
             %0: i64[33] = convert_element_type %x {dtype=i64}
             %1: u8[33] = convert_element_type %0 {dtype=u8}",
            "%x: bf16[33]
             %0: f64[33] = convert_element_type %x {dtype=f64}
             %1: i8[33] = convert_element_type %0 {dtype=i8}",
        ],
        apply: |cx, equation| {
            let (Op::ConvertElementType(outer), &[y]) = term(equation) else { return None };
            let (Op::ConvertElementType(inner), &[x]) = cx.definition(y)? else { return None };
            let middle = inner.dtype;
            let from = cx.ty(x).dtype;
            let saturates = from.is_integer() && middle.is_float() && outer.dtype.is_integer();
            if !is_exact(from, middle) || (saturates && !is_exact(from, outer.dtype)) {
                return None;
            }
            cx.emit(ConvertElementType { dtype: outer.dtype }, &[x])
        },
    },
    Rule {
        name: "narrowing_of_a_moved_value",
        doc: "convert(move(x)) → move(convert(x)), where move is permute or reshape, if the \
              conversion is to a smaller dtype: the move is then next to a product, or a view of \
              memory, and costs nothing",
        examples: &[
            "%x: f32[6,4]
             %0: f32[4,6] = permute %x {permutation=[1,0]}
             %1: bf16[4,6] = convert_element_type %0 {dtype=bf16}",
            "%x: f64[6,4]
             %0: f64[24] = reshape %x {shape=[24]}
             %1: f16[24] = convert_element_type %0 {dtype=f16}",
        ],
        apply: |cx, equation| {
            let (Op::ConvertElementType(narrow), &[y]) = term(equation) else { return None };
            let (moves @ (Op::Permute(_) | Op::Reshape(_)), &[x]) = cx.definition(y)? else {
                return None;
            };
            if narrow.dtype.size() >= cx.ty(x).dtype.size() {
                return None;
            }
            let moves = moves.clone();
            let narrowed = cx.emit(ConvertElementType { dtype: narrow.dtype }, &[x])?;
            cx.emit(moves, &[narrowed])
        },
    },
    Rule {
        name: "selection_from_widened_halves",
        doc: "take(convert(x), indices) → convert(take(x, indices)) for halves x, where take is \
              take_along_axis, gather or dynamic_slice, and takes no more elements than x has: x \
              must be in memory, and the halves take less",
        examples: &[
            "%x: bf16[3,5], %i: i32[3,2]
             %0: f32[3,5] = convert_element_type %x {dtype=f32}
             %1: f32[3,2] = take_along_axis %0, %i {axis=1}",
            "%x: f16[8], %i: i32[]
             %0: f32[8] = convert_element_type %x {dtype=f32}
             %1: f32[3] = dynamic_slice %0, %i {slice_sizes=[3]}",
        ],
        apply: |cx, equation| {
            let (op, &[y, ref indices @ ..]) = term(equation) else { return None };
            if !matches!(op, Op::TakeAlongAxis(_) | Op::Gather(_) | Op::DynamicSlice(_)) {
                return None;
            }
            let (Op::ConvertElementType(wide), &[x]) = cx.definition(y)? else { return None };
            let dtype = wide.dtype;
            let is_half = cx.ty(x).dtype.is_half() && is_exact(cx.ty(x).dtype, dtype);
            if !is_half || cx.elements(equation.results[0]) > cx.elements(x) {
                return None;
            }
            let taken = cx.emit(op.clone(), &[&[x], indices].concat())?;
            cx.emit(ConvertElementType { dtype }, &[taken])
        },
    },
    Rule {
        name: "bitcast_of_a_bitcast",
        doc: "bitcast(bitcast(x)) → bitcast(x) if all three dtypes have one size; x if x already \
              has the dtype",
        examples: &["%x: f32[33]
                     %0: u32[33] = bitcast_convert_type %x {dtype=u32}
                     %1: f32[33] = bitcast_convert_type %0 {dtype=f32}"],
        apply: |cx, equation| {
            let (Op::BitcastConvertType(op), &[y]) = term(equation) else { return None };
            if cx.ty(y).dtype == op.dtype {
                return Some(y);
            }
            let (Op::BitcastConvertType(_), &[x]) = cx.definition(y)? else { return None };
            // Parts of halves that are NaN are not those of the dtype between.
            let size = op.dtype.size();
            if cx.ty(x).dtype.size() != size || cx.ty(y).dtype.size() != size {
                return None;
            }
            cx.emit(BitcastConvertType { dtype: op.dtype }, &[x])
        },
    },
];
