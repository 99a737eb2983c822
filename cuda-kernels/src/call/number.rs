//! Representation of a dtype's elements in memory and in registers, and their arithmetic.
//!
//! Halves are stored as halves and computed in f32, with one rounding for each operation.
//! Integers of 8 bits are computed in 32 bits, and the lower 8 are stored, which is correct for
//! wrapping arithmetic. Every other dtype is computed as it is.

use crate::ptx::{
    Binary, Code, Compare, Inst, Operand, Reg, Rounding, Space, Ternary, Type, Width,
};
use wengert_core::{DType, Scalar};

/// A dtype, with its representation in kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number(pub DType);

impl Number {
    /// Bytes of an element in memory.
    pub fn size(self) -> i64 {
        self.0.size() as i64
    }

    /// The type of loads and stores.
    pub fn memory(self) -> Type {
        match self.0 {
            DType::Bool | DType::U8 | DType::F8E4M3FN | DType::F8E5M2 => Type::U8,
            DType::I8 => Type::S8,
            DType::I32 => Type::S32,
            DType::U32 => Type::U32,
            DType::I64 => Type::S64,
            DType::U64 => Type::U64,
            DType::F16 | DType::BF16 => Type::B16,
            DType::F32 => Type::F32,
            DType::F64 => Type::F64,
        }
    }

    /// The type of arithmetic.
    pub fn wide(self) -> Type {
        match self.0 {
            DType::F16 | DType::BF16 | DType::F32 => Type::F32,
            DType::F64 => Type::F64,
            DType::I64 | DType::U64 => Type::S64,
            DType::Bool | DType::U8 | DType::I8 | DType::I32 | DType::U32 => Type::S32,
            // Their bits.
            DType::F8E4M3FN | DType::F8E5M2 => Type::S32,
        }
    }

    /// The dtype of arithmetic.
    pub fn widened(self) -> Number {
        Number(match self.0 {
            DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => DType::F32,
            DType::Bool | DType::U8 | DType::I8 => DType::I32,
            other => other,
        })
    }

    /// Elements of one load or store: 16 bytes, at most four.
    pub fn vector(self) -> usize {
        (16 / self.0.size()).min(4)
    }

    /// 0, in the type of arithmetic.
    pub fn zero(self) -> Operand {
        match self.wide() {
            Type::F32 => 0f32.into(),
            Type::F64 => 0f64.into(),
            _ => 0.into(),
        }
    }

    /// A loaded element, in the type of arithmetic.
    pub fn widen(self, code: &mut Code, raw: Reg) -> Reg {
        match self.0 {
            DType::F16 => code.convert(Rounding::Exact, Type::F32, Type::F16, raw),
            DType::BF16 => {
                let bits = code.convert(Rounding::Exact, Type::U32, Type::U16, raw);
                code.binary(Binary::Shl, Type::B32, bits, 16)
            }
            _ => raw,
        }
    }

    /// A result rounded to this dtype, in the representation of memory.
    pub fn narrow(self, code: &mut Code, wide: Reg) -> Reg {
        match self.0 {
            DType::F16 => code.convert(Rounding::Nearest, Type::F16, Type::F32, wide),
            DType::BF16 => code.convert(Rounding::Nearest, Type::BF16, Type::F32, wide),
            _ => wide,
        }
    }

    /// A result rounded to this dtype, in the type of arithmetic.
    pub fn round(self, code: &mut Code, wide: Reg) -> Reg {
        if self.0.is_half() {
            let raw = self.narrow(code, wide);
            self.widen(code, raw)
        } else {
            wide
        }
    }

    /// x + y, rounded.
    pub fn add(self, code: &mut Code, x: impl Into<Operand>, y: impl Into<Operand>) -> Reg {
        let sum = code.binary(Binary::Add, self.wide(), x, y);
        self.round(code, sum)
    }

    /// x · y, rounded.
    pub fn mul(self, code: &mut Code, x: impl Into<Operand>, y: impl Into<Operand>) -> Reg {
        let product = code.binary(Binary::Mul, self.wide(), x, y);
        self.round(code, product)
    }

    /// The minimum (`least`) or the maximum; NaN if either operand is; −0 is below +0.
    pub fn extremum(self, code: &mut Code, least: bool, x: Reg, y: Reg) -> Reg {
        let (plain, nan) =
            if least { (Binary::Min, Binary::MinNan) } else { (Binary::Max, Binary::MaxNan) };
        match self.0 {
            DType::F16 | DType::BF16 | DType::F32 => code.binary(nan, Type::F32, x, y),
            // PTX has no such instruction of 64 bits.
            DType::F64 => {
                let value = code.binary(plain, Type::F64, x, y);
                let unordered = code.compare(Compare::Nan, Type::F64, x, y);
                code.select(Type::F64, f64::NAN, value, unordered)
            }
            DType::U32 => code.binary(plain, Type::U32, x, y),
            DType::U64 => code.binary(plain, Type::U64, x, y),
            // Loads of 8 bits extend the sign.
            _ => code.binary(plain, self.wide(), x, y),
        }
    }

    /// A constant rounded to this dtype, in the type of arithmetic.
    pub fn constant(self, value: f64) -> Operand {
        let value = Scalar::from_f64(self.0, value).to_f64();
        if self.0 == DType::F64 { value.into() } else { (value as f32).into() }
    }

    /// `sum += x · y` in the dtype of arithmetic, rounded once.
    pub fn accumulate(self, code: &mut Code, sum: Reg, x: Reg, y: Reg) {
        let op = if self.0.is_float() { Ternary::Fma } else { Ternary::Mad };
        code.push(Inst::Ternary(op, self.wide(), sum, x.into(), y.into(), sum.into()));
    }

    /// Loads neighbouring elements; zeros where the predicate does not hold.
    pub fn load(self, code: &mut Code, space: Space, from: Place, count: usize) -> Vec<Reg> {
        let ty = self.memory();
        let results: Vec<Reg> = (0..count).map(|_| code.reg_of(ty)).collect();
        if from.valid.is_some() {
            let bits = if ty.width() == Width::B32 { Type::B32 } else { ty.bits() };
            results.iter().for_each(|result| code.assign(bits, *result, 0));
        }
        code.push_where(from.valid, Inst::load(space, ty, &results, from.address, from.offset));
        results
    }

    /// Stores neighbouring elements, where the predicate holds.
    pub fn store(self, code: &mut Code, space: Space, to: Place, values: &[Reg]) {
        let store = Inst::store(space, self.memory(), to.address, to.offset, values);
        code.push_where(to.valid, store);
    }
}

/// A place in memory, and whether it exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Register that holds the address.
    pub address: Reg,
    /// Byte offset from the address.
    pub offset: i64,
    /// Predicate that holds if the element exists; none if it always does.
    pub valid: Option<Reg>,
}

impl Place {
    /// A place that exists.
    pub fn at(address: Reg, offset: i64) -> Place {
        Place { address, offset, valid: None }
    }
}
