//! Nests as PTX kernels.
//!
//! A nest says what is computed, bit for bit; a [`Schedule`] says by which threads. A thread runs the body of a phase for some of its
//! iterations, and which ones they are is all that schedules differ in: what an instruction becomes is the same under each of them (modules
//! `emit`, `index`, `access`).

mod access;
mod choose;
mod emit;
mod index;
mod reduce;
mod row;
mod shape;
#[cfg(test)]
mod tests;

pub use choose::{Schedule, choose};

use crate::architecture::Architecture;
use crate::ptx::{Kernel, Parameter, Type};
use crate::stage::{Access, Compiled, Memory, Slot, Stage};
use emit::{Emit, parameter};
use row::{MAX_GRID, Rows};
use wengert_core::nest::{BufferRole, Nest};
use wengert_core::{Diagnostic, Result};

/// What is up to the one who asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The schedule to take, in place of what [`choose`] says. It must be one that the nest takes.
    pub schedule: Option<Schedule>,
}

/// The kernel of a nest, which the verifier has accepted. Arguments are its parameters, in order.
///
/// `in_place` names pairs of parameters, an `in` and an `out`, that have the same memory; the nest must allow it
/// ([`wengert_core::nest::may_alias`]).
///
/// Errors: an instruction that has no code for GPUs; row storage that fits in no memory of a GPU; a schedule that does not fit the nest.
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
        Some(schedule) if choose::fits(nest, architecture, schedule) => schedule.clone(),
        Some(schedule) => {
            return Err(Diagnostic::new(format!("nest @{} does not take schedule {schedule}", nest.name)));
        }
        None => choose(nest, architecture),
    };
    let (grid, kernel, emit) = match &schedule {
        Schedule::Row { threads, vector } => row_kernel(nest, in_place, *threads, *vector)?,
    };
    let functions = emit.functions.values().cloned().collect();
    let kernel = Kernel {
        name: kernel_name(&nest.name),
        remark: format!("nest @{}: {schedule}", nest.name),
        parameters: (0..nest.parameters().count())
            .map(|n| Parameter { name: parameter(n), ty: Type::U64, align: 256 })
            .collect(),
        resident: 0,
        dynamic_shared: false,
        threads: kernel,
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
    let stage = Stage { kernel, functions, grid: [grid, 1, 1], dynamic_shared: 0, arguments };
    Ok(Compiled { stages: vec![stage], workspace: 0 })
}

/// A name of PTX that resembles the nest's.
fn kernel_name(name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    format!("nest_{}", name.chars().map(clean).collect::<String>())
}

/// Blocks, threads of a block, and the code.
type Written<'a> = (u32, u32, Emit<'a>);

fn row_kernel<'a>(
    nest: &'a Nest,
    in_place: &[(usize, usize)],
    threads: u32,
    vector: usize,
) -> Result<Written<'a>> {
    let rows = Rows { groups: shape::rows(nest), vector };
    let total = rows.threads();
    let blocks = total.div_ceil(threads.into()).min(MAX_GRID);
    let step = blocks * u64::from(threads);
    let mut emit = Emit::new(nest);
    emit.parameters(in_place);
    emit.local_storage()?;
    // With room for a step beyond the end.
    let wide = total + step >= 1 << 31;
    let thread = emit.thread_number(threads, wide);
    emit.stride(thread, total, step, |emit, thread| emit.rows(&rows, thread))?;
    Ok((u32::try_from(blocks).expect("bounded"), threads, emit))
}
