//! Nests as PTX kernels.
//!
//! A nest defines the values, bit for bit; a [`Schedule`] assigns them to threads. A thread runs
//! the body of a phase for some of its iterations. Schedules differ only in which iterations
//! these are: an instruction has the same code under each of them (modules `emit`, `index`,
//! `access`, and the table of [`crate::scalar`]).
//!
//! | schedule | a row is done by | for |
//! |---|---|---|
//! | row | one thread, which may do a few neighbouring rows | elementwise nests; short rows; reductions along outer axes with many columns; all other nests |
//! | team | 2 to 1024 threads of a warp or a block | reductions along the contiguous axis, normalisations, softmax, scans |
//! | column team | threads at a distance in a block, which may do a few neighbouring rows | reductions along outer axes with few columns |
//! | team, of a nest with totals | one of the teams of a block, which does a [band] of rows | gradients of norms |
//! | tile | one thread; a row is an element of a square that is transposed in shared memory | permutations, and nests fused with them |
//!
//! **Mapping of loops.** Parallel axes that every expression sees as one are merged (`shape`).
//! The axis along which most bytes are contiguous goes from thread to thread, the others from
//! block to block, by dividing the number of the thread or of the block. A thread's iterations
//! side by side are *copies*; where neighbouring copies are neighbours in memory, one instruction
//! of up to 16 bytes serves them. Inner axes are loops of a thread (`row`, `reduce`), short
//! reductions without a loop (`unroll`), or numbers that are distributed over a team in the order
//! of the reduction's tree (`team`, `spread`). Reductions are combined in exactly the order of the
//! tree, by registers, shuffles and shared memory. There are no atomics, and every launch gives the
//! same bits.
//!
//! A long row that several phases read is kept in shared memory, where there is room for two
//! (`staged`).
//!
//! **Invariants.** No access is out of bounds, not even one whose value is not used: the last
//! vector of a line and guards are predicates on the instruction. No thread reads global memory
//! that another thread of the launch writes. Read-only loads (`.nc`) are only from buffers that
//! no parameter of the launch writes, those in place included.

mod access;
mod band;
mod choose;
mod direction;
mod element;
mod emit;
mod exchange;
mod follow;
mod halves;
mod index;
mod phases;
mod place;
mod reduce;
mod row;
mod scan;
mod shape;
mod share;
mod spread;
mod staged;
mod team;
mod tile;
mod unroll;
mod values;
mod vector;

pub use choose::{Schedule, choose, takes};
pub use follow::Follower;
pub(crate) use follow::{Elements, FollowerCode};

use crate::architecture::Architecture;
use crate::ptx::{Kernel, Parameter, Type};
use crate::stage::{Access, Compiled, Memory, Slot, Stage};
use emit::{Emit, parameter};
use row::Rows;
use team::MAX_GRID;
use tile::Tile;
use wengert_core::nest::{BufferRole, Nest};
use wengert_core::{Diagnostic, Result};

/// Options of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The schedule, instead of that of [`choose`]. The nest must take it.
    pub schedule: Option<Schedule>,
    /// Maximum number of blocks of a launch; each then does the work of several. Without it,
    /// there is a block for each unit of work.
    pub blocks: Option<u32>,
    /// Alignment of every buffer: a power of two, at least the size of its elements.
    pub alignment: u64,
}

impl Default for Options {
    /// The chosen schedule, for buffers aligned as in a plan.
    fn default() -> Self {
        Options { schedule: None, blocks: None, alignment: ALIGNMENT }
    }
}

/// Alignment of allocations, and of values in a plan's arena; slices of stacked values in loops
/// may have less.
const ALIGNMENT: u64 = 256;

/// The kernel of a nest that the verifier has accepted. Arguments are its parameters, in order.
///
/// `in_place` lists pairs of parameters, an `in` and an `out`, that alias; the nest must allow it
/// ([`wengert_core::nest::may_alias`]).
///
/// Errors: an instruction that has no code for GPUs; row storage that fits in no memory of a GPU;
/// a schedule that the nest does not take.
pub fn compile(
    nest: &Nest,
    architecture: Architecture,
    in_place: &[(usize, usize)],
    options: &Options,
) -> Result<Compiled> {
    let nothing = Compiled { stages: Vec::new(), workspace: 0 };
    if nest.rows() == 0 || nest.phases.is_empty() {
        return Ok(nothing);
    }
    let schedule = match &options.schedule {
        Some(schedule) if takes(nest, architecture, schedule) => schedule.clone(),
        Some(schedule) => {
            return Err(Diagnostic::new(format!(
                "nest @{} does not take schedule {schedule}",
                nest.name
            )));
        }
        None => choose(nest, architecture),
    };
    if nest.band().is_some() && !takes(nest, architecture, &schedule) {
        let message = format!("nest @{}: its totals do not fit on a GPU", nest.name);
        return Err(Diagnostic::new(message).help("plan for a target without `band_rows`"));
    }
    let staged = staged::staged(nest, &schedule, architecture);
    let resident = if staged.is_some() { staged::RESIDENT } else { 0 };
    let nest = staged.as_ref().unwrap_or(nest);
    let (nest, accumulators) = &band::with_accumulators(nest);
    let limit = options.blocks.map_or(MAX_GRID, |b| u64::from(b.max(1)));
    let mut emit = Emit::new(nest);
    emit.accumulators = accumulators.clone();
    let alignment = options.alignment.min(ALIGNMENT);
    emit.alignment = usize::try_from(alignment).expect("at most 256");
    emit.parameters(in_place);
    let groups = shape::rows(nest);
    let (grid, threads, dynamic_shared) = match schedule {
        Schedule::Row { threads, vector } => {
            let rows = Rows { groups, vector };
            (row::kernel(&mut emit, &rows, threads, limit)?, threads, 0)
        }
        Schedule::Tile => {
            let tile = Tile::new(nest, &groups).expect("the nest takes the schedule");
            (tile::kernel(&mut emit, &tile, &groups, limit)?, tile::THREADS, 0)
        }
        Schedule::Team { .. } | Schedule::Columns { .. } => {
            let layout = schedule.layout().expect("a schedule of teams");
            let kernel = if nest.band().is_some() { band::kernel } else { phases::kernel };
            let (grid, dynamic) = kernel(&mut emit, layout, &groups, in_place, limit)?;
            if emit.drop_storage() {
                // Its address may still be taken; the assembler removes that.
                emit.shared
                    .iter_mut()
                    .filter(|a| a.name == phases::STORAGE)
                    .for_each(|a| a.bytes = 16);
                (grid, layout.block(), dynamic.min(16))
            } else {
                (grid, layout.block(), dynamic)
            }
        }
    };
    let functions = emit.functions.values().cloned().collect();
    let kernel = Kernel {
        name: kernel_name(&nest.name),
        remark: format!("nest @{}: {schedule}", nest.name),
        parameters: (0..nest.parameters().count())
            .map(|n| Parameter { name: parameter(n), ty: Type::U64, align: alignment as u32 })
            .collect(),
        resident,
        dynamic_shared: dynamic_shared > 0,
        early: true,
        threads,
        shared: emit.shared,
        local: emit.local,
        code: emit.code,
    };
    let arguments = nest.parameters().enumerate().map(|(n, (_, buffer))| {
        let aliased = in_place.iter().any(|(_, result)| *result == n);
        let access = match buffer.role {
            BufferRole::In => Access::Read,
            BufferRole::Out if !aliased => Access::Write,
            _ => Access::ReadWrite,
        };
        Slot { memory: Memory::Argument(n), access }
    });
    let arguments = arguments.collect();
    let stage = Stage { kernel, functions, grid: [grid, 1, 1], dynamic_shared, arguments };
    Ok(Compiled { stages: vec![stage], workspace: 0 })
}

/// A PTX name that resembles the nest's.
fn kernel_name(name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    format!("nest_{}", name.chars().map(clean).collect::<String>())
}
