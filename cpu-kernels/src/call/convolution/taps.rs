//! Kernels of depthwise convolutions: sums of products of a source and a filter, or of a source
//! and a cotangent, channel by channel.
//!
//! The vectors lie along channels, which are neighbours in memory, so no operand is broadcast or
//! packed. Each sum is one chain of fused multiply-adds, as an element of a
//! [product](crate::call::product) is. A tap outside of the source adds a product with 0.

use crate::call::product::vector::{Plain, Vector};
use crate::simd::Simd;

/// The offset of a tap outside of the source.
pub(in crate::call) const OUTSIDE: usize = usize::MAX;

/// Vectors of sums that are computed at a time. These are more than the stages of an arithmetic
/// unit's pipeline, and with their operands they fit into 16 registers.
const WIDE: usize = 4;
/// Taps of which gradients are computed at a time.
const TOGETHER: usize = 3;

/// Neighbouring positions of which all taps that are inside are at the same offsets from each
/// other: `out[p][c] = Σₜ source[p · step + offsets[t] + c] · filter[t][c]`.
pub(in crate::call) struct Sums<'a, T> {
    /// For each tap, the offset of its channels from `source` in numbers, or [`OUTSIDE`].
    pub offsets: &'a [usize],
    pub source: *const T,
    /// Numbers between the sources of two positions.
    pub step: usize,
    pub positions: usize,
    /// A number for each tap and channel.
    pub filter: *const T,
    pub channels: usize,
    /// The sums of the first position; those of the others follow.
    pub out: *mut T,
}

/// A part of a filter's cotangent: `out[t][c] += Σₚ source[offsets[t][p] + c] · cotangent[p][c]`.
pub(in crate::call) struct Gradients<'a, T> {
    /// For each tap and position, the offset of its channels from `source` in numbers, or
    /// [`OUTSIDE`].
    pub offsets: &'a [usize],
    pub positions: usize,
    pub source: *const T,
    /// Channels of the first position.
    pub cotangent: *const T,
    /// Channels of the tensors.
    pub all: usize,
    /// Channels to compute.
    pub channels: usize,
    /// The sums of the first tap, which are continued.
    pub out: *mut T,
}

/// The kernels for a dtype and a set of vector instructions.
pub(in crate::call) struct Kernels<T: 'static> {
    /// # Safety
    ///
    /// The channels of the source at every tap that is inside, and those of the filter, are valid
    /// to read, and those of out to write. The machine has the vector instructions.
    pub sums: unsafe fn(&Sums<'_, T>),
    /// # Safety
    ///
    /// The channels of the source at every tap that is inside, and those of the cotangent, are
    /// valid to read, and those of out to read and write. The machine has the vector instructions.
    pub gradients: unsafe fn(&Gradients<'_, T>),
}

/// A vector of channels.
#[derive(Clone, Copy)]
enum Lanes {
    /// All of its lanes are channels.
    All,
    /// So many are, and there is nothing behind them.
    First(usize),
}

/// # Safety
///
/// The lanes are valid to read.
#[inline(always)]
unsafe fn load<V: Vector>(at: *const V::Number, lanes: Lanes) -> V {
    // SAFETY: the caller guarantees it.
    unsafe {
        match lanes {
            Lanes::All => V::load(at),
            Lanes::First(count) => V::load_first(at, count),
        }
    }
}

/// # Safety
///
/// The lanes are valid to write.
#[inline(always)]
unsafe fn store<V: Vector>(numbers: V, at: *mut V::Number, lanes: Lanes) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match lanes {
            Lanes::All => numbers.store(at),
            Lanes::First(count) => numbers.store_first(at, count),
        }
    }
}

/// Divides channels into several vectors at a time, single ones, and a rest.
macro_rules! for_channels {
    ($vector:ty, $channels:expr, |$channel:ident, $wide:ident, $lanes:ident| $body:expr) => {
        let (mut $channel, channels) = (0, $channels);
        while channels - $channel >= WIDE * <$vector>::LANES {
            const $wide: usize = WIDE;
            let $lanes = Lanes::All;
            $body;
            $channel += WIDE * <$vector>::LANES;
        }
        while channels - $channel >= <$vector>::LANES {
            const $wide: usize = 1;
            let $lanes = Lanes::All;
            $body;
            $channel += <$vector>::LANES;
        }
        if $channel < channels {
            const $wide: usize = 1;
            let $lanes = Lanes::First(channels - $channel);
            $body;
        }
    };
}

/// # Safety
///
/// As for [`Kernels::sums`].
#[inline(always)]
unsafe fn sums<V: Vector>(of: &Sums<'_, V::Number>) {
    for position in 0..of.positions {
        let source = of.source.wrapping_add(position * of.step);
        let out = of.out.wrapping_add(position * of.channels);
        for_channels!(V, of.channels, |channel, N, lanes| {
            // SAFETY: the channels exist.
            unsafe {
                let at = [source.wrapping_add(channel), of.filter.wrapping_add(channel)];
                sum::<V, N>(of, at, out.wrapping_add(channel), lanes)
            }
        });
    }
}

/// `N` vectors of the sums of a position.
///
/// # Safety
///
/// As for [`sums`].
#[inline(always)]
unsafe fn sum<V: Vector, const N: usize>(
    of: &Sums<'_, V::Number>,
    [source, mut filter]: [*const V::Number; 2],
    out: *mut V::Number,
    lanes: Lanes,
) {
    let mut sums = [V::zero(); N];
    for offset in of.offsets {
        for (v, sum) in sums.iter_mut().enumerate() {
            let at = source.wrapping_add(*offset).wrapping_add(v * V::LANES);
            // SAFETY: the caller guarantees the channels.
            unsafe {
                let x = if *offset == OUTSIDE { V::zero() } else { load::<V>(at, lanes) };
                let w = load::<V>(filter.wrapping_add(v * V::LANES), lanes);
                *sum = sum.plus_product(x, w);
            }
        }
        filter = filter.wrapping_add(of.channels);
    }
    for (v, sum) in sums.iter().enumerate() {
        // SAFETY: the caller guarantees the channels.
        unsafe { store(*sum, out.wrapping_add(v * V::LANES), lanes) };
    }
}

/// # Safety
///
/// As for [`Kernels::gradients`].
#[inline(always)]
unsafe fn gradients<V: Vector>(of: &Gradients<'_, V::Number>) {
    let taps = of.offsets.len().checked_div(of.positions).unwrap_or(0);
    for_channels!(V, of.channels, |channel, N, lanes| {
        let mut tap = 0;
        // SAFETY: the taps and channels exist.
        unsafe {
            while taps - tap >= TOGETHER {
                gradient::<V, TOGETHER, N>(of, tap, channel, lanes);
                tap += TOGETHER;
            }
            while tap < taps {
                gradient::<V, 1, N>(of, tap, channel, lanes);
                tap += 1;
            }
        }
    });
}

/// `N` vectors of the gradients of `TAPS` taps.
///
/// # Safety
///
/// As for [`gradients`].
#[inline(always)]
unsafe fn gradient<V: Vector, const TAPS: usize, const N: usize>(
    of: &Gradients<'_, V::Number>,
    tap: usize,
    channel: usize,
    lanes: Lanes,
) {
    let out = |t: usize| of.out.wrapping_add((tap + t) * of.all + channel);
    let mut sums = [[V::zero(); N]; TAPS];
    // SAFETY: the caller guarantees the channels.
    unsafe {
        for (t, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = load(out(t).wrapping_add(v * V::LANES), lanes);
            }
        }
        let mut cotangent = of.cotangent.wrapping_add(channel);
        for position in 0..of.positions {
            let mut y = [V::zero(); N];
            for (v, y) in y.iter_mut().enumerate() {
                *y = load(cotangent.wrapping_add(v * V::LANES), lanes);
            }
            for (t, sums) in sums.iter_mut().enumerate() {
                let offset = *of.offsets.get_unchecked((tap + t) * of.positions + position);
                let source = of.source.wrapping_add(offset).wrapping_add(channel);
                for (v, (sum, y)) in sums.iter_mut().zip(&y).enumerate() {
                    let x = match offset {
                        OUTSIDE => V::zero(),
                        _ => load(source.wrapping_add(v * V::LANES), lanes),
                    };
                    *sum = sum.plus_product(x, *y);
                }
            }
            cotangent = cotangent.wrapping_add(of.all);
        }
        for (t, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                store(*sum, out(t).wrapping_add(v * V::LANES), lanes);
            }
        }
    }
}

/// The kernels for one set of vector instructions.
macro_rules! level {
    ($level:ident $(($features:literal))?: $single:ty, $double:ty) => {
        mod $level {
            use super::*;
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports, reason = "the portable kernels need none")]
            use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

            /// # Safety
            ///
            /// As for [`Kernels::sums`].
            $(#[target_feature(enable = $features)])?
            unsafe fn sums<V: Vector>(of: &Sums<'_, V::Number>) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::sums::<V>(of) }
            }

            /// # Safety
            ///
            /// As for [`Kernels::gradients`].
            $(#[target_feature(enable = $features)])?
            unsafe fn gradients<V: Vector>(of: &Gradients<'_, V::Number>) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::gradients::<V>(of) }
            }

            pub(super) static F32: Kernels<f32> =
                Kernels { sums: sums::<$single>, gradients: gradients::<$single> };
            pub(super) static F64: Kernels<f64> =
                Kernels { sums: sums::<$double>, gradients: gradients::<$double> };
        }
    };
}
level!(portable: Plain<f32>, Plain<f64>);
#[cfg(target_arch = "x86_64")]
level!(avx2 ("avx2,fma"): __m256, __m256d);
#[cfg(target_arch = "x86_64")]
level!(avx512 ("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"): __m512, __m512d);

lookup!(f32_kernels: Kernels<f32>, F32);
lookup!(f64_kernels: Kernels<f64>, F64);
