//! Kernels over buffers from clusters and calls over values.

use super::name::{Names, stem};
use super::{Lowered, lower};
use crate::fuse::{self, Fused};
use crate::kernels::{Buffer, BufferId, Kernel, Kernels, Work};
use crate::view::{View, Work as Computed};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Function, ValueId};
use wengert_core::{Result, Target};

/// Lowers every cluster and gives every realised value a buffer.
pub(crate) fn assemble(
    function: &Function,
    view: &View<'_>,
    fused: &Fused,
    target: &Target,
) -> Result<Kernels> {
    let mut assembly = Assembly {
        function,
        view,
        kernels: Kernels { function: function.name.clone(), ..Kernels::default() },
        buffers: BTreeMap::new(),
        names: Names::default(),
    };
    for (input, value) in function.inputs.iter().zip(&function.body.inputs) {
        let buffer = assembly.buffer(*value, &input.name);
        assembly.kernels.inputs.push((input.clone(), buffer));
    }
    for (equation, work) in function.body.equations.iter().zip(&view.work) {
        if let Computed::Literal(literal) = work {
            let buffer = assembly.buffer(equation.results[0], "constant");
            assembly.kernels.constants.push((buffer, (*literal).clone()));
        }
    }
    for kernel in &fused.kernels {
        assembly.kernel(fused, kernel, target)?;
    }
    for (output, value) in function.outputs.iter().zip(&function.body.outputs) {
        let base = fused.memory[*value].expect("outputs are in memory");
        let ty = function.body.ty(*value).clone();
        assembly.kernels.outputs.push((output.clone(), ty, assembly.buffers[&base]));
    }
    Ok(assembly.kernels)
}

struct Assembly<'f> {
    function: &'f Function,
    view: &'f View<'f>,
    kernels: Kernels,
    buffers: BTreeMap<ValueId, BufferId>,
    names: Names,
}

impl Assembly<'_> {
    fn buffer(&mut self, value: ValueId, name: &str) -> BufferId {
        let ty = self.view.body.ty(value).clone();
        let id = self.kernels.buffers.push(Buffer { name: name.into(), ty });
        self.buffers.insert(value, id);
        id
    }

    /// The buffer that a kernel writes.
    fn written(&mut self, value: ValueId) -> BufferId {
        let output = self.view.body.outputs.iter().position(|v| *v == value);
        let name = match (output, self.view.definitions[value]) {
            (Some(n), _) => self.function.outputs[n].name.clone(),
            (None, Some(n)) => self.view.body.equations[n].op.name().to_string(),
            (None, None) => unreachable!("no kernel writes an input"),
        };
        self.buffer(value, &name)
    }

    fn kernel(&mut self, fused: &Fused, kernel: &fuse::Kernel, target: &Target) -> Result<()> {
        let kernel = match kernel {
            fuse::Kernel::Cluster(cluster) => {
                let stem = stem(self.function, self.view, &cluster.equations);
                let Lowered { nest, reads, writes } = lower(self.view, &fused.memory, cluster, target, &stem)
                    .map_err(|d| d.context(format!("pass lower, kernel {stem}")))?;
                let nest = self.names.name(&stem, nest);
                Kernel {
                    work: Work::Nest(Box::new(nest)),
                    reads: reads.iter().map(|v| self.buffers[v]).collect(),
                    writes: writes.iter().map(|v| self.written(*v)).collect(),
                    locations: self.locations(&cluster.equations),
                }
            }
            fuse::Kernel::Call(equation) => {
                let eq = &self.view.body.equations[*equation];
                let Computed::Call(call) = &self.view.work[*equation] else {
                    unreachable!("fusion makes calls of calls")
                };
                let base = |v: &ValueId| fused.memory[*v].expect("operands of calls are in memory");
                Kernel {
                    work: Work::Call(call.clone()),
                    reads: self.view.operands[*equation].iter().map(|v| self.buffers[&base(v)]).collect(),
                    writes: vec![self.written(eq.results[0])],
                    locations: self
                        .locations(&[self.view.covers[*equation].as_slice(), &[*equation]].concat()),
                }
            }
        };
        self.kernels.kernels.push(kernel);
        Ok(())
    }

    fn locations(&self, equations: &[usize]) -> Vec<wengert_core::LocationId> {
        let mut seen = BTreeSet::new();
        let all = equations.iter().map(|e| self.view.body.equations[*e].location);
        all.filter(|l| seen.insert(*l)).collect()
    }
}
