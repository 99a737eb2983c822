//! Neighbouring elements as one access, and the conversion between memory and registers: packed
//! words, bools as bytes.

use super::element::VECTOR_BYTES;
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Rounding, Space, Type, Width};
use crate::scalar::{self, memory_type, value_type};
use wengert_core::DType;

/// Neighbouring elements in memory, at most 16 bytes of them, aligned to all of them.
pub(super) struct Vector {
    pub space: Space,
    pub read_only: bool,
    pub base: Reg,
    pub offset: i64,
    pub predicate: Option<Reg>,
    pub dtype: DType,
}

impl Vector {
    /// Loads as many elements as there are fills; where the predicate fails, the fills, or zeros.
    pub fn load(&self, code: &mut Code, fills: &[Option<Reg>]) -> Vec<Reg> {
        let count = fills.len();
        let narrow = self.dtype.size() < 4;
        if count == 1 || !narrow {
            let ty = memory_type(self.dtype);
            let registers: Vec<Reg> =
                fills.iter().map(|fill| self.start(code, ty, *fill)).collect();
            for part in registers.chunks((VECTOR_BYTES / self.dtype.size()).min(4)) {
                let at =
                    registers.iter().position(|r| r == &part[0]).unwrap_or(0) * self.dtype.size();
                self.access(code, ty, part, at);
            }
            return registers.into_iter().map(|r| from_memory(code, self.dtype, r)).collect();
        }
        // Packed into words; fills are selected element by element.
        let words = (count * self.dtype.size()).div_ceil(4);
        let sub_word = count * self.dtype.size() < 4;
        let ty = if sub_word { Type::U16 } else { Type::B32 };
        let registers: Vec<Reg> = (0..words).map(|_| self.start(code, ty, None)).collect();
        self.access(code, ty, &registers, 0);
        let registers = if sub_word {
            vec![code.convert(Rounding::Exact, Type::U32, Type::U16, registers[0])]
        } else {
            registers
        };
        let mut values = self.unpack(code, &registers, count);
        for (value, fill) in values.iter_mut().zip(fills) {
            if let (Some(fill), Some(predicate)) = (fill, self.predicate) {
                *value = scalar::select(code, self.dtype, predicate, *value, *fill);
            }
        }
        values
    }

    /// A register with the value for the case that nothing is loaded.
    fn start(&self, code: &mut Code, ty: Type, fill: Option<Reg>) -> Reg {
        let register = code.reg_of(ty);
        if self.predicate.is_some() {
            match fill {
                Some(fill) if fill.width == Width::Pred => {
                    code.push(Inst::Select(Type::B32, register, 1.into(), 0.into(), fill));
                }
                Some(fill) => code.assign(value_type(self.dtype), register, fill),
                None => {
                    code.assign(if ty.width() == Width::B32 { Type::B32 } else { ty }, register, 0)
                }
            }
        }
        register
    }

    fn access(&self, code: &mut Code, ty: Type, results: &[Reg], at: usize) {
        let load = Inst::Load {
            space: self.space,
            read_only: self.read_only,
            ty,
            results: results.to_vec(),
            base: self.base.into(),
            offset: self.offset + at as i64,
        };
        code.push_where(self.predicate, load);
    }

    fn unpack(&self, code: &mut Code, words: &[Reg], count: usize) -> Vec<Reg> {
        let mut values = Vec::new();
        for word in words {
            if self.dtype.size() == 2 {
                let (low, high) = (code.reg(Width::B16), code.reg(Width::B16));
                code.push(Inst::Unpack(Type::B32, vec![low, high], *word));
                values.extend([low, high]);
                continue;
            }
            for byte in 0..4.min(count - values.len()) {
                let at = 8 * byte as i64;
                let value = if self.dtype == DType::I8 {
                    let up = code.binary(Binary::Shl, Type::B32, *word, 24 - at);
                    code.binary(Binary::Shr, Type::S32, up, 24)
                } else {
                    let down = code.binary(Binary::Shr, Type::U32, *word, at);
                    code.binary(Binary::And, Type::B32, down, 0xff)
                };
                values.push(from_memory(code, self.dtype, value));
            }
        }
        values
    }

    /// Stores them where the predicate holds.
    pub fn store(&self, code: &mut Code, values: &[Reg]) {
        let size = self.dtype.size();
        let values: Vec<Reg> = values.iter().map(|v| to_memory(code, self.dtype, *v)).collect();
        let ty = memory_type(self.dtype);
        if values.len() == 1 || size >= 4 {
            let most = (VECTOR_BYTES / size).min(4);
            for (n, part) in values.chunks(most).enumerate() {
                self.write(code, ty, part, n * most * size);
            }
            return;
        }
        if values.len() * size < 4 {
            let high = code.binary(Binary::Shl, Type::B32, values[1], 8);
            let low = code.binary(Binary::And, Type::B32, values[0], 0xff);
            let both = code.binary(Binary::Or, Type::B32, low, high);
            let both = code.convert(Rounding::Exact, Type::U16, Type::U32, both);
            self.write(code, Type::B16, &[both], 0);
            return;
        }
        let words: Vec<Reg> =
            values.chunks(4 / size).map(|part| pack(code, self.dtype, part)).collect();
        self.write(code, Type::B32, &words, 0);
    }

    fn write(&self, code: &mut Code, ty: Type, values: &[Reg], at: usize) {
        let store = Inst::store(self.space, ty, self.base, self.offset + at as i64, values);
        code.push_where(self.predicate, store);
    }
}

/// A value as it is stored: a bool as 0 or 1.
pub(super) fn to_memory(code: &mut Code, dtype: DType, value: Reg) -> Reg {
    if dtype == DType::Bool {
        return code.select(Type::B32, 1, 0, value);
    }
    value
}

/// The value of what is stored.
pub(super) fn from_memory(code: &mut Code, dtype: DType, stored: Reg) -> Reg {
    match dtype {
        DType::Bool => code.compare(Compare::Ne, Type::U32, stored, 0),
        _ => stored,
    }
}

/// A 32-bit word of two halves or four bytes, the first in the low bits.
fn pack(code: &mut Code, dtype: DType, parts: &[Reg]) -> Reg {
    if dtype.size() == 2 {
        let word = code.reg(Width::B32);
        code.push(Inst::Pack(Type::B32, word, parts.to_vec()));
        return word;
    }
    let mut word = code.binary(Binary::And, Type::B32, parts[0], 0xff);
    for (n, part) in parts.iter().enumerate().skip(1) {
        let byte = if n < 3 { code.binary(Binary::And, Type::B32, *part, 0xff) } else { *part };
        let moved = code.binary(Binary::Shl, Type::B32, byte, 8 * n as i64);
        word = code.binary(Binary::Or, Type::B32, word, moved);
    }
    word
}
