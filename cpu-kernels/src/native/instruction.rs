//! Straight-line vector code before register allocation.
//!
//! One instruction defines a value, for sixteen lanes. A value is a vector of sixteen elements of
//! 32 bits, half of those of 64 bits, or a mask. *Invariants*, values that are the same in all
//! lanes and in every iteration of the loop, have no defining instruction. They are in memory; an
//! instruction reads them from there unless a register is free to keep them.

use super::encode::{Code, Width};

/// A value's number.
pub(super) type Value = u32;

/// The kind of register that holds a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Vector,
    Mask,
}

/// The source of the single element of an invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A number.
    Constant(u64),
    /// The element at the n-th pointer of the table.
    Uniform(usize),
}

/// How the lanes of an invariant are built from its element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// 32 bits, sign- or zero-extended from an element of `bytes` bytes.
    Narrow { bytes: usize, signed: bool },
    /// 64 bits.
    Wide,
    /// 16 bits, packed.
    Half,
    /// A mask, from a byte.
    Mask,
}

/// A value that is the same in every lane and iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Invariant {
    pub source: Source,
    pub lane: Lane,
}

/// A run of neighbouring elements, by the number of its pointer in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub pointer: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Bytes from lane 0 of the iteration to the first lane accessed: nonzero for the second half
    /// of wide lanes, and for later iterations.
    pub offset: usize,
    /// Bytes of an unmasked access.
    pub bytes: usize,
    /// Whether the lanes are the upper eight.
    pub upper: bool,
}

/// The operand form of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `result = code(s0, s1)`
    Binary { commutes: bool },
    /// `result = code(s0)`
    Unary,
    /// The same, with the result encoded in place of the last operand.
    Reversed,
    /// `result = s0 · s1 + s2`, rounded once
    Fma,
    /// `mask result = code(s0, s1)`
    Compare { commutes: bool },
    /// The same of masks; `long` is the L bit of VEX.
    Masks { long: bool },
    /// `mask result = code(s0)`
    MaskUnary { long: bool },
    /// `result = code(mask s0)`
    FromMask,
    /// `result = elements of the stream`
    Load(Stream),
    /// `elements of the stream = s0`
    Store(Stream),
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub form: Form,
    pub code: Code,
    pub width: Width,
    pub immediate: Option<u8>,
    pub result: Option<Value>,
    pub sources: [Value; 3],
    pub count: usize,
    /// Lanes outside this mask become 0, unless the instruction blends.
    pub mask: Option<Value>,
    /// The mask chooses lanes of the second source; the others are of the first.
    pub blends: bool,
}

impl Instruction {
    /// An instruction on whole vectors, without a mask.
    pub fn new(form: Form, code: Code, result: Value, sources: &[Value]) -> Instruction {
        let mut all = [0; 3];
        all[..sources.len()].copy_from_slice(sources);
        Instruction {
            form,
            code,
            width: Width::Zmm,
            immediate: None,
            result: Some(result),
            sources: all,
            count: sources.len(),
            mask: None,
            blends: false,
        }
    }

    /// The values it reads, its mask included.
    pub fn reads(&self) -> impl Iterator<Item = Value> + '_ {
        self.sources[..self.count].iter().copied().chain(self.mask)
    }
}

/// Prefixes.
const NO: u8 = 0;
const P66: u8 = 1;
const PF3: u8 = 2;
const PF2: u8 = 3;

/// An instruction on floats of 32 bits (no prefix) and of 64 (`66`, W).
pub(super) const fn float(byte: u8, wide: bool) -> Code {
    Code::new(if wide { P66 } else { NO }, 1, wide, byte)
}

/// An instruction on integers of 32 and 64 bits, map `0F`.
pub(super) const fn integer(byte: u8, wide: bool) -> Code {
    Code::new(P66, 1, wide, byte)
}

/// An instruction on elements of 32 and 64 bits, map `0F38`.
pub(super) const fn second(byte: u8, wide: bool) -> Code {
    Code::new(P66, 2, wide, byte)
}

/// An instruction on elements of 32 and 64 bits with an immediate, map `0F3A`.
pub(super) const fn third(byte: u8, wide: bool) -> Code {
    Code::new(P66, 3, wide, byte)
}

/// Loads whole vectors; the `_OUT` code stores them.
pub(super) const MOVE: Code = Code::new(NO, 1, false, 0x10);
pub(super) const MOVE_OUT: Code = Code::new(NO, 1, false, 0x11);
/// Stores whole aligned vectors past the caches (non-temporal).
pub(super) const STREAM_OUT: Code = Code::new(NO, 1, false, 0x2b);
/// The same, for registers and spilled values.
pub(super) const MOVE_WIDE: Code = Code::new(P66, 1, true, 0x10);
pub(super) const MOVE_OUT_WIDE: Code = Code::new(P66, 1, true, 0x11);
pub(super) const STREAM_OUT_WIDE: Code = Code::new(P66, 1, true, 0x2b);
/// Elements of 16 bits.
pub(super) const MOVE_HALVES: Code = Code::new(PF2, 1, true, 0x6f);
pub(super) const MOVE_HALVES_OUT: Code = Code::new(PF2, 1, true, 0x7f);
/// Elements of 8 bits.
pub(super) const MOVE_BYTES: Code = Code::new(PF2, 1, false, 0x6f);
pub(super) const MOVE_BYTES_OUT: Code = Code::new(PF2, 1, false, 0x7f);

/// Widening with zero or sign extension: from 8 to 32, 16 to 32, 32 to 64 bits.
pub(super) const ZERO_EXTEND_BYTES: Code = second(0x31, false);
pub(super) const SIGN_EXTEND_BYTES: Code = second(0x21, false);
pub(super) const ZERO_EXTEND_HALVES: Code = second(0x33, false);
pub(super) const ZERO_EXTEND: Code = second(0x35, false);
pub(super) const SIGN_EXTEND: Code = second(0x25, false);
/// Narrowing to the low bits: from 32 to 8, 32 to 16, 64 to 32 bits.
pub(super) const TRUNCATE_BYTES: Code = Code::new(PF3, 2, false, 0x31);
pub(super) const TRUNCATE_HALVES: Code = Code::new(PF3, 2, false, 0x33);
pub(super) const TRUNCATE: Code = Code::new(PF3, 2, false, 0x35);

/// Broadcasts one element to all lanes.
pub(super) const SPREAD: Code = second(0x58, false);
pub(super) const SPREAD_WIDE: Code = second(0x59, true);
pub(super) const SPREAD_HALVES: Code = second(0x79, false);

/// Extracts the upper half of a vector; inserts another upper half.
pub(super) const UPPER_HALF: Code = third(0x3b, true);
pub(super) const WITH_UPPER_HALF: Code = third(0x3a, true);

/// Bytes of all ones where a mask is 1.
pub(super) const BYTES_OF_MASK: Code = Code::new(PF3, 2, false, 0x28);
/// |x| of bytes.
pub(super) const ABS_BYTES: Code = second(0x1c, false);
/// The mask of the bytes that have a common 1 bit.
pub(super) const TEST_BYTES: Code = second(0x26, false);

/// Conversions. Float to integer truncates; a value out of range gives a fixed result of the
/// machine.
pub(super) const I32_TO_F32: Code = Code::new(NO, 1, false, 0x5b);
pub(super) const U32_TO_F32: Code = Code::new(PF2, 1, false, 0x7a);
pub(super) const F32_TO_I32: Code = Code::new(PF3, 1, false, 0x5b);
pub(super) const F32_TO_U32: Code = Code::new(NO, 1, false, 0x78);
pub(super) const F32_TO_F64: Code = Code::new(NO, 1, false, 0x5a);
pub(super) const F64_TO_F32: Code = Code::new(P66, 1, true, 0x5a);
pub(super) const I32_TO_F64: Code = Code::new(PF3, 1, false, 0xe6);
pub(super) const U32_TO_F64: Code = Code::new(PF3, 1, false, 0x7a);
pub(super) const I64_TO_F64: Code = Code::new(PF3, 1, true, 0xe6);
pub(super) const U64_TO_F64: Code = Code::new(PF3, 1, true, 0x7a);
pub(super) const I64_TO_F32: Code = Code::new(NO, 1, true, 0x5b);
pub(super) const U64_TO_F32: Code = Code::new(PF2, 1, true, 0x7a);
pub(super) const F64_TO_I64: Code = Code::new(P66, 1, true, 0x7a);
pub(super) const F64_TO_U64: Code = Code::new(P66, 1, true, 0x78);
pub(super) const F16_TO_F32: Code = second(0x13, false);
pub(super) const F32_TO_F16: Code = third(0x1d, false);

/// Instructions on masks of sixteen bits.
pub(super) const MASK_AND: Code = Code::new(NO, 1, false, 0x41);
/// Not the first, and the second operand.
pub(super) const MASK_AND_NOT: Code = Code::new(NO, 1, false, 0x42);
pub(super) const MASK_NOT: Code = Code::new(NO, 1, false, 0x44);
pub(super) const MASK_OR: Code = Code::new(NO, 1, false, 0x45);
pub(super) const MASK_XNOR: Code = Code::new(NO, 1, false, 0x46);
pub(super) const MASK_XOR: Code = Code::new(NO, 1, false, 0x47);
/// The low byte of the first operand (upper) and of the second (lower).
pub(super) const MASK_JOIN: Code = Code::new(P66, 1, false, 0x4b);
pub(super) const MASK_SHIFT_RIGHT: Code = Code::new(P66, 3, true, 0x30);
/// Moves: from a mask or memory, to memory, and from a general register.
pub(super) const MASK_MOVE: Code = Code::new(NO, 1, false, 0x90);
pub(super) const MASK_MOVE_OUT: Code = Code::new(NO, 1, false, 0x91);
pub(super) const MASK_OF_GENERAL: Code = Code::new(NO, 1, false, 0x92);
