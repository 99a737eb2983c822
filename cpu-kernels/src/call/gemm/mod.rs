//! Matrix products on the CPU: tiles of out, each computed as one [product](super::product) by a
//! thread. The follower runs on each part of a tile whose sums are final, while it is in the cache.
//!
//! Sums are computed in out itself, with two exceptions: out has another dtype than the sums, or
//! the residual aliases out and is still needed. Then they are in scratch memory.

mod tiling;

use super::element::{Element, Number, with_element};
use super::finish::{Places, finish};
use super::panel::View;
use super::product::addends::Addends;
use super::product::{self, Made, Order, Product, multiply};
use super::{Arguments, Compile, Kernels, array, room, take};
use crate::memory::Workspace;
use crate::nest::{Follower, Part};
use crate::simd::Simd;
use tiling::{APART, Grain, Tiling, Turns};
use wengert_core::Diagnostic;
use wengert_core::call::{Gemm, Matrix};

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
}

impl CompiledGemm {
    /// Whether the sums of a tile are computed outside of out.
    fn sums_apart(&self, in_place: bool) -> bool {
        self.call.result != self.call.accumulate || (self.call.addends.residual && in_place)
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
        let lying = product::lying::<T>(&call.rhs, call.k, tile[0]);
        let grain = Grain {
            threads: workspace.pool().threads(),
            tile,
            apart: self.sums_apart(true),
            lying,
        };
        let Tiling { rows, columns, batches } =
            Tiling::new(self.order, [call.batch, call.m, call.n, call.k], grain);
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
        Ok(workspace.pool().parallel_for(tasks, task)?)
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
        Tile { batch, first: [i, j], size: [m, n] }: Tile,
    ) {
        let call = &self.call;
        let wengert_core::call::Addends { bias, residual } = call.addends;
        let view = |operand: usize, matrix: &Matrix| {
            let at = arguments.operand::<T>(operand).wrapping_add(batch * matrix.batch);
            View { at, row: matrix.row, column: matrix.column }
        };
        let lhs = view(0, &call.lhs).from(i, 0);
        let rhs = view(1, &call.rhs).from(0, j);
        let out_row = call.out_row();
        let at = (batch * call.m + i) * out_row + j;
        let out = arguments.result::<R>().wrapping_add(at);
        let residual_at =
            if residual { arguments.operand::<R>(2 + bias as usize) } else { std::ptr::null() };
        let apart = self.sums_apart(std::ptr::eq(residual_at, arguments.result::<R>()));
        let residual = residual_at.wrapping_add(at);
        let bias = if bias { arguments.operand::<R>(2).wrapping_add(j) } else { std::ptr::null() };
        let own = room(self.scratch()).min(scratch.len());
        let (mut free, behind) = scratch.split_at_mut(own);
        let (sums, sums_row) = if apart {
            (take::<T::Wide>(&mut free, m * n).as_mut_ptr(), n)
        } else {
            // Not apart, so the result has the dtype of the sums.
            (out.cast::<T::Wide>(), out_row)
        };
        // Bias and residual are passed to the kernel, if the sums are the result.
        let addends = if !apart {
            Addends {
                bias: bias.cast(),
                residual: if call.addends.residual { residual.cast() } else { std::ptr::null() },
            }
        } else {
            Addends::NONE
        };
        let product = Product {
            size: [m, n, call.k],
            order: self.order,
            lhs,
            rhs,
            out: sums,
            row: sums_row,
            add: false,
            addends,
        };
        // SAFETY: the view's elements exist, since the arguments were checked; the sums and the
        // scratch memory belong to this task.
        unsafe {
            multiply(simd, free, &product, |Made { rows, columns, added }| {
                let within = rows.start * out_row + columns.start;
                if apart || (call.addends != Default::default() && !added) {
                    let places = Places {
                        sums: sums.add(rows.start * sums_row + columns.start).cast_const(),
                        sums_row,
                        out: out.add(within),
                        out_row,
                        bias: bias.wrapping_add(columns.start),
                        residual: residual.wrapping_add(within),
                    };
                    finish(simd, call.addends, [rows.len(), columns.len()], &places);
                }
                if let Some(follower) = follower {
                    let part = Part {
                        first: at + within,
                        lines: rows.len(),
                        distance: out_row,
                        rows: columns.len(),
                    };
                    follower.run(behind, part);
                }
            });
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
