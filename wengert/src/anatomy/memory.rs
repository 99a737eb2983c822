//! Memory of a plan, for reports.

use serde::Serialize;
use wengert_core::plan::{Account, Lifetime, Plan, account, lifetimes};

/// Memory of a plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Memory {
    /// Bytes of inputs.
    pub inputs: u64,
    /// Bytes of outputs.
    pub outputs: u64,
    /// Bytes of variables that are only read.
    pub parameters: u64,
    /// Bytes of variables that are replaced or created.
    pub state: u64,
    /// Bytes of constants.
    pub constants: u64,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of all of these.
    pub total: u64,
    /// The most bytes of the arena that are needed at one step, each value rounded up to the
    /// target's alignment.
    pub peak: u64,
    /// The first step at which they are.
    pub peak_step: usize,
    /// Buffers of the arena, by their first step.
    pub buffers: Vec<Buffer>,
}

/// A value in the arena.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Buffer {
    /// Its name and type.
    pub name: String,
    /// Its first byte in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The kernel that writes it.
    pub first: usize,
    /// The last kernel that reads it.
    pub last: usize,
    /// Whether it is needed at the peak.
    pub at_peak: bool,
}

impl Memory {
    pub(super) fn of(plan: &Plan) -> Memory {
        let account = account(plan);
        let total = account.total();
        let peak_step = account.peak.step;
        let at_peak = |l: &Lifetime| {
            let needed = &account.peak.living;
            l.first <= peak_step
                && peak_step <= l.last
                && needed.iter().any(|n| n.value == l.value && n.offset == l.offset)
        };
        let buffer = |l: Lifetime| Buffer {
            name: name(plan, &l),
            offset: l.offset,
            bytes: l.bytes,
            first: l.first,
            last: l.last,
            at_peak: at_peak(&l),
        };
        let buffers = lifetimes(plan).into_iter().map(buffer).collect();
        let peak = account.peak.bytes;
        let Account { inputs, outputs, parameters, state, constants, arena, .. } = account;
        Memory {
            inputs,
            outputs,
            parameters,
            state,
            constants,
            arena,
            total,
            peak,
            peak_step,
            buffers,
        }
    }
}

fn name(plan: &Plan, lifetime: &Lifetime) -> String {
    let Some(id) = lifetime.value else { return "workspace".into() };
    let value = &plan.values[id];
    let extents: Vec<String> = value.shape.iter().map(ToString::to_string).collect();
    let ty = format!("{}[{}]", value.dtype, extents.join(","));
    if value.name.is_empty() { format!("{id} {ty}") } else { format!("{id} {}: {ty}", value.name) }
}
