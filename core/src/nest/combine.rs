//! Named combiners.
//!
//! Each is an ordinary [`Combine`] program. The text format prints the name in place of a program
//! that equals the one made here for the same dtypes. All other programs are printed in full.

use super::{Combine, Instr, Reg, ScalarOp};
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::scalar::Scalar;

/// Makes the program for a tuple of these dtypes; `None` if the combiner does not take them.
type Make = fn(&[DType]) -> Option<Combine>;

const NAMED: &[(&str, Make)] = &[
    ("sum", |d| one(d, is_number).map(Combine::sum)),
    ("prod", |d| one(d, is_number).map(Combine::prod)),
    ("max", |d| one(d, is_number).map(Combine::max)),
    ("min", |d| one(d, is_number).map(Combine::min)),
    ("and", |d| one(d, is_bits).map(Combine::and)),
    ("or", |d| one(d, is_bits).map(Combine::or)),
    ("argmax", |d| indexed(d).map(|(value, index)| Combine::argmax(value, index))),
    ("argmin", |d| indexed(d).map(|(value, index)| Combine::argmin(value, index))),
    ("welford", |d| match d {
        [a, b, c] if a == b && b == c && is_real(*a) => Some(Combine::welford(*a)),
        _ => None,
    }),
];

fn is_number(d: DType) -> bool {
    ScalarOp::Add.class().contains(d)
}

fn is_bits(d: DType) -> bool {
    ScalarOp::And.class().contains(d)
}

fn is_real(d: DType) -> bool {
    ScalarOp::Sqrt.class().contains(d)
}

fn one(dtypes: &[DType], class: fn(DType) -> bool) -> Option<DType> {
    match dtypes {
        [d] if class(*d) => Some(*d),
        _ => None,
    }
}

fn indexed(dtypes: &[DType]) -> Option<(DType, DType)> {
    match dtypes {
        [value, index] if is_number(*value) && index.is_integer() => Some((*value, *index)),
        _ => None,
    }
}

/// Builds a combine program: operands of the tuple's dtypes first, then one register per
/// instruction.
pub struct CombineBuilder {
    identity: Vec<Scalar>,
    registers: IdVec<Reg, DType>,
    body: Vec<Instr>,
}

impl CombineBuilder {
    /// A program over a tuple with that identity.
    pub fn new(identity: &[Scalar]) -> Self {
        let dtypes = identity.iter().map(|s| s.dtype());
        CombineBuilder {
            identity: identity.to_vec(),
            registers: dtypes.clone().chain(dtypes).collect(),
            body: Vec::new(),
        }
    }

    /// Element `k` of the left operand (the accumulator, earlier elements).
    pub fn left(&self, k: usize) -> Reg {
        Reg::new(k)
    }

    /// Element `k` of the right operand (later elements).
    pub fn right(&self, k: usize) -> Reg {
        Reg::new(self.identity.len() + k)
    }

    /// Appends an instruction whose result has the dtype that [`ScalarOp::result`] gives.
    pub fn emit(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        let dtypes: Vec<DType> =
            operands.iter().filter_map(|r| self.registers.get(*r).copied()).collect();
        let result = self.registers.push(op.result(&dtypes));
        self.body.push(Instr::Scalar { result, op, operands: operands.to_vec() });
        result
    }

    /// Like [`CombineBuilder::emit`]. If the instruction does not take halves, half operands are
    /// converted to f32, and the result back.
    pub fn emit_widened(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        let Some(dtype) = operands.last().map(|r| self.dtype(*r)) else {
            return self.emit(op, operands);
        };
        if op.class().contains(dtype) || !dtype.is_half() {
            return self.emit(op, operands);
        }
        let wide: Vec<Reg> = operands
            .iter()
            .map(|r| if self.dtype(*r).is_half() { self.convert(*r, DType::F32) } else { *r })
            .collect();
        let result = self.emit(op, &wide);
        if op.is_comparison() { result } else { self.convert(result, dtype) }
    }

    /// Dtype of a register.
    pub fn dtype(&self, reg: Reg) -> DType {
        self.registers[reg]
    }

    /// Appends a `convert`, unless the value already has the dtype.
    pub fn convert(&mut self, value: Reg, dtype: DType) -> Reg {
        if self.dtype(value) == dtype { value } else { self.typed(ScalarOp::Convert, value, dtype) }
    }

    /// Appends a `bitcast`, unless the value already has the dtype.
    pub fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg {
        if self.dtype(value) == dtype { value } else { self.typed(ScalarOp::Bitcast, value, dtype) }
    }

    fn typed(&mut self, op: ScalarOp, operand: Reg, dtype: DType) -> Reg {
        let result = self.registers.push(dtype);
        self.body.push(Instr::Scalar { result, op, operands: vec![operand] });
        result
    }

    /// Appends a constant.
    pub fn constant(&mut self, value: Scalar) -> Reg {
        let result = self.registers.push(value.dtype());
        self.body.push(Instr::Const { result, value });
        result
    }

    /// The program with these registers as results.
    pub fn finish(self, results: &[Reg]) -> Combine {
        Combine {
            identity: self.identity,
            registers: self.registers,
            body: self.body,
            results: results.to_vec(),
        }
    }
}

impl Combine {
    /// One instruction on one element.
    pub fn binary(op: ScalarOp, identity: Scalar) -> Combine {
        let mut b = CombineBuilder::new(&[identity]);
        let result = b.emit(op, &[b.left(0), b.right(0)]);
        b.finish(&[result])
    }

    /// a + b. The identity is 0.
    pub fn sum(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::Add, Scalar::zero(dtype))
    }

    /// a · b. The identity is 1.
    pub fn prod(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::Mul, Scalar::one(dtype))
    }

    /// The greater value; NaN if either is NaN. The identity is the lowest value.
    pub fn max(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::Max, Scalar::lowest(dtype))
    }

    /// The smaller value; NaN if either is NaN. The identity is the highest value.
    pub fn min(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::Min, Scalar::highest(dtype))
    }

    /// Bitwise and (logical for bool). The identity has all bits set.
    pub fn and(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::And, Scalar::from_bits(dtype, u64::MAX))
    }

    /// Bitwise or (logical for bool). The identity has no bit set.
    pub fn or(dtype: DType) -> Combine {
        Combine::binary(ScalarOp::Or, Scalar::zero(dtype))
    }

    /// (value, index) of the greatest value. A NaN is above all numbers. Of equal values (0 and
    /// −0 are equal), the least index wins.
    ///
    /// The identity is (lowest value, greatest index), so that elements of the lowest value win
    /// over it.
    pub fn argmax(value: DType, index: DType) -> Combine {
        Combine::extremum(Scalar::lowest(value), index, false)
    }

    /// (value, index) of the least value; NaN and ties as in [`Combine::argmax`].
    pub fn argmin(value: DType, index: DType) -> Combine {
        Combine::extremum(Scalar::highest(value), index, true)
    }

    fn extremum(identity: Scalar, index: DType, least: bool) -> Combine {
        use ScalarOp::*;
        let mut b = CombineBuilder::new(&[identity, Scalar::highest(index)]);
        let (value_a, index_a, value_b, index_b) = (b.left(0), b.left(1), b.right(0), b.right(1));
        let (low, high) = if least { (value_a, value_b) } else { (value_b, value_a) };
        // `a` wins if it is strictly better, or as good with a lesser index. NaN is better than
        // every number and as good as NaN. So a is better if it is beyond b, or if a is NaN and b
        // is a number. It is as good if both are equal, or both NaN.
        let beyond = b.emit(Lt, &[low, high]);
        let equal = b.emit(Eq, &[value_a, value_b]);
        let (better, as_good) = if identity.dtype().is_float() {
            let nan_a = b.emit(Ne, &[value_a, value_a]);
            let nan_b = b.emit(Ne, &[value_b, value_b]);
            let number_b = b.emit(Not, &[nan_b]);
            let nan_first = b.emit(And, &[nan_a, number_b]);
            let both_nan = b.emit(And, &[nan_a, nan_b]);
            (b.emit(Or, &[beyond, nan_first]), b.emit(Or, &[equal, both_nan]))
        } else {
            (beyond, equal)
        };
        let first = b.emit(Lt, &[index_a, index_b]);
        let tie = b.emit(And, &[as_good, first]);
        let wins = b.emit(Or, &[better, tie]);
        let value = b.emit(Select, &[wins, value_a, value_b]);
        let index = b.emit(Select, &[wins, index_a, index_b]);
        b.finish(&[value, index])
    }

    /// Count, mean and sum of squared deviations (Welford, in Chan's pairwise form): an element x
    /// enters as (1, x, 0).
    ///
    /// `d = mean_b − mean_a`, `n = n_a + n_b`, `r = n_b / n`: `mean = mean_a + d·r`,
    /// `m2 = m2_a + m2_b + d·d·n_a·r`; r is 0 where n is 0.
    pub fn welford(dtype: DType) -> Combine {
        use ScalarOp::*;
        let zero = Scalar::zero(dtype);
        let mut b = CombineBuilder::new(&[zero, zero, zero]);
        let [n_a, mean_a, m2_a] = [b.left(0), b.left(1), b.left(2)];
        let [n_b, mean_b, m2_b] = [b.right(0), b.right(1), b.right(2)];
        let n = b.emit(Add, &[n_a, n_b]);
        let one = b.constant(Scalar::one(dtype));
        // Counts are integers, so this changes n only where it is 0.
        let divisor = b.emit(Max, &[n, one]);
        let ratio = b.emit(Div, &[n_b, divisor]);
        let delta = b.emit(Sub, &[mean_b, mean_a]);
        let step = b.emit(Mul, &[delta, ratio]);
        let mean = b.emit(Add, &[mean_a, step]);
        let weighted = b.emit(Mul, &[step, n_a]);
        let between = b.emit(Mul, &[delta, weighted]);
        let within = b.emit(Add, &[m2_a, m2_b]);
        let m2 = b.emit(Add, &[within, between]);
        b.finish(&[n, mean, m2])
    }

    /// The combiner with that name for a tuple of these dtypes.
    pub fn named(name: &str, dtypes: &[DType]) -> Option<Combine> {
        NAMED.iter().find(|(n, _)| *n == name).and_then(|(_, make)| make(dtypes))
    }

    /// The name of this combiner, if it equals a named one.
    pub fn name(&self) -> Option<&'static str> {
        let dtypes = self.dtypes();
        NAMED.iter().find(|(_, make)| make(&dtypes).as_ref() == Some(self)).map(|(name, _)| *name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// Dtypes of the tuple.
    pub fn dtypes(&self) -> Vec<DType> {
        self.identity.iter().map(|s| s.dtype()).collect()
    }
}
