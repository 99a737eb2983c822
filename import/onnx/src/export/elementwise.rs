//! Elementwise ops.

use super::graph::{Exporter, Value, attribute_int, attribute_text};
use super::table::{Rule, rule};
use super::walk::{Call, refuse};
use wengert_core::{DType, Op, Result, Scalar, Tensor};

pub(super) const RULES: &[Rule] = &[
    rule("neg", "Neg", |e, c| arithmetic(e, c, "Neg")),
    rule("abs", "Abs", |e, c| arithmetic(e, c, "Abs")),
    rule("sign", "Sign", |e, c| arithmetic(e, c, "Sign")),
    rule("floor", "Floor", |e, c| simple(e, c, "Floor")),
    rule("ceil", "Ceil", |e, c| simple(e, c, "Ceil")),
    rule("round", "Round", |e, c| simple(e, c, "Round")),
    rule("square", "Mul", |e, c| {
        let x = c.values[0].clone();
        let twice = [x.clone(), x];
        arithmetic_of(e, c.dtype(), "Mul", &twice)
    }),
    rule("reciprocal", "Reciprocal", |e, c| simple(e, c, "Reciprocal")),
    rule("sqrt", "Sqrt", |e, c| simple(e, c, "Sqrt")),
    rule("rsqrt", "Sqrt, Reciprocal", |e, c| {
        let carrier = computed(c.dtype());
        let x = e.cast(&c.values[0], carrier);
        let root = e.elementwise("Sqrt", &[&x], carrier);
        let result = e.elementwise("Reciprocal", &[&root], carrier);
        Ok(vec![e.cast(&result, c.dtype())])
    }),
    rule("exp", "Exp", |e, c| simple(e, c, "Exp")),
    rule("exp2", "Pow", |e, c| {
        let carrier = computed(c.dtype());
        let (two, x) = (e.number(carrier, 2.0), e.cast(&c.values[0], carrier));
        let result = e.elementwise("Pow", &[&two, &x], carrier);
        Ok(vec![e.cast(&result, c.dtype())])
    }),
    rule("expm1", "Exp, Tanh and others", |e, c| {
        // 2·t / (1 − t) with t = tanh(x/2), which is accurate near 0.
        e.composed(c, |x| {
            let t = (&x[0] * 0.5).tanh();
            let near = &t * 2.0 / (1.0 - &t);
            vec![x[0].abs().lt(0.5).select(near, x[0].exp() - 1.0)]
        })
    }),
    rule("log", "Log", |e, c| simple(e, c, "Log")),
    rule("log1p", "Log and others", |e, c| {
        // ln(u)·x/(u − 1) with u = 1 + x rounded, which is accurate near 0 (Kahan).
        e.composed(c, |x| {
            let u = &x[0] + 1.0;
            let one = u.eq(1.0);
            let less = one.select(u.full_like(1.0), &u - 1.0);
            let near = one.select(&x[0], u.log() * (&x[0] / less));
            vec![x[0].abs().lt(0.5).select(near, u.log())]
        })
    }),
    rule("logistic", "Sigmoid", |e, c| simple(e, c, "Sigmoid")),
    rule("gelu_tanh", "Gelu", |e, c| {
        let x = e.cast(&c.values[0], computed(c.dtype()));
        let approximate = attribute_text("approximate", "tanh");
        let result = e.op("Gelu", &[&x], vec![approximate], x.ty.clone());
        Ok(vec![e.cast(&result, c.dtype())])
    }),
    rule("sin", "Sin", |e, c| simple(e, c, "Sin")),
    rule("cos", "Cos", |e, c| simple(e, c, "Cos")),
    rule("tan", "Tan", |e, c| simple(e, c, "Tan")),
    rule("tanh", "Tanh", |e, c| simple(e, c, "Tanh")),
    rule("sinh", "Sinh", |e, c| simple(e, c, "Sinh")),
    rule("cosh", "Cosh", |e, c| simple(e, c, "Cosh")),
    rule("asin", "Asin", |e, c| simple(e, c, "Asin")),
    rule("acos", "Acos", |e, c| simple(e, c, "Acos")),
    rule("atan", "Atan", |e, c| simple(e, c, "Atan")),
    rule("asinh", "Asinh", |e, c| simple(e, c, "Asinh")),
    rule("acosh", "Acosh", |e, c| simple(e, c, "Acosh")),
    rule("atanh", "Atanh", |e, c| simple(e, c, "Atanh")),
    rule("cbrt", "Pow, Sign", |e, c| {
        e.composed(c, |x| {
            let root = Tensor::apply(
                wengert_core::op::Binary::Pow,
                &[&x[0].abs(), &x[0].full_like(1.0 / 3.0)],
            );
            vec![x[0].sign() * root]
        })
    }),
    rule("log2", "Log, Mul", |e, c| e.composed(c, |x| vec![x[0].log() * std::f64::consts::LOG2_E])),
    rule("erf", "Erf", |e, c| simple(e, c, "Erf")),
    rule("erfc", "Erf, Sub: tiny results are rounded to 0", |e, c| {
        e.composed(c, |x| vec![1.0 - x[0].erf()])
    }),
    rule("not", "Not, BitwiseNot", |e, c| {
        let op = if c.dtype() == DType::Bool { "Not" } else { "BitwiseNot" };
        simple(e, c, op)
    }),
    rule("stop_gradient", "none", |_, c| Ok(c.values.clone())),
    rule("probe", "none", |_, c| Ok(c.values.clone())),
    rule("checkpoint_name", "none", |_, c| Ok(c.values.clone())),
    rule("optimization_barrier", "none", |_, c| Ok(c.values.clone())),
    rule("add", "Add", |e, c| arithmetic(e, c, "Add")),
    rule("sub", "Sub", |e, c| arithmetic(e, c, "Sub")),
    rule("mul", "Mul", |e, c| arithmetic(e, c, "Mul")),
    rule("div", "Div", |e, c| {
        if c.dtype().is_float() { simple(e, c, "Div") } else { Ok(vec![quotient(e, c)]) }
    }),
    rule("rem", "Mod; of integers Div, Mul, Sub", remainder),
    rule("mul_zero", "Mul, Where", |e, c| {
        e.composed(c, |x| vec![x[1].eq(0.0).select(x[1].zeros_like(), &x[0] * &x[1])])
    }),
    rule("max", "Max, Relu", |e, c| {
        for (one, other) in [(0, 1), (1, 0)] {
            let zero = e.splat(&c.values[one]).is_some_and(|s| s.to_f64() == 0.0);
            if zero && c.dtype().is_float() {
                let carrier = computed(c.dtype());
                let x = e.cast(&c.values[other], carrier);
                let result = e.elementwise("Relu", &[&x], carrier);
                return Ok(vec![e.cast(&result, c.dtype())]);
            }
        }
        extremum(e, c, "Max")
    }),
    rule("min", "Min", |e, c| extremum(e, c, "Min")),
    rule("pow", "Pow", |e, c| simple(e, c, "Pow")),
    rule("atan2", "Atan, Where and others", atan2),
    rule("and", "And, BitwiseAnd", |e, c| logical(e, c, "And", "BitwiseAnd")),
    rule("or", "Or, BitwiseOr", |e, c| logical(e, c, "Or", "BitwiseOr")),
    rule("xor", "Xor, BitwiseXor", |e, c| logical(e, c, "Xor", "BitwiseXor")),
    rule("shift_left", "BitShift, Where", |e, c| shift(e, c, "LEFT")),
    rule("shift_right_logical", "BitShift, Where", |e, c| shift(e, c, "RIGHT")),
    rule("shift_right_arithmetic", "BitShift, Where", |e, c| {
        // The complement of a negative number has zeros in front.
        let dtype = c.dtype();
        let signed = match dtype {
            DType::U8 => DType::I8,
            DType::U32 => DType::I32,
            DType::U64 => DType::I64,
            signed => signed,
        };
        e.composed(c, |x| {
            let (x, by) = (x[0].convert(signed), x[1].convert(signed));
            let negative = x.lt(0);
            let right = wengert_core::op::Binary::ShiftRightLogical;
            let shifted = Tensor::apply(right, &[&negative.select(x.not(), &x), &by]);
            vec![negative.select(shifted.not(), shifted).convert(dtype)]
        })
    }),
    rule("eq", "Equal", |e, c| compare(e, c, "Equal", false)),
    rule("ne", "Equal, Not", |e, c| compare(e, c, "Equal", true)),
    rule("lt", "Less", |e, c| compare(e, c, "Less", false)),
    rule("le", "LessOrEqual", |e, c| compare(e, c, "LessOrEqual", false)),
    rule("gt", "Greater", |e, c| compare(e, c, "Greater", false)),
    rule("ge", "GreaterOrEqual", |e, c| compare(e, c, "GreaterOrEqual", false)),
    rule("integer_pow", "Mul, Reciprocal", integer_pow),
    rule("select", "Where", |e, c| {
        let [condition, x, y] = [&c.values[0], &c.values[1], &c.values[2]];
        Ok(vec![choose(e, condition, x, y)])
    }),
    rule("select_n", "Where", |e, c| {
        e.composed(c, |x| {
            let (which, cases) = (&x[0], &x[1..]);
            let mut result = cases[0].clone();
            for (number, case) in cases.iter().enumerate().skip(1) {
                let reached = match which.dtype() {
                    DType::Bool => which.clone(),
                    _ => which.ge(number as i64),
                };
                result = reached.select(case, &result);
            }
            vec![result]
        })
    }),
    rule("clamp", "Max, Min, Clip", |e, c| {
        let dtype = c.dtype();
        // The order of u64 is not that of i64.
        let carrier = if dtype == DType::U64 { dtype } else { computed(dtype) };
        let [low, x, high] = [0, 1, 2].map(|n| e.cast(&c.values[n], carrier));
        // With crossed bounds runtimes differ.
        let known = [&low, &high].map(|bound| e.splat(bound).map(Scalar::to_f64));
        let ascend = matches!(known, [Some(low), Some(high)] if low <= high);
        let result = if ascend && low.ty.rank() == 0 && high.ty.rank() == 0 {
            e.op("Clip", &[&x, &low, &high], vec![], x.ty.clone())
        } else {
            let above = e.elementwise("Max", &[&x, &low], carrier);
            e.elementwise("Min", &[&above, &high], carrier)
        };
        Ok(vec![e.cast(&result, dtype)])
    }),
    rule("is_finite", "IsInf, IsNaN, Or, Not", |e, c| {
        let x = e.cast(&c.values[0], computed(c.dtype()));
        let infinite = e.elementwise("IsInf", &[&x], DType::Bool);
        let nan = e.elementwise("IsNaN", &[&x], DType::Bool);
        let either = e.elementwise("Or", &[&infinite, &nan], DType::Bool);
        Ok(vec![e.elementwise("Not", &[&either], DType::Bool)])
    }),
    rule("reduce_precision", "Cast: to the bits of another dtype only", |e, c| {
        let Op::ReducePrecision(op) = c.op else { unreachable!("the rule of reduce_precision") };
        let narrow = match (c.dtype(), op.exponent_bits, op.mantissa_bits) {
            (DType::F64, 11, 52)
            | (DType::F32, 8, 23)
            | (DType::BF16, 8, 7)
            | (DType::F16, 5, 10) => c.dtype(),
            (DType::F32, 8, 7) => DType::BF16,
            _ => {
                return refuse(
                    "ONNX rounds to the bits of its dtypes only",
                    "round to those of bf16 (8, 7), or leave it out",
                );
            }
        };
        let rounded = e.cast(&c.values[0], narrow);
        Ok(vec![e.cast(&rounded, c.dtype())])
    }),
    rule("convert_element_type", "Cast; from floats to integers Clip, IsNaN, Where, too", convert),
];

/// An op with the operands' dtype.
fn simple(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    // Halves of 16 bits of which 8 are an exponent have few kernels.
    let narrow = c.dtype() == DType::BF16;
    let carrier = |dtype: DType| if narrow { computed(dtype) } else { dtype };
    let operands: Vec<Value> =
        c.values.iter().map(|value| e.cast(value, carrier(value.ty.dtype))).collect();
    let operands: Vec<&Value> = operands.iter().collect();
    let result = e.elementwise(op, &operands, carrier(c.results[0].dtype));
    Ok(vec![e.cast(&result, c.results[0].dtype)])
}

/// A conversion. From floats to integers it saturates, and NaN becomes 0.
fn convert(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let (x, from, to) = (&c.values[0], c.dtype(), c.results[0].dtype);
    if !from.is_float() || !to.is_integer() {
        return Ok(vec![e.cast(x, to)]);
    }
    // All bounds but those of 64 bits are numbers of f64.
    let x = e.cast(x, DType::F64);
    let nan = e.elementwise("IsNaN", &[&x], DType::Bool);
    let zero = e.number(DType::F64, 0.0);
    let number = e.elementwise("Where", &[&nan, &zero, &x], DType::F64);
    let (least, most) = (Scalar::lowest(to).to_f64(), Scalar::highest(to).to_f64());
    let wide = to.bits() == 64;
    // The greatest number of f64 below 2^63 or 2^64.
    let last = if wide { most.next_down() } else { most };
    let bounds = [e.number(DType::F64, least), e.number(DType::F64, last)];
    let clipped = e.op("Clip", &[&number, &bounds[0], &bounds[1]], vec![], number.ty.clone());
    let result = e.cast(&clipped, to);
    if !wide {
        return Ok(vec![result]);
    }
    let end = e.number(DType::F64, most);
    let beyond = e.elementwise("GreaterOrEqual", &[&number, &end], DType::Bool);
    let highest = e.scalar(Scalar::highest(to));
    Ok(vec![choose(e, &beyond, &highest, &result)])
}

/// The dtype in which runtimes compute with this one. Integers wrap, so a wider one has the same
/// lower bits.
pub(super) fn computed(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::I8 => DType::I32,
        DType::U32 | DType::U64 => DType::I64,
        // It has few kernels, and every bf16 is an f32.
        DType::BF16 => DType::F32,
        other => other,
    }
}

fn arithmetic(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    // The sign of a large u64 is not that of an i64.
    if c.dtype().is_unsigned_integer() && matches!(op, "Abs" | "Sign") {
        return match op {
            "Abs" => Ok(c.values.clone()),
            _ => e.composed(c, |x| vec![x[0].ne(0).convert(x[0].dtype())]),
        };
    }
    arithmetic_of(e, c.dtype(), op, &c.values)
}

fn arithmetic_of(e: &mut Exporter, dtype: DType, op: &str, values: &[Value]) -> Result<Vec<Value>> {
    let carrier = computed(dtype);
    let operands: Vec<Value> = values.iter().map(|value| e.cast(value, carrier)).collect();
    let operands: Vec<&Value> = operands.iter().collect();
    let result = e.elementwise(op, &operands, carrier);
    Ok(vec![e.cast(&result, dtype)])
}

/// The greater or smaller operand. The order of u64 is not that of i64.
fn extremum(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    match c.dtype() {
        DType::U64 => simple(e, c, op),
        dtype => arithmetic_of(e, dtype, op, &c.values),
    }
}

/// A quotient of integers: x / 0 is −1, and the least integer / −1 wraps. Runtimes stop at both.
fn quotient(e: &mut Exporter, c: &Call<'_>) -> Value {
    let dtype = c.dtype();
    // i64 has all bits of a u64, but its quotients are others.
    let carrier = if dtype == DType::U64 { dtype } else { computed(dtype) };
    let carrier = if dtype == DType::I32 { DType::I64 } else { carrier };
    let [x, y] = [0, 1].map(|n| e.cast(&c.values[n], carrier));
    let known = e.splat(&c.values[1]).and_then(Scalar::to_i64);
    if known.is_some_and(|y| y != 0 && y != -1) {
        let result = e.elementwise("Div", &[&x, &y], carrier);
        return e.cast(&result, dtype);
    }
    let of = |e: &mut Exporter, value: i64| e.scalar(Scalar::from_i64(carrier, value));
    let zero = of(e, 0);
    let one = of(e, 1);
    let is_zero = e.elementwise("Equal", &[&y, &zero], DType::Bool);
    let mut safe = e.elementwise("Where", &[&is_zero, &one, &y], carrier);
    let mut negative = None;
    if dtype == DType::I64 {
        let minus = of(e, -1);
        let is_minus = e.elementwise("Equal", &[&y, &minus], DType::Bool);
        safe = e.elementwise("Where", &[&is_minus, &one, &safe], carrier);
        negative = Some(is_minus);
    }
    let mut result = e.elementwise("Div", &[&x, &safe], carrier);
    if let Some(negative) = negative {
        let negated = e.elementwise("Neg", &[&x], carrier);
        result = e.elementwise("Where", &[&negative, &negated, &result], carrier);
    }
    let ones = match dtype {
        DType::U64 => e.scalar(Scalar::highest(DType::U64)),
        _ => of(e, -1),
    };
    result = e.elementwise("Where", &[&is_zero, &ones, &result], carrier);
    e.cast(&result, dtype)
}

fn remainder(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    if c.dtype().is_float() {
        let dtype = computed(c.dtype());
        let [x, y] = [0, 1].map(|n| e.cast(&c.values[n], dtype));
        let shape = super::graph::broadcast(&[&x, &y]);
        let ty = wengert_core::TensorType::of(dtype, shape);
        let result = e.op("Mod", &[&x, &y], vec![attribute_int("fmod", 1)], ty);
        return Ok(vec![e.cast(&result, c.dtype())]);
    }
    // x − (x / y)·y, which is x where y is 0 if the quotient is multiplied by 0.
    e.composed(c, |x| vec![&x[0] - (&x[0] / &x[1]) * &x[1]])
}

fn logical(e: &mut Exporter, c: &Call<'_>, of_bools: &str, of_bits: &str) -> Result<Vec<Value>> {
    simple(e, c, if c.dtype() == DType::Bool { of_bools } else { of_bits })
}

/// A shift of unsigned integers, which is 0 where the number of bits is out of range.
fn shift(e: &mut Exporter, c: &Call<'_>, direction: &str) -> Result<Vec<Value>> {
    let dtype = c.dtype();
    let unsigned = match dtype {
        DType::I8 => DType::U8,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    };
    let [x, by] = [0, 1].map(|n| e.cast(&c.values[n], unsigned));
    // Bits are compared in i64; a large u64 is negative there.
    let (wide, zero) = (e.cast(&by, DType::I64), e.number(DType::I64, 0.0));
    let bits = e.number(DType::I64, f64::from(dtype.bits()));
    let below = e.elementwise("Less", &[&wide, &bits], DType::Bool);
    let least = e.elementwise("GreaterOrEqual", &[&wide, &zero], DType::Bool);
    let fits = e.elementwise("And", &[&below, &least], DType::Bool);
    let none = e.number(unsigned, 0.0);
    let safe = choose(e, &fits, &by, &none);
    let shape = super::graph::broadcast(&[&x, &safe]);
    let ty = wengert_core::TensorType::of(unsigned, shape);
    let shifted = e.op("BitShift", &[&x, &safe], vec![attribute_text("direction", direction)], ty);
    let result = choose(e, &fits, &shifted, &none);
    Ok(vec![e.cast(&result, dtype)])
}

fn compare(e: &mut Exporter, c: &Call<'_>, op: &str, negated: bool) -> Result<Vec<Value>> {
    let dtype = c.dtype();
    let carrier = match dtype {
        DType::Bool if op == "Equal" => DType::Bool,
        DType::Bool => DType::I32,
        DType::U64 if op != "Equal" => {
            // With the other sign bit, the order is that of i64.
            let flip = |e: &mut Exporter, value: &Value| {
                let bits = e.cast(value, DType::I64);
                let sign = e.scalar(Scalar::lowest(DType::I64));
                e.elementwise("BitwiseXor", &[&bits, &sign], DType::I64)
            };
            let [x, y] = [0, 1].map(|n| flip(e, &c.values[n]));
            return Ok(vec![e.elementwise(op, &[&x, &y], DType::Bool)]);
        }
        other => computed(other),
    };
    let [x, y] = [0, 1].map(|n| e.cast(&c.values[n], carrier));
    let result = e.elementwise(op, &[&x, &y], DType::Bool);
    Ok(vec![if negated { e.elementwise("Not", &[&result], DType::Bool) } else { result }])
}

/// `x` where the condition holds, else `y`.
pub(super) fn choose(e: &mut Exporter, condition: &Value, x: &Value, y: &Value) -> Value {
    let dtype = x.ty.dtype;
    if dtype == DType::Bool {
        let not = e.elementwise("Not", &[condition], DType::Bool);
        let first = e.elementwise("And", &[condition, x], DType::Bool);
        let second = e.elementwise("And", &[&not, y], DType::Bool);
        return e.elementwise("Or", &[&first, &second], DType::Bool);
    }
    let carrier = computed(dtype);
    let (x, y) = (e.cast(x, carrier), e.cast(y, carrier));
    let result = e.elementwise("Where", &[condition, &x, &y], carrier);
    e.cast(&result, dtype)
}

fn integer_pow(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::IntegerPow(op) = c.op else { unreachable!("the rule of integer_pow") };
    let (exponent, dtype) = (op.exponent, c.dtype());
    e.composed(c, |x| {
        // As the op itself: halves in f32, the lowest power first.
        let x = x[0].convert(dtype.wide());
        let mut product: Option<Tensor> = None;
        let (mut square, mut rest) = (x.clone(), exponent.unsigned_abs());
        while rest > 0 {
            if rest & 1 == 1 {
                product = Some(product.map_or_else(|| square.clone(), |p| p * &square));
            }
            rest >>= 1;
            if rest > 0 {
                square = &square * &square;
            }
        }
        let power = product.unwrap_or_else(|| x.full_like(1.0));
        let power = if exponent < 0 { power.reciprocal() } else { power };
        vec![power.convert(dtype)]
    })
}

/// The angle of (y, x), from that of y/x and the half plane.
fn atan2(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    e.composed(c, |v| {
        let (y, x) = (&v[0], &v[1]);
        let pi = std::f64::consts::PI;
        let zero = x.eq(0.0);
        let quotient = y / zero.select(x.full_like(1.0), x);
        let angle = quotient.atan();
        let half = y.lt(0.0).select(x.full_like(-pi), x.full_like(pi));
        let upright = y.eq(0.0).select(y, &half * 0.5);
        let turned = x.lt(0.0).select(&angle + &half, &angle);
        vec![zero.select(upright, turned)]
    })
}
