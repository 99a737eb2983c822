//! The second stage of a split sum: adds the parts in order, and finishes the result.
//!
//! 256 threads of up to four neighbouring elements each; no shared memory; bound by reading the
//! parts, which are still in the second-level cache after the first stage.

use super::super::draft::Draft;
use super::super::index::{advance, divide};
use super::super::number::Place;
use super::Product;
use super::finish::{Destination, Run};
use crate::ptx::{Compare, Space, Ternary, Type};
use crate::stage::{Access, Stage};
use wengert_core::Result;

const THREADS: usize = 256;

pub(super) fn stage(product: &Product, parts: usize) -> Result<Stage> {
    let mut draft = Draft::aligned(product.alignment);
    let number = product.sums();
    let source = draft.pointer("parts", product.parts_slot(parts, Access::Read));
    let mut destination = Destination::result(&mut draft, product);
    let vector = destination.vector.min(number.vector());
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let elements = product.batch * product.m * product.n;
    let vectors = elements / vector;
    super::check_extent("the number of elements of a split sum", vectors)?;
    let index = code.ternary(Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    let inside = code.compare(Compare::Lt, Type::U32, index, vectors as i64);
    code.when(inside, |code| {
        let address = advance(code, source, index, vector as i64 * number.size());
        let part = elements as i64 * number.size();
        let mut sums = number.load(code, Space::Global, Place::at(address, 0), vector);
        for n in 1..parts as i64 {
            let others = number.load(code, Space::Global, Place::at(address, n * part), vector);
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = number.add(code, *sum, other);
            }
        }
        let (rows, column) = divide(code, index, product.n / vector);
        let column = code.binary(crate::ptx::Binary::Mul, Type::S32, column, vector as i64);
        let (batch, row_of_out) = divide(code, rows, product.m);
        let zero = code.mov(Type::U32, 0);
        let start = destination.start(code, zero, batch);
        let row = destination.row(code, start, row_of_out);
        let offset = destination.column(code, row, column);
        let shared = destination.columns(code, column, vector, None);
        let run = Run { at: [batch, row_of_out, column], offset, valid: None };
        destination.store(code, &mut draft.functions, run, &sums, &shared)
    })?;
    let name = format!("{}_sum", product.name);
    let remark = format!("Adds up {parts} parts of each sum, and finishes the result.");
    draft.stage(name, remark, THREADS as u32, 0, vectors.div_ceil(THREADS))
}
