//! Tests products bit for bit against a direct implementation of the specified order.

use super::epilogue::Rounded;
use super::*;
use crate::memory::AlignedBytes;
use proptest::prelude::*;
use wengert_core::half::{bf16, f16};

/// Numbers with a fused multiply-add, the operation of chains.
trait Fused: Number {
    fn fused(self, other: Self, sum: Self) -> Self;
}

impl Fused for f32 {
    fn fused(self, other: f32, sum: f32) -> f32 {
        self.mul_add(other, sum)
    }
}

impl Fused for f64 {
    fn fused(self, other: f64, sum: f64) -> f64 {
        self.mul_add(other, sum)
    }
}

/// Numbers between −4 and 4 whose products and sums round.
fn numbers<T: Element>(count: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        T::constant((state >> 11) as f64 / (1u64 << 50) as f64 - 4.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Distances between rows and between columns: rows are contiguous, or columns, or neither.
fn distances(layout: usize, rows: usize, columns: usize) -> [usize; 2] {
    match layout % 4 {
        0 => [columns, 1],
        1 => [1, rows],
        2 => [2 * columns + 1, 2],
        _ => [columns + 3, 1],
    }
}

/// A chain over k, beginning with `start`; of paired terms the second comes first.
fn chain<N: Fused>(start: N, terms: impl Iterator<Item = (N, N)>, paired: bool) -> N {
    let mut terms: Vec<(N, N)> = terms.collect();
    if paired {
        terms.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
    }
    terms.into_iter().fold(start, |sum, (x, y)| x.fused(y, sum))
}

/// Sums in four lines of 64 bytes, whose halves are added until one is left.
fn in_lanes<N: Fused>(terms: impl Iterator<Item = (N, N)>) -> N {
    let lanes = 256 / size_of::<N>();
    let mut sums = vec![N::ZERO; lanes];
    let mut count = 0usize;
    for (k, (x, y)) in terms.enumerate() {
        sums[k % lanes] = x.fused(y, sums[k % lanes]);
        count += 1;
    }
    // Lanes beyond the end of the last turn add zeros.
    (count..count.next_multiple_of(lanes))
        .for_each(|k| sums[k % lanes] = N::ZERO.fused(N::ZERO, sums[k % lanes]));
    while sums.len() > 1 {
        let upper = sums.split_off(sums.len() / 2);
        sums.iter_mut().zip(upper).for_each(|(x, y)| *x = x.add(y));
    }
    sums[0]
}

/// Computes a product with every set of vector instructions, and compares all of out, gaps
/// included, with the specification.
fn check<T: Element<Wide = N>, N: Fused>(
    order: Order,
    [m, n, k]: [usize; 3],
    layouts: [usize; 2],
    gap: usize,
    add: bool,
) {
    let ([lhs_row, lhs_column], [rhs_row, rhs_column]) =
        (distances(layouts[0], m, k), distances(layouts[1], k, n));
    let span = |rows: usize, columns: usize, row: usize, column: usize| {
        rows.saturating_sub(1) * row + columns.saturating_sub(1) * column + 1
    };
    let x = numbers::<T>(span(m, k, lhs_row, lhs_column), 1 + k as u64);
    let y = numbers::<T>(span(k, n, rhs_row, rhs_column), 7 + n as u64);
    let row = n + gap;
    let before = numbers::<N>(m * row, 3);
    let mut wanted = before.clone();
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|k| {
                (x[i * lhs_row + k * lhs_column].wide(), y[k * rhs_row + j * rhs_column].wide())
            });
            let start = if add { before[i * row + j] } else { N::ZERO };
            wanted[i * row + j] = match order {
                Order::Chain => chain(start, terms, T::PAIRED),
                Order::Blocks(block) => {
                    let terms: Vec<(N, N)> = terms.collect();
                    let blocks = terms.chunks(block);
                    let sums = blocks.map(|b| chain(N::ZERO, b.iter().copied(), T::PAIRED));
                    sums.reduce(Number::add).expect("there are several blocks")
                }
                Order::Lanes => in_lanes(terms),
            };
        }
    }
    let (bias, residual) = (numbers::<N>(n, 11), numbers::<N>(m * row, 5));
    let nothing = std::ptr::null();
    let which = [false, true].map(|rounds| {
        [[false, false], [true, false], [false, true], [true, true]]
            .map(|addends| (rounds, addends))
    });
    for (simd, (rounds, [has_bias, has_residual])) in
        Simd::available().flat_map(|simd| which.into_iter().flatten().map(move |w| (simd, w)))
    {
        let kernels_round = T::kernels_of_pairs(simd).is_some();
        let in_registers = order == Order::Chain || !(has_bias || has_residual);
        if rounds && !(kernels_round && in_registers) {
            continue;
        }
        let mut rounded = vec![bf16::ZERO; m * row];
        let mut wanted = wanted.clone();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum = &mut wanted[i * row + j];
            *sum = if has_bias { sum.add(bias[j]) } else { *sum };
            *sum = if has_residual { sum.add(residual[i * row + j]) } else { *sum };
        }
        let epilogue = Epilogue {
            bias: if has_bias { bias.as_ptr() } else { nothing },
            residual: if has_residual { residual.as_ptr() } else { nothing },
            rounded: match rounds {
                true => Rounded { at: rounded.as_mut_ptr(), row },
                false => Rounded::NONE,
            },
        };
        let mut out = before.clone();
        let mut memory = AlignedBytes::new(scratch(T::DTYPE, [m, n, k])).expect("little memory");
        let product = Product {
            size: [m, n, k],
            order,
            lhs: View { at: x.as_ptr(), row: lhs_row, column: lhs_column },
            rhs: View { at: y.as_ptr(), row: rhs_row, column: rhs_column },
            out: out.as_mut_ptr(),
            row,
            add,
            epilogue,
            beside: &[],
            one_strip: false,
        };
        let (mut reported, mut finished) = (vec![0; m * n], vec![false; m * n]);
        // SAFETY: the vectors were made for these extents and distances, and the machine has the
        // instructions.
        unsafe {
            multiply(simd, &mut memory, &product, |made| {
                for (i, j) in made.rows.flat_map(|i| made.columns.clone().map(move |j| (i, j))) {
                    reported[i * n + j] += 1;
                    finished[i * n + j] = made.finished;
                }
            });
        }
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum = &mut out[i * row + j];
            match finished[i * n + j] {
                true if rounds => {
                    let (wanted, found) = (wanted[i * row + j], rounded[i * row + j]);
                    let element = T::round(wanted);
                    assert_eq!(bytemuck::bytes_of(&element), bytemuck::bytes_of(&found));
                    *sum = wanted;
                }
                true => {}
                // Adds the addends where the product reports that it did not.
                false => {
                    *sum = if has_bias { sum.add(bias[j]) } else { *sum };
                    *sum = if has_residual { sum.add(residual[i * row + j]) } else { *sum };
                }
            }
        }
        let tiles = N::kernels(simd).is_some() && m > FEW && row > 1 && k > 0;
        let finishes = tiles && (order == Order::Chain || rounds);
        assert!(!finishes || finished.iter().all(|f| *f), "tiles apply the epilogue");
        let what = format!(
            "{} {m}×{n}×{k} {layouts:?} gap {gap} add {add} bias {has_bias} residual \
             {has_residual} {order:?} {}",
            T::DTYPE,
            simd.name()
        );
        assert!(
            reported.iter().all(|count| *count == 1),
            "{what}: parts are finished more or less than once"
        );
        let (found, wanted) =
            (bytemuck::cast_slice::<N, u8>(&out), bytemuck::cast_slice::<N, u8>(&wanted));
        assert!(found == wanted, "{what}");
    }
}

fn every_dtype(order: Order, size: [usize; 3], layouts: [usize; 2], gap: usize, add: bool) {
    check::<f32, _>(order, size, layouts, gap, add);
    check::<f64, _>(order, size, layouts, gap, add);
    check::<f16, _>(order, size, layouts, gap, add);
    check::<bf16, _>(order, size, layouts, gap, add);
}

/// Tiles and their edges, few rows and one column, several blocks of k and of columns.
#[test]
fn every_element_is_one_chain() {
    let shapes = [
        [1, 1, 1],
        [1, 33, 7],
        [7, 5, 3],
        [13, 31, 17],
        [14, 32, 8],
        [15, 33, 9],
        [28, 64, 40],
        [29, 67, 257],
        [2, 97, 300],
        [8, 65, 270],
        [9, 16, 24],
        [130, 17, 19],
        [3, 515, 5],
        [31, 1030, 6],
        [41, 1, 300],
        [1, 70, 300],
        [5, 40, 521],
        // One row whose sums stay in registers, for every kernel.
        [1, 300, 270],
        [1, 900, 261],
        // Rows of rhs are contiguous and read one after the other, or two at a time.
        [1, 320, 261],
        [1, 320, 30],
        [2, 320, 270],
        // Few rows, with a part of a panel and a last pair without a partner.
        [3, 700, 259],
        [8, 530, 17],
        // An unpacked lhs, with as many columns left as a quad has, or fewer.
        [43, 36, 8],
        [44, 34, 35],
        [45, 65, 261],
        [58, 3, 38],
        [43, 67, 1],
        // Rows that compete for the same lines of a cache.
        [43, 34, 512],
    ];
    for (n, size) in shapes.into_iter().enumerate() {
        for layouts in [[0, 0], [0, 1], [1, 0], [1, 1], [2, 3], [3, 2]] {
            every_dtype(Order::Chain, size, layouts, n % 3, n % 2 == 0);
        }
    }
}

/// Few rows, one column, tiles and their edges; blocks of one and of several steps of packing, and
/// columns beyond the sums of few rows.
#[test]
fn long_sums_of_halves_are_blocks() {
    let sizes = [
        [1, 70, 513],
        [8, 65, 700],
        [3, 33, 1200],
        [9, 40, 600],
        [29, 67, 1030],
        [41, 1, 900],
        // Rows of an odd number of halves, as many as fill the widest squares.
        [36, 50, 601],
    ];
    for size in sizes {
        let order = Order::Blocks(blocks::terms(size[2]));
        for layouts in [[0, 0], [0, 1], [1, 0], [1, 1], [2, 3], [3, 2]] {
            check::<f16, _>(order, size, layouts, size[0] % 3, false);
            check::<bf16, _>(order, size, layouts, size[0] % 3, false);
        }
    }
    for (n, layout) in [(1030, 0), (1100, 1)] {
        check::<bf16, _>(Order::Blocks(264), [8, n, 520], [0, layout], 1, false);
    }
}

/// All upper halves of a number, with the lower halves around a tie.
#[cfg(target_arch = "x86_64")]
#[test]
fn kernels_round_as_elements_do() {
    use super::vector::{Pairs, Vector};
    if !Simd::available().any(|simd| simd == Simd::Avx512Bf16) {
        return;
    }
    for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
        for first in (0..1u32 << 16).step_by(32) {
            let sums: [f32; 32] =
                std::array::from_fn(|n| f32::from_bits((first + n as u32) << 16 | lower));
            let mut rounded = [bf16::ZERO; 32];
            // SAFETY: the machine has the instructions; there are two vectors of numbers.
            unsafe {
                let vectors = [0, 16].map(|n| Pairs::load(sums.as_ptr().add(n)));
                Pairs::store_rounded(vectors, rounded.as_mut_ptr());
            }
            let wanted = sums.map(<bf16 as Element>::round);
            assert_eq!(
                wanted.map(bf16::to_bits),
                rounded.map(bf16::to_bits),
                "{first:x} {lower:x}"
            );
        }
    }
}

/// Two threads can divide them, and no pair of terms is divided.
#[test]
fn blocks_are_equal_and_even_in_number() {
    for k in blocks::MOST + 1..5000 {
        let block = blocks::terms(k);
        let count = k.div_ceil(block);
        assert!(block <= blocks::MOST && block.is_multiple_of(8), "{k}: {block}");
        assert!(count.is_multiple_of(2), "{k}: {count} blocks of {block}");
        assert!(k - (count - 1) * block > block / 2, "{k}: {count} blocks of {block}");
    }
}

#[test]
fn empty_extents_give_nothing_or_zeros() {
    for size in [[0, 5, 3], [5, 0, 3], [5, 3, 0], [40, 1, 0], [1, 40, 0], [0, 0, 0]] {
        for add in [false, true] {
            every_dtype(Order::Chain, size, [0, 0], 1, add);
        }
    }
}

#[test]
fn products_with_a_column_are_summed_in_lanes() {
    for k in [1, 31, 64, 65, 127, 128, 1000, 1024, 1025, 2500] {
        for gap in [0, 2] {
            every_dtype(Order::Lanes, [5, 1, k], [0, 2 * (k % 2)], gap, false);
        }
    }
}

/// The call determines the order of a sum, so it is the same for every tile.
#[test]
fn orders_are_chosen_by_calls() {
    use wengert_core::DType;
    use wengert_core::call::Matrix;
    let call = |[m, n, k]: [usize; 3], lhs: [usize; 2], rhs: [usize; 2], operand: DType| Gemm {
        batch: 1,
        m,
        n,
        k,
        lhs: Matrix { batch: 0, row: lhs[0], column: lhs[1] },
        rhs: Matrix { batch: 0, row: rhs[0], column: rhs[1] },
        operand,
        rhs_operand: None,
        scales: None,
        accumulate: operand,
        result: operand,
        addends: Default::default(),
        pitch: None,
    };
    let order = |size, lhs, rhs| Order::of(&call(size, lhs, rhs, DType::F32));
    assert_eq!(order([9, 1, 100], [100, 1], [1, 1]), Order::Lanes);
    assert_eq!(order([1, 1, 100], [100, 1], [1, 1]), Order::Lanes);
    // A row has the order that it has among others.
    assert_eq!(order([1, 9, 100], [100, 1], [1, 100]), Order::Chain);
    assert_eq!(order([1, 9, 100], [100, 1], [9, 1]), Order::Chain);
    assert_eq!(order([9, 1, 100], [1, 9], [1, 1]), Order::Chain);
    assert_eq!(order([2, 9, 100], [100, 1], [1, 100]), Order::Chain);
    assert_eq!(order([9, 1, 20], [20, 1], [1, 1]), Order::Chain);
    assert_eq!(Order::of(&call([9, 1, 100], [100, 1], [1, 1], DType::I32)), Order::Chain);
    // Long sums of halves, of any number of rows.
    for m in [1, 100] {
        let halves = |k| Order::of(&call([m, 9, k], [k, 1], [9, 1], DType::BF16));
        assert_eq!(halves(512), Order::Chain);
        assert_eq!(halves(768), Order::Blocks(384));
        assert_eq!(order([m, 9, 768], [768, 1], [9, 1]), Order::Chain);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_extents(
        size in [0usize..70, 0usize..80, 0usize..40],
        left in 0usize..4,
        right in 0usize..4,
        gap in 0usize..3,
        add: bool
    ) {
        every_dtype(Order::Chain, size, [left, right], gap, add);
    }
}

#[test]
fn scratch_memory_suffices_for_shorter_sums() {
    for n in [1, 33, 384, 500, 512, 4096] {
        for k in (1..2000).step_by(37) {
            let bytes = scratch(wengert_core::DType::F32, [64, n, k]);
            for shorter in 1..=k {
                let [terms, columns] = largest_block(size_of::<f32>(), false, shorter);
                let panels = n.min(columns).next_multiple_of(LARGEST[1]) * shorter.min(terms);
                let strip = LARGEST[0] * shorter.min(terms);
                assert!(bytes >= (panels + strip) * size_of::<f32>(), "{n} {k} {shorter}");
            }
        }
    }
}
