//! Vector registers for the [microkernel](super::micro): one interface for every set of vector
//! instructions.
//!
//! Where the machine multiplies [`Pairs`] of bf16, a pair takes the place of a number. It has the
//! size of an f32, and is loaded and broadcast like one; only the multiplication treats it as two
//! numbers.

#[cfg(target_arch = "x86_64")]
use super::pairs::{BESIDE_LHS, pair_of};
use crate::call::element::Number;
use wengert_core::half::bf16;

/// A vector register.
pub(in crate::call) trait Vector: Copy {
    type Number: Number;
    /// A term of an operand.
    type Unit: Copy;
    const LANES: usize;
    /// Whether the lanes of operands are pairs of terms.
    const PAIRED: bool = false;
    /// Quads in a vector, if there are operations on quads of lanes; see
    /// [`quads`](super::quads).
    const QUADS: usize = 0;
    fn zero() -> Self;
    /// Broadcasts a number to every lane.
    fn splat(x: Self::Number) -> Self;
    /// Broadcasts the number that begins with a term to every lane.
    ///
    /// # Safety
    ///
    /// It is valid to read.
    #[inline(always)]
    unsafe fn broadcast(at: *const Self::Unit) -> Self {
        // SAFETY: the caller guarantees it.
        Self::splat(unsafe { at.cast::<Self::Number>().read_unaligned() })
    }
    /// [`broadcast`](Self::broadcast) of a term without a partner.
    ///
    /// # Safety
    ///
    /// As for [`broadcast`](Self::broadcast): memory for a partner is valid to read.
    #[inline(always)]
    unsafe fn broadcast_alone(at: *const Self::Unit) -> Self {
        // SAFETY: the caller guarantees it.
        unsafe { Self::broadcast(at) }
    }
    /// # Safety
    ///
    /// As many numbers as there are lanes are valid to read.
    unsafe fn load(at: *const Self::Number) -> Self;
    /// The first `count` lanes from memory, and 0 in the others.
    ///
    /// # Safety
    ///
    /// `count` numbers, at most as many as there are lanes, are valid to read.
    #[inline(always)]
    unsafe fn load_first(at: *const Self::Number, count: usize) -> Self {
        let mut numbers = Self::zero();
        // SAFETY: the caller guarantees the memory, and the vector has the lanes.
        unsafe { at.copy_to_nonoverlapping((&raw mut numbers).cast(), count) };
        numbers
    }
    /// Two vectors of neighbouring columns, from rows of terms at a distance of `row`. With
    /// [pairs](Self::PAIRED), these are two rows.
    ///
    /// # Safety
    ///
    /// The terms are valid to read.
    #[inline(always)]
    unsafe fn unpacked(at: *const Self::Unit, row: usize) -> [Self; 2] {
        let _ = row;
        // SAFETY: the caller guarantees it.
        unsafe { [Self::load(at.cast()), Self::load(at.add(Self::LANES).cast())] }
    }
    /// # Safety
    ///
    /// As many numbers as there are lanes are valid to write.
    unsafe fn store(self, at: *mut Self::Number);
    /// Stores the first `count` lanes.
    ///
    /// # Safety
    ///
    /// `count` numbers, at most as many as there are lanes, are valid to write.
    #[inline(always)]
    unsafe fn store_first(self, at: *mut Self::Number, count: usize) {
        // SAFETY: the caller guarantees the memory, and the vector has the lanes.
        unsafe { (&raw const self).cast::<Self::Number>().copy_to_nonoverlapping(at, count) };
    }
    /// Stores the sums of neighbouring columns, rounded as
    /// [`Element::round`](crate::call::element::Element::round); only for [pairs](Self::PAIRED).
    ///
    /// # Safety
    ///
    /// Twice as many elements as there are lanes are valid to write.
    unsafe fn store_rounded(_: [Self; 2], _: *mut bf16) {
        unreachable!("only sums of pairs are rounded by kernels");
    }
    /// One quad from each address: its first `count` numbers, and 0 in the others. Only with
    /// [quads](Self::QUADS), as the next methods.
    ///
    /// # Safety
    ///
    /// `count` numbers, at most 4, are valid to read at each address.
    unsafe fn load_quads(_: [*const Self::Number; 4], _: usize) -> Self {
        unreachable!("the vector has no quads")
    }
    /// The same quad everywhere: the first `count` numbers, and 0 in the others.
    ///
    /// # Safety
    ///
    /// `count` numbers, at most 4, are valid to read.
    unsafe fn repeat_quad(_: *const Self::Number, _: usize) -> Self {
        unreachable!("the vector has no quads")
    }
    /// Number `LANE` of each quad in all of its lanes.
    fn spread<const LANE: i32>(self) -> Self {
        unreachable!("the vector has no quads")
    }
    /// Stores the first `count` lanes of each quad at an address of its own.
    ///
    /// # Safety
    ///
    /// `count` numbers, at most 4, are valid to write at each address.
    unsafe fn store_quads(self, _: [*mut Self::Number; 4], _: usize) {
        unreachable!("the vector has no quads")
    }
    /// `self + x`
    fn plus(self, x: Self) -> Self;
    /// `x · y + self`, rounded once.
    fn plus_product(self, x: Self, y: Self) -> Self;
    /// Prefetches a cache line; any address is allowed.
    fn prefetch(_: *const Self::Number) {}
}

/// Four numbers, which the compiler may keep in a register.
#[derive(Clone, Copy)]
pub(in crate::call) struct Plain<T>(pub [T; 4]);

macro_rules! plain {
    ($t:ident) => {
        impl Vector for Plain<$t> {
            type Number = $t;
            type Unit = $t;
            const LANES: usize = 4;
            #[inline(always)]
            fn zero() -> Self {
                Plain([0.0; 4])
            }
            #[inline(always)]
            fn splat(x: $t) -> Self {
                Plain([x; 4])
            }
            #[inline(always)]
            unsafe fn load(at: *const $t) -> Self {
                // SAFETY: the caller guarantees it.
                Plain(unsafe { at.cast::<[$t; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t) {
                // SAFETY: the caller guarantees it.
                unsafe { at.cast::<[$t; 4]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            fn plus(self, x: Self) -> Self {
                Plain(std::array::from_fn(|l| self.0[l] + x.0[l]))
            }
            #[inline(always)]
            fn plus_product(self, x: Self, y: Self) -> Self {
                Plain(std::array::from_fn(|l| x.0[l].mul_add(y.0[l], self.0[l])))
            }
        }
    };
}
plain!(f32);
plain!(f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    macro_rules! quads_of_512 {
        () => {
            const QUADS: usize = 4;
            #[inline(always)]
            unsafe fn load_quads(at: [*const f32; 4], count: usize) -> Self {
                // SAFETY: the caller guarantees the memory of the first lanes; the others are not
                // accessed. The machine has the instructions.
                unsafe {
                    let [a, b, c, d] = at.map(|at| match count {
                        4 => _mm_loadu_ps(at),
                        _ => _mm_maskz_loadu_ps(first_lanes(count) as u8, at),
                    });
                    let low = _mm512_insertf32x4::<1>(_mm512_castps128_ps512(a), b);
                    _mm512_insertf32x4::<3>(_mm512_insertf32x4::<2>(low, c), d)
                }
            }
            #[inline(always)]
            unsafe fn repeat_quad(at: *const f32, count: usize) -> Self {
                // SAFETY: as for quads.
                unsafe { _mm512_broadcast_f32x4(_mm_maskz_loadu_ps(first_lanes(count) as u8, at)) }
            }
            #[inline(always)]
            fn spread<const LANE: i32>(self) -> Self {
                // SAFETY: the machine has the instruction.
                unsafe {
                    match LANE {
                        0 => _mm512_permute_ps::<0x00>(self),
                        1 => _mm512_permute_ps::<0x55>(self),
                        2 => _mm512_permute_ps::<0xaa>(self),
                        _ => _mm512_permute_ps::<0xff>(self),
                    }
                }
            }
            #[inline(always)]
            unsafe fn store_quads(self, at: [*mut f32; 4], count: usize) {
                let mask = first_lanes(count) as u8;
                // SAFETY: as for loads.
                unsafe {
                    _mm_mask_storeu_ps(at[0], mask, _mm512_castps512_ps128(self));
                    _mm_mask_storeu_ps(at[1], mask, _mm512_extractf32x4_ps::<1>(self));
                    _mm_mask_storeu_ps(at[2], mask, _mm512_extractf32x4_ps::<2>(self));
                    _mm_mask_storeu_ps(at[3], mask, _mm512_extractf32x4_ps::<3>(self));
                }
            }
        };
    }

    macro_rules! register {
        ($register:ident of $t:ident, $lanes:literal:
            $zero:ident $splat:ident $load:ident $store:ident $add:ident $fma:ident,
            $load_first:expr, $store_first:expr $(, $quads:ident)?) => {
            // The intrinsics require the machine's instructions. Callers of kernels compiled for
            // them must guarantee that.
            impl Vector for $register {
                type Number = $t;
                type Unit = $t;
                const LANES: usize = $lanes;
                #[inline(always)]
                fn zero() -> Self {
                    // SAFETY: the machine has the instruction.
                    unsafe { $zero() }
                }
                #[inline(always)]
                fn splat(x: $t) -> Self {
                    // SAFETY: the machine has the instruction.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(at: *const $t) -> Self {
                    // SAFETY: the caller guarantees the memory; the machine has the instruction.
                    unsafe { $load(at) }
                }
                #[inline(always)]
                unsafe fn store(self, at: *mut $t) {
                    // SAFETY: the caller guarantees the memory; the machine has the instruction.
                    unsafe { $store(at, self) }
                }
                #[inline(always)]
                unsafe fn load_first(at: *const $t, count: usize) -> Self {
                    debug_assert!(count <= $lanes);
                    // SAFETY: the caller guarantees the memory of the first lanes; the others are
                    // not accessed.
                    unsafe { $load_first(at, count) }
                }
                #[inline(always)]
                unsafe fn store_first(self, at: *mut $t, count: usize) {
                    debug_assert!(count <= $lanes);
                    // SAFETY: as for loads.
                    unsafe { $store_first(at, count, self) }
                }
                #[inline(always)]
                fn plus(self, x: Self) -> Self {
                    // SAFETY: the machine has the instruction.
                    unsafe { $add(self, x) }
                }
                #[inline(always)]
                fn plus_product(self, x: Self, y: Self) -> Self {
                    // SAFETY: the machine has the instruction.
                    unsafe { $fma(x, y, self) }
                }
                #[inline(always)]
                fn prefetch(at: *const $t) {
                    // SAFETY: the machine has the instruction, which has no effect on the
                    // program's state.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
                $($quads!();)?
            }
        };
    }
    register!(__m256 of f32, 8:
        _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps
        _mm256_add_ps _mm256_fmadd_ps,
        |at, count| _mm256_maskload_ps(at, lanes_of_8(count)),
        |at, count, x| _mm256_maskstore_ps(at, lanes_of_8(count), x));
    register!(__m256d of f64, 4:
        _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd
        _mm256_add_pd _mm256_fmadd_pd,
        |at, count| _mm256_maskload_pd(at, lanes_of_4(count)),
        |at, count, x| _mm256_maskstore_pd(at, lanes_of_4(count), x));
    register!(__m512 of f32, 16:
        _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps
        _mm512_add_ps _mm512_fmadd_ps,
        |at, count| _mm512_maskz_loadu_ps(first_lanes(count), at),
        |at, count, x| _mm512_mask_storeu_ps(at, first_lanes(count), x), quads_of_512);
    register!(__m512d of f64, 8:
        _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd
        _mm512_add_pd _mm512_fmadd_pd,
        |at, count| _mm512_maskz_loadu_pd(first_lanes(count) as u8, at),
        |at, count, x| _mm512_mask_storeu_pd(at, first_lanes(count) as u8, x));

    /// The mask of the first lanes, at most 16.
    #[inline(always)]
    fn first_lanes(count: usize) -> u16 {
        ((1u32 << count) - 1) as u16
    }

    /// The mask of the first lanes of eight.
    ///
    /// # Safety
    ///
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn lanes_of_8(count: usize) -> __m256i {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes)
        }
    }

    /// The mask of the first lanes of four.
    ///
    /// # Safety
    ///
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn lanes_of_4(count: usize) -> __m256i {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
            _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), lanes)
        }
    }
}

/// Sums of products of bf16. As an operand: sixteen pairs of bf16, each in the bits of an f32
/// that is never used as one; the lower half is the first number.
///
/// Adding the product of two pairs adds the product of the second numbers, then that of the
/// first. Each addition rounds once, and numbers smaller than 2⁻¹²⁶ are 0 (Intel, *Architecture
/// Instruction Set Extensions*, VDPBF16PS).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Pairs(std::arch::x86_64::__m512);

#[cfg(target_arch = "x86_64")]
impl Pairs {
    /// The pairs of two lines of 32 elements; the second line is 0 if there is none.
    ///
    /// # Safety
    ///
    /// The elements are valid to read. The machine has AVX512-BW.
    #[inline(always)]
    pub unsafe fn interleaved(first: *const bf16, second: Option<*const bf16>) -> [Pairs; 2] {
        use std::arch::x86_64::*;
        static INDICES: [[i16; 32]; 2] = {
            let mut indices = [[0; 32]; 2];
            let mut n = 0i16;
            while n < 32 {
                // The second line's elements have the indices from 32 on.
                let lane = n / 2 + n % 2 * 32;
                indices[0][n as usize] = lane;
                indices[1][n as usize] = lane + 16;
                n += 1;
            }
            indices
        };
        // SAFETY: the caller guarantees the memory and the instructions.
        unsafe {
            let first = _mm512_loadu_si512(first.cast());
            let second = match second {
                Some(second) => _mm512_loadu_si512(second.cast()),
                None => _mm512_setzero_si512(),
            };
            let low = _mm512_loadu_si512(INDICES[0].as_ptr().cast());
            let high = _mm512_loadu_si512(INDICES[1].as_ptr().cast());
            let low = _mm512_permutex2var_epi16(first, low, second);
            let high = _mm512_permutex2var_epi16(first, high, second);
            [Pairs(_mm512_castsi512_ps(low)), Pairs(_mm512_castsi512_ps(high))]
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for Pairs {
    type Number = f32;
    type Unit = u16;
    const LANES: usize = 16;
    const PAIRED: bool = true;
    #[inline(always)]
    fn zero() -> Self {
        Pairs(Vector::zero())
    }
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Pairs(Vector::splat(x))
    }
    #[inline(always)]
    unsafe fn broadcast_alone(at: *const u16) -> Self {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the memory; the machine has the instructions.
        unsafe {
            let first = _mm512_castps_si512(Self::broadcast(at).0);
            let first = _mm512_and_si512(first, _mm512_set1_epi32(pair_of(u16::MAX, 0) as i32));
            let beside = _mm512_set1_epi32(pair_of(0, BESIDE_LHS) as i32);
            Pairs(_mm512_castsi512_ps(_mm512_or_si512(first, beside)))
        }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller guarantees it.
        Pairs(unsafe { Vector::load(at) })
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> Self {
        // SAFETY: the caller guarantees it.
        Pairs(unsafe { Vector::load_first(at, count) })
    }
    #[inline(always)]
    unsafe fn store_first(self, at: *mut f32, count: usize) {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.store_first(at, count) }
    }
    #[inline(always)]
    unsafe fn unpacked(at: *const u16, row: usize) -> [Self; 2] {
        // SAFETY: the caller guarantees the memory; the machine has the instructions.
        unsafe { Self::interleaved(at.cast(), Some(at.add(row).cast())) }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.store(at) }
    }
    #[inline(always)]
    unsafe fn store_rounded(sums: [Self; 2], at: *mut bf16) {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the memory; the machine has the instructions.
        unsafe {
            let mut upper = [_mm512_setzero_si512(); 2];
            for (upper, sums) in upper.iter_mut().zip(sums) {
                let bits = _mm512_castps_si512(sums.0);
                // To the nearest, ties to even: half of the last place, and the last place's bit
                // if a half would make it odd.
                let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sums.0, sums.0);
                // Every NaN becomes the canonical one.
                let canonical = _mm512_set1_epi32(0x7fc0_0000);
                *upper = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, canonical);
            }
            static UPPER: [i16; 32] = {
                let mut indices = [0; 32];
                let mut n = 0i16;
                while n < 32 {
                    indices[n as usize] = 2 * n + 1;
                    n += 1;
                }
                indices
            };
            let indices = _mm512_loadu_si512(UPPER.as_ptr().cast());
            let [first, second] = upper;
            _mm512_storeu_si512(at.cast(), _mm512_permutex2var_epi16(first, indices, second));
        }
    }
    #[inline(always)]
    fn plus(self, x: Self) -> Self {
        Pairs(self.0.plus(x.0))
    }
    #[inline(always)]
    fn plus_product(self, x: Self, y: Self) -> Self {
        use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps};
        // SAFETY: all vectors are 64 bytes, and every bit pattern is valid; the machine has the
        // instruction, as for every vector.
        unsafe {
            let pairs = |v: Pairs| std::mem::transmute::<_, __m512bh>(v.0);
            Pairs(_mm512_dpbf16_ps(self.0, pairs(x), pairs(y)))
        }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        <std::arch::x86_64::__m512 as Vector>::prefetch(at);
    }
}
