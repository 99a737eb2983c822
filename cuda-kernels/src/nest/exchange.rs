//! Exchange of values between the threads of a team: by shuffles in a warp, otherwise through
//! shared memory.

use super::emit::Emit;
use super::team::{Team, exchange_size};
use super::vector::{from_memory, to_memory};
use crate::architecture::WARP;
use crate::ptx::{Code, Compare, Inst, Lanes, Reg, Rounding, Shuffle, Space, Ternary, Type, Width};
use crate::scalar::{memory_type, value_type};
use wengert_core::DType;
use wengert_core::nest::Affine;

impl Team<'_> {
    /// Broadcasts the values of the first thread to the team. `settle`: the values of the last
    /// broadcast may not have been read by all threads yet.
    pub fn tell(
        &mut self,
        emit: &mut Emit<'_>,
        dtypes: &[DType],
        values: &[Reg],
        settle: bool,
    ) -> Vec<Reg> {
        if self.layout.in_warp() {
            return self.shuffled(emit, dtypes, values, Shuffle::Index, 0);
        }
        if values.is_empty() {
            return Vec::new();
        }
        if settle {
            self.wait(emit);
        }
        let (base, used) = self.results.expect("made for teams that exchange through memory");
        let first = emit.code.compare(Compare::Eq, Type::U32, self.thread, 0);
        let (slots, bytes) = slots(emit, dtypes, base, self.team, self.layout.teams());
        for (slot, value) in slots.iter().zip(values) {
            slot.put(emit, *value, Some(first));
        }
        self.wait(emit);
        let told = slots.iter().map(|slot| slot.get(emit, 0, None)).collect();
        self.results = Some((base, used.max(bytes)));
        told
    }

    /// In the first `distance` threads, the values of the threads that are `distance` further; in
    /// the others, unspecified values of the same dtypes.
    pub fn bring(
        &mut self,
        emit: &mut Emit<'_>,
        dtypes: &[DType],
        values: &[Reg],
        distance: u32,
    ) -> Vec<Reg> {
        if self.shuffles(distance) {
            return self.shuffled(emit, dtypes, values, Shuffle::Down, distance.into());
        }
        let (base, used) = self.exchange.expect("made for teams that exchange through memory");
        let step = if self.layout.columns { self.layout.teams() } else { 1 };
        let (near, far) = (i64::from(distance), i64::from(2 * distance));
        let gives = emit.guard(&Affine::axis(self.axis), near, far);
        let takes = emit.guard(&Affine::axis(self.axis), 0, near);
        let (slots, bytes) = slots(emit, dtypes, base, self.linear, self.layout.block());
        for (slot, value) in slots.iter().zip(values) {
            slot.put(emit, *value, gives);
        }
        self.wait(emit);
        let brought = slots.iter().map(|slot| slot.get(emit, distance * step, takes)).collect();
        self.exchange = Some((base, used.max(bytes)));
        brought
    }

    /// The values of another lane of the team.
    pub fn shuffled(
        &self,
        emit: &mut Emit<'_>,
        dtypes: &[DType],
        values: &[Reg],
        mode: Shuffle,
        lane: i64,
    ) -> Vec<Reg> {
        // PTX ISA, `shfl.sync`: the last lane of a segment, and above it the bits of the
        // segment's number.
        let segment = if self.layout.in_warp() { self.layout.threads } else { WARP };
        let clamp = ((WARP - segment) << 8) | 0x1f;
        let from = Lanes { mode, lane: lane.into(), clamp, members: self.members.clone() };
        let all = dtypes.iter().zip(values);
        all.map(|(dtype, value)| shuffle(&mut emit.code, *dtype, *value, &from)).collect()
    }
}

/// The value of another lane of the warp.
pub(super) fn shuffle(code: &mut Code, dtype: DType, value: Reg, from: &Lanes) -> Reg {
    match value_type(dtype).width() {
        Width::Pred => {
            let word = code.select(Type::B32, 1, 0, value);
            let word = code.shuffle(from, word);
            code.compare(Compare::Ne, Type::U32, word, 0)
        }
        Width::B16 => {
            let word = code.convert(Rounding::Exact, Type::U32, Type::U16, value);
            let word = code.shuffle(from, word);
            code.convert(Rounding::Exact, Type::U16, Type::U32, word)
        }
        Width::B32 | Width::B64 => code.shuffle(from, value),
    }
}

/// A thread's place in shared memory for a value of a dtype.
struct Slot {
    dtype: DType,
    base: Reg,
    offset: i64,
}

/// Slots of the thread that has this number among `count`; and the bytes that all of them take.
fn slots(
    emit: &mut Emit<'_>,
    dtypes: &[DType],
    base: Reg,
    number: Reg,
    count: u32,
) -> (Vec<Slot>, usize) {
    let mut end = 0usize;
    let slot = |dtype: &DType| {
        let size = exchange_size(*dtype);
        let offset = end.next_multiple_of(size);
        end = offset + size * count as usize;
        let base = emit.code.ternary(Ternary::Mad, Type::S32, number, size as i64, base);
        Slot { dtype: *dtype, base, offset: offset as i64 }
    };
    (dtypes.iter().map(slot).collect(), end)
}

impl Slot {
    /// Stores a value, in 4 or 8 bytes.
    fn put(&self, emit: &mut Emit<'_>, value: Reg, predicate: Option<Reg>) {
        let value = to_memory(&mut emit.code, self.dtype, value);
        let ty = word_type(self.dtype);
        let store = Inst::store(Space::Shared, ty, self.base, self.offset, [value]);
        emit.code.push_where(predicate, store);
    }

    /// Loads the value of the slot that is `further` on; zero where the predicate fails.
    fn get(&self, emit: &mut Emit<'_>, further: u32, predicate: Option<Reg>) -> Reg {
        let ty = word_type(self.dtype);
        let result = emit.code.reg_of(ty);
        if predicate.is_some() {
            emit.code.assign(ty, result, 0);
        }
        let offset = self.offset + i64::from(further) * exchange_size(self.dtype) as i64;
        let load = Inst::load(Space::Shared, ty, &[result], self.base, offset);
        emit.code.push_where(predicate, load);
        from_memory(&mut emit.code, self.dtype, result)
    }
}

/// Type of a register in an exchange.
fn word_type(dtype: DType) -> Type {
    match value_type(dtype).width() {
        Width::B64 => Type::B64,
        Width::B16 => memory_type(dtype),
        Width::Pred | Width::B32 => Type::B32,
    }
}
