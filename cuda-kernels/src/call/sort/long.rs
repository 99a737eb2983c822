//! Rows that are too long for a block: all of them are sorted together.
//!
//! Elements are sorted by their words, the last one first, by the stable sort of
//! [`super::super::scatter`]. The final sort is by the number of the row, so that each row is
//! contiguous again and in order. Before each sort a kernel writes its numbers in the current
//! order; after the last one the order gives the element of each rank.

use super::super::draft::Draft;
use super::super::index::{advance, divide};
use super::super::scatter::sort::Sort;
use super::Rows;
use super::key::Word;
use crate::ptx::{Binary, Code, Compare, Reg, Space, Ternary, Type};
use crate::stage::{Access, Compiled, Slot, Stage};
use wengert_core::Result;

const THREADS: usize = 256;
/// Elements of a thread.
const OWN: usize = 4;

/// The kernels for rows of any length.
pub(super) fn compile(rows: &Rows) -> Result<Compiled> {
    let (mut stages, mut workspace) = (vec![], 0);
    let mut last: Option<Sort> = None;
    let words = rows.words.words.iter().map(Some);
    // One row is contiguous without the final sort.
    let all: Vec<Option<&Word>> = words.chain((rows.count() > 1).then_some(None)).collect();
    for word in all {
        let below = word.map_or(rows.count(), |word| 1 << word.bits());
        let sort = match &last {
            None => Sort::new(rows.elements(), below),
            Some(last) => last.then(below),
        };
        stages.push(numbers(rows, word, last.as_ref(), &sort)?);
        stages.extend(sort.stages()?);
        workspace = workspace.max(sort.workspace());
        last = Some(sort);
    }
    let last = last.expect("there is a key");
    stages.push(ranks(rows, &last)?);
    Ok(Compiled { stages, workspace })
}

fn read(slot: Slot) -> Slot {
    Slot { access: Access::Read, ..slot }
}

/// Code for each of `count` places, and its launch.
fn for_each(
    mut draft: Draft,
    count: usize,
    name: String,
    remark: String,
    body: impl Fn(&mut Code, Reg, Reg),
) -> Result<Stage> {
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let first = code.ternary(Ternary::Mad, Type::S32, block, (OWN * THREADS) as i64, thread);
    for n in 0..OWN {
        let place = code.binary(Binary::Add, Type::S32, first, (n * THREADS) as i64);
        let there = code.compare(Compare::Lt, Type::S32, place, count as i64);
        code.when(there, |code| body(code, place, there));
    }
    draft.stage(name, remark, THREADS as u32, 0, count.div_ceil(OWN * THREADS))
}

/// Writes the numbers to sort by: a word, or the number of the row.
fn numbers(rows: &Rows, word: Option<&Word>, before: Option<&Sort>, sort: &Sort) -> Result<Stage> {
    // Elements are moved one by one, whatever their alignment.
    let mut draft = Draft::aligned(1);
    let keys = word.map(|word| word.pointers(&mut draft)).unwrap_or_default();
    let order = before.map(|before| draft.pointer("order", read(before.order(before.passes()))));
    let to = draft.pointer("numbers", sort.keys(0));
    let (name, remark) = match word {
        Some(_) => {
            (format!("sort_words_{}", rows.name()), "Words of elements in the order so far.")
        }
        None => ("sort_row_numbers".into(), "Rows of elements in the order so far."),
    };
    for_each(draft, rows.elements(), name, remark.into(), |code, place, there| {
        let element = match order {
            None => place,
            Some(order) => {
                let address = advance(code, order, place, 4);
                code.load(Space::Global, Type::U32, address, 0)
            }
        };
        let number = match word {
            Some(word) => word.load(code, &keys, rows.words.descending, element, there),
            None => {
                let (outer, rest) = divide(code, element, rows.length * rows.inner);
                let (_, inner) = divide(code, rest, rows.inner);
                code.ternary(Ternary::Mad, Type::S32, outer, rows.inner as i64, inner)
            }
        };
        let address = advance(code, to, place, 4);
        code.store(Space::Global, Type::U32, address, 0, number);
    })
}

/// Writes the positions of the first elements of each row.
fn ranks(rows: &Rows, sort: &Sort) -> Result<Stage> {
    // Elements are moved one by one, whatever their alignment.
    let mut draft = Draft::aligned(1);
    let order = draft.pointer("order", read(sort.order(sort.passes())));
    let out = draft.pointer("out", rows.result());
    let name = format!("sort_ranks_{}", rows.name());
    let remark = format!("The first {} indices of each of {} rows.", rows.k, rows.count());
    for_each(draft, rows.count() * rows.k, name, remark, |code, place, _| {
        let (row, rank) = divide(code, place, rows.k);
        let from = code.ternary(Ternary::Mad, Type::S32, row, rows.length as i64, rank);
        let address = advance(code, order, from, 4);
        let element = code.load(Space::Global, Type::U32, address, 0);
        let (along, _) = divide(code, element, rows.inner);
        let (_, position) = divide(code, along, rows.length);
        let (outer, inner) = divide(code, row, rows.inner);
        let to = code.ternary(Ternary::Mad, Type::S32, outer, rows.k as i64, rank);
        let to = code.ternary(Ternary::Mad, Type::S32, to, rows.inner as i64, inner);
        let address = advance(code, out, to, 4);
        code.store(Space::Global, Type::U32, address, 0, position);
    })
}
