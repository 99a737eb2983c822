//! Integer instructions that Rust has no operator for, one value at a time (PTX ISA, "Integer
//! Arithmetic Instructions").

/// `div.s32` and similar: division by zero gives all ones.
macro_rules! division {
    ($divide:ident, $remainder:ident, $signed:ty, $unsigned:ty) => {
        #[inline(always)]
        pub(crate) fn $divide(a: $unsigned, b: $unsigned, signed: bool) -> $unsigned {
            if b == 0 {
                <$unsigned>::MAX
            } else if signed {
                (a as $signed).wrapping_div(b as $signed) as $unsigned
            } else {
                a / b
            }
        }

        #[inline(always)]
        pub(crate) fn $remainder(a: $unsigned, b: $unsigned, signed: bool) -> $unsigned {
            if b == 0 {
                <$unsigned>::MAX
            } else if signed {
                (a as $signed).wrapping_rem(b as $signed) as $unsigned
            } else {
                a % b
            }
        }
    };
}
division!(divide16, remainder16, i16, u16);
division!(divide32, remainder32, i32, u32);
division!(divide64, remainder64, i64, u64);

/// `bfe`: `length` bits from `position` on; both count modulo 256, and bits above the value are
/// its sign (or zeros).
pub(crate) fn extract(value: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let most = width - 1;
    let sign =
        if !signed || length == 0 { 0 } else { value >> (position + length - 1).min(most) & 1 };
    let mut result = 0;
    for bit in 0..width {
        let source = position + bit;
        let set = if bit < length && source <= most { value >> source & 1 } else { sign };
        result |= set << bit;
    }
    result
}

/// `bfi`: `b` with `length` bits of `a` at `position`.
pub(crate) fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= width || length == 0 {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    let mask = ones << position;
    let all = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    (b & !mask | a << position & mask) & all
}

/// `bfind`: position of the highest one (for signed: highest bit that differs from the sign), or
/// all ones.
pub(crate) fn find(value: u64, width: u32, signed: bool, shift_amount: bool) -> u32 {
    let negative = signed && value >> (width - 1) & 1 == 1;
    let all = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let value = if negative { !value & all } else { value & all };
    if value == 0 {
        return u32::MAX;
    }
    let position = 63 - value.leading_zeros();
    if shift_amount { width - 1 - position } else { position }
}

/// `prmt`: four bytes chosen out of the eight of `b:a`.
pub(crate) fn permute(a: u32, b: u32, selector: u32, mode: Permutation) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let byte = |index: u32| (bytes >> (8 * (index & 7)) & 0xff) as u32;
    let c = selector & 3;
    let pick = |at: u32| match mode {
        Permutation::Index => {
            let nibble = selector >> (4 * at) & 15;
            let value = byte(nibble);
            if nibble & 8 == 0 {
                value
            } else if value & 0x80 != 0 {
                0xff
            } else {
                0
            }
        }
        Permutation::ForwardFour => byte(c + at),
        Permutation::BackwardFour => byte(c.wrapping_sub(at)),
        Permutation::ReplicateEight => byte(c),
        Permutation::EdgeLeft => byte(c.max(at)),
        Permutation::EdgeRight => byte(c.min(at)),
        Permutation::ReplicateSixteen => byte((c & 1) * 2 + (at & 1)),
    };
    pick(0) | pick(1) << 8 | pick(2) << 16 | pick(3) << 24
}

/// Modes of `prmt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permutation {
    Index,
    ForwardFour,
    BackwardFour,
    ReplicateEight,
    EdgeLeft,
    EdgeRight,
    ReplicateSixteen,
}

/// `shf`: `b:a` shifted as one value; the high (left) or low (right) half is returned.
#[inline(always)]
pub(crate) fn funnel(a: u32, b: u32, amount: u32, left: bool, wrap: bool) -> u32 {
    let amount = if wrap { amount & 31 } else { amount.min(32) };
    let both = u64::from(b) << 32 | u64::from(a);
    if left { (both << amount >> 32) as u32 } else { (both >> amount) as u32 }
}

/// `lop3`: bitwise function given by its truth table.
#[inline(always)]
pub(crate) fn logic(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let x = if row & 4 != 0 { a } else { !a };
            let y = if row & 2 != 0 { b } else { !b };
            let z = if row & 1 != 0 { c } else { !c };
            result |= x & y & z;
        }
    }
    result
}

/// `dp4a`: dot product of four bytes, added to `c`.
pub(crate) fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |word: u32, at: u32, signed: bool| {
        let byte = (word >> (8 * at)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4)
        .fold(c, |sum, at| sum.wrapping_add((byte(a, at, a_signed) * byte(b, at, b_signed)) as u32))
}

/// `dp2a`: dot product of two halves of `a` with two bytes of `b`, added to `c`.
pub(crate) fn dot2(a: u32, b: u32, c: u32, signed: (bool, bool), high: bool) -> u32 {
    (0..2).fold(c, |sum, at| {
        let half = (a >> (16 * at)) as u16;
        let half = if signed.0 { i64::from(half as i16) } else { i64::from(half) };
        let byte = (b >> (8 * at + if high { 16 } else { 0 })) as u8;
        let byte = if signed.1 { i64::from(byte as i8) } else { i64::from(byte) };
        sum.wrapping_add((half * byte) as u32)
    })
}

/// `mul24`, the low or high 32 bits of the 48-bit product.
pub(crate) fn multiply24(a: u32, b: u32, signed: bool, high: bool) -> u32 {
    let product = if signed {
        (i64::from((a << 8) as i32 >> 8) * i64::from((b << 8) as i32 >> 8)) as u64
    } else {
        u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)
    };
    if high { (product >> 16) as u32 } else { product as u32 }
}

/// `fns`: the `offset`-th set bit from `base` on, or all ones.
pub(crate) fn nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let (mut position, mut left) = (i64::from(base), offset.unsigned_abs());
    loop {
        if !(0..32).contains(&position) {
            return u32::MAX;
        }
        if mask >> position & 1 == 1 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += if offset > 0 { 1 } else { -1 };
    }
}
