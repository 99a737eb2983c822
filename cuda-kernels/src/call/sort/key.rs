//! Keys as words: unsigned numbers of 32 bits that sort like the keys.
//!
//! The code of an element is an unsigned number of the same width that sorts like the element
//! ([`wengert_core::call::compare`]):
//!
//! - an unsigned integer is its own code;
//! - of a signed integer, the sign bit is flipped;
//! - of a positive float, the sign bit is flipped; of a negative one, all bits; −0 has the code of
//!   +0, and every NaN has all bits set.
//!
//! For a descending order all bits of a code are flipped.

use super::super::draft::Draft;
use super::super::index::advance;
use super::super::number::{Number, Place};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Rounding, Space, Type, Width};
use crate::stage::Slot;
use std::collections::BTreeMap;
use wengert_core::DType;

/// The words of some keys, least significant first: rows are sorted by the first word first.
#[derive(Clone, Debug)]
pub(super) struct Words {
    keys: Vec<DType>,
    pub descending: bool,
    pub words: Vec<Word>,
}

/// A word: the parts of keys that it consists of.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    parts: Vec<Part>,
}

/// Addresses of keys, by the numbers of the operands.
pub(super) type Keys = BTreeMap<usize, Reg>;

/// A part of a word, from one key.
#[derive(Clone, Copy, Debug)]
struct Part {
    operand: usize,
    dtype: DType,
    /// Whether it is the upper half of a key of 64 bits.
    upper: bool,
    /// Number of bits below it in the word.
    shift: u32,
}

impl Part {
    fn bits(&self) -> u32 {
        self.dtype.bits().min(32)
    }
}

impl Word {
    /// Number of bits that may be set.
    pub fn bits(&self) -> u32 {
        self.parts.iter().map(Part::bits).sum()
    }

    /// The kernel's parameters for the keys of the word.
    pub fn pointers(&self, draft: &mut Draft) -> Keys {
        pointers(draft, self.parts.iter().map(|p| p.operand))
    }

    /// The word of an element, given its index in each key. All bits are set where it does not
    /// exist.
    pub fn load(
        &self,
        code: &mut Code,
        keys: &Keys,
        descending: bool,
        element: Reg,
        there: Reg,
    ) -> Reg {
        let mut word: Option<Reg> = None;
        for part in &self.parts {
            let number = Number(part.dtype);
            let address = advance(code, keys[&part.operand], element, number.size());
            let place = Place { address, offset: 0, valid: Some(there) };
            let raw = number.load(code, Space::Global, place, 1)[0];
            let bits = encode(code, part, raw, descending);
            let bits = match part.shift {
                0 => bits,
                shift => code.binary(Binary::Shl, Type::B32, bits, i64::from(shift)),
            };
            word = Some(match word {
                None => bits,
                Some(word) => code.binary(Binary::Or, Type::B32, word, bits),
            });
        }
        let word = word.expect("a word is of some key");
        code.select(Type::B32, word, -1, there)
    }
}

impl Words {
    pub fn new(keys: &[DType], descending: bool) -> Words {
        let mut words: Vec<Word> = vec![];
        for (operand, dtype) in keys.iter().copied().enumerate().rev() {
            if dtype.size() == 8 {
                for upper in [false, true] {
                    words.push(Word { parts: vec![Part { operand, dtype, upper, shift: 0 }] });
                }
                continue;
            }
            let room = words.last().is_some_and(|w| w.bits() + dtype.bits() <= 32);
            if !room {
                words.push(Word::default());
            }
            let word = words.last_mut().expect("there is a word with room");
            word.parts.push(Part { operand, dtype, upper: false, shift: word.bits() });
        }
        Words { keys: keys.to_vec(), descending, words }
    }

    /// Number of key operands.
    pub fn operands(&self) -> usize {
        self.keys.len()
    }

    /// The kernel's parameters for all keys.
    pub fn pointers(&self, draft: &mut Draft) -> Keys {
        pointers(draft, 0..self.operands())
    }

    /// Part of the kernels' names.
    pub fn name(&self) -> String {
        let mut names: Vec<&str> = self.keys.iter().take(4).map(|key| key.name()).collect();
        if self.keys.len() > names.len() {
            names.push("more");
        }
        names.join("_")
    }
}

fn pointers(draft: &mut Draft, operands: impl Iterator<Item = usize>) -> Keys {
    operands.map(|n| (n, draft.pointer(&format!("key{n}"), Slot::read(n)))).collect()
}

/// The code of an element in a 32-bit register; for an element of 64 bits, half of it.
fn encode(code: &mut Code, part: &Part, raw: Reg, descending: bool) -> Reg {
    let dtype = part.dtype;
    if dtype.size() == 8 {
        let whole = encode_in(code, dtype, Type::B64, raw, descending);
        let halves = [code.reg(Width::B32), code.reg(Width::B32)];
        code.push(Inst::Unpack(Type::B64, halves.to_vec(), whole));
        return halves[usize::from(part.upper)];
    }
    let bits = match dtype {
        DType::F16 | DType::BF16 => code.convert(Rounding::Exact, Type::U32, Type::U16, raw),
        // It was extended with its sign.
        DType::I8 => code.binary(Binary::And, Type::B32, raw, 0xff),
        _ => raw,
    };
    encode_in(code, dtype, Type::B32, bits, descending)
}

/// The code, in registers of 32 or 64 bits (`ty`), of zero-extended bits.
fn encode_in(code: &mut Code, dtype: DType, ty: Type, bits: Reg, descending: bool) -> Reg {
    // As signed constants with the same bits.
    let sign = match dtype.bits() {
        8 => 1 << 7,
        16 => 1 << 15,
        32 => i64::from(i32::MIN),
        _ => i64::MIN,
    };
    let all = if ty == Type::B64 || dtype.bits() == 32 { -1 } else { (1 << dtype.bits()) - 1 };
    let result = if dtype.is_float() {
        let (unsigned, signed) =
            if ty == Type::B64 { (Type::U64, Type::S64) } else { (Type::U32, Type::S32) };
        let magnitude = code.binary(Binary::And, ty, bits, all & !sign);
        let infinity = match dtype {
            DType::F16 => 0x7c00,
            DType::BF16 => 0x7f80,
            DType::F32 => 0x7f80_0000,
            _ => 0x7ff0_0000_0000_0000,
        };
        let nan = code.compare(Compare::Gt, unsigned, magnitude, infinity);
        let zero = code.compare(Compare::Eq, unsigned, magnitude, 0);
        let bits = code.select(ty, 0, bits, zero);
        let negative = match dtype.bits() {
            16 => code.compare(Compare::Ge, unsigned, bits, sign),
            _ => code.compare(Compare::Lt, signed, bits, 0),
        };
        let flip = code.select(ty, all, sign, negative);
        let ordered = code.binary(Binary::Xor, ty, bits, flip);
        code.select(ty, all, ordered, nan)
    } else if dtype.is_signed_integer() {
        code.binary(Binary::Xor, ty, bits, sign)
    } else {
        bits
    };
    if descending { code.binary(Binary::Xor, ty, result, all) } else { result }
}
