//! Products of cuBLASLt, whose code is not known.
//!
//! The model: tiles of 128 × 256, one at a time on each multiprocessor, so the last round of tiles
//! costs a whole one. A tile takes its operations at [`SHARE`] of the tensor cores' dense rate. The
//! operands and the result cross the bus of device memory once. The larger of the two times counts.
//! Where such tiles are too few for all multiprocessors, they are halved along their longer side,
//! down to 32 × 32 (the library has tiles from 8 × 8 on, `cublasLtMatmulTile_t`).
//!
//! The library also divides sums into parts, which it adds afterwards (cuBLAS documentation,
//! `CUBLASLT_ALGO_CONFIG_SPLITK_NUM`). Each part is stored and loaded again, in the dtype of the
//! sums. The number of parts with the least time counts.

use super::Row;
use wengert_core::DType;
use wengert_core::call::{Call, Gemm};
use wengert_cuda::lowered::Question;
use wengert_machine::card::Card;
use wengert_machine::pipe::Pipe;
use wengert_machine::predict::Resource;

/// Share of the dense rate that the library reaches within a tile. An assumption: about 790 TFLOP/s
/// are reported for large products of bf16 on random data on an H200, whose dense rate is 989.
const SHARE: f64 = 0.8;

/// Rows and columns of a tile.
const TILE: (usize, usize) = (128, 256);
/// Fewest rows and columns of a tile. An assumption: with less, a tile loads more than it
/// multiplies.
const LEAST: usize = 32;

/// Maximum number of parts of a sum. An assumption: the heuristic of the library considers a few.
const PARTS: usize = 32;
/// Fewest terms of a part.
const TERMS: usize = 512;

/// The row of a product that runs `times` times.
pub fn row(question: &Question, times: u64, card: &Card) -> Row {
    let Call::Gemm(gemm) = &question.call else {
        unreachable!("the library is asked for products only")
    };
    let (clock, processors) = (card.boost.value, card.multiprocessors.value);
    let most = (gemm.k / TERMS).clamp(1, PARTS);
    let (rows, columns) = tile(gemm, most, processors);
    let tiles = tiles(gemm, (rows, columns));
    // A matrix that is smaller than a tile takes its own extents.
    let tile = (rows.min(gemm.m) * columns.min(gemm.n) * gemm.k) as f64;
    let (pipe, rate) = rate(gemm, card);
    let (read, written) = bytes(gemm);
    let sums = gemm.batch * gemm.m * gemm.n * gemm.accumulate.size();
    let by_parts = |parts: usize| {
        let rounds = ((tiles * parts) as f64 / processors).ceil();
        let computing = rounds * tile / parts as f64 / (rate * clock);
        let stored = if parts > 1 { (parts * sums) as u64 } else { 0 };
        let moving = (read + written) as f64 / card.dram_achievable();
        // The sums are added up after the last tile.
        let adding = (2 * stored) as f64 / card.dram_achievable();
        (computing.max(moving) + adding, computing >= moving, parts, stored)
    };
    let (longest, by_pipe, parts, stored) = (1..=most)
        .map(by_parts)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("there is at least one part");
    let (read, written) = (read + stored, written + stored);
    let limiter = if by_pipe { Resource::Pipe(pipe) } else { Resource::Dram };
    let ways = |m: usize, n: usize, k: usize| format!("{m}x{n}x{k}");
    Row {
        kernel: format!("cublaslt {}", ways(gemm.m, gemm.n, gemm.k)),
        origin: question.call.description(),
        times,
        blocks: (tiles * parts) as u64,
        threads: 0,
        registers: 0,
        shared: 0,
        spills: (0, 0),
        occupancy: None,
        memory: read + written,
        device_memory: (read, written),
        sectors: 0.0,
        instructions: 0.0,
        seconds: card.graph_gap.value + longest,
        limiter,
        misfit: 0.0,
    }
}

/// The number of tiles.
fn tiles(gemm: &Gemm, (rows, columns): (usize, usize)) -> usize {
    gemm.batch * gemm.m.div_ceil(rows) * gemm.n.div_ceil(columns)
}

/// Rows and columns of the tiles of a product whose sums fall into `most` parts at most.
fn tile(gemm: &Gemm, most: usize, processors: f64) -> (usize, usize) {
    let (mut rows, mut columns) = TILE;
    while ((tiles(gemm, (rows, columns)) * most) as f64) < processors && rows.max(columns) > LEAST {
        match rows < columns {
            true => columns /= 2,
            false => rows /= 2,
        }
    }
    (rows, columns)
}

/// The pipe of a product, and its multiplications with addition per clock and multiprocessor.
fn rate(gemm: &Gemm, card: &Card) -> (Pipe, f64) {
    let tensor = &card.tensor;
    let of = |rate: f64| (Pipe::Tensor, rate * SHARE);
    match gemm.operand {
        DType::F16 | DType::BF16 => of(tensor.f16_f32.value),
        DType::F8E4M3FN | DType::F8E5M2 | DType::U8 => of(tensor.f8.value),
        DType::F64 if tensor.f64.value > 0.0 => of(tensor.f64.value),
        DType::F64 => (Pipe::Double, card.architecture.rates.double.value * SHARE),
        _ => (Pipe::Fma, card.architecture.rates.fma.value * SHARE),
    }
}

/// Bytes of the operands, and of the result.
fn bytes(gemm: &Gemm) -> (u64, u64) {
    let Gemm { batch, m, n, k, .. } = *gemm;
    let size = |elements: usize, dtype: DType| (elements * dtype.size()) as u64;
    let out = size(batch * m * n, gemm.result);
    let right = gemm.rhs_operand.unwrap_or(gemm.operand);
    let mut read = size(batch * m * k, gemm.operand) + size(batch * k * n, right);
    if gemm.addends.residual {
        read += out;
    }
    (read, out)
}

#[cfg(test)]
mod tests {
    use super::{TILE, tile, tiles};
    use wengert_core::DType;
    use wengert_core::call::{Addends, Gemm, Matrix};

    fn gemm(batch: usize, m: usize, n: usize, k: usize) -> Gemm {
        Gemm {
            batch,
            m,
            n,
            k,
            lhs: Matrix { batch: m * k, row: k, column: 1 },
            rhs: Matrix { batch: k * n, row: n, column: 1 },
            operand: DType::F32,
            rhs_operand: None,
            scales: None,
            accumulate: DType::F32,
            result: DType::F32,
            addends: Addends::default(),
            pitch: None,
        }
    }

    #[test]
    fn tiles_shrink_until_they_fill_the_card() {
        let of = |gemm: &Gemm, most: usize| tile(gemm, most, 132.0);
        // 64 tiles of 128 by 256 are too few, 128 of 128 by 128 too, 256 of 64 by 128 are enough.
        assert_eq!(of(&gemm(1, 1024, 2048, 256), 1), (64, 128));
        assert_eq!(of(&gemm(1, 1024, 2048, 256), 4), TILE);
        assert_eq!(of(&gemm(4, 1024, 2048, 256), 1), TILE);
        let small = gemm(1, 128, 256, 784);
        assert_eq!(of(&small, 1), (32, 32));
        assert_eq!(tiles(&small, (32, 32)), 32);
    }
}
