//! Merges adjacent axes that are only used together.
//!
//! Two axes can be merged where every expression has them as one ([`wengert_core::nest::merge`]).
//! Where an access has them in adjacent dimensions, `%x[i, j]`, the dimensions are merged as well:
//! buffers are dense, so only their description changes. For example, an elementwise nest over
//! `[64, 10]` becomes one loop over 640.

use std::collections::{BTreeMap, BTreeSet};
use wengert_core::nest::merge::AxisPair;
use wengert_core::nest::{Access, AxisId, BufferId, Instr, Nest};

/// The same nest with as few axes as its accesses permit.
pub(super) fn collapse(nest: &Nest) -> Nest {
    let mut nest = nest.clone();
    for list in std::iter::once(None).chain((0..nest.phases.len()).map(Some)) {
        // A prefix restarts with each iteration of the axes around its own.
        if list.is_some_and(|p| nest.phases[p].body.iter().any(|i| matches!(i, Instr::Prefix(_)))) {
            continue;
        }
        let mut at = 0;
        loop {
            let axes = axes(&nest, list);
            let Some((outer, inner)) = axes.get(at).zip(axes.get(at + 1)) else { break };
            match join(&nest, *outer, *inner) {
                Some(mut joined) => {
                    axes_mut(&mut joined, list).remove(at + 1);
                    nest = joined;
                }
                None => at += 1,
            }
        }
    }
    nest
}

fn axes(nest: &Nest, list: Option<usize>) -> &[AxisId] {
    list.map_or(&nest.parallel, |phase| &nest.phases[phase].axes)
}

fn axes_mut(nest: &mut Nest, list: Option<usize>) -> &mut Vec<AxisId> {
    match list {
        Some(phase) => &mut nest.phases[phase].axes,
        None => &mut nest.parallel,
    }
}

/// For each affected buffer the dimensions that are merged with the next one, descending.
type Merges = BTreeMap<BufferId, Vec<usize>>;

fn join(old: &Nest, outer: AxisId, inner: AxisId) -> Option<Nest> {
    let pair = AxisPair { outer, inner, extent: i64::try_from(old.axes[inner].extent).ok()? };
    let merges = merges(old, pair)?;
    let mut nest = old.clone();
    nest.axes[outer].extent = old.axes[outer].extent.checked_mul(old.axes[inner].extent)?;
    for (buffer, dims) in &merges {
        let shape = &mut nest.buffers[*buffer].shape;
        for dim in dims {
            shape[*dim] *= shape.remove(dim + 1);
        }
    }
    for instr in nest.phases.iter_mut().flat_map(|p| &mut p.body) {
        match instr {
            Instr::Index { value, .. } => *value = pair.merge(value)?,
            Instr::Test { guards, .. } => {
                for guard in guards {
                    guard.index = pair.merge(&guard.index)?;
                }
            }
            Instr::Load { access, .. } | Instr::Store { access, .. } => {
                if let Some(dims) = merges.get(&access.buffer) {
                    merge(access, &old.buffers[access.buffer].shape, dims)?;
                }
                for index in
                    access.indices.iter_mut().chain(access.guards.iter_mut().map(|g| &mut g.index))
                {
                    *index = pair.merge(index)?;
                }
            }
            Instr::Scalar { .. } | Instr::Const { .. } | Instr::Prefix(_) => {}
        }
    }
    Some(nest)
}

/// The dimensions that have to be merged so that the pair's axes can be.
fn merges(nest: &Nest, pair: AxisPair) -> Option<Merges> {
    let mut merges: BTreeMap<BufferId, BTreeSet<usize>> = BTreeMap::new();
    for instr in nest.phases.iter().flat_map(|p| &p.body) {
        let (Instr::Load { access, .. } | Instr::Store { access, .. }) = instr else { continue };
        let apart: Vec<usize> = (0..access.indices.len())
            .filter(|d| pair.merge(&access.indices[*d]).is_none())
            .collect();
        if apart.is_empty() {
            continue;
        }
        // The index of a single dimension may not be expressible where that of two adjacent
        // dimensions is.
        let together: Vec<usize> =
            apart.iter().copied().filter(|d| apart.contains(&(d + 1))).collect();
        let mended = |d: &usize| together.contains(d) || (*d > 0 && together.contains(&(d - 1)));
        if !apart.iter().all(mended) {
            return None;
        }
        merges.entry(access.buffer).or_default().extend(together);
    }
    Some(
        merges
            .into_iter()
            .map(|(buffer, dims)| (buffer, dims.into_iter().rev().collect()))
            .collect(),
    )
}

/// The access with dimensions merged; impossible for a clamped one.
fn merge(access: &mut Access, shape: &[usize], dims: &[usize]) -> Option<()> {
    if access.clamp {
        return None;
    }
    let mut shape = shape.to_vec();
    for dim in dims {
        let last = access.indices.remove(dim + 1);
        let extent = shape.remove(dim + 1);
        access.indices[*dim] = access.indices[*dim].scale(i64::try_from(extent).ok()?).add(&last);
        shape[*dim] *= extent;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::DType;
    use wengert_core::nest::{interpret, parse_nests, verify};
    use wengert_testing::samples::SampleOperand;

    fn check(text: &str, wanted: &str) {
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let collapsed = collapse(&nest).renumber();
        assert_eq!(collapsed.to_string().trim(), wanted.trim());
        verify(&collapsed).unwrap();
        let inputs: Vec<_> = nest
            .parameters()
            .filter(|(_, b)| b.role == wengert_core::nest::BufferRole::In)
            .map(|(id, b)| {
                let (shape, low, high) = (b.shape.clone(), -2.0, 2.0);
                SampleOperand::Float { shape, low, high }.literal(DType::F32, id.0.into())
            })
            .collect();
        let flat: Vec<_> = inputs
            .iter()
            .zip(collapsed.parameters())
            .map(|(l, (_, b))| l.reshape(&b.shape).unwrap())
            .collect();
        let (a, b) = (interpret(&nest, &inputs).unwrap(), interpret(&collapsed, &flat).unwrap());
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(*a, b.reshape(a.shape()).unwrap());
        }
    }

    #[test]
    fn elementwise_loops_become_one() {
        check(
            "nest @f(in %x: f32[4,5,6], out %y: f32[4,5,6]) {
               parallel i: 4, j: 5, k: 6
               phase {
                 %0: f32 = load %x[i, j, k]
                 %1: f32 = exp %0
                 store %y[i, j, k], %1
               }
             }",
            "nest @f(in %x: f32[120], out %y: f32[120]) {
  parallel i: 120
  phase {
    %0: f32 = load %x[i]
    %1: f32 = exp %0
    store %y[i], %1
  }
}",
        );
    }

    #[test]
    fn a_bias_keeps_its_axis_and_rows_collapse() {
        check(
            "nest @f(in %x: f32[4,5,6], in %b: f32[6], out %y: f32[4,5,6]) {
               parallel i: 4, j: 5, k: 6
               phase {
                 %0: f32 = load %x[i, j, k]
                 %1: f32 = load %b[k]
                 %2: f32 = add %0, %1
                 store %y[i, j, k], %2
               }
             }",
            "nest @f(in %x: f32[20,6], in %b: f32[6], out %y: f32[20,6]) {
  parallel i: 20, k: 6
  phase {
    %0: f32 = load %x[i, k]
    %1: f32 = load %b[k]
    %2: f32 = add %0, %1
    store %y[i, k], %2
  }
}",
        );
    }

    #[test]
    fn a_transpose_and_a_guard_keep_axes_apart() {
        for text in [
            "nest @f(in %x: f32[4,5], out %y: f32[5,4]) {
  parallel i: 5, j: 4
  phase {
    %0: f32 = load %x[j, i]
    store %y[i, j], %0
  }
}",
            "nest @f(in %x: f32[4,5], out %y: f32[4,7]) {
  parallel i: 4, j: 7
  phase {
    %0: f32 = const 0.0
    %1: f32 = load %x[i, j-1] {j-1 in 0..5} else %0
    store %y[i, j], %1
  }
}",
        ] {
            check(text, text);
        }
    }
}
