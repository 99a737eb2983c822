//! Homes: buffers outside the arena.

use super::nests::Nests;
use crate::kernels::{BufferId, Kernels};
use std::collections::BTreeMap;
use wengert_core::TensorType;
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::id::IdVec;
use wengert_core::plan::Space;

/// A variable of the session.
pub(super) struct Variable {
    pub name: String,
    pub ty: TensorType,
    /// The buffer it holds at the beginning.
    pub before: Option<BufferId>,
    /// The buffer it holds at the end.
    pub after: BufferId,
}

/// The memories outside the arena, and the buffers that lie in them.
#[derive(Default)]
pub(super) struct Homes {
    /// Inputs of the plan, as positions in `Kernels::inputs`.
    pub inputs: Vec<usize>,
    /// Outputs of the plan, as positions in `Kernels::outputs`.
    pub outputs: Vec<usize>,
    pub variables: Vec<Variable>,
    /// The memory that holds each buffer from the beginning, or into which its kernel writes it.
    pub home: IdVec<BufferId, Option<Space>>,
    /// True for inputs, constants, and old values of variables.
    pub is_source: IdVec<BufferId, bool>,
    /// The memories that must hold each buffer at the end, except the one that holds it from the
    /// beginning.
    pub sinks: IdVec<BufferId, Vec<Space>>,
}

impl Homes {
    /// The homes that the signature fixes: sources and sinks.
    pub fn fixed(kernels: &Kernels) -> Homes {
        let mut homes = Homes {
            inputs: Vec::new(),
            outputs: Vec::new(),
            variables: Vec::new(),
            home: kernels.buffers.ids().map(|_| None).collect(),
            is_source: kernels.buffers.ids().map(|_| false).collect(),
            sinks: kernels.buffers.ids().map(|_| Vec::new()).collect(),
        };
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, (input, buffer)) in kernels.inputs.iter().enumerate() {
            homes.is_source[*buffer] = true;
            homes.home[*buffer] = Some(match input.role {
                InputRole::Input | InputRole::Key => {
                    homes.inputs.push(position);
                    Space::Input(number(homes.inputs.len() - 1))
                }
                InputRole::Param | InputRole::State => {
                    if input.role == InputRole::State {
                        states.insert(&input.name, homes.variables.len());
                    }
                    let ty = kernels.buffers[*buffer].ty.clone();
                    let (name, before) = (input.name.clone(), Some(*buffer));
                    homes.variables.push(Variable { name, ty, before, after: *buffer });
                    Space::Variable(number(homes.variables.len() - 1))
                }
            });
        }
        for (n, (buffer, _)) in kernels.constants.iter().enumerate() {
            homes.is_source[*buffer] = true;
            homes.home[*buffer] = Some(Space::Constant(number(n)));
        }
        for (position, (output, ty, buffer)) in kernels.outputs.iter().enumerate() {
            let sink = match (output.role, states.get(output.name.as_str())) {
                (OutputRole::Output, _) => {
                    homes.outputs.push(position);
                    Space::Output(number(homes.outputs.len() - 1))
                }
                (OutputRole::State, Some(n)) => {
                    homes.variables[*n].after = *buffer;
                    Space::Variable(number(*n))
                }
                (OutputRole::State, None) => {
                    let (name, ty) = (output.name.clone(), ty.clone());
                    homes.variables.push(Variable { name, ty, before: None, after: *buffer });
                    Space::Variable(number(homes.variables.len() - 1))
                }
            };
            if homes.home[*buffer] != Some(sink) {
                homes.sinks[*buffer].push(sink);
            }
        }
        homes
    }

    /// Bytes of the buffers that probably lie in the arena; 0 for the others.
    pub fn arena_bytes(&self, kernels: &Kernels) -> IdVec<BufferId, u64> {
        let outside = |id| self.is_source[id] || !self.sinks[id].is_empty();
        kernels.buffers.ids().map(|id| if outside(id) { 0 } else { bytes(kernels, id) }).collect()
    }

    /// Chooses for each buffer with sinks the one that its kernel writes: a variable whose old
    /// value is dead by then, else an output.
    pub fn donate(mut self, kernels: &Kernels, order: &[usize], nests: &mut Nests<'_>) -> Homes {
        // The moment of the last kernel that reads each buffer.
        let mut last: IdVec<BufferId, Option<usize>> =
            kernels.buffers.ids().map(|_| None).collect();
        for (moment, k) in order.iter().enumerate() {
            kernels.kernels[*k].reads.iter().for_each(|b| last[*b] = Some(moment));
        }
        for (moment, k) in order.iter().enumerate() {
            for (write, buffer) in kernels.kernels[*k].writes.iter().enumerate() {
                let free = |sink: &Space| match sink {
                    Space::Variable(v) => match self.variables[*v as usize].before {
                        // Another variable takes the old value at the end.
                        Some(old)
                            if self.sinks[old].iter().any(|s| matches!(s, Space::Variable(_))) =>
                        {
                            false
                        }
                        Some(old) if last[old] == Some(moment) => {
                            nests.may_alias(kernels, *k, old, write)
                        }
                        Some(old) => last[old] < Some(moment),
                        None => true,
                    },
                    _ => true,
                };
                let variables =
                    self.sinks[*buffer].iter().filter(|s| matches!(s, Space::Variable(_)));
                let outputs =
                    self.sinks[*buffer].iter().filter(|s| !matches!(s, Space::Variable(_)));
                self.home[*buffer] = variables.chain(outputs).copied().find(free);
            }
        }
        self
    }
}

/// Bytes of a buffer, padding included.
pub(super) fn bytes(kernels: &Kernels, id: BufferId) -> u64 {
    kernels.buffers[id].bytes().expect("kernels were verified: types are bound and fit in memory")
        as u64
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("a function has fewer than 2^32 inputs and outputs")
}
