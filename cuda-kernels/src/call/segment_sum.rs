//! Segmented sums.
//!
//! A block of 256 threads has some neighbouring segments and up to 32 columns. A column of a
//! segment belongs to one or more lanes: more if segments have many rows on average. Each lane
//! searches the rows of the segment, adds every n-th of them, and the sums of the lanes are added
//! as a tree in shared memory (2 KiB at most). Bound by reading the rows once.

use super::draft::Draft;
use super::index::{advance, check_extent, divide};
use super::number::{Number, Place};
use super::{Kernels, Terms};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Rounding, Space, Ternary, Type};
use crate::stage::{Compiled, Slot};
use wengert_core::call::SegmentSum;
use wengert_core::{DType, Result};

const THREADS: usize = 256;
/// Most columns of a block: those of a warp.
const COLUMNS: usize = 32;
/// Rows of an average segment for each of its lanes.
const ROWS: usize = 4;

impl Kernels for SegmentSum {
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled> {
        let SegmentSum { rows, columns, segments, dtype, .. } = *self;
        if segments * columns == 0 {
            return Ok(Compiled { stages: vec![], workspace: 0 });
        }
        check_extent("the number of rows", rows)?;
        check_extent("the number of segments", segments)?;
        check_extent("the number of columns", columns)?;
        let width = columns.next_power_of_two().min(COLUMNS);
        let lanes = (rows / segments / ROWS).max(1).next_power_of_two().min(THREADS / width);
        let group = THREADS / (width * lanes);
        let tiles = columns.div_ceil(width);

        let number = Number(dtype);
        let (sums, size) = (number.widened(), number.widened().size());
        let mut draft = Draft::aligned(terms.alignment);
        let data = draft.pointer("data", Slot::read(0));
        let ids = draft.pointer("ids", Slot::read(1));
        let out = draft.pointer("out", Slot::write(2));
        let shared = (lanes > 1).then(|| draft.shared("sums", (THREADS * size as usize) as u32));
        let (thread, block) = (draft.thread(), draft.block());
        let code = &mut draft.code;
        let (of_block, tile) = divide(code, block, tiles);
        let (rest, of_tile) = divide(code, thread, width);
        let (of_group, lane) = divide(code, rest, lanes);
        let column = code.ternary(Ternary::Mad, Type::S32, tile, width as i64, of_tile);
        let segment = code.ternary(Ternary::Mad, Type::S32, of_block, group as i64, of_group);
        let there = code.compare(Compare::Lt, Type::S32, column, columns as i64);
        let exists = code.compare(Compare::Lt, Type::S32, segment, segments as i64);
        let exists = code.binary(Binary::And, Type::Pred, there, exists);

        let sum = code.mov(number.wide(), number.zero());
        code.when(exists, |code| {
            let first = first_row(self, code, ids, segment);
            let next = code.binary(Binary::Add, Type::S32, segment, 1);
            let end = first_row(self, code, ids, next);
            let first = code.binary(Binary::Add, Type::S32, first, lane);
            let data = advance(code, data, column, number.size());
            code.count(first, end, lanes as i64, |code, row| {
                let at = advance(code, data, row, columns as i64 * number.size());
                let raw = number.load(code, Space::Global, Place::at(at, 0), 1)[0];
                let term = number.widen(code, raw);
                code.binary_into(sum, Binary::Add, number.wide(), sum, term);
            });
        });
        if let Some(shared) = shared {
            let mine = code.ternary(Ternary::Mad, Type::S32, thread, size, shared);
            code.store(Space::Shared, sums.memory(), mine, 0, sum);
            let mut step = lanes / 2;
            while step > 0 {
                code.push(Inst::Barrier);
                let adds = code.compare(Compare::Lt, Type::S32, lane, step as i64);
                code.when(adds, |code| {
                    let far = (step * width) as i64 * size;
                    let other = code.load(Space::Shared, sums.memory(), mine, far);
                    code.binary_into(sum, Binary::Add, number.wide(), sum, other);
                    code.store(Space::Shared, sums.memory(), mine, 0, sum);
                });
                step /= 2;
            }
        }
        let leads = code.compare(Compare::Eq, Type::S32, lane, 0);
        let stores = code.binary(Binary::And, Type::Pred, exists, leads);
        code.when(stores, |code| {
            let row = advance(code, out, segment, columns as i64 * number.size());
            let to = advance(code, row, column, number.size());
            let raw = number.narrow(code, sum);
            number.store(code, Space::Global, Place::at(to, 0), &[raw]);
        });
        let remark = format!(
            "Adds {rows} rows in {segments} segments: {group} segments and {width} columns a \
             block, {lanes} lanes for each sum."
        );
        let blocks = segments.div_ceil(group).saturating_mul(tiles);
        let stage =
            draft.stage(format!("segment_sum_{dtype}"), remark, THREADS as u32, 0, blocks)?;
        Ok(Compiled { stages: vec![stage], workspace: 0 })
    }
}

/// The search of [`wengert_core::call::first_row`].
fn first_row(call: &SegmentSum, code: &mut Code, ids: Reg, segment: Reg) -> Reg {
    let id = Number(call.index);
    let segment = match call.index {
        DType::I64 => code.convert(Rounding::Exact, Type::S64, Type::S32, segment),
        _ => segment,
    };
    let (low, high) = (code.mov(Type::S32, 0), code.mov(Type::S32, call.rows as i64));
    let (begin, end) = (code.label(), code.label());
    code.place(begin);
    let done = code.compare(Compare::Ge, Type::S32, low, high);
    code.branch_if(done, end);
    let sum = code.binary(Binary::Add, Type::U32, low, high);
    let middle = code.binary(Binary::Shr, Type::U32, sum, 1);
    let at = advance(code, ids, middle, id.size());
    let found = code.load(Space::Global, id.memory(), at, 0);
    let below = code.compare(Compare::Lt, id.memory(), found, segment);
    let after = code.binary(Binary::Add, Type::S32, middle, 1);
    let (next_low, next_high) =
        (code.select(Type::S32, after, low, below), code.select(Type::S32, high, middle, below));
    code.assign(Type::S32, low, next_low);
    code.assign(Type::S32, high, next_high);
    code.branch(begin);
    code.place(end);
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::Emulated;
    use crate::call::tests::assemble::assembled_kernels;
    use wengert_core::call::Call;
    use wengert_core::{Literal, Scalar};
    use wengert_testing::calls::{Device, numbers};

    fn ids(dtype: DType, rows: usize, segments: usize, ascending: bool) -> Literal {
        let mut ids: Vec<i64> = (0..rows as i64)
            .map(|row| (row * row * 7 + row * 3) % (segments as i64 + 4) - 2)
            .collect();
        if ascending {
            ids.sort();
        }
        let ids: Vec<Scalar> = ids.into_iter().map(|id| Scalar::from_i64(dtype, id)).collect();
        Literal::from_scalars(dtype, &[rows], &ids).unwrap()
    }

    #[test]
    fn kernels_assemble() {
        let dtypes = DType::IN_KERNELS.into_iter().filter(|dtype| *dtype != DType::Bool);
        let call = |dtype, index, [rows, columns, segments]: [usize; 3]| {
            Call::from(SegmentSum { rows, columns, segments, dtype, index })
        };
        assert!(
            assembled_kernels(dtypes.flat_map(|dtype| {
                [
                    call(dtype, DType::I32, [100000, 768, 50]),
                    call(dtype, DType::I64, [1000, 1, 5000]),
                ]
            })) >= 20
        );
    }

    #[test]
    fn sums_are_those_of_the_contract() {
        let dtypes = DType::IN_KERNELS.into_iter().filter(|dtype| *dtype != DType::Bool);
        for (n, dtype) in dtypes.enumerate() {
            for (m, [rows, columns, segments]) in [
                [7, 3, 4],
                [300, 1, 2],
                [90, 40, 3],
                [500, 33, 1],
                [4, 5, 30],
                [0, 2, 3],
                [200, 17, 7],
            ]
            .into_iter()
            .enumerate()
            {
                let index = [DType::I32, DType::I64][(n + m) % 2];
                let call = SegmentSum { rows, columns, segments, dtype, index };
                let data = numbers(dtype, &[rows, columns], (n * 10 + m) as u64);
                for ascending in [true, false] {
                    let ids = ids(index, rows, segments, ascending);
                    Emulated::check(&Call::from(call.clone()), &[data.clone(), ids]).unwrap();
                }
            }
        }
    }
}
