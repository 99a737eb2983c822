//! What kernels compute, bit for bit: nests by the nest interpreter, calls by whoever executes them.
//!
//! The oracle of fusion: fused and unfused kernels of one function give the same bits.

use super::{BufferId, Kernels, Work};
use wengert_core::call::Call;
use wengert_core::id::IdVec;
use wengert_core::nest::{self, Nest};
use wengert_core::{Diagnostic, Id, Literal, Result};

/// Runs kernels on the function's inputs, in order; gives its outputs, in order. `call` executes calls: it is given the operands with
/// the shapes of their buffers, and returns the result in the shape that [`Call::result`] says.
pub fn interpret(
    kernels: &Kernels,
    inputs: &[Literal],
    call: &mut dyn FnMut(&Call, &[Literal]) -> Result<Literal>,
) -> Result<Vec<Literal>> {
    if inputs.len() != kernels.inputs.len() {
        return Err(Diagnostic::new(format!(
            "@{} has {} inputs, {} are given",
            kernels.function,
            kernels.inputs.len(),
            inputs.len()
        )));
    }
    let mut memory: IdVec<BufferId, Option<Literal>> = kernels.buffers.ids().map(|_| None).collect();
    for ((input, buffer), literal) in kernels.inputs.iter().zip(inputs) {
        let wanted = &kernels.buffers[*buffer].ty;
        if literal.ty() != *wanted {
            return Err(Diagnostic::new(format!("input `{}` is {wanted}, not {}", input.name, literal.ty())));
        }
        memory[*buffer] = Some(literal.clone());
    }
    for (buffer, literal) in &kernels.constants {
        memory[*buffer] = Some(literal.clone());
    }
    for kernel in &kernels.kernels {
        let reads: Vec<Literal> =
            kernel.reads.iter().map(|b| read(kernels, &memory, *b)).collect::<Result<_>>()?;
        let results = match &kernel.work {
            Work::Nest(nest) => run(nest, &reads)?,
            Work::Call(c) => vec![call(c, &reads)?],
        };
        for (buffer, literal) in kernel.writes.iter().zip(results) {
            let shape = kernels.buffers[*buffer].ty.extents().expect("verified kernels have no variables");
            memory[*buffer] = Some(literal.reshape(&shape)?);
        }
    }
    kernels
        .outputs
        .iter()
        .map(|(_, ty, buffer)| {
            let shape = ty.extents().expect("verified kernels have no variables");
            read(kernels, &memory, *buffer)?.reshape(&shape)
        })
        .collect()
}

fn read(kernels: &Kernels, memory: &IdVec<BufferId, Option<Literal>>, buffer: BufferId) -> Result<Literal> {
    memory[buffer].clone().ok_or_else(|| {
        Diagnostic::new(format!(
            "@{}: buffer {} (`{}`) is read before it is written",
            kernels.function,
            buffer.index(),
            kernels.buffers[buffer].name
        ))
    })
}

/// Runs a nest on literals of its parameters' sizes.
fn run(nest: &Nest, reads: &[Literal]) -> Result<Vec<Literal>> {
    let inputs: Vec<Literal> =
        reads.iter().zip(nest.parameters()).map(|(l, (_, b))| l.reshape(&b.shape)).collect::<Result<_>>()?;
    nest::interpret(nest, &inputs)
}
