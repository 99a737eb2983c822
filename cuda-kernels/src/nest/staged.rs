//! Long rows that several phases read: the first of them copies the row into shared memory.
//!
//! A softmax reads its row three times. The rows that are in work at once take more bytes than the
//! L2 cache has, if they are long, so a later phase would read from device memory what an earlier
//! one has read already. In a nest with staged rows, the first phase that loads an element stores
//! it in a row storage too, and the later phases load it from there.
//!
//! Shared memory for a long row leaves fewer resident threads. So a row is staged only if
//!
//! - it has more than [`LEAST`] bytes, and
//! - two blocks fit on a multiprocessor: while one waits for its row, the other one computes.

use super::choose::{Schedule, takes};
use super::phases::{exchange_bytes, storage_bytes};
use crate::architecture::Architecture;
use wengert_core::Id;
use wengert_core::nest::{
    Access, Affine, AxisId, Buffer, BufferId, BufferRole, Instr, Nest, Phase,
};

/// A multiprocessor has eight blocks of 256 threads, and 132 multiprocessors of an H100 have
/// 34 MB of shorter rows in work: its L2 cache keeps them (50 MB).
pub(super) const LEAST: usize = 32 << 10;

/// Blocks of a multiprocessor.
pub(super) const RESIDENT: u32 = 2;

/// Bytes of shared memory that each resident block takes beside its own (CUDA C++ Programming
/// Guide, "Compute Capabilities", 9.0).
const RESERVED: usize = 1 << 10;

/// The nest with staged rows, if a team of a block does each row and there is a row to stage.
pub(super) fn staged(nest: &Nest, schedule: &Schedule, architecture: Architecture) -> Option<Nest> {
    let Schedule::Team { rows: 1, .. } = schedule else { return None };
    let layout = schedule.layout().filter(|layout| !layout.in_warp())?;
    if nest.band().is_some() {
        return None;
    }
    let most = architecture.shared_per_multiprocessor / RESIDENT;
    let most = most as usize - RESERVED;
    let inputs = nest.buffers.iter().filter(|(_, buffer)| buffer.role == BufferRole::In);
    inputs.map(|(id, _)| id).fold(None, |known: Option<Nest>, buffer| {
        let base = known.as_ref().unwrap_or(nest);
        let fits = |more: &Nest| {
            storage_bytes(more) + exchange_bytes(more, layout) <= most
                && takes(more, architecture, schedule)
        };
        stage(base, buffer).filter(fits).or(known)
    })
}

/// The row of a parameter: the indices of an access, `None` in place of the one that is the inner
/// axis of its phase.
type Row = Vec<Option<Affine>>;

/// A load of a row, by the number of its instruction.
struct RowLoad {
    at: usize,
    extent: usize,
    row: Row,
}

/// The only inner axis of a phase, and the row that an access has along it.
fn row_of(access: &Access, phase: &Phase) -> Option<(AxisId, Row)> {
    let [axis] = phase.axes[..] else { return None };
    if access.clamp || !access.guards.is_empty() {
        return None;
    }
    let along = Affine::axis(axis);
    let index = |index: &Affine| (*index != along).then(|| index.clone());
    let indices: Row = access.indices.iter().map(index).collect();
    let elsewhere = indices.iter().flatten().any(|index| index.coefficient(axis) != 0);
    let once = indices.iter().filter(|index| index.is_none()).count() == 1;
    (once && !elsewhere).then_some((axis, indices))
}

/// The nest whose first load of a row of this buffer is kept, if a later phase loads the same row
/// and it is long.
fn stage(nest: &Nest, buffer: BufferId) -> Option<Nest> {
    let loads = |phase: &Phase| {
        let all = phase.body.iter().enumerate().filter_map(|(at, instr)| match instr {
            Instr::Load { access, .. } if access.buffer == buffer => {
                let found = row_of(access, phase);
                found.map(|(axis, row)| RowLoad { at, extent: nest.axes[axis].extent, row })
            }
            _ => None,
        });
        all.collect()
    };
    let all: Vec<Vec<RowLoad>> = nest.phases.iter().map(loads).collect();
    let first = all.iter().position(|loads| !loads.is_empty())?;
    let RowLoad { at, extent, row } = &all[first][0];
    let from = &nest.buffers[buffer];
    let is_again = |load: &&RowLoad| load.extent == *extent && load.row == *row;
    let again = |phase: usize| all[phase].iter().filter(is_again).map(|load| load.at);
    let later = first + 1..nest.phases.len();
    if extent * from.dtype.size() <= LEAST || !later.clone().any(|p| again(p).next().is_some()) {
        return None;
    }
    let mut more = nest.clone();
    let kept = more.buffers.push(Buffer {
        name: format!("staged{}", buffer.index()),
        dtype: from.dtype,
        shape: vec![*extent],
        pitch: None,
        role: BufferRole::Row,
    });
    let element = |phase: &Phase| Access {
        buffer: kept,
        indices: vec![Affine::axis(phase.axes[0])],
        guards: Vec::new(),
        clamp: false,
    };
    for phase in later {
        for at in again(phase) {
            let place = element(&more.phases[phase]);
            if let Instr::Load { access, .. } = &mut more.phases[phase].body[at] {
                *access = place;
            }
        }
    }
    let phase = &mut more.phases[first];
    let value = phase.body[*at].results()[0];
    let store = Instr::Store { access: element(phase), value, total: None };
    phase.body.insert(at + 1, store);
    Some(more)
}

#[cfg(test)]
mod tests {
    use super::super::choose::choose;
    use super::*;
    use wengert_core::nest::{parse_nests, verify};

    fn softmax(columns: usize, load: &str) -> Nest {
        let text = format!(
            "nest @f(in %x: bf16[9,{columns}], out %y: bf16[9,{columns}]) {{ parallel i: 9
             phase j: {columns} {{ %0: bf16 = load %x[i, j] %1: f32 = convert %0
                 %2: f32 = reduce(%1) max tree(1024) }}
             phase j: {columns} {{ %3: bf16 = load %x[{load}] %4: f32 = convert %3
                 %5: f32 = sub %4, %2 %6: f32 = exp %5 %7: f32 = reduce(%6) sum tree(1024) }}
             phase j: {columns} {{ %8: bf16 = load %x[i, j] %9: f32 = convert %8
                 %10: f32 = sub %9, %2 %11: f32 = exp %10 %12: f32 = div %11, %7
                 %13: bf16 = convert %12 store %y[i, j], %13 }} }}"
        );
        let nest = parse_nests("test", &text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        nest
    }

    fn of(nest: &Nest, number: u32) -> Option<Nest> {
        let architecture = *Architecture::ALL.iter().find(|a| a.number == number).unwrap();
        let found = staged(nest, &choose(nest, architecture), architecture);
        found.iter().for_each(|nest| verify(nest).unwrap());
        found
    }

    /// Loads from parameters and from row storage, in the order of the phases.
    fn places(nest: &Nest) -> Vec<BufferRole> {
        let body = nest.phases.iter().flat_map(|phase| &phase.body);
        let loads = body.filter_map(|instr| match instr {
            Instr::Load { access, .. } => Some(nest.buffers[access.buffer].role),
            _ => None,
        });
        loads.collect()
    }

    #[test]
    fn a_long_row_is_read_once() {
        let staged = of(&softmax(50304, "i, j"), 90).unwrap();
        assert_eq!(places(&staged), [BufferRole::In, BufferRole::Row, BufferRole::Row]);
    }

    #[test]
    fn only_the_same_row_is_in_the_storage() {
        let staged = of(&softmax(50304, "8-i, j"), 90).unwrap();
        assert_eq!(places(&staged), [BufferRole::In, BufferRole::In, BufferRole::Row]);
    }

    #[test]
    fn short_rows_and_rows_of_which_two_do_not_fit_are_read_again() {
        for (columns, number) in [(16384, 90), (57000, 90), (50304, 80), (50304, 89)] {
            assert!(of(&softmax(columns, "i, j"), number).is_none(), "{columns} on {number}");
        }
        assert!(of(&softmax(16385, "i, j"), 90).is_some());
        assert!(of(&softmax(16385, "i, j"), 89).is_some());
    }
}
