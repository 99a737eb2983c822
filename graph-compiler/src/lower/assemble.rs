//! Kernels over buffers, from clusters, calls and control flow over values.

use super::destinations::Destinations;
use super::name::{Names, stem};
use super::{LoweredNest, lower};
use crate::cluster::{Fused, Fusion};
use crate::kernels::control::{Control, Form};
use crate::kernels::{Buffer, BufferId, Kernel, Kernels, Work};
use crate::view::{View, Work as Computed};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Function, ValueId};
use wengert_core::nest::{Affine, NestBuilder};
use wengert_core::{LocationTable, Result, Scalar, Target, Verified};

/// A fused body, with its context.
pub(crate) struct Body<'f> {
    pub function: &'f Function,
    pub view: &'f View<'f>,
    pub fused: &'f Fused,
    /// The table of the outermost function.
    pub locations: &'f LocationTable,
    pub target: &'f Target,
    /// Whether it is a step of a loop, whose nests store values to all destinations.
    pub everywhere: bool,
}

/// Lowers every cluster and gives every realised value a buffer.
///
/// `controls` are the constructs of control flow by their equations; `names` are the names of all
/// nests of the outermost function.
pub(crate) fn assemble(
    body: &Body<'_>,
    controls: BTreeMap<usize, Control>,
    names: &mut Names,
) -> Result<Kernels> {
    let Body { function, view, fused, locations, target, everywhere } = *body;
    let destinations = match everywhere {
        true => Destinations::of_step(function, view, fused),
        false => Destinations::default(),
    };
    let mut assembly = Assembly {
        function,
        locations,
        view,
        kernels: Kernels {
            function: function.name.clone(),
            mesh: function.mesh.clone(),
            ..Kernels::default()
        },
        buffers: BTreeMap::new(),
        outputs: BTreeMap::new(),
        controls,
        destinations,
        places: BTreeMap::new(),
        names,
    };
    for (output, value) in function.outputs.iter().zip(&function.body.outputs) {
        assembly.outputs.entry(*value).or_insert(&output.name);
    }
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
    for (position, (output, value)) in
        function.outputs.iter().zip(&function.body.outputs).enumerate()
    {
        let base = fused.memory[*value].expect("outputs are in memory");
        let ty = function.body.ty(*value).invariant();
        let buffer = assembly.places.get(&position).unwrap_or(&assembly.buffers[&base]);
        assembly.kernels.outputs.push((output.clone(), ty, *buffer));
    }
    Ok(assembly.kernels)
}

struct Assembly<'f> {
    function: &'f Function,
    locations: &'f LocationTable,
    view: &'f View<'f>,
    kernels: Kernels,
    buffers: BTreeMap<ValueId, BufferId>,
    /// The names of outputs; a value that is several outputs has the first one's.
    outputs: BTreeMap<ValueId, &'f str>,
    controls: BTreeMap<usize, Control>,
    destinations: Destinations,
    /// Buffers of outputs, by position, that differ from those of their values.
    places: BTreeMap<usize, BufferId>,
    names: &'f mut Names,
}

impl Assembly<'_> {
    fn buffer(&mut self, value: ValueId, name: &str) -> BufferId {
        // Memory is that of one rank.
        let ty = self.view.body.ty(value).invariant();
        let id = self.kernels.buffers.push(Buffer::dense(name, ty));
        self.buffers.insert(value, id);
        id
    }

    /// The buffer that a kernel writes.
    fn written(&mut self, value: ValueId) -> BufferId {
        let name = match (self.outputs.get(&value), self.view.definitions[value]) {
            (Some(name), _) => (*name).to_owned(),
            (None, Some(n)) => self.view.body.equations[n].op.name().to_string(),
            (None, None) => unreachable!("no kernel writes an input"),
        };
        self.buffer(value, &name)
    }

    /// A separate buffer for an output.
    fn place(&mut self, position: usize, value: ValueId) -> BufferId {
        let (name, ty) =
            (self.function.outputs[position].name.clone(), self.view.body.ty(value).invariant());
        let id = self.kernels.buffers.push(Buffer::dense(name, ty));
        self.places.insert(position, id);
        id
    }

    fn kernel(&mut self, fused: &Fused, kernel: &Fusion, target: &Target) -> Result<()> {
        let kernel = match kernel {
            Fusion::Cluster(cluster) => {
                let stem = stem(self.locations, self.view, &cluster.equations);
                let mut lowered = lower(self.view, &fused.memory, cluster, target, &stem)
                    .map_err(|d| d.context(format!("pass lower, kernel {stem}")))?;
                let more = self.destinations.serve(&mut lowered);
                let LoweredNest { nest, reads, writes } = lowered;
                let nest = self.names.name(&stem, nest);
                let mut writes: Vec<BufferId> = writes.iter().map(|v| self.written(*v)).collect();
                writes
                    .extend(more.into_iter().map(|(position, value)| self.place(position, value)));
                Kernel {
                    work: Work::Nest(Box::new(nest)),
                    reads: reads.iter().map(|v| self.buffers[v]).collect(),
                    writes,
                    locations: self.locations(&cluster.equations),
                }
            }
            Fusion::Call(equation) if self.controls.contains_key(equation) => {
                self.control(fused, *equation)?
            }
            Fusion::Call(equation) => {
                let eq = &self.view.body.equations[*equation];
                let Computed::Call(call) = &self.view.work[*equation] else {
                    unreachable!("fusion makes calls of calls")
                };
                let base = |v: &ValueId| fused.memory[*v].expect("operands of calls are in memory");
                Kernel {
                    work: Work::Call(call.clone()),
                    reads: self.view.operands[*equation]
                        .iter()
                        .map(|v| self.buffers[&base(v)])
                        .collect(),
                    writes: eq.results.iter().map(|v| self.written(*v)).collect(),
                    locations: self.locations(
                        &[self.view.covers[*equation].as_slice(), &[*equation]].concat(),
                    ),
                }
            }
        };
        self.kernels.kernels.push(kernel);
        Ok(())
    }

    fn control(&mut self, fused: &Fused, equation: usize) -> Result<Kernel> {
        let control = self.controls.remove(&equation).expect("an equation becomes one kernel");
        let eq = &self.view.body.equations[equation];
        let base = |v: &ValueId| fused.memory[*v].expect("operands of control flow are in memory");
        let mut reads: Vec<BufferId> = eq.operands.iter().map(|v| self.buffers[&base(v)]).collect();
        let locations = self.locations(&[equation]);
        let form = crate::kernels::control::form(&control.op, eq.operands.len(), eq.results.len());
        if let Form::Loop(l) = form
            && l.has_initials()
        {
            for stack in &eq.results[l.carries..] {
                reads.push(self.zeros(*stack, locations.clone())?);
            }
        }
        let writes = eq.results.iter().map(|v| self.written(*v)).collect();
        Ok(Kernel { work: Work::Control(Box::new(control)), reads, writes, locations })
    }

    /// A kernel that computes zeros of a value's type.
    fn zeros(
        &mut self,
        like: ValueId,
        locations: Vec<wengert_core::LocationId>,
    ) -> Result<BufferId> {
        let ty = self.view.body.ty(like).invariant();
        let mut builder = NestBuilder::new("zeros");
        let count = [self.view.count(like)];
        let buffer = builder.output("y", ty.dtype.stored(), &count);
        let axis = builder.parallel("i", count[0]);
        builder.phase([]);
        let zero = builder.constant(Scalar::zero(ty.dtype.stored()));
        builder.store(buffer, &[Affine::axis(axis)], zero);
        let nest = Verified::new(builder.finish_unverified()?)?;
        let nest = self.names.name("zeros", nest);
        let buffer = self.kernels.buffers.push(Buffer::dense("zeros", ty));
        let (reads, writes) = (vec![], vec![buffer]);
        self.kernels.kernels.push(Kernel {
            work: Work::Nest(Box::new(nest)),
            reads,
            writes,
            locations,
        });
        Ok(buffer)
    }

    fn locations(&self, equations: &[usize]) -> Vec<wengert_core::LocationId> {
        let mut seen = BTreeSet::new();
        let all = equations.iter().map(|e| self.view.body.equations[*e].location);
        all.filter(|l| seen.insert(*l)).collect()
    }
}
