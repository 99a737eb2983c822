//! Matrix products on the CPU: tiles of out, each one product of the `gemm` crate (or plain loops, for integers) with the epilogue
//! right behind it, while the tile is in the cache.
//!
//! Tiles depend on the extents alone, and the sum over k is never divided among tasks, so that the bits are the same with any number of
//! threads. A tile is narrow, since the crate packs the part of rhs that it uses: with one column of tiles for each 64 or 128
//! columns, nothing is packed twice unless lhs has many rows.
//!
//! Two kinds of operands are copied before they are multiplied, a part of k at a time, to scratch memory: halves, which are widened to f32;
//! and an rhs whose columns lie in memory one after the other (`dy · wᵀ`), which the crate packs element by element.

use super::element::{Element, Number, with_element};
use super::epilogue::{Places, finish};
use super::panel::{self, View};
use super::{Arguments, room, take};
use crate::memory::Workspace;
use crate::simd::Simd;
use wengert_core::call::{Epilogue, Gemm, Matrix};
use wengert_core::{DType, Diagnostic};

/// A product, ready to run.
#[derive(Debug)]
pub(super) struct CompiledGemm {
    call: Gemm,
    tiling: Tiling,
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiling {
    /// Rows of a tile.
    rows: usize,
    /// Columns of a tile.
    columns: usize,
    /// Products of a task, if a tile is a whole one; otherwise 1.
    batches: usize,
}

/// Columns that fill the microkernel's vectors, whatever they are.
const LANE: usize = 64;
/// Most rows of a tile: so many that packing rhs again for each costs next to nothing, and so few that the sums stay in the second cache.
const ROWS: usize = 512;
/// So few rows that a product takes no longer than reading rhs.
const FEW: usize = 16;
/// Most columns of a tile of few rows.
const WIDE: usize = 4096;
/// Rows that the crate multiplies with a copied part of rhs without packing it again.
const STRIP: usize = 48;
/// Part of k of which operands are copied at a time.
const DEPTH: usize = 512;
/// Multiplications and additions (or what takes as long) below which a part is not worth a task of its own: some ten
/// microseconds.
const TASK: usize = 2 << 20;

/// Time of a tile in multiplications and additions: those of the product, reading (and packing) rhs, and storing.
fn cost(rows: usize, columns: usize, k: usize) -> usize {
    let product = rows.saturating_mul(columns).saturating_mul(2 * k + 64);
    product.saturating_add(columns.saturating_mul(k).saturating_mul(32))
}

impl Tiling {
    fn new(batch: usize, m: usize, n: usize, k: usize, copies: bool) -> Self {
        let whole = cost(m, n, k);
        let total = whole.saturating_mul(batch);
        // Enough tiles to keep many threads busy with large products, and a few with small ones.
        // A product of few rows is bound by reading rhs, which is fastest in long runs.
        let wanted = match () {
            () if m <= FEW => 4,
            () if total >= 256 * TASK => 32,
            () => 8,
        };
        let target = (total / wanted).max(TASK);
        if whole <= target {
            return Tiling { rows: m, columns: n, batches: (target / whole.max(1)).clamp(1, batch.max(1)) };
        }
        // Copying rhs takes longer than packing it.
        let mut rows = divide(m, if copies { 2 * ROWS } else { ROWS }, 6);
        let most = if copies || m > FEW { 2 * LANE } else { WIDE };
        let mut columns = LANE;
        while columns < most && cost(rows, columns + LANE, k) <= target {
            columns += LANE;
        }
        let columns = divide(n, columns, LANE);
        let tiles = |rows: usize| batch.saturating_mul(n.div_ceil(columns)).saturating_mul(m.div_ceil(rows));
        // Too few tiles, or an odd number that leaves one thread of two without work at the end.
        while (tiles(rows) < wanted || (tiles(rows) % 2 == 1 && tiles(rows) < 32))
            && rows >= 96
            && cost(rows, columns, k) >= 2 * TASK
        {
            rows = divide(m, rows / 2, 6);
        }
        Tiling { rows, columns, batches: 1 }
    }
}

/// The extent of equal parts of at most `most` (or little more), a multiple of `unit` if there are several.
fn divide(extent: usize, most: usize, unit: usize) -> usize {
    let parts = extent.div_ceil(most.max(1)).max(1);
    if parts == 1 { extent.max(1) } else { extent.div_ceil(parts).next_multiple_of(unit) }
}

/// Products with one rhs are one product of more rows, if the rows of lhs follow each other.
fn fold_batch(mut call: Gemm) -> Gemm {
    if call.m == 1 {
        call.lhs.row = call.lhs.batch;
    }
    if call.batch > 1 && call.rhs.batch == 0 && call.lhs.batch == call.m * call.lhs.row {
        call.m *= call.batch;
        call.batch = 1;
    }
    call
}

impl CompiledGemm {
    pub fn new(call: &Gemm) -> Self {
        let call = fold_batch(call.clone());
        let tiling = Tiling::new(call.batch, call.m, call.n, call.k, transposes(&call));
        CompiledGemm { call, tiling }
    }

    /// Bytes of scratch memory of each thread.
    pub fn scratch(&self) -> usize {
        let Tiling { rows, columns, .. } = self.tiling;
        let size = self.call.accumulate.size();
        let depth = self.call.k.min(DEPTH);
        let mut bytes = 0;
        if self.sums_apart(true) {
            bytes += room(rows * columns * size);
        }
        if self.call.operand.is_half() {
            bytes += room(rows * depth * size);
        }
        if self.call.operand.is_half() || transposes(&self.call) {
            bytes += room(depth * columns * size);
        }
        bytes
    }

    /// Whether the sums of a tile are made elsewhere than in out.
    fn sums_apart(&self, in_place: bool) -> bool {
        self.call.result != self.call.accumulate || (self.call.epilogue.residual && in_place)
    }

    pub fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        with_element!(self.call.operand, T => {
            if self.call.result == self.call.operand {
                self.run_with::<T, T>(workspace, arguments)
            } else {
                self.run_with::<T, <T as Element>::Wide>(workspace, arguments)
            }
        })
    }

    fn run_with<T: Element, R: Element<Wide = T::Wide>>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        let Tiling { rows, columns, batches } = self.tiling;
        let call = &self.call;
        if call.batch * call.m * call.n == 0 {
            return Ok(());
        }
        let (down, across) = (call.m.div_ceil(rows), call.n.div_ceil(columns));
        let tasks = call.batch.div_ceil(batches) * down * across;
        let task = |thread: usize, task: usize| {
            let (batch, tile) = (task / (down * across), task % (down * across));
            // Tiles of one column follow each other: threads at work side by side read the same part of rhs.
            let (i, j) = (tile % down * rows, tile / down * columns);
            let extents = [rows.min(call.m - i), columns.min(call.n - j)];
            for batch in batch * batches..call.batch.min((batch + 1) * batches) {
                // SAFETY: the tile lies within out, and no other task has a part of it.
                unsafe { self.tile::<T, R>(workspace, thread, arguments, batch, [i, j], extents) };
            }
        };
        workspace.pool().parallel_for(tasks, task).map_err(|e| Diagnostic::new(e.to_string()))
    }

    /// One tile of out.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The tile lies within out, and no other thread uses that part of it.
    unsafe fn tile<T: Element, R: Element<Wide = T::Wide>>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        batch: usize,
        [i, j]: [usize; 2],
        [m, n]: [usize; 2],
    ) {
        let call = &self.call;
        let Epilogue { bias, residual, .. } = call.epilogue;
        let view = |operand: usize, matrix: &Matrix| {
            let at = arguments.operand::<T>(operand).wrapping_add(batch * matrix.batch);
            View { at, row: matrix.row, column: matrix.column }
        };
        let lhs = view(0, &call.lhs).from(i, 0);
        let rhs = view(1, &call.rhs).from(0, j);
        let at = (batch * call.m + i) * call.n + j;
        let out = arguments.result::<R>().wrapping_add(at);
        let residual_at = if residual { arguments.operand::<R>(2 + bias as usize) } else { std::ptr::null() };
        let apart = self.sums_apart(std::ptr::eq(residual_at, arguments.result::<R>()));
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let (sums, sums_row) = if apart {
            (take::<T::Wide>(&mut free, m * n).as_mut_ptr(), n)
        } else {
            // Not apart, so the result is what is computed with.
            (out.cast::<T::Wide>(), call.n)
        };
        // SAFETY: the view's elements exist, since the arguments were checked; the sums are this task's own, and so is its scratch memory.
        unsafe {
            self.product::<T>(workspace.simd(), [m, n], sums, sums_row, lhs, rhs, free);
            if apart || call.epilogue != Epilogue::default() {
                let bias = if bias { arguments.operand::<R>(2).wrapping_add(j) } else { std::ptr::null() };
                let places = Places {
                    sums,
                    sums_row,
                    out,
                    out_row: call.n,
                    bias,
                    residual: residual_at.wrapping_add(at),
                };
                finish(workspace.simd(), call.epilogue, [m, n], &places);
            }
        }
    }

    /// The sums of one tile.
    ///
    /// # Safety
    ///
    /// That of [`Number::product`] for the whole depth of the call, with sums for out; and the machine has the vector instructions.
    #[allow(clippy::too_many_arguments, reason = "a product and what it needs")]
    unsafe fn product<T: Element>(
        &self,
        simd: Simd,
        [m, n]: [usize; 2],
        sums: *mut T::Wide,
        sums_row: usize,
        lhs: View<T>,
        rhs: View<T>,
        mut free: &mut [u8],
    ) {
        let k = self.call.k;
        if !T::HALF && !transposes(&self.call) {
            // SAFETY: the caller's promise is the same.
            unsafe { T::Wide::product([m, n, k], sums, sums_row, false, lhs.plain(), rhs.plain()) };
            return;
        }
        let depth = k.min(DEPTH);
        let left = if T::HALF { m * depth } else { 0 };
        let left = take::<T::Wide>(&mut free, left).as_mut_ptr();
        let right = take::<T::Wide>(&mut free, depth * n).as_mut_ptr();
        let mut start = 0;
        // Once, even if k is 0: zeros.
        loop {
            let depth = DEPTH.min(k - start);
            let (lhs, rhs) = (lhs.from(0, start), rhs.from(start, 0));
            // SAFETY: the parts of the operands exist, and the copies fit into what was taken for them.
            unsafe {
                let (lhs, rhs) = if T::HALF {
                    (
                        panel::widened(simd, lhs, [m, depth], left),
                        panel::widened(simd, rhs, [depth, n], right),
                    )
                } else {
                    (lhs.plain(), panel::transposed(simd, rhs.plain(), [depth, n], right))
                };
                for i in (0..m).step_by(STRIP) {
                    T::Wide::product(
                        [STRIP.min(m - i), n, depth],
                        sums.add(i * sums_row),
                        sums_row,
                        start > 0,
                        lhs.from(i, 0),
                        rhs,
                    );
                }
            }
            start += depth;
            if start >= k {
                return;
            }
        }
    }
}

/// Whether rhs is better transposed before it is multiplied: its columns are runs of memory, and there are several rows to multiply
/// it with (with one, the crate reads it where it is).
fn transposes(call: &Gemm) -> bool {
    call.operand == DType::F32 && call.rhs.row == 1 && call.rhs.column != 1 && call.m > 1 && call.n > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_neither_too_small_nor_too_few() {
        // Small products are one task.
        let small = Tiling::new(1, 64, 64, 64, false);
        assert_eq!((small.rows, small.columns), (64, 64));
        for (m, n, k) in
            [(512, 512, 512), (1024, 1152, 384), (64, 512, 784), (2048, 2048, 2048), (1, 4096, 1024)]
        {
            let t = Tiling::new(1, m, n, k, false);
            let tiles = m.div_ceil(t.rows) * n.div_ceil(t.columns);
            assert!(tiles >= 4, "{m} {n} {k}: {t:?}");
            assert!(cost(t.rows, t.columns, k) >= TASK / 2, "{m} {n} {k}: {t:?}");
            assert!(t.rows * t.columns <= 2 * ROWS * LANE * 4, "{m} {n} {k}: {t:?}");
        }
        // Many small products share tasks.
        assert!(Tiling::new(4096, 8, 8, 8, false).batches > 100);
        // Extremes do not overflow.
        for extents in [[0, 0, 0], [usize::MAX, 1, 0], [1 << 40, 1, 1 << 20], [1, 1 << 50, 1]] {
            let [m, n, k] = extents;
            Tiling::new(1, m, n, k, false);
        }
    }

    #[test]
    fn one_rhs_for_all_makes_one_product() {
        let dense = |row| Matrix { batch: 0, row, column: 1 };
        let mut call = Gemm {
            batch: 5,
            m: 3,
            n: 2,
            k: 4,
            lhs: Matrix { batch: 12, row: 4, column: 1 },
            rhs: dense(2),
            operand: DType::F32,
            accumulate: DType::F32,
            result: DType::F32,
            epilogue: Epilogue::default(),
        };
        assert_eq!((fold_batch(call.clone()).batch, fold_batch(call.clone()).m), (1, 15));
        call.lhs.batch = 13;
        assert_eq!(fold_batch(call.clone()).batch, 5);
        call.m = 1;
        let folded = fold_batch(call);
        assert_eq!((folded.batch, folded.m, folded.lhs.row), (1, 5, 13));
    }
}
