//! Values of a loop step with several destinations.
//!
//! A carry is stored where the next step reads it. If the loop also stacks it, or stacks the
//! step's incoming carry (which a derivative reads), the same elements are needed in a second
//! place. A separate copy in each step would be dominated by its launch cost. But a nest of the
//! step has the elements in registers anyway: the nest of the kernel that computes them, or one
//! that reads them element by element. So that nest stores them to the second place as well. If
//! only calls read the incoming carry, the nest that overwrites it first copies each element to
//! the second place.

use super::LoweredNest;
use crate::cluster::Fused;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Verified;
use wengert_core::graph::{Function, OutputRole, ValueId};
use wengert_core::id::Id;
use wengert_core::nest::{Access, Buffer, BufferId, BufferRole, Instr, Nest, Phase};

/// The further destinations of a step's values.
#[derive(Default)]
pub(super) struct Destinations {
    /// For values in memory the positions of outputs that no kernel stores yet, in the order of
    /// the outputs.
    open: BTreeMap<ValueId, Vec<usize>>,
    /// The incoming carry, by the outgoing value that replaces it.
    replaced: BTreeMap<ValueId, ValueId>,
}

impl Destinations {
    /// The destinations of a step.
    pub fn of_step(function: &Function, view: &View<'_>, fused: &Fused) -> Destinations {
        let mut all: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (position, value) in function.body.outputs.iter().enumerate() {
            let base = fused.memory[*value].expect("outputs are in memory");
            if view.count(base) > 0 {
                all.entry(base).or_default().push(position);
            }
        }
        let is_state = |position: &usize| function.outputs[*position].role == OutputRole::State;
        let inputs: BTreeSet<ValueId> = function.body.inputs.iter().copied().collect();
        for (value, positions) in &mut all {
            if inputs.contains(value) {
                // A carry that does not change stays in place.
                positions.retain(|position| !is_state(position));
            } else {
                let first = positions.iter().position(is_state).unwrap_or(0);
                positions.remove(first);
            }
        }
        all.retain(|_, positions| !positions.is_empty());
        let states = function.outputs.iter().zip(&function.body.outputs);
        let states = states.filter(|(output, _)| output.role == OutputRole::State);
        let states: BTreeMap<&str, ValueId> =
            states.map(|(o, value)| (o.name.as_str(), *value)).collect();
        let mut replaced = BTreeMap::new();
        for (input, value) in function.inputs.iter().zip(&function.body.inputs) {
            let next = states.get(input.name.as_str()).and_then(|next| fused.memory[*next]);
            replaced.extend(next.map(|next| (next, *value)));
        }
        Destinations { open: all, replaced }
    }

    /// Adds a parameter to a kernel's nest for each further destination of its values. Returns
    /// the positions of these outputs, each with its value, in the order of the parameters.
    pub fn serve(&mut self, lowered: &mut LoweredNest) -> Vec<(usize, ValueId)> {
        let mut served = Vec::new();
        if self.open.is_empty() {
            return served;
        }
        let LoweredNest { nest, reads, writes } = lowered;
        // The parameters are those that are read, then those that are written.
        for (n, value) in reads.iter().chain(&*writes).enumerate() {
            if let Some(more) = self.store(nest, BufferId::new(n), *value, &mut served) {
                *nest = more;
            }
        }
        for (n, value) in writes.iter().enumerate() {
            let Some(old) =
                self.replaced.get(value).copied().filter(|old| self.open.contains_key(old))
            else {
                continue;
            };
            let with_old = reading(nest, reads.len(), BufferId::new(reads.len() + n));
            if let Some(with_old) = with_old
                && let Some(more) =
                    self.store(&with_old, BufferId::new(reads.len()), old, &mut served)
            {
                *nest = more;
                reads.push(old);
            }
        }
        served
    }

    /// The nest that also stores a parameter's elements to the open destinations of its value.
    /// `None` if it cannot, or there are none.
    fn store(
        &mut self,
        nest: &Nest,
        parameter: BufferId,
        value: ValueId,
        served: &mut Vec<(usize, ValueId)>,
    ) -> Option<Verified<Nest>> {
        let positions = self.open.get_mut(&value)?;
        let mut made: Option<Verified<Nest>> = None;
        while let Some(position) = positions.first().copied() {
            let Some(more) = stored_too(made.as_deref().unwrap_or(nest), parameter) else {
                return made;
            };
            made = Some(more);
            served.push((position, value));
            positions.remove(0);
        }
        self.open.remove(&value);
        made
    }
}

/// The nest with a further In parameter as the last one. Each of its elements is loaded before
/// the result's element is stored. `None` if the nest does not store the whole result by one
/// instruction.
fn reading(nest: &Nest, reads: usize, result: BufferId) -> Option<Nest> {
    let is_store =
        |instr: &&Instr| matches!(instr, Instr::Store { access, .. } if access.buffer == result);
    let mut stores = nest.phases.iter().enumerate().flat_map(|(n, phase)| {
        let all = phase.body.iter().filter(is_store);
        all.map(move |store| (n, store))
    });
    let (Some((n, Instr::Store { access, total: None, .. })), None) =
        (stores.next(), stores.next())
    else {
        return None;
    };
    let mut more = nest.clone();
    let Buffer { dtype, shape, pitch, .. } = nest.buffers[result].clone();
    let name = free_name(nest, "x");
    let mut buffers: Vec<Buffer> = nest.buffers.iter().map(|(_, buffer)| buffer.clone()).collect();
    buffers.insert(reads, Buffer { name, dtype, shape, pitch, role: BufferRole::In });
    more.buffers = buffers.into_iter().collect();
    for instr in more.phases.iter_mut().flat_map(|phase| &mut phase.body) {
        if let Instr::Load { access, .. } | Instr::Store { access, .. } = instr
            && access.buffer.index() >= reads
        {
            access.buffer = BufferId::new(access.buffer.index() + 1);
        }
    }
    let result = more.registers.push(dtype);
    let access = Access { buffer: BufferId::new(reads), ..access.clone() };
    more.phases[n].body.insert(0, Instr::Load { result, access, fill: None });
    Some(more)
}

/// An unused parameter name.
fn free_name(nest: &Nest, stem: &str) -> String {
    let is_free = |name: &String| nest.buffers.iter().all(|(_, buffer)| buffer.name != *name);
    let mut names = (2..).map(|n| format!("{stem}_{n}"));
    names.find(is_free).expect("a nest has fewer parameters than there are numbers")
}

/// The nest with a further Out parameter as the last one, to which it stores all elements of
/// another parameter. `None` if it does not access these one by one.
fn stored_too(nest: &Nest, of: BufferId) -> Option<Verified<Nest>> {
    let Buffer { dtype, shape, pitch, role, .. } = nest.buffers[of].clone();
    let name = free_name(nest, "y");
    let mut more = nest.clone();
    let into = more.buffers.push(Buffer { name, dtype, shape, pitch, role: BufferRole::Out });
    let mut read = false;
    for (phase, old) in more.phases.iter_mut().zip(&nest.phases) {
        phase.body.clear();
        for instr in &old.body {
            phase.body.push(instr.clone());
            let (access, value, total) = match instr {
                Instr::Store { access, value, total } if access.buffer == of => {
                    (access, *value, total.clone())
                }
                Instr::Load { access, result, .. }
                    if access.buffer == of
                        && role == BufferRole::In
                        && !read
                        && is_whole(nest, old, access) =>
                {
                    read = true;
                    (access, *result, None)
                }
                _ => continue,
            };
            let access = Access { buffer: into, ..access.clone() };
            phase.body.push(Instr::Store { access, value, total });
        }
    }
    let stores = role == BufferRole::Out || read;
    stores.then(|| Verified::new(more.renumber()).ok())?
}

/// Whether an access visits each element of a buffer once: the phase stores all of another buffer
/// of that shape at the same index.
fn is_whole(nest: &Nest, phase: &Phase, load: &Access) -> bool {
    let shape = &nest.buffers[load.buffer].shape;
    let is_beside = |instr: &Instr| {
        let Instr::Store { access, total: None, .. } = instr else { return false };
        let buffer = &nest.buffers[access.buffer];
        access.guards.is_empty()
            && access.indices == load.indices
            && buffer.role == BufferRole::Out
            && buffer.shape == *shape
    };
    // Each element of a result is stored once, by one instruction or by several. It is one
    // instruction if there is no other.
    let stores = |buffer: BufferId| {
        let all = nest.phases.iter().flat_map(|phase| &phase.body);
        all.filter(|i| matches!(i, Instr::Store { access, .. } if access.buffer == buffer)).count()
    };
    load.guards.is_empty()
        && !load.clamp
        && phase.body.iter().any(|instr| {
            is_beside(instr)
                && matches!(instr, Instr::Store { access, .. } if stores(access.buffer) == 1)
        })
}

#[cfg(test)]
mod tests {
    use super::stored_too;
    use wengert_core::nest::{BufferId, parse_nests, verify};

    const NEST: &str =
        "nest @f(in %x: f32[4,16], in %z: f32[4], in %w: f32[16,4], out %y: f32[4,16]) {
        parallel i: 4
        phase {
          %0: f32 = load %z[i]
        }
        phase j: 16 {
          %1: f32 = load %x[i, j]
          %2: f32 = load %w[j, i]
          %3: f32 = add %0, %1
          %4: f32 = add %2, %3
          store %y[i, j], %4
        }
      }";

    fn twice(parameter: u32) -> Option<String> {
        let nest = parse_nests("test", NEST).expect("the text is a nest").remove(0).0;
        verify(&nest).expect("the nest is right");
        stored_too(&nest, BufferId(parameter)).map(|nest| nest.to_string())
    }

    #[test]
    fn a_result_is_stored_to_a_second_place() {
        let text = twice(3).expect("it is stored element by element");
        assert!(
            text.contains("out %y_2: f32[4,16]") && text.contains("store %y_2[i, j], %4"),
            "{text}"
        );
    }

    #[test]
    fn what_is_read_where_a_result_is_stored_is_stored_too() {
        let text = twice(0).expect("it is read element by element");
        assert!(
            text.contains("out %y_2: f32[4,16]") && text.contains("store %y_2[i, j], %1"),
            "{text}"
        );
    }

    #[test]
    fn what_is_replaced_is_read_before_that() {
        let nest = parse_nests("test", NEST).expect("the text is a nest").remove(0).0;
        let nest = super::reading(&nest, 3, BufferId(3)).expect("its result is stored whole");
        let text = stored_too(&nest, BufferId(3))
            .expect("it is read where the result is stored")
            .to_string();
        let order = [
            "in %x_2: f32[4,16]",
            "out %y: ",
            "out %y_2: ",
            "= load %x_2[i, j]",
            "store %y_2[i, j], ",
            "store %y[i, j]",
        ];
        let found: Vec<Option<usize>> = order.iter().map(|part| text.find(part)).collect();
        assert!(found.is_sorted() && found[0].is_some(), "{found:?} {text}");
    }

    #[test]
    fn what_is_read_otherwise_is_not() {
        assert_eq!((twice(1), twice(2)), (None, None));
    }
}
