//! Matrix products on the CPU: tiles of out, each computed as one [product](super::product) by a
//! thread. The follower runs on each part of a tile whose sums are final, while it is in the cache.
//!
//! Sums are computed in out itself, with two exceptions: out has another dtype than the sums, or
//! the residual aliases out and is still needed. Then they are in scratch memory: those of a tile,
//! or, if one block of k completes them, those of one strip of it.

mod divided;
mod tiling;

use super::element::{Element, Number, with_element};
use super::finish::{Places, finish};
use super::panel::View;
use super::product::blocks::SUMS;
use super::product::epilogue::{Epilogue, Rounded};
use super::product::{self, Beside, Made, Order, Product, multiply};
use super::together::Member;
use super::{Arguments, Compile, Kernels, array, room, take};
use crate::memory::Workspace;
use crate::nest::{Follower, Part};
use crate::simd::Simd;
use std::time::Duration;
use tiling::{APART, Grain, Tiling, Turns};
use wengert_core::Diagnostic;
use wengert_core::call::{Gemm, Matrix};

/// Most bytes of a row of rhs that is short: threads that divide its columns read no long runs.
const SHORT: usize = 2048;
/// Elements of rhs that are worth two threads.
const WORTH: usize = 1 << 17;
/// Most buffers of a follower that are prefetched.
const BESIDE: usize = 8;
/// Multiple of a panel's columns, for all kernels.
const PANELS: usize = 32;

/// A product, ready to run.
#[derive(Debug)]
struct CompiledGemm {
    call: Gemm,
    order: Order,
}

/// A part of out.
#[derive(Clone, Copy)]
struct Tile {
    /// The product's index in the batch.
    batch: usize,
    /// The first row and column.
    first: [usize; 2],
    /// Rows and columns.
    size: [usize; 2],
}

impl Tile {
    /// The position of its first element in out.
    fn at(&self, call: &Gemm) -> usize {
        (self.batch * call.m + self.first[0]) * call.out_row() + self.first[1]
    }
}

/// Estimate of the time that one thread takes for products with these extents: batch, m, n, k.
pub(super) fn time(extents: [usize; 4]) -> Duration {
    let grain = Grain { threads: 1, tile: [1, 1], columns: 1, apart: false, pairs: false };
    grain.time(extents)
}

/// Products with a common rhs are one product of more rows, if the rows of lhs are evenly spaced
/// across the batch.
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

impl Compile for Gemm {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let call = fold_batch(self.clone());
        Ok(Box::new(CompiledGemm { order: Order::of(&call), call }))
    }
}

impl Kernels for CompiledGemm {
    fn scratch(&self) -> usize {
        let Gemm { m, n, k, operand, accumulate, .. } = self.call;
        let sums = if self.sums_apart(true) { m.saturating_mul(n).min(APART) } else { 0 };
        array(&[sums, accumulate.size()]).saturating_add(product::scratch(operand, [m, n, k]))
    }

    fn shared(&self, threads: usize) -> usize {
        let Gemm { m, n, accumulate, .. } = self.call;
        let blocks = self.divided(threads).map_or(0, |divided| divided.blocks);
        array(&[blocks, m, n, accumulate.size()])
    }

    /// The following nest runs on each finished part; its scratch memory comes after that of the
    /// product.
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let follower = arguments.follower;
        with_element!(self.call.operand, T => {
            if self.call.result == self.call.operand {
                self.run_with::<T, T>(workspace, arguments, follower)
            } else {
                self.run_with::<T, <T as Element>::Wide>(workspace, arguments, follower)
            }
        })
    }

    fn member(&self) -> Option<&dyn Member> {
        let Gemm { batch, m, n, k, operand, ref rhs, .. } = self.call;
        let short = rhs.column == 1 && n.saturating_mul(operand.size()) <= SHORT;
        let few = batch == 1 && m <= product::FEW && m.saturating_mul(n) <= SUMS;
        let plain = operand.is_float() && self.call.addends == Default::default();
        let long = n.saturating_mul(k) >= WORTH;
        (short && few && plain && long && m > 0).then_some(self)
    }
}

impl Member for CompiledGemm {
    fn extents(&self) -> [usize; 4] {
        let Gemm { batch, m, n, k, .. } = self.call;
        [batch, m, n, k]
    }

    unsafe fn part(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        part: usize,
        parts: usize,
    ) {
        let Gemm { m, n, operand, result, .. } = self.call;
        let columns = n.div_ceil(parts).next_multiple_of(PANELS);
        let first = part * columns;
        if first >= n {
            return;
        }
        let (simd, mut scratch) = (workspace.simd(), workspace.scratch(thread));
        let tile = Tile { batch: 0, first: [0, first], size: [m, columns.min(n - first)] };
        // SAFETY: the caller's promise is the same: the tile is this part.
        unsafe {
            with_element!(operand, T => {
                if result == operand {
                    self.tile::<T, T>(simd, &mut scratch, arguments, None, tile);
                } else {
                    type Wide = <T as Element>::Wide;
                    self.tile::<T, Wide>(simd, &mut scratch, arguments, None, tile);
                }
            });
        }
    }
}

impl CompiledGemm {
    /// Whether the sums of a tile are computed outside of out.
    fn sums_apart(&self, in_place: bool) -> bool {
        self.call.result != self.call.accumulate || (self.call.addends.residual && in_place)
    }

    /// The rows of a tile's sums that exist at a time, if they are apart and not all.
    fn strip_rows<T: Element>(&self, simd: Simd) -> Option<usize> {
        product::strip_rows::<T>(simd, self.call.k).filter(|_| self.order == Order::Chain)
    }

    fn run_with<T: Element, R: Element<Wide = T::Wide>>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        follower: Option<&Follower<'_>>,
    ) -> Result<(), Diagnostic> {
        let call = &self.call;
        if call.batch * call.m * call.n == 0 {
            return Ok(());
        }
        let tile = T::Wide::kernels(workspace.simd()).map_or([1, 16], |k| [k.rows(), k.columns]);
        let extents = [call.batch, call.m, call.n, call.k];
        let pool = workspace.pool();
        let simd = workspace.simd();
        let apart = self.sums_apart(true) && self.strip_rows::<T>(simd).is_none();
        let pairs = T::kernels_of_pairs(simd).is_some();
        let [_, columns] = product::largest_block(size_of::<T::Wide>(), pairs, call.k);
        let grain = Grain { threads: pool.threads(), tile, columns, apart, pairs };
        let threads = pool.threads_for(grain.time(extents));
        if let Some(divided) = self.divided(threads) {
            return self.run_divided::<T, R>(workspace, arguments, follower, divided);
        }
        let grain = Grain { threads, ..grain };
        let Tiling { rows, columns, batches } = Tiling::new(self.order, extents, grain);
        let (down, across) = (call.m.div_ceil(rows), call.n.div_ceil(columns));
        let turns = Turns::new([down, across], grain.threads);
        let tasks = call.batch.div_ceil(batches) * down * across;
        let task = |thread: usize, task: usize| {
            let (batch, tile) = (task / (down * across), task % (down * across));
            let [i, j] = turns.of(tile);
            let (i, j) = (i * rows, j * columns);
            let extents = [rows.min(call.m - i), columns.min(call.n - j)];
            let mut scratch = workspace.scratch(thread);
            for batch in batch * batches..call.batch.min((batch + 1) * batches) {
                // SAFETY: the tile is within out, and no other task has a part of it.
                unsafe {
                    let tile = Tile { batch, first: [i, j], size: extents };
                    self.tile::<T, R>(workspace.simd(), &mut scratch, arguments, follower, tile);
                }
            }
        };
        Ok(pool.parallel_for(tasks, task)?)
    }

    /// Computes one tile of out.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The tile is within out. No other thread uses
    /// that part of it, nor the same rows of the follower. The follower writes nothing that the
    /// product reads.
    unsafe fn tile<T: Element, R: Element<Wide = T::Wide>>(
        &self,
        simd: Simd,
        scratch: &mut [u8],
        arguments: &Arguments<'_>,
        follower: Option<&Follower<'_>>,
        tile: Tile,
    ) {
        let Tile { batch, first: [i, j], size: [m, n] } = tile;
        let places = self.places::<R>(arguments, tile);
        let apart = self.sums_apart(std::ptr::eq(places.residual, places.out));
        let (mut free, behind) = self.scratch_and_behind(scratch);
        let strip = self.strip_rows::<T>(simd).filter(|_| apart);
        let (sums, row) = if apart {
            let rows = strip.map_or(m, |rows| rows.min(m));
            (take::<T::Wide>(&mut free, rows * n).as_mut_ptr(), n)
        } else {
            // Not apart, so the result has the dtype of the sums.
            (places.out.cast::<T::Wide>(), places.out_row)
        };
        // Bias and residual are passed to the kernel, if the sums are the result; otherwise it
        // rounds, if it can and nothing is added.
        let mut epilogue = Epilogue::NONE;
        if !apart {
            let pointer = |has, at: *const R| if has { at.cast() } else { std::ptr::null() };
            epilogue = Epilogue {
                bias: pointer(self.call.addends.bias, places.bias),
                residual: pointer(self.call.addends.residual, places.residual),
                ..epilogue
            };
        } else if R::PAIRED
            && T::kernels_of_pairs(simd).is_some()
            && self.call.addends == Default::default()
        {
            epilogue.rounded = Rounded { at: places.out.cast(), row: places.out_row };
        }
        // Whether nothing is left to do for sums whose epilogue has been applied.
        let complete = !apart || epilogue.rounded.is_some();
        let [lhs, rhs] = self.operands::<T>(arguments, tile);
        let size = [m, n, self.call.k];
        let order = self.order;
        let mut beside = [Beside::NOWHERE; BESIDE];
        let count = self.beside(follower, tile, &mut beside);
        let product = Product {
            size,
            order,
            lhs,
            rhs,
            out: sums,
            row,
            add: false,
            epilogue,
            beside: &beside[..count],
            one_strip: strip.is_some(),
        };
        // SAFETY: the view's elements exist, since the arguments were checked; the sums and the
        // scratch memory belong to this task.
        unsafe {
            multiply(simd, free, &product, |Made { rows, columns, finished }| {
                let part = Tile {
                    batch,
                    first: [i + rows.start, j + columns.start],
                    size: [rows.len(), columns.len()],
                };
                let start = if strip.is_some() { 0 } else { rows.start };
                let sums = sums.add(start * row + columns.start).cast_const();
                let sums = if complete && finished { None } else { Some((sums, row)) };
                self.finish::<R>(simd, behind, arguments, follower, part, sums);
            });
        }
    }

    /// The operands of a tile, with all terms.
    fn operands<T: Element>(&self, arguments: &Arguments<'_>, tile: Tile) -> [View<T>; 2] {
        let Tile { batch, first: [i, j], .. } = tile;
        let view = |operand: usize, matrix: &Matrix| {
            let at = arguments.operand::<T>(operand).wrapping_add(batch * matrix.batch);
            View { at, row: matrix.row, column: matrix.column }
        };
        [view(0, &self.call.lhs).from(i, 0), view(1, &self.call.rhs).from(0, j)]
    }

    /// What a follower reads or writes besides a tile, or the first of it.
    fn beside(&self, follower: Option<&Follower<'_>>, tile: Tile, room: &mut [Beside]) -> usize {
        let Some(follower) = follower else { return 0 };
        let (call, at) = (&self.call, tile.at(&self.call));
        let elements = follower.elements(call.batch * call.m * call.out_row());
        let places = room.iter_mut().zip(elements).map(|(place, (first, size))| {
            let row = call.out_row() * size;
            *place = Beside { at: first.wrapping_add(at * size), row, size };
        });
        places.count()
    }

    /// Where a tile and its addends are. The sums are in out.
    fn places<R: Element>(&self, arguments: &Arguments<'_>, tile: Tile) -> Places<R> {
        let wengert_core::call::Addends { bias, residual } = self.call.addends;
        let operand = |has, position, from| match has {
            true => arguments.operand::<R>(position).wrapping_add(from),
            false => std::ptr::null(),
        };
        let at = tile.at(&self.call);
        let out = arguments.result::<R>().wrapping_add(at);
        Places {
            sums: out.cast(),
            sums_row: self.call.out_row(),
            out,
            out_row: self.call.out_row(),
            bias: operand(bias, 2, tile.first[1]),
            residual: operand(residual, 2 + bias as usize, at),
        }
    }

    /// The scratch memory of the product, and that of the follower.
    fn scratch_and_behind<'a>(&self, scratch: &'a mut [u8]) -> (&'a mut [u8], &'a mut [u8]) {
        let own = room(self.scratch()).min(scratch.len());
        scratch.split_at_mut(own)
    }

    /// Finishes a part of out whose sums are final: adds the addends and rounds, if the sums and
    /// the distance of their rows are given, then runs the follower.
    ///
    /// # Safety
    ///
    /// As for [`tile`](Self::tile); the sums are those of the part.
    unsafe fn finish<R: Element>(
        &self,
        simd: Simd,
        behind: &mut [u8],
        arguments: &Arguments<'_>,
        follower: Option<&Follower<'_>>,
        part: Tile,
        sums: Option<(*const R::Wide, usize)>,
    ) {
        let places = self.places::<R>(arguments, part);
        // SAFETY: the caller's promise is the same.
        unsafe {
            if let Some((sums, sums_row)) = sums {
                let places = Places { sums, sums_row, ..places };
                let there = std::ptr::eq(sums.cast(), places.out);
                if !there || self.call.addends != Default::default() {
                    finish(simd, self.call.addends, part.size, &places);
                }
            }
            if let Some(follower) = follower {
                let [lines, rows] = part.size;
                let (first, distance) = (part.at(&self.call), self.call.out_row());
                follower.run(behind, Part { first, lines, distance, rows });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::DType;

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
            rhs_operand: None,
            scales: None,
            accumulate: DType::F32,
            result: DType::F32,
            addends: Default::default(),
            pitch: None,
        };
        assert_eq!((fold_batch(call.clone()).batch, fold_batch(call.clone()).m), (1, 15));
        call.lhs.batch = 13;
        assert_eq!(fold_batch(call.clone()).batch, 5);
        call.m = 1;
        let folded = fold_batch(call);
        assert_eq!((folded.batch, folded.m, folded.lhs.row), (1, 5, 13));
    }
}
