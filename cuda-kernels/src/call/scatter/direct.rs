//! Scatter by windows: each thread owns a vector of one window, so elements outside all windows
//! are not touched.
//!
//! If several positions have the same start, the first one's threads combine the updates of all
//! of them in order, and the others do nothing. Each block of 256 threads has the starts of all
//! positions in shared memory (1 KiB for each axis that windows move along), so there are at most
//! 256 positions. A single position needs none of this.
//!
//! Bound: launch latency; then positions² comparisons for each element of a window.

use super::super::draft::Draft;
use super::super::index::{advance, both, divide};
use super::scan::{NOWHERE, ROW, share_starts};
use super::{Scatter, THREADS};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// Whether a scatter has few positions, no partly overlapping windows, and less work in its
/// windows than in its result.
pub(super) fn serves(scatter: &Scatter) -> bool {
    let count = scatter.count();
    let few = count <= THREADS && count.saturating_mul(scatter.window()) <= scatter.elements;
    few && (count == 1 || scatter.apart())
}

pub(super) fn stage(scatter: &Scatter) -> Result<Stage> {
    let mut draft = Draft::aligned(scatter.alignment);
    let indices = draft.pointer("indices", Slot::read(1));
    let updates = draft.pointer("updates", Slot::read(2));
    let out = draft.pointer("out", scatter.result());
    let (count, places) = (scatter.count(), scatter.places());
    let shared = (count > 1 && !places.is_empty())
        .then(|| draft.shared("starts", (ROW * places.len() as i64) as u32));
    // Without them all positions have one window, which the threads of the first own.
    let owners = if shared.is_some() { count } else { 1 };
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let vector = scatter.window_vector();
    let vectors = scatter.window() / vector;
    let index = code.ternary(Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    if let Some(shared) = shared {
        let mine = code.ternary(Ternary::Mad, Type::S32, thread, 4, shared);
        share_starts(code, scatter, [indices, thread, mine]);
        code.push(Inst::Barrier);
    }
    let exists = code.compare(Compare::Lt, Type::U32, index, (owners * vectors) as i64);
    code.when(exists, |code| {
        let (position, part) = divide(code, index, vectors);
        let part = code.binary(Binary::Mul, Type::S32, part, vector as i64);
        let (to, from) = scatter.within(code, [out, updates], part);
        let window = Window { scatter, to, from, vector };
        match shared {
            Some(shared) => window.shared(code, shared, position),
            None => {
                let start = scatter.start(code, indices, position);
                let starts: Vec<Reg> = start.at.into_iter().map(|(_, at)| at).collect();
                match start.inside {
                    Some(inside) => code.when(inside, |code| window.all(code, &starts)),
                    None => window.all(code, &starts),
                }
            }
        }
    });
    let remark = format!("Combines {count} windows in vectors of {vector}.");
    let blocks = (owners * vectors).div_ceil(THREADS);
    draft.stage(scatter.kernel("direct"), remark, THREADS as u32, 0, blocks)
}

/// The vector of a window that a thread owns.
struct Window<'s> {
    scatter: &'s Scatter,
    /// Its address if the window were at the origin, and that of its updates of position 0.
    to: Reg,
    from: Reg,
    vector: usize,
}

impl Window<'_> {
    /// The address in a window with these starts.
    fn address(&self, code: &mut Code, starts: &[Reg]) -> Reg {
        let size = self.scatter.number.size();
        let places = self.scatter.places();
        places.iter().zip(starts).fold(self.to, |to, ((axis, _), at)| {
            advance(code, to, *at, self.scatter.axes[*axis].stride as i64 * size)
        })
    }

    /// All positions have these starts.
    fn all(&self, code: &mut Code, starts: &[Reg]) {
        let to = self.address(code, starts);
        let elements = self.scatter.elements_at(code, to, self.vector);
        code.count(0, self.scatter.count() as i64, 1, |code, n| {
            let from = self.scatter.update(code, self.from, n);
            self.scatter.combine_at(code, from, &elements);
        });
        self.scatter.store_at(code, to, &elements);
    }

    /// The starts are in shared memory.
    fn shared(&self, code: &mut Code, shared: Reg, position: Reg) {
        let axes = self.scatter.places().len() as i64;
        let load = |code: &mut Code, n: Reg| -> Vec<Reg> {
            let address = code.ternary(Ternary::Mad, Type::S32, n, 4, shared);
            (0..axes).map(|a| code.load(Space::Shared, Type::S32, address, a * ROW)).collect()
        };
        let mine = load(code, position);
        let equal = |code: &mut Code, n: Reg| {
            let others = load(code, n);
            let pairs = mine.iter().zip(others);
            pairs.fold(None, |all, (mine, other)| {
                let same = code.compare(Compare::Eq, Type::S32, *mine, other);
                both(code, all, Some(same))
            })
        };
        // Whether an earlier position has this start; 1 if the window is not inside.
        let outside = code.compare(Compare::Eq, Type::S32, mine[0], NOWHERE);
        let one = code.mov(Type::S32, 1);
        let taken = code.select(Type::S32, one, 0, outside);
        let taken = code.mov(Type::S32, taken);
        code.count(0, position, 1, |code, n| {
            let same = equal(code, n).expect("windows move along an axis");
            let next = code.select(Type::S32, one, taken, same);
            code.assign(Type::S32, taken, next);
        });
        let owned = code.compare(Compare::Eq, Type::S32, taken, 0);
        code.when(owned, |code| {
            let to = self.address(code, &mine);
            let elements = self.scatter.elements_at(code, to, self.vector);
            code.count(position, self.scatter.count() as i64, 1, |code, n| {
                let same = equal(code, n).expect("windows move along an axis");
                code.when(same, |code| {
                    let from = self.scatter.update(code, self.from, n);
                    self.scatter.combine_at(code, from, &elements);
                });
            });
            self.scatter.store_at(code, to, &elements);
        });
    }
}
