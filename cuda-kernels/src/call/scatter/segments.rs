//! The stages before and after the sort: windows' starts as numbers to sort by, and the
//! combination of all updates with the same start.
//!
//! In the latter each thread handles one sorted position and a vector of its window. If the
//! position is the first with its start, the thread combines the updates of this position and of
//! all following ones with the same start with the result; otherwise it does nothing. 256
//! threads, no shared memory; bound by reading the updates once.

use super::super::draft::Draft;
use super::super::index::{advance, digits, divide};
use super::super::number::Place;
use super::{Scatter, THREADS};
use crate::ptx::{Binary, Code, Compare, Reg, Space, Ternary, Type};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// For each scatter position the number of its window's start, or the number of possible starts
/// if the window is not inside.
pub(super) fn keys(scatter: &Scatter, keys: Slot, places: usize) -> Result<Stage> {
    let mut draft = Draft::aligned(scatter.alignment);
    let indices = draft.pointer("indices", Slot::read(1));
    let to = draft.pointer("keys", keys);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let count = scatter.count();
    let position = code.ternary(Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    let exists = code.compare(Compare::Lt, Type::S32, position, count as i64);
    code.when(exists, |code| {
        let start = scatter.start(code, indices, position);
        let mut key = code.mov(Type::S32, 0);
        for ((_, at), (_, extent)) in start.at.into_iter().zip(scatter.places()) {
            key = code.ternary(Ternary::Mad, Type::S32, key, extent as i64, at);
        }
        if let Some(inside) = start.inside {
            key = code.select(Type::S32, key, places as i64, inside);
        }
        let address = advance(code, to, position, 4);
        code.store(Space::Global, Type::U32, address, 0, key);
    });
    let remark = format!("Where {count} windows begin, as one of {places} places.");
    let name = format!("scatter_keys_{}", scatter.index);
    draft.stage(name, remark, THREADS as u32, 0, count.div_ceil(THREADS))
}

/// The stage that combines the updates.
pub(super) fn stage(scatter: &Scatter, keys: Slot, order: Slot, places: usize) -> Result<Stage> {
    let mut draft = Draft::aligned(scatter.alignment);
    let keys = draft.pointer("keys", Slot { access: crate::stage::Access::Read, ..keys });
    let order = draft.pointer("order", Slot { access: crate::stage::Access::Read, ..order });
    let updates = draft.pointer("updates", Slot::read(2));
    let out = draft.pointer("out", scatter.result());
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let (number, count, vector) = (scatter.number, scatter.count(), scatter.window_vector());
    let vectors = scatter.window() / vector;
    let index = code.ternary(Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    let exists = code.compare(Compare::Lt, Type::U32, index, (count * vectors) as i64);
    code.when(exists, |code| {
        let (first, part) = divide(code, index, vectors);
        let from = advance(code, keys, first, 4);
        let key = code.load(Space::Global, Type::U32, from, 0);
        // The first position has no predecessor; any number that differs from its own will do.
        let before = code.mov(Type::U32, -1);
        let later = code.compare(Compare::Gt, Type::S32, first, 0);
        code.when(later, |code| {
            let other = code.load(Space::Global, Type::U32, from, -4);
            code.assign(Type::U32, before, other);
        });
        let new = code.compare(Compare::Ne, Type::U32, key, before);
        let inside = code.compare(Compare::Lt, Type::U32, key, places as i64);
        let head = code.binary(Binary::And, Type::Pred, new, inside);
        code.when(head, |code| {
            let size = number.size();
            let part = code.binary(Binary::Mul, Type::S32, part, vector as i64);
            let (mut to, from) = scatter.within(code, [out, updates], part);
            let extents: Vec<usize> = scatter.places().iter().map(|p| p.1).collect();
            for ((axis, _), at) in scatter.places().iter().zip(digits(code, key, &extents)) {
                to = advance(code, to, at, scatter.axes[*axis].stride as i64 * size);
            }
            let sums = scatter.elements_at(code, to, vector);
            add_up(code, scatter, [keys, order], [first, key], from, &sums);
            let raw: Vec<Reg> = sums.into_iter().map(|sum| number.narrow(code, sum)).collect();
            number.store(code, Space::Global, Place::at(to, 0), &raw);
        });
    });
    let remark =
        format!("Combines {count} windows, sorted by where they begin, in vectors of {vector}.");
    draft.stage(
        scatter.kernel("segments"),
        remark,
        THREADS as u32,
        0,
        (count * vectors).div_ceil(THREADS),
    )
}

/// Adds the updates from the first position of a key to its last. `from` is the element's address
/// in the updates of position 0.
fn add_up(
    code: &mut Code,
    scatter: &Scatter,
    [keys, order]: [Reg; 2],
    [first, key]: [Reg; 2],
    from: Reg,
    sums: &[Reg],
) {
    let at = code.mov(Type::S32, first);
    let (begin, end) = (code.label(), code.label());
    code.place(begin);
    let address = advance(code, order, at, 4);
    let position = code.load(Space::Global, Type::U32, address, 0);
    let address = scatter.update(code, from, position);
    scatter.combine_at(code, address, sums);
    code.binary_into(at, Binary::Add, Type::S32, at, 1);
    let last = code.compare(Compare::Ge, Type::S32, at, scatter.count() as i64);
    code.branch_if(last, end);
    let address = advance(code, keys, at, 4);
    let other = code.load(Space::Global, Type::U32, address, 0);
    let same = code.compare(Compare::Eq, Type::U32, other, key);
    code.branch_if(same, begin);
    code.place(end);
}
