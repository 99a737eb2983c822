//! Scatter by scanning: each element of the result belongs to a thread, which goes through all
//! scatter positions in order.
//!
//! A block of 256 threads reads the indices of 256 positions at a time, one position a thread,
//! and stores their windows' starts to shared memory (1 KiB for each axis that windows move
//! along). A window that is not inside gets a start from which it reaches no element. Then each
//! thread compares each start with the coordinates of its element, and combines the update if the
//! window contains the element.
//!
//! Bound: elements × positions comparisons, each with a broadcast read from shared memory.

use super::super::draft::Draft;
use super::super::index::{advance, both, digits};
use super::super::number::Place;
use super::{Scatter, THREADS};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// Start of a window that is not inside: so far below every coordinate that no window reaches
/// one.
pub(super) const NOWHERE: i64 = i32::MIN as i64;

/// Bytes of shared memory for the starts of 256 windows along one axis.
pub(super) const ROW: i64 = 4 * THREADS as i64;

/// Stores the start of a window to shared memory, one coordinate a row, at the address `mine`.
pub(super) fn share_starts(
    code: &mut Code,
    scatter: &Scatter,
    [indices, position, mine]: [Reg; 3],
) {
    let there = code.compare(Compare::Lt, Type::S32, position, scatter.count() as i64);
    let starts: Vec<Reg> = scatter.places().iter().map(|_| code.mov(Type::S32, NOWHERE)).collect();
    code.when(there, |code| {
        let start = scatter.start(code, indices, position);
        for (kept, (_, at)) in starts.iter().zip(start.at) {
            let at = match start.inside {
                Some(inside) => code.select(Type::S32, at, NOWHERE, inside),
                None => at,
            };
            code.assign(Type::S32, *kept, at);
        }
    });
    for (n, start) in starts.into_iter().enumerate() {
        code.store(Space::Shared, Type::S32, mine, n as i64 * ROW, start);
    }
}

pub(super) fn stage(scatter: &Scatter) -> Result<Stage> {
    let mut draft = Draft::aligned(scatter.alignment);
    let out =
        draft.pointer("out", if scatter.in_place { scatter.result() } else { Slot::write(3) });
    let operand = if scatter.in_place { out } else { draft.pointer("operand", Slot::read(0)) };
    let places = scatter.places();
    let indices = draft.pointer("indices", Slot::read(1));
    let updates = draft.pointer("updates", Slot::read(2));
    let shared = draft.shared("starts", (ROW * places.len().max(1) as i64) as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let number = scatter.number;

    let element = code.ternary(Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    let exists = code.compare(Compare::Lt, Type::S32, element, scatter.elements as i64);
    let extents: Vec<usize> = scatter.axes.iter().map(|a| a.extent).collect();
    let coordinates = digits(code, element, &extents);
    // Along an axis that windows do not move along, they start at 0.
    let mut reached = Some(exists);
    for (axis, a) in scatter.axes.iter().enumerate() {
        if !scatter.moved.contains(&axis) && a.window < a.extent {
            let below = code.compare(Compare::Lt, Type::S32, coordinates[axis], a.window as i64);
            reached = both(code, reached, Some(below));
        }
    }
    let size = number.size();
    let [from, to] = [operand, out].map(|base| advance(code, base, element, size));
    let raw =
        number.load(code, Space::Global, Place { valid: Some(exists), ..Place::at(from, 0) }, 1)[0];
    let sum = number.widen(code, raw);
    let sum = code.mov(number.wide(), sum);

    let count = scatter.count();
    let mine = code.ternary(Ternary::Mad, Type::S32, thread, 4, shared);
    code.count(0, count as i64, THREADS as i64, |code, first| {
        let position = code.binary(Binary::Add, Type::S32, first, thread);
        share_starts(code, scatter, [indices, position, mine]);
        code.push(Inst::Barrier);
        let left = code.binary(Binary::Sub, Type::S32, count as i64, first);
        let here = code.binary(Binary::Min, Type::S32, left, THREADS as i64);
        code.count(0, here, 1, |code, n| {
            let address = code.ternary(Ternary::Mad, Type::S32, n, 4, shared);
            let mut inside = reached;
            // For each axis, the distance of the element from the start of the window.
            let mut within: Vec<Reg> = coordinates.clone();
            for (at, (axis, _)) in places.iter().enumerate() {
                let start = code.load(Space::Shared, Type::S32, address, at as i64 * ROW);
                within[*axis] = code.binary(Binary::Sub, Type::S32, coordinates[*axis], start);
                let window = scatter.axes[*axis].window as i64;
                let good = code.compare(Compare::Lt, Type::U32, within[*axis], window);
                inside = both(code, inside, Some(good));
            }
            let inside = inside.expect("at least whether the element exists");
            code.when(inside, |code| {
                let position = code.binary(Binary::Add, Type::S32, first, n);
                let mut address = scatter.update(code, updates, position);
                for (axis, within) in scatter.axes.iter().zip(within) {
                    address = advance(code, address, within, axis.update as i64 * size);
                }
                let raw = number.load(code, Space::Global, Place::at(address, 0), 1)[0];
                let value = number.widen(code, raw);
                let next = scatter.combine(code, sum, value);
                code.assign(number.wide(), sum, next);
            });
        });
        code.push(Inst::Barrier);
    });
    let finish = |code: &mut Code| {
        let raw = number.narrow(code, sum);
        number.store(code, Space::Global, Place::at(to, 0), &[raw]);
    };
    code.when(exists, finish);
    let remark = format!(
        "Combines {count} windows with {} elements, each of which scans them.",
        scatter.elements
    );
    draft.stage(
        scatter.kernel("scan"),
        remark,
        THREADS as u32,
        0,
        scatter.elements.div_ceil(THREADS),
    )
}
