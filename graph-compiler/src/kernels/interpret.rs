//! Interprets kernels, bit for bit: nests by the nest interpreter, calls by the given executor,
//! control flow by running the kernels of its regions.
//!
//! This is the oracle for fusion: fused and unfused kernels of one function give the same bits.

use super::control::{Control, Form, LoopForm};
use super::{BufferId, Kernel, Kernels, Work};
use wengert_core::call::Call;
use wengert_core::id::IdVec;
use wengert_core::nest::{self, Nest};
use wengert_core::pitch;
use wengert_core::{DType, Diagnostic, Id, Literal, Result, TensorType};

/// Runs kernels on the function's inputs, in order. Returns its outputs, in order. `call`
/// executes calls: it takes the operands as they lie in memory, and returns the
/// results in the shapes of [`Contract::results`](wengert_core::call::Contract::results).
pub fn interpret(
    kernels: &Kernels,
    inputs: &[Literal],
    call: &mut Execute<'_>,
) -> Result<Vec<Literal>> {
    if inputs.len() != kernels.inputs.len() {
        return Err(Diagnostic::new(format!(
            "@{} has {} inputs, {} are given",
            kernels.function,
            kernels.inputs.len(),
            inputs.len()
        )));
    }
    let mut memory: IdVec<BufferId, Option<Literal>> =
        kernels.buffers.ids().map(|_| None).collect();
    for ((input, buffer), literal) in kernels.inputs.iter().zip(inputs) {
        let wanted = &kernels.buffers[*buffer].ty;
        if literal.ty() != *wanted {
            return Err(Diagnostic::new(format!(
                "input `{}` is {wanted}, not {}",
                input.name,
                literal.ty()
            )));
        }
        memory[*buffer] = Some(literal.clone());
    }
    for (buffer, literal) in &kernels.constants {
        memory[*buffer] = Some(literal.clone());
    }
    for kernel in &kernels.kernels {
        let is_control = matches!(kernel.work, Work::Control(_));
        let read = |buffer: &BufferId| {
            let literal = read(kernels, &memory, *buffer)?;
            if is_control { Ok(literal) } else { literal.bitcast(literal.dtype().stored()) }
        };
        let reads: Vec<Literal> = kernel.reads.iter().map(read).collect::<Result<_>>()?;
        let results = match &kernel.work {
            Work::Nest(nest) => run(nest, &reads)?,
            Work::Call(c) => call(c, &padded(kernels, kernel, reads)?)?,
            Work::Followed(followed) => {
                let (operands, rest) = reads.split_at(followed.call.operands().len());
                let mut results = call(&followed.call, operands)?;
                results.extend(run(&followed.follower, &followed.reads(rest, &results[0]))?);
                results
            }
            Work::Control(control) => match control.form(kernel) {
                Form::Branch => branch(control, &reads, call)?,
                Form::Loop(form) => repeat(control, form, kernel, kernels, &reads, call)?,
            },
        };
        for (buffer, literal) in kernel.writes.iter().zip(results) {
            let ty = &kernels.buffers[*buffer].ty;
            memory[*buffer] = Some(literal.bitcast(ty.dtype)?.reshape(&extents(ty))?);
        }
    }
    kernels
        .outputs
        .iter()
        .map(|(_, ty, buffer)| {
            let shape = extents(ty);
            read(kernels, &memory, *buffer)?.reshape(&shape)
        })
        .collect()
}

/// Operands as they lie in memory: a buffer with a pitch is dense, with NaNs or −1 as padding.
fn padded(kernels: &Kernels, kernel: &Kernel, operands: Vec<Literal>) -> Result<Vec<Literal>> {
    let of = |(id, operand): (&BufferId, Literal)| {
        let Some(rows) = kernels.buffers[*id].padded_rows() else { return Ok(operand) };
        let dtype = operand.dtype();
        let bytes = pitch::pad(&operand.to_bytes(), rows, dtype.size(), 0xff);
        Literal::from_bytes(dtype, &[bytes.len() / dtype.size()], &bytes)
    };
    kernel.reads.iter().zip(operands).map(of).collect()
}

fn read(
    kernels: &Kernels,
    memory: &IdVec<BufferId, Option<Literal>>,
    buffer: BufferId,
) -> Result<Literal> {
    memory[buffer].clone().ok_or_else(|| {
        Diagnostic::new(format!(
            "@{}: buffer {} (`{}`) is read before it is written",
            kernels.function,
            buffer.index(),
            kernels.buffers[buffer].name
        ))
    })
}

/// Executes a call.
pub type Execute<'c> = dyn FnMut(&Call, &[Literal]) -> Result<Vec<Literal>> + 'c;

/// Runs a region on literals of its inputs' sizes.
fn region(region: &Kernels, inputs: &[Literal], call: &mut Execute<'_>) -> Result<Vec<Literal>> {
    let shaped = region.inputs.iter().zip(inputs).map(|((_, buffer), literal)| {
        let shape = extents(&region.buffers[*buffer].ty);
        literal.reshape(&shape)
    });
    interpret(region, &shaped.collect::<Result<Vec<_>>>()?, call)
}

fn branch(control: &Control, reads: &[Literal], call: &mut Execute<'_>) -> Result<Vec<Literal>> {
    let number = integer(&reads[0]);
    let chosen = match reads[0].dtype() {
        DType::Bool => usize::from(number == 0),
        _ => usize::try_from(number).unwrap_or(0).min(control.regions.len() - 1),
    };
    region(&control.regions[chosen], &reads[1..], call)
}

fn repeat(
    control: &Control,
    form: LoopForm,
    kernel: &Kernel,
    kernels: &Kernels,
    reads: &[Literal],
    call: &mut Execute<'_>,
) -> Result<Vec<Literal>> {
    let step = control.regions.last().expect("a loop has a step");
    let mut carries = reads[form.first_carry()..form.first_slice()].to_vec();
    let captures = &reads[form.first_capture()..form.first_initial()];
    let count =
        if form.counted { u64::try_from(integer(&reads[0])).unwrap_or(0) } else { u64::MAX };
    let count = count.min(form.limit);
    let mut stacks: Vec<Vec<u8>> = kernel.writes[form.carries..]
        .iter()
        .map(|b| {
            vec![0; kernels.buffers[*b].ty.bytes().expect("verified kernels have no variables")]
        })
        .collect();
    for n in 0..count {
        let known: Vec<Literal> = carries.iter().chain(captures).cloned().collect();
        if form.conditional && integer(&region(&control.regions[0], &known, call)?[0]) == 0 {
            break;
        }
        let n = if form.reverse { count - 1 - n } else { n } as usize;
        let slices = &reads[form.first_slice()..form.first_capture()];
        let slices = slices.iter().zip(&step.inputs[form.carries..]).map(|(whole, (_, buffer))| {
            let ty = &step.buffers[*buffer].ty;
            let bytes = ty.bytes().expect("verified kernels have no variables");
            let shape = extents(ty);
            Literal::from_bytes(ty.dtype, &shape, &whole.to_bytes()[n * bytes..(n + 1) * bytes])
        });
        let slices = slices.collect::<Result<Vec<_>>>()?;
        let taken: Vec<Literal> =
            carries.into_iter().chain(slices).chain(captures.iter().cloned()).collect();
        carries = region(step, &taken, call)?;
        for (stack, part) in stacks.iter_mut().zip(carries.split_off(form.carries)) {
            let part = part.to_bytes();
            stack[n * part.len()..(n + 1) * part.len()].copy_from_slice(&part);
        }
    }
    let wholes = stacks.iter().zip(&kernel.writes[form.carries..]).map(|(bytes, buffer)| {
        let ty = &kernels.buffers[*buffer].ty;
        Literal::from_bytes(ty.dtype, &extents(ty), bytes)
    });
    carries.into_iter().map(Ok).chain(wholes).collect()
}

/// The only element of a literal, which is a bool or an integer.
fn integer(literal: &Literal) -> i64 {
    literal.get(0).to_i64().expect("integers and bools decide what control flow does")
}

/// The extents of a type.
fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("verified kernels have no variables")
}

/// Runs a nest on literals of its parameters' sizes.
fn run(nest: &Nest, reads: &[Literal]) -> Result<Vec<Literal>> {
    let inputs: Vec<Literal> = reads
        .iter()
        .zip(nest.parameters())
        .map(|(l, (_, b))| l.reshape(&b.shape))
        .collect::<Result<_>>()?;
    nest::interpret(nest, &inputs)
}
