//! Exchange of values between the threads of a team: by shuffles in a warp, otherwise through
//! shared memory.

use super::emit::Emit;
use super::team::{Team, exchange_size};
use super::vector::to_memory;
use crate::architecture::WARP;
use crate::ptx::{
    Code, Compare, Inst, Lanes, Operand, Reg, Rounding, Shuffle, Space, Ternary, Type, Width,
};
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
            let from = Operand::Int(0);
            let tell = |(dtype, value): (&DType, &Reg)| {
                self.shuffle(emit, *dtype, *value, Shuffle::Index, from.clone())
            };
            return dtypes.iter().zip(values).map(tell).collect();
        }
        if values.is_empty() {
            return Vec::new();
        }
        if settle {
            self.wait(emit);
        }
        let (base, used) = self.results.expect("made for teams that exchange through memory");
        let rows = self.layout.rows as usize;
        let first = emit.code.compare(Compare::Eq, Type::U32, self.thread, 0);
        let mut at = 0usize;
        let mut slots = Vec::new();
        for dtype in dtypes {
            let size = exchange_size(*dtype);
            at = at.next_multiple_of(size);
            slots.push((
                emit.code.ternary(Ternary::Mad, Type::S32, self.row, size as i64, base),
                at as i64,
            ));
            at += size * rows;
        }
        for ((dtype, value), (slot, offset)) in dtypes.iter().zip(values).zip(&slots) {
            put(emit, *dtype, *value, *slot, *offset, Some(first));
        }
        self.wait(emit);
        let get = |(dtype, (slot, offset)): (&DType, &(Reg, i64))| {
            get(emit, *dtype, *slot, *offset, None)
        };
        let told = dtypes.iter().zip(&slots).map(get).collect();
        self.results = Some((base, used.max(at)));
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
        if self.layout.in_warp() || (!self.layout.columns && distance < WARP) {
            let by = Operand::Int(distance.into());
            let bring = |(dtype, value): (&DType, &Reg)| {
                self.shuffle(emit, *dtype, *value, Shuffle::Down, by.clone())
            };
            return dtypes.iter().zip(values).map(bring).collect();
        }
        let (base, used) = self.exchange.expect("made for teams that exchange through memory");
        let step = if self.layout.columns { self.layout.rows } else { 1 };
        let (near, far) = (i64::from(distance), i64::from(2 * distance));
        let gives = emit.guard(&Affine::axis(self.axis), near, far);
        let takes = emit.guard(&Affine::axis(self.axis), 0, near);
        let mut at = 0usize;
        let mut slots = Vec::new();
        for dtype in dtypes {
            let size = exchange_size(*dtype);
            at = at.next_multiple_of(size);
            slots.push((
                emit.code.ternary(Ternary::Mad, Type::S32, self.linear, size as i64, base),
                at,
                size,
            ));
            at += size * self.layout.block() as usize;
        }
        for ((dtype, value), (slot, offset, _)) in dtypes.iter().zip(values).zip(&slots) {
            put(emit, *dtype, *value, *slot, *offset as i64, gives);
        }
        self.wait(emit);
        let brought = dtypes.iter().zip(&slots).map(|(dtype, (slot, offset, size))| {
            let further = *offset as i64 + i64::from(distance * step) * *size as i64;
            get(emit, *dtype, *slot, further, takes)
        });
        let brought = brought.collect();
        self.exchange = Some((base, used.max(at)));
        brought
    }

    /// The value of another lane of the team.
    fn shuffle(
        &self,
        emit: &mut Emit<'_>,
        dtype: DType,
        value: Reg,
        mode: Shuffle,
        lane: Operand,
    ) -> Reg {
        // PTX ISA, `shfl.sync`: the last lane of a segment, and above it the bits of the
        // segment's number.
        let segment = if self.layout.in_warp() { self.layout.threads } else { WARP };
        let clamp = ((WARP - segment) << 8) | 0x1f;
        shuffle(
            &mut emit.code,
            dtype,
            value,
            &Lanes { mode, lane, clamp, members: self.members.clone() },
        )
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

/// Stores a value to shared memory, in 4 or 8 bytes.
fn put(
    emit: &mut Emit<'_>,
    dtype: DType,
    value: Reg,
    base: Reg,
    offset: i64,
    predicate: Option<Reg>,
) {
    let value = to_memory(&mut emit.code, dtype, value);
    let store = Inst::store(Space::Shared, word_type(dtype), base, offset, [value]);
    emit.code.push_where(predicate, store);
}

/// Loads a value from shared memory; zero where the predicate fails.
fn get(emit: &mut Emit<'_>, dtype: DType, base: Reg, offset: i64, predicate: Option<Reg>) -> Reg {
    let ty = word_type(dtype);
    let result = emit.code.reg_of(ty);
    if predicate.is_some() {
        emit.code.assign(ty, result, 0);
    }
    emit.code.push_where(predicate, Inst::load(Space::Shared, ty, &[result], base, offset));
    match dtype {
        DType::Bool => emit.code.compare(Compare::Ne, Type::U32, result, 0),
        _ => result,
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
