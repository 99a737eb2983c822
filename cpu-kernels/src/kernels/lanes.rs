//! Loops over chunks.

use super::operations::{Binary, Ternary, Unary};
use super::{CHUNK, TURN};
use std::mem::MaybeUninit;

/// `destination[k] = f(k)` for k in `0..C`; `f` reads only elements that were loaded before.
///
/// # Safety
///
/// `destination` is valid to write `C` elements.
#[inline(always)]
unsafe fn store<const C: usize, R: Copy>(destination: *mut R, f: impl Fn(usize) -> R) {
    let mut out = MaybeUninit::<[R; C]>::uninit();
    let elements = out.as_mut_ptr().cast::<R>();
    for k in 0..C {
        // SAFETY: k is below C, the number of elements of `out`.
        unsafe { elements.add(k).write(f(k)) };
    }
    // SAFETY: all elements of `out` are written; the caller guarantees the destination.
    unsafe { destination.cast::<[R; C]>().write_unaligned(out.assume_init()) };
}

/// A copy of `C` elements.
///
/// # Safety
///
/// `source` is valid to read `C` elements.
#[inline(always)]
unsafe fn load<const C: usize, T: Copy>(source: *const T) -> [T; C] {
    // SAFETY: the caller guarantees it.
    unsafe { source.cast::<[T; C]>().read_unaligned() }
}

/// The mask of a position in operand n: all ones, or 0 if the operand repeats its first elements.
#[inline(always)]
fn mask(repeat: u32, n: u32) -> usize {
    if repeat >> n & 1 == 0 { usize::MAX } else { 0 }
}

/// Calls `wide` for the elements that fill whole turns, and `narrow` for the remaining chunks.
#[inline(always)]
fn turns(count: usize, wide: impl Fn(usize), narrow: impl Fn(usize)) {
    let mut k = 0;
    while k + TURN <= count {
        wide(k);
        k += TURN;
    }
    while k < count {
        narrow(k);
        k += CHUNK;
    }
}

/// # Safety
///
/// As for [`super::Kernel`].
#[inline(always)]
pub(super) unsafe fn unary<O: Unary<T>, T: Copy>(destination: *mut u8, a: *const u8, count: usize) {
    let (destination, a) = (destination.cast::<O::Result>(), a.cast::<T>());
    #[inline(always)]
    unsafe fn chunk<const C: usize, O: Unary<T>, T: Copy>(
        destination: *mut O::Result,
        a: *const T,
        k: usize,
    ) {
        // SAFETY: k + C is at most the count, to which both blocks are valid.
        unsafe {
            let x: [T; C] = load(a.add(k));
            store::<C, _>(destination.add(k), |i| O::apply(x[i]));
        }
    }
    // SAFETY: the turns stay within the count, a multiple of CHUNK.
    turns(
        count,
        |k| unsafe { chunk::<TURN, O, T>(destination, a, k) },
        |k| unsafe {
            chunk::<CHUNK, O, T>(destination, a, k);
        },
    );
}

/// # Safety
///
/// As for [`super::Kernel`].
#[inline(always)]
pub(super) unsafe fn binary<O: Binary<T>, T: Copy>(
    destination: *mut u8,
    a: *const u8,
    b: *const u8,
    count: usize,
    repeat: u32,
) {
    let (x_mask, y_mask) = (mask(repeat, 0), mask(repeat, 1));
    let (destination, a, b) = (destination.cast::<O::Result>(), a.cast::<T>(), b.cast::<T>());
    #[inline(always)]
    unsafe fn chunk<const C: usize, O: Binary<T>, T: Copy>(
        destination: *mut O::Result,
        a: *const T,
        b: *const T,
        k: usize,
    ) {
        // SAFETY: the blocks have C elements from there on, as argued below.
        unsafe {
            let (x, y): ([T; C], [T; C]) = (load(a), load(b));
            store::<C, _>(destination.add(k), |i| O::apply(x[i], y[i]));
        }
    }
    let (a, b) = (|k: usize| a.wrapping_add(k & x_mask), |k: usize| b.wrapping_add(k & y_mask));
    // SAFETY: the turns stay within the count, a multiple of CHUNK; a repeated block has the
    // elements of a turn.
    turns(
        count,
        |k| unsafe { chunk::<TURN, O, T>(destination, a(k), b(k), k) },
        |k| unsafe {
            chunk::<CHUNK, O, T>(destination, a(k), b(k), k);
        },
    );
}

/// # Safety
///
/// As for [`super::Kernel`].
#[inline(always)]
pub(super) unsafe fn ternary<O: Ternary<A, T>, A: Copy, T: Copy>(
    destination: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    count: usize,
    repeat: u32,
) {
    let masks = [mask(repeat, 0), mask(repeat, 1), mask(repeat, 2)];
    let (destination, a, b, c) =
        (destination.cast::<T>(), a.cast::<A>(), b.cast::<T>(), c.cast::<T>());
    #[inline(always)]
    unsafe fn chunk<const C: usize, O: Ternary<A, T>, A: Copy, T: Copy>(
        destination: *mut T,
        a: *const A,
        b: *const T,
        c: *const T,
        k: usize,
    ) {
        // SAFETY: the blocks have C elements from there on, as argued below.
        unsafe {
            let x: [A; C] = load(a);
            let (y, z): ([T; C], [T; C]) = (load(b), load(c));
            store::<C, _>(destination.add(k), |i| O::apply(x[i], y[i], z[i]));
        }
    }
    let a = |k: usize| a.wrapping_add(k & masks[0]);
    let b = |k: usize| b.wrapping_add(k & masks[1]);
    let c = |k: usize| c.wrapping_add(k & masks[2]);
    // SAFETY: the turns stay within the count, a multiple of CHUNK; a repeated block has the
    // elements of a turn.
    turns(
        count,
        |k| unsafe { chunk::<TURN, O, A, T>(destination, a(k), b(k), c(k), k) },
        |k| unsafe {
            chunk::<CHUNK, O, A, T>(destination, a(k), b(k), c(k), k);
        },
    );
}

/// # Safety
///
/// As for [`super::Fold`].
#[inline(always)]
pub(super) unsafe fn fold<O: Binary<T, Result = T>, T: Copy>(
    accumulators: *mut u8,
    values: *const u8,
    count: usize,
) {
    let (accumulators, values) = (accumulators.cast::<T>(), values.cast::<T>());
    // SAFETY: there are CHUNK accumulators, and k + CHUNK is at most the count.
    unsafe {
        let mut sums: [T; CHUNK] = load(accumulators);
        let mut k = 0;
        while k < count {
            let x: [T; CHUNK] = load(values.add(k));
            for i in 0..CHUNK {
                sums[i] = O::apply(sums[i], x[i]);
            }
            k += CHUNK;
        }
        store::<CHUNK, _>(accumulators, |i| sums[i]);
    }
}

/// # Safety
///
/// As for [`super::Scan`].
pub(super) unsafe fn scan<O: Binary<T, Result = T>, T: Copy>(
    destination: *mut u8,
    values: *const u8,
    state: *mut u8,
    count: usize,
    reverse: bool,
) {
    let (destination, values, state) =
        (destination.cast::<T>(), values.cast::<T>(), state.cast::<T>());
    // SAFETY: k is below the count, to which both blocks are valid, and the state is one element.
    unsafe {
        let mut running = state.read();
        for k in 0..count {
            let k = if reverse { count - 1 - k } else { k };
            running = O::apply(running, values.add(k).read());
            destination.add(k).write(running);
        }
        state.write(running);
    }
}

/// # Safety
///
/// As for [`super::LaneFold`].
pub(super) unsafe fn lane_fold<O: Binary<T, Result = T>, T: Copy>(
    accumulators: *mut u8,
    values: *const u8,
    count: usize,
    lane: usize,
    lanes: usize,
) {
    let (accumulators, values) = (accumulators.cast::<T>(), values.cast::<T>());
    // SAFETY: k is below the count of values, and a number modulo the lanes below the lanes.
    unsafe {
        if lanes == 1 {
            let mut sum = accumulators.read();
            for k in 0..count {
                sum = O::apply(sum, values.add(k).read());
            }
            accumulators.write(sum);
            return;
        }
        for k in 0..count {
            let at = accumulators.add((lane + k) & (lanes - 1));
            at.write(O::apply(at.read(), values.add(k).read()));
        }
    }
}
