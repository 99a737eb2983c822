//! Chains: up to four additions, subtractions and multiplications of f32, each on the previous
//! result, in one pass.
//!
//! `(x·w + b)·x + r` is one chain. Intermediate results stay in vector registers, which saves a
//! store and a load per operation. All operands are read side by side, as sequential streams for
//! the hardware prefetcher. Every step rounds as its instruction does: nothing is contracted.

use super::{CHUNK, TURN};
use crate::simd::{Simd, at_level, for_each_level};
use std::mem::MaybeUninit;

/// Most operations of a chain.
pub(crate) const LONGEST: usize = 4;

/// An operation of a chain on its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// `value + operand`
    Add,
    /// `value · operand`
    Mul,
    /// `value − operand`
    Sub,
    /// `operand − value`
    SubFrom,
}

/// `destination[k] = links(operands[0][k], operands[1][k]; operands[2][k]; …)` for k in `0..count`.
///
/// # Safety
///
/// As for [`super::Kernel`]: the count is a multiple of [`CHUNK`]. There is one more operand than
/// the chain has links; each is the destination, or does not overlap it, or is repeated where its
/// bit is set. The machine has the vector instructions.
pub(crate) type Chain =
    unsafe fn(destination: *mut u8, operands: *const *mut u8, count: usize, repeat: u32);

const NONE: u8 = 0;
const ADD: u8 = 1;
const MUL: u8 = 2;
const SUB: u8 = 3;
const SUB_FROM: u8 = 4;

#[inline(always)]
fn link<const L: u8>(value: f32, operand: f32) -> f32 {
    match L {
        ADD => value + operand,
        MUL => value * operand,
        SUB => value - operand,
        SUB_FROM => operand - value,
        _ => value,
    }
}

/// # Safety
///
/// As for [`Chain`].
#[inline(always)]
unsafe fn chunk<const C: usize, const L0: u8, const L1: u8, const L2: u8, const L3: u8>(
    destination: *mut f32,
    operands: [*const f32; LONGEST + 1],
    k: usize,
) {
    // SAFETY: the blocks have C elements from there on, as argued below; absent operands are not
    // read.
    unsafe {
        let read = |n: usize, there: bool| {
            if there { operands[n].cast::<[f32; C]>().read_unaligned() } else { [0.0; C] }
        };
        let values = [
            read(0, true),
            read(1, true),
            read(2, L1 != NONE),
            read(3, L2 != NONE),
            read(4, L3 != NONE),
        ];
        let mut out = MaybeUninit::<[f32; C]>::uninit();
        #[allow(clippy::needless_range_loop)] // Five arrays run together.
        for i in 0..C {
            let value = link::<L0>(values[0][i], values[1][i]);
            let value = link::<L1>(value, values[2][i]);
            let value = link::<L2>(value, values[3][i]);
            let value = link::<L3>(value, values[4][i]);
            out.as_mut_ptr().cast::<f32>().add(i).write(value);
        }
        destination.add(k).cast::<[f32; C]>().write_unaligned(out.assume_init());
    }
}

/// # Safety
///
/// As for [`Chain`].
#[inline(always)]
unsafe fn run<const L0: u8, const L1: u8, const L2: u8, const L3: u8>(
    destination: *mut u8,
    operands: *const *mut u8,
    count: usize,
    repeat: u32,
) {
    // SAFETY: the turns stay within the count, a multiple of CHUNK; there is an operand for each
    // link, and one more.
    unsafe {
        let destination = destination.cast::<f32>();
        let links = 1 + usize::from(L1 != NONE) + usize::from(L2 != NONE) + usize::from(L3 != NONE);
        let mut pointers = [std::ptr::null::<f32>(); LONGEST + 1];
        let mut masks = [0; LONGEST + 1];
        for n in 0..=links {
            pointers[n] = operands.add(n).read().cast_const().cast();
            // A repeated operand is always read at its beginning.
            masks[n] = if repeat >> n & 1 == 0 { usize::MAX } else { 0 };
        }
        let at = |k: usize| std::array::from_fn(|n| pointers[n].wrapping_add(k & masks[n]));
        let mut k = 0;
        while k + TURN <= count {
            chunk::<TURN, L0, L1, L2, L3>(destination, at(k), k);
            k += TURN;
        }
        while k < count {
            chunk::<CHUNK, L0, L1, L2, L3>(destination, at(k), k);
            k += CHUNK;
        }
    }
}

macro_rules! level {
    ($level:ident $(, $features:literal)?) => {
        mod $level {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn chain<const L0: u8, const L1: u8, const L2: u8, const L3: u8>(
                destination: *mut u8, operands: *const *mut u8, count: usize, repeat: u32,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { run::<L0, L1, L2, L3>(destination, operands, count, repeat) }
            }

            fn last<const L0: u8, const L1: u8, const L2: u8>(link: u8) -> Chain {
                match link {
                    NONE => chain::<L0, L1, L2, NONE>,
                    ADD => chain::<L0, L1, L2, ADD>,
                    MUL => chain::<L0, L1, L2, MUL>,
                    SUB => chain::<L0, L1, L2, SUB>,
                    _ => chain::<L0, L1, L2, SUB_FROM>,
                }
            }

            fn third<const L0: u8, const L1: u8>([link, rest]: [u8; 2]) -> Chain {
                match link {
                    NONE => chain::<L0, L1, NONE, NONE>,
                    ADD => last::<L0, L1, ADD>(rest),
                    MUL => last::<L0, L1, MUL>(rest),
                    SUB => last::<L0, L1, SUB>(rest),
                    _ => last::<L0, L1, SUB_FROM>(rest),
                }
            }

            fn second<const L0: u8>([link, rest @ ..]: [u8; 3]) -> Chain {
                match link {
                    NONE => chain::<L0, NONE, NONE, NONE>,
                    ADD => third::<L0, ADD>(rest),
                    MUL => third::<L0, MUL>(rest),
                    SUB => third::<L0, SUB>(rest),
                    _ => third::<L0, SUB_FROM>(rest),
                }
            }

            pub(super) fn lookup([link, rest @ ..]: [u8; 4]) -> Chain {
                match link {
                    ADD => second::<ADD>(rest),
                    MUL => second::<MUL>(rest),
                    _ => second::<SUB>(rest),
                }
            }
        }
    };
}

for_each_level!(level);

/// The function of these links; the first is no [`Link::SubFrom`], since its operands can be
/// exchanged.
pub(crate) fn chain(links: &[Link], simd: Simd) -> Chain {
    let mut codes = [NONE; LONGEST];
    for (code, link) in codes.iter_mut().zip(links) {
        *code = match link {
            Link::Add => ADD,
            Link::Mul => MUL,
            Link::Sub => SUB,
            Link::SubFrom => SUB_FROM,
        };
    }
    at_level!(simd, lookup(codes))
}
