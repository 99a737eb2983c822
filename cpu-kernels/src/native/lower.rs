//! Lowering from scalar instructions to vector code.
//!
//! Every rule has exactly the bits of [`wengert_core::nest::evaluate`]. Where the machine's
//! instruction has others (minima of zeros and NaNs, conversions out of range), additional
//! instructions correct them. Approximated functions are expanded to their programs
//! ([`wengert_core::math::program`]). Instructions without a rule here (integer division,
//! remainders, bit counts) stay with the interpreter.

use super::encode::{Code, Width};
use super::instruction::*;
use std::collections::BTreeMap;
use wengert_core::math;
use wengert_core::nest::{Instr, ScalarOp};
use wengert_core::{DType, Id, Scalar};

/// Sixteen lanes of a register of a nest. Integers of 8 bits are sign- or zero-extended to lanes
/// of 32 bits, bf16 are zero-extended, and f16 are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lanes {
    One(Value),
    Two([Value; 2]),
    Mask(Value),
}

/// Vector code under construction.
#[derive(Clone, Default, Debug)]
pub(super) struct Builder {
    pub instructions: Vec<Instruction>,
    pub classes: Vec<Class>,
    /// By value.
    pub invariants: BTreeMap<Value, Invariant>,
}

/// Whether the lanes of a dtype take 64 bits each.
pub(super) fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::I64 | DType::U64)
}

fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8)
}

/// Predicates of float comparisons (ordered, except not-equal) and of integer comparisons.
const fn predicate(op: ScalarOp) -> u8 {
    match op {
        ScalarOp::Eq => 0,
        ScalarOp::Lt => 1,
        ScalarOp::Le => 2,
        _ => 4,
    }
}
const UNORDERED: u8 = 3;
const NOT_BELOW: u8 = 5;

impl Builder {
    /// A new value, to be defined by an instruction.
    pub fn value(&mut self, class: Class) -> Value {
        self.classes.push(class);
        (self.classes.len() - 1) as Value
    }

    /// The value of an invariant; equal invariants share one.
    pub fn invariant(&mut self, invariant: Invariant) -> Value {
        if let Some((value, _)) = self.invariants.iter().find(|(_, known)| **known == invariant) {
            return *value;
        }
        let class = if invariant.lane == Lane::Mask { Class::Mask } else { Class::Vector };
        let value = self.value(class);
        self.invariants.insert(value, invariant);
        value
    }

    /// An invariant of a dtype.
    pub fn uniform(&mut self, source: Source, dtype: DType) -> Lanes {
        let lane = match dtype {
            DType::Bool => Lane::Mask,
            DType::F16 => Lane::Half,
            _ if is_wide(dtype) => Lane::Wide,
            _ => Lane::Narrow { bytes: dtype.size(), signed: dtype == DType::I8 },
        };
        let source = match (source, dtype) {
            (Source::Constant(bits), DType::I8) => Source::Constant(u64::from(bits as i8 as u32)),
            _ => source,
        };
        // A constant is already extended, so its dtype does not matter.
        let lane = match (source, lane) {
            (Source::Constant(_), Lane::Narrow { .. }) => Lane::Narrow { bytes: 4, signed: false },
            _ => lane,
        };
        let value = self.invariant(Invariant { source, lane });
        match dtype {
            DType::Bool => Lanes::Mask(value),
            _ if is_wide(dtype) => Lanes::Two([value; 2]),
            _ => Lanes::One(value),
        }
    }

    /// A constant.
    pub fn constant(&mut self, value: Scalar) -> Lanes {
        self.uniform(Source::Constant(value.bits()), value.dtype())
    }

    fn number(&mut self, bits: u64, wide: bool) -> Value {
        let lane = if wide { Lane::Wide } else { Lane::Narrow { bytes: 4, signed: false } };
        self.invariant(Invariant { source: Source::Constant(bits), lane })
    }

    fn push(&mut self, form: Form, code: Code, class: Class, sources: &[Value]) -> Value {
        let result = self.value(class);
        self.instructions.push(Instruction::new(form, code, result, sources));
        result
    }

    fn last(&mut self) -> &mut Instruction {
        self.instructions.last_mut().expect("an instruction was just pushed")
    }

    fn unary(&mut self, code: Code, x: Value) -> Value {
        self.push(Form::Unary, code, Class::Vector, &[x])
    }

    fn binary(&mut self, code: Code, x: Value, y: Value) -> Value {
        self.push(Form::Binary { commutes: false }, code, Class::Vector, &[x, y])
    }

    fn commuting(&mut self, code: Code, x: Value, y: Value) -> Value {
        self.push(Form::Binary { commutes: true }, code, Class::Vector, &[x, y])
    }

    fn with_immediate(&mut self, code: Code, sources: &[Value], immediate: u8) -> Value {
        let form = if sources.len() == 1 { Form::Unary } else { Form::Binary { commutes: false } };
        let value = self.push(form, code, Class::Vector, sources);
        self.last().immediate = Some(immediate);
        value
    }

    fn compare(&mut self, code: Code, x: Value, y: Value, predicate: Option<u8>) -> Value {
        let commutes = matches!(predicate, None | Some(0 | 4 | UNORDERED));
        let value = self.push(Form::Compare { commutes }, code, Class::Mask, &[x, y]);
        self.last().immediate = predicate;
        value
    }

    fn masks(&mut self, code: Code, x: Value, y: Value) -> Value {
        self.push(Form::Masks { long: true }, code, Class::Mask, &[x, y])
    }

    fn not(&mut self, x: Value) -> Value {
        self.push(Form::MaskUnary { long: false }, MASK_NOT, Class::Mask, &[x])
    }

    /// `mask ? yes : no`
    fn blend(&mut self, mask: Value, yes: Value, no: Value, wide: bool) -> Value {
        let value = self.binary(second(0x64, wide), no, yes);
        let last = self.last();
        (last.mask, last.blends) = (Some(mask), true);
        value
    }

    /// `mask ? result of the last instruction : 0`
    fn zeroed(&mut self, mask: Value) {
        self.last().mask = Some(mask);
    }

    /// The masks of the two halves of wide lanes.
    fn halves(&mut self, mask: Value) -> [Value; 2] {
        let upper =
            self.push(Form::MaskUnary { long: false }, MASK_SHIFT_RIGHT, Class::Mask, &[mask]);
        self.last().immediate = Some(8);
        [mask, upper]
    }

    fn joined(&mut self, [lower, upper]: [Value; 2]) -> Lanes {
        Lanes::Mask(self.masks(MASK_JOIN, upper, lower))
    }

    /// Loads the elements of a stream.
    pub fn load(&mut self, pointer: usize, dtype: DType) -> Lanes {
        let size = dtype.size();
        let stream = Stream { pointer, size, offset: 0, bytes: 16 * size, upper: false };
        let mut load = |code: Code, width: Width, stream: Stream| {
            let value = self.push(Form::Load(stream), code, Class::Vector, &[]);
            self.last().width = width;
            value
        };
        match dtype {
            DType::F64 | DType::I64 | DType::U64 => {
                let half = Stream { bytes: 64, ..stream };
                let lower = load(MOVE_WIDE, Width::Zmm, half);
                Lanes::Two([
                    lower,
                    load(MOVE_WIDE, Width::Zmm, Stream { offset: 64, upper: true, ..half }),
                ])
            }
            DType::F32 | DType::I32 | DType::U32 => Lanes::One(load(MOVE, Width::Zmm, stream)),
            DType::BF16 => Lanes::One(load(ZERO_EXTEND_HALVES, Width::Zmm, stream)),
            DType::F16 => Lanes::One(load(MOVE_HALVES, Width::Ymm, stream)),
            // 8-bit floats are their bits.
            DType::U8 | DType::F8E4M3FN | DType::F8E5M2 => {
                Lanes::One(load(ZERO_EXTEND_BYTES, Width::Zmm, stream))
            }
            DType::I8 => Lanes::One(load(SIGN_EXTEND_BYTES, Width::Zmm, stream)),
            DType::Bool => {
                let bytes = load(MOVE_BYTES, Width::Xmm, stream);
                let mask = self.compare(TEST_BYTES, bytes, bytes, None);
                self.last().width = Width::Xmm;
                Lanes::Mask(mask)
            }
        }
    }

    /// Stores the elements of a stream.
    pub fn store(&mut self, pointer: usize, dtype: DType, lanes: Lanes) {
        let size = dtype.size();
        let stream = Stream { pointer, size, offset: 0, bytes: 16 * size, upper: false };
        let mut store = |code: Code, width: Width, stream: Stream, value: Value| {
            self.push(Form::Store(stream), code, Class::Vector, &[value]);
            let last = self.last();
            (last.width, last.result) = (width, None);
        };
        match (lanes, dtype) {
            (Lanes::Two([lower, upper]), _) => {
                let half = Stream { bytes: 64, ..stream };
                store(MOVE_OUT_WIDE, Width::Zmm, half, lower);
                store(MOVE_OUT_WIDE, Width::Zmm, Stream { offset: 64, upper: true, ..half }, upper);
            }
            (Lanes::One(value), DType::BF16) => store(TRUNCATE_HALVES, Width::Zmm, stream, value),
            (Lanes::One(value), DType::F16) => store(MOVE_HALVES_OUT, Width::Ymm, stream, value),
            (Lanes::One(value), DType::U8 | DType::I8) => {
                store(TRUNCATE_BYTES, Width::Zmm, stream, value)
            }
            (Lanes::One(value), _) => store(MOVE_OUT, Width::Zmm, stream, value),
            (Lanes::Mask(mask), _) => {
                let bytes = self.push(Form::FromMask, BYTES_OF_MASK, Class::Vector, &[mask]);
                self.last().width = Width::Xmm;
                // |−1| is 1.
                let ones = self.unary(ABS_BYTES, bytes);
                self.last().width = Width::Xmm;
                self.push(Form::Store(stream), MOVE_BYTES_OUT, Class::Vector, &[ones]);
                let last = self.last();
                (last.width, last.result) = (Width::Xmm, None);
            }
        }
    }

    /// A scalar instruction; `None` if it has no rule.
    pub fn scalar(
        &mut self,
        op: ScalarOp,
        x: &[Lanes],
        dtypes: &[DType],
        result: DType,
    ) -> Option<Lanes> {
        let dtype = *dtypes.last()?;
        // An approximate instruction is computed as the exact one.
        let op = op.exact();
        match op {
            ScalarOp::Convert => return self.convert(x[0], dtype, result),
            ScalarOp::Bitcast => return self.bitcast(x[0], dtype, result),
            ScalarOp::Select => return Some(self.select(x, dtype)),
            _ => {}
        }
        if let Some(program) = math::program(op, dtype) {
            return self.program(program, x);
        }
        match (x[0], x.get(1), x.get(2)) {
            (Lanes::Mask(a), b, _) => {
                let b = match b {
                    Some(Lanes::Mask(b)) => *b,
                    _ => a,
                };
                self.logical(op, a, b).map(Lanes::Mask)
            }
            (Lanes::One(a), b, c) => {
                let part = |lanes: Option<&Lanes>| match lanes {
                    Some(Lanes::One(v)) => *v,
                    _ => a,
                };
                let value = self.part(op, [a, part(b), part(c)], dtype)?;
                Some(if op.is_comparison() { Lanes::Mask(value) } else { Lanes::One(value) })
            }
            (Lanes::Two(a), b, c) => {
                let parts = |lanes: Option<&Lanes>| match lanes {
                    Some(Lanes::Two(v)) => *v,
                    _ => a,
                };
                let (b, c) = (parts(b), parts(c));
                let lower = self.part(op, [a[0], b[0], c[0]], dtype)?;
                let upper = self.part(op, [a[1], b[1], c[1]], dtype)?;
                let both = [lower, upper];
                Some(if op.is_comparison() { self.joined(both) } else { Lanes::Two(both) })
            }
        }
    }

    /// 0 where the first operand is 0, else the product of the others; of f32.
    pub fn product(&mut self, x: [Lanes; 3]) -> Option<Lanes> {
        let [Lanes::One(test), Lanes::One(a), Lanes::One(b)] = x else { return None };
        let zero = self.number(0, false);
        let mask = self.compare(float(0xc2, false), test, zero, Some(predicate(ScalarOp::Ne)));
        let product = self.commuting(float(0x59, false), a, b);
        self.zeroed(mask);
        Some(Lanes::One(product))
    }

    fn program(&mut self, program: &math::MathProgram, x: &[Lanes]) -> Option<Lanes> {
        let mut values: Vec<Option<Lanes>> = vec![None; program.registers.len()];
        for (slot, lanes) in values.iter_mut().zip(x) {
            *slot = Some(*lanes);
        }
        for instr in &program.body {
            match instr {
                Instr::Scalar { result, op, operands } => {
                    let lanes: Vec<Lanes> =
                        operands.iter().map(|r| values[r.index()]).collect::<Option<_>>()?;
                    let dtypes: Vec<DType> =
                        operands.iter().map(|r| program.registers[*r]).collect();
                    values[result.index()] =
                        Some(self.scalar(*op, &lanes, &dtypes, program.registers[*result])?);
                }
                Instr::Const { result, value } => {
                    values[result.index()] = Some(self.constant(*value))
                }
                _ => unreachable!("the recorder makes no other instructions"),
            }
        }
        values[program.result.index()]
    }

    fn logical(&mut self, op: ScalarOp, a: Value, b: Value) -> Option<Value> {
        Some(match op {
            ScalarOp::Not => self.not(a),
            ScalarOp::And => self.masks(MASK_AND, a, b),
            ScalarOp::Or => self.masks(MASK_OR, a, b),
            ScalarOp::Xor | ScalarOp::Ne => self.masks(MASK_XOR, a, b),
            ScalarOp::Eq => self.masks(MASK_XNOR, a, b),
            ScalarOp::Lt => self.masks(MASK_AND_NOT, a, b),
            ScalarOp::Le => {
                let greater = self.masks(MASK_AND_NOT, b, a);
                self.not(greater)
            }
            _ => return None,
        })
    }

    fn select(&mut self, x: &[Lanes], dtype: DType) -> Lanes {
        let Lanes::Mask(mask) = x[0] else { unreachable!("the verifier wants a bool") };
        match (x[1], x[2]) {
            (Lanes::Mask(yes), Lanes::Mask(no)) => {
                let yes = self.masks(MASK_AND, mask, yes);
                let no = self.masks(MASK_AND_NOT, mask, no);
                Lanes::Mask(self.masks(MASK_OR, yes, no))
            }
            (Lanes::Two(yes), Lanes::Two(no)) => {
                let [lower, upper] = self.halves(mask);
                let lower = self.blend(lower, yes[0], no[0], true);
                Lanes::Two([lower, self.blend(upper, yes[1], no[1], true)])
            }
            (Lanes::One(yes), Lanes::One(no)) if dtype == DType::F16 => {
                let value = self.blend(mask, yes, no, false);
                let last = self.last();
                (last.code, last.width) = (second(0x66, true), Width::Ymm);
                Lanes::One(value)
            }
            (Lanes::One(yes), Lanes::One(no)) => Lanes::One(self.blend(mask, yes, no, false)),
            _ => unreachable!("the verifier wants one dtype"),
        }
    }

    fn bitcast(&mut self, x: Lanes, from: DType, to: DType) -> Option<Lanes> {
        match (from, to) {
            _ if from == to => Some(x),
            (DType::F16, _) | (_, DType::F16) => None,
            (DType::U8 | DType::I8, _) => {
                let Lanes::One(value) = x else { return None };
                Some(Lanes::One(self.normal(value, to)))
            }
            _ => Some(x),
        }
    }

    /// Extends integers of 8 bits in lanes of 32 whose upper bits are arbitrary.
    fn normal(&mut self, x: Value, dtype: DType) -> Value {
        let bits = self.number(24, false);
        match dtype {
            DType::I8 => {
                let upper = self.binary(second(0x47, false), x, bits);
                self.binary(second(0x46, false), upper, bits)
            }
            DType::U8 => {
                let low = self.number(0xff, false);
                self.commuting(integer(0xdb, false), x, low)
            }
            _ => x,
        }
    }

    /// An instruction on a vector of elements.
    fn part(&mut self, op: ScalarOp, [x, y, z]: [Value; 3], dtype: DType) -> Option<Value> {
        let wide = is_wide(dtype);
        if dtype.is_float() {
            return (!dtype.is_half()).then(|| self.float_part(op, [x, y, z], wide)).flatten();
        }
        let value = match op {
            ScalarOp::Neg => {
                let zero = self.number(0, wide);
                self.binary(integer(if wide { 0xfb } else { 0xfa }, wide), zero, x)
            }
            ScalarOp::Abs if dtype.is_signed_integer() => {
                self.unary(second(if wide { 0x1f } else { 0x1e }, wide), x)
            }
            ScalarOp::Abs => return Some(x),
            ScalarOp::Not => {
                let ones = self.number(if wide { u64::MAX } else { u64::from(u32::MAX) }, wide);
                self.commuting(integer(0xef, wide), x, ones)
            }
            ScalarOp::Add => self.commuting(integer(if wide { 0xd4 } else { 0xfe }, wide), x, y),
            ScalarOp::Sub => self.binary(integer(if wide { 0xfb } else { 0xfa }, wide), x, y),
            ScalarOp::Mul => self.commuting(second(0x40, wide), x, y),
            ScalarOp::And => self.commuting(integer(0xdb, wide), x, y),
            ScalarOp::Or => self.commuting(integer(0xeb, wide), x, y),
            ScalarOp::Xor => self.commuting(integer(0xef, wide), x, y),
            ScalarOp::Min => self.commuting(
                second(if dtype.is_signed_integer() { 0x39 } else { 0x3b }, wide),
                x,
                y,
            ),
            ScalarOp::Max => self.commuting(
                second(if dtype.is_signed_integer() { 0x3d } else { 0x3f }, wide),
                x,
                y,
            ),
            // Distances beyond the width, negative ones included, shift everything out, as
            // required.
            ScalarOp::ShiftLeft if !is_byte(dtype) => self.binary(second(0x47, wide), x, y),
            ScalarOp::ShiftRightLogical if !is_byte(dtype) => self.binary(second(0x45, wide), x, y),
            ScalarOp::ShiftRightArithmetic if !is_byte(dtype) => {
                self.binary(second(0x46, wide), x, y)
            }
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => {
                let code = third(if dtype.is_signed_integer() { 0x1f } else { 0x1e }, wide);
                return Some(self.compare(code, x, y, Some(predicate(op))));
            }
            ScalarOp::MulHigh if dtype == DType::U32 => return Some(self.high_product(x, y)),
            _ => return None,
        };
        Some(if is_byte(dtype) { self.normal(value, dtype) } else { value })
    }

    /// Upper halves of the products of u32.
    fn high_product(&mut self, x: Value, y: Value) -> Value {
        let bits = self.number(32, true);
        let multiply = integer(0xf4, true);
        let even = self.commuting(multiply, x, y);
        let even = self.binary(second(0x45, true), even, bits);
        let x = self.binary(second(0x45, true), x, bits);
        let y = self.binary(second(0x45, true), y, bits);
        let odd = self.commuting(multiply, x, y);
        let upper = self.number(0xffff_ffff_0000_0000, true);
        let odd = self.commuting(integer(0xdb, true), odd, upper);
        self.commuting(integer(0xeb, true), even, odd)
    }

    fn float_part(&mut self, op: ScalarOp, [x, y, z]: [Value; 3], wide: bool) -> Option<Value> {
        let sign = if wide { 1 << 63 } else { 1 << 31 };
        let round = |b: &mut Self, mode: u8| {
            b.with_immediate(third(if wide { 0x09 } else { 0x08 }, wide), &[x], 8 | mode)
        };
        Some(match op {
            ScalarOp::Neg => {
                let sign = self.number(sign, wide);
                self.commuting(integer(0xef, wide), x, sign)
            }
            ScalarOp::Abs => {
                let magnitude = self.number(sign - 1, wide);
                self.commuting(integer(0xdb, wide), x, magnitude)
            }
            ScalarOp::RoundEven => round(self, 0),
            ScalarOp::Floor => round(self, 1),
            ScalarOp::Ceil => round(self, 2),
            ScalarOp::Trunc => round(self, 3),
            ScalarOp::Sqrt => self.unary(float(0x51, wide), x),
            ScalarOp::Add => self.commuting(float(0x58, wide), x, y),
            ScalarOp::Sub => self.binary(float(0x5c, wide), x, y),
            ScalarOp::Mul => self.commuting(float(0x59, wide), x, y),
            ScalarOp::Div => self.binary(float(0x5e, wide), x, y),
            ScalarOp::Min => self.extremum(x, y, 4, wide),
            ScalarOp::Max => self.extremum(x, y, 5, wide),
            ScalarOp::Fma => self.push(Form::Fma, second(0, wide), Class::Vector, &[x, y, z]),
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => {
                self.compare(float(0xc2, wide), x, y, Some(predicate(op)))
            }
            _ => return None,
        })
    }

    /// `range` orders −0 below +0, but of a NaN and a number it gives the number; the sum gives
    /// the NaN.
    fn extremum(&mut self, x: Value, y: Value, which: u8, wide: bool) -> Value {
        let extremum = self.with_immediate(third(0x50, wide), &[x, y], which);
        let lost = self.compare(float(0xc2, wide), x, y, Some(UNORDERED));
        let sum = self.commuting(float(0x58, wide), x, y);
        self.blend(lost, sum, extremum, wide)
    }

    fn convert(&mut self, x: Lanes, from: DType, to: DType) -> Option<Lanes> {
        if from == to {
            return Some(x);
        }
        match (x, from) {
            (Lanes::Mask(mask), _) => Some(self.convert_bool(mask, to)),
            (Lanes::Two(x), _) => self.convert_wide(x, from, to),
            (Lanes::One(x), DType::F16 | DType::BF16) => {
                let wide = if from == DType::F16 {
                    self.unary(F16_TO_F32, x)
                } else {
                    let bits = self.number(16, false);
                    self.binary(second(0x47, false), x, bits)
                };
                self.convert(Lanes::One(wide), DType::F32, to)
            }
            (Lanes::One(x), DType::F32) => self.convert_single(x, to),
            (Lanes::One(x), _) => self.convert_integer(x, from, to),
        }
    }

    fn convert_bool(&mut self, mask: Value, to: DType) -> Lanes {
        let one = Scalar::from_i64(to, 1);
        match self.constant(one) {
            Lanes::Two([one, _]) => {
                let [lower, upper] = self.halves(mask);
                let zero = self.number(0, true);
                let lower = self.blend(lower, one, zero, true);
                Lanes::Two([lower, self.blend(upper, one, zero, true)])
            }
            Lanes::One(one) => {
                let zero = self.constant(Scalar::from_i64(to, 0));
                self.select(&[Lanes::Mask(mask), Lanes::One(one), zero], to)
            }
            Lanes::Mask(_) => Lanes::Mask(mask),
        }
    }

    fn convert_single(&mut self, x: Value, to: DType) -> Option<Lanes> {
        Some(Lanes::One(match to {
            DType::Bool => {
                let zero = self.number(0, false);
                let code = float(0xc2, false);
                return Some(Lanes::Mask(self.compare(
                    code,
                    x,
                    zero,
                    Some(predicate(ScalarOp::Ne)),
                )));
            }
            DType::F64 => return Some(Lanes::Two(self.widened(x, F32_TO_F64))),
            DType::I64 | DType::U64 => {
                let wide = self.widened(x, F32_TO_F64);
                return self.convert_wide(wide, DType::F64, to);
            }
            DType::I32 => self.float_to_signed(x, false),
            DType::U32 => {
                let zero = self.number(0, false);
                // Of a NaN and 0, the maximum is the second operand.
                let positive = self.binary(float(0x5f, false), x, zero);
                self.unary(F32_TO_U32, positive)
            }
            DType::U8 | DType::I8 => {
                let whole = self.float_to_signed(x, false);
                let (low, high) = if to == DType::U8 { (0, 255) } else { (-128, 127) };
                let (low, high) =
                    (self.number(u64::from(low as u32), false), self.number(high, false));
                let whole = self.commuting(second(0x3d, false), whole, low);
                self.commuting(second(0x39, false), whole, high)
            }
            DType::F16 => {
                let value = self.push(Form::Reversed, F32_TO_F16, Class::Vector, &[x]);
                self.last().immediate = Some(0);
                value
            }
            DType::BF16 => self.bf16(x),
            DType::F32 => x,
            DType::F8E4M3FN | DType::F8E5M2 => return None,
        }))
    }

    /// Rounds to nearest, ties to even: adds half a unit below the kept bits, or slightly less if
    /// they are even.
    fn bf16(&mut self, x: Value) -> Value {
        let (bits, one) = (self.number(16, false), self.number(1, false));
        let (half, nan) = (self.number(0x7fff, false), self.number(0x7fc0, false));
        let odd = self.binary(second(0x45, false), x, bits);
        let odd = self.commuting(integer(0xdb, false), odd, one);
        let sum = self.commuting(integer(0xfe, false), x, half);
        let sum = self.commuting(integer(0xfe, false), sum, odd);
        let rounded = self.binary(second(0x45, false), sum, bits);
        let is_nan = self.compare(float(0xc2, false), x, x, Some(UNORDERED));
        self.blend(is_nan, nan, rounded, false)
    }

    /// Truncated and saturated, 0 for NaN. The machine gives the least integer for every value
    /// out of range.
    fn float_to_signed(&mut self, x: Value, wide: bool) -> Value {
        let (limit, most) = if wide {
            (9_223_372_036_854_775_808.0_f64.to_bits(), i64::MAX as u64)
        } else {
            (u64::from(2_147_483_648.0_f32.to_bits()), i32::MAX as u64)
        };
        let (limit, most) = (self.number(limit, wide), self.number(most, wide));
        let compare = float(0xc2, wide);
        let number = self.compare(compare, x, x, Some(UNORDERED + 4));
        let whole = self.unary(if wide { F64_TO_I64 } else { F32_TO_I32 }, x);
        self.zeroed(number);
        let below = self.compare(compare, x, limit, Some(NOT_BELOW));
        // A NaN is not below the limit either.
        let above = self.masks(MASK_AND, below, number);
        self.blend(above, most, whole, wide)
    }

    /// Widens sixteen lanes of 32 bits to 64 bits.
    fn widened(&mut self, x: Value, code: Code) -> [Value; 2] {
        let lower = self.unary(code, x);
        let upper = self.push(Form::Reversed, UPPER_HALF, Class::Vector, &[x]);
        self.last().immediate = Some(1);
        [lower, self.unary(code, upper)]
    }

    /// Narrows sixteen lanes of 64 bits to 32 bits.
    fn narrowed(&mut self, x: [Value; 2], code: Code, form: Form) -> Value {
        let [lower, upper] = x.map(|x| self.push(form, code, Class::Vector, &[x]));
        self.with_immediate(WITH_UPPER_HALF, &[lower, upper], 1)
    }

    fn convert_integer(&mut self, x: Value, from: DType, to: DType) -> Option<Lanes> {
        let signed = from.is_signed_integer();
        Some(Lanes::One(match to {
            DType::Bool => return Some(Lanes::Mask(self.compare(second(0x27, false), x, x, None))),
            DType::F32 => self.unary(if signed { I32_TO_F32 } else { U32_TO_F32 }, x),
            DType::F64 => {
                return Some(Lanes::Two(
                    self.widened(x, if signed { I32_TO_F64 } else { U32_TO_F64 }),
                ));
            }
            DType::I64 | DType::U64 => {
                return Some(Lanes::Two(
                    self.widened(x, if signed { SIGN_EXTEND } else { ZERO_EXTEND }),
                ));
            }
            DType::I32 | DType::U32 => x,
            DType::U8 | DType::I8 => self.normal(x, to),
            // A float of 32 bits holds these exactly; larger ones would round twice.
            DType::F16 | DType::BF16 if is_byte(from) => {
                let float = self.unary(I32_TO_F32, x);
                return self.convert_single(float, to);
            }
            DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => return None,
        }))
    }

    fn convert_wide(&mut self, x: [Value; 2], from: DType, to: DType) -> Option<Lanes> {
        if from == DType::F64 {
            return self.convert_double(x, to);
        }
        let signed = from.is_signed_integer();
        Some(Lanes::One(match to {
            DType::Bool => {
                let masks = x.map(|x| self.compare(second(0x27, true), x, x, None));
                return Some(self.joined(masks));
            }
            DType::F64 => {
                return Some(Lanes::Two(
                    x.map(|x| self.unary(if signed { I64_TO_F64 } else { U64_TO_F64 }, x)),
                ));
            }
            DType::F32 => {
                self.narrowed(x, if signed { I64_TO_F32 } else { U64_TO_F32 }, Form::Unary)
            }
            DType::I64 | DType::U64 => return Some(Lanes::Two(x)),
            DType::I32 | DType::U32 => self.narrowed(x, TRUNCATE, Form::Reversed),
            DType::U8 | DType::I8 => {
                let low = self.narrowed(x, TRUNCATE, Form::Reversed);
                self.normal(low, to)
            }
            DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => return None,
        }))
    }

    fn convert_double(&mut self, x: [Value; 2], to: DType) -> Option<Lanes> {
        Some(match to {
            DType::Bool => {
                let zero = self.number(0, true);
                let code = float(0xc2, true);
                let masks = x.map(|x| self.compare(code, x, zero, Some(predicate(ScalarOp::Ne))));
                self.joined(masks)
            }
            DType::F32 => Lanes::One(self.narrowed(x, F64_TO_F32, Form::Unary)),
            DType::I64 => Lanes::Two(x.map(|x| self.float_to_signed(x, true))),
            DType::U64 | DType::U32 => {
                let zero = self.number(0, true);
                let most = self.number(u64::from(u32::MAX), true);
                let mut whole = x.map(|x| {
                    let positive = self.binary(float(0x5f, true), x, zero);
                    self.unary(F64_TO_U64, positive)
                });
                if to == DType::U64 {
                    return Some(Lanes::Two(whole));
                }
                whole = whole.map(|x| self.commuting(second(0x3b, true), x, most));
                Lanes::One(self.narrowed(whole, TRUNCATE, Form::Reversed))
            }
            DType::I32 | DType::U8 | DType::I8 => {
                let (low, high) = match to {
                    DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    DType::U8 => (0, 255),
                    _ => (-128, 127),
                };
                let (low, high) = (self.number(low as u64, true), self.number(high as u64, true));
                let whole = x.map(|x| {
                    let whole = self.float_to_signed(x, true);
                    let whole = self.commuting(second(0x3d, true), whole, low);
                    self.commuting(second(0x39, true), whole, high)
                });
                Lanes::One(self.narrowed(whole, TRUNCATE, Form::Reversed))
            }
            _ => return None,
        })
    }
}
