//! Constructs of control flow as kernels: an op, and the kernels of its regions.
//!
//! A region is compiled like a function. Its inputs and outputs have roles in the construct, so
//! the memory planner for functions also plans regions:
//!
//! - A carry is a **state**: an input, and the output of the same name that replaces it.
//! - A capture of a loop and an operand of a branch is a **param**: it is only read.
//! - A slice is an **input**, and a stack is an **output**; so are the results of a branch, and
//!   of a condition.
//!
//! The kernel reads the operands of the op. A loop that may not write all rows of its stacks also
//! reads, after the operands, the initial contents of each stack: zeros.

use super::{Kernel, Kernels};
use wengert_core::graph::{Input, InputRole, Output, OutputRole};
use wengert_core::op::Control as Construct;
use wengert_core::{Diagnostic, LocationId, Op, Result, TensorType};

/// A construct of control flow.
#[derive(Clone, PartialEq, Debug)]
pub struct Control {
    /// The op that decides which region runs, and how often.
    pub op: Op,
    /// The regions of the op.
    pub regions: Vec<Kernels>,
}

/// The interpretation of a construct's reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The first read selects the region, which takes the other reads and computes the writes.
    Branch,
    /// The last region is a step.
    Loop(LoopForm),
}

/// Reads of a loop: the count, carries, whole slices, captures, and initial stacks. Writes:
/// carries, stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopForm {
    /// Whether it runs as long as the first region, which takes carries and captures, returns
    /// true.
    pub conditional: bool,
    /// The first read is the number of steps.
    pub counted: bool,
    /// Whether steps run from the last to the first.
    pub reverse: bool,
    /// The number of steps, or its maximum.
    pub limit: u64,
    /// Number of carries.
    pub carries: usize,
    /// Number of slices: values of which each step reads a row.
    pub slices: usize,
    /// Number of captures: values that every step reads.
    pub captures: usize,
    /// Number of stacks: values of which each step writes a row.
    pub stacks: usize,
}

impl LoopForm {
    /// Position of the first carry among the reads.
    pub fn first_carry(&self) -> usize {
        usize::from(self.counted)
    }

    /// Position of the first slice among the reads.
    pub fn first_slice(&self) -> usize {
        self.first_carry() + self.carries
    }

    /// Position of the first capture among the reads.
    pub fn first_capture(&self) -> usize {
        self.first_slice() + self.slices
    }

    /// Position of the first initial stack among the reads.
    pub fn first_initial(&self) -> usize {
        self.first_capture() + self.captures
    }

    /// Whether it reads initial stacks, since some rows may not be written.
    pub fn has_initials(&self) -> bool {
        self.conditional || self.counted
    }

    /// Number of reads.
    pub fn reads(&self) -> usize {
        self.first_initial() + if self.has_initials() { self.stacks } else { 0 }
    }
}

/// The form of an op for `operands` operands and `results` results.
///
/// # Panics
///
/// If it is not a construct of control flow, or still has dimension variables.
pub fn form(op: &Op, operands: usize, results: usize) -> Form {
    match op.control().expect("only control flow has a form") {
        Construct::Branch => Form::Branch,
        Construct::Scan(scan) => {
            let length = scan.length.as_constant().and_then(|n| u64::try_from(n).ok());
            let given = usize::from(scan.counted) + scan.carries + scan.captures;
            Form::Loop(LoopForm {
                conditional: false,
                counted: scan.counted,
                reverse: scan.reverse,
                limit: length.expect("functions are bound before they are compiled"),
                carries: scan.carries,
                slices: operands.saturating_sub(given),
                captures: scan.captures,
                stacks: results.saturating_sub(scan.carries),
            })
        }
        Construct::While(op) => {
            let carries = operands.saturating_sub(op.captures);
            Form::Loop(LoopForm {
                conditional: true,
                counted: false,
                reverse: false,
                limit: op.limit(),
                carries,
                slices: 0,
                captures: op.captures,
                stacks: results.saturating_sub(carries),
            })
        }
    }
}

/// The signature of region number `region` of a construct.
pub fn signature(
    form: Form,
    region: usize,
    inputs: usize,
    outputs: usize,
) -> (Vec<Input>, Vec<Output>) {
    let input = |name: String, role: InputRole| Input { name, role, location: LocationId(0) };
    let output = |name: String, role: OutputRole| Output { name, role };
    match form {
        Form::Loop(l) if !(l.conditional && region == 0) => {
            let carried = |n: usize| format!("carry.{n}");
            let given = |n: usize| match n.checked_sub(l.carries) {
                None => input(carried(n), InputRole::State),
                Some(n) if n < l.slices => input(format!("slice.{n}"), InputRole::Input),
                Some(n) => input(format!("capture.{}", n - l.slices), InputRole::Param),
            };
            let made = |n: usize| match n.checked_sub(l.carries) {
                None => output(carried(n), OutputRole::State),
                Some(n) => output(format!("stack.{n}"), OutputRole::Output),
            };
            ((0..inputs).map(given).collect(), (0..outputs).map(made).collect())
        }
        _ => {
            let name = if form == Form::Branch { "result" } else { "condition" };
            let given = (0..inputs).map(|n| input(format!("x.{n}"), InputRole::Param));
            (
                given.collect(),
                (0..outputs).map(|n| output(format!("{name}.{n}"), OutputRole::Output)).collect(),
            )
        }
    }
}

impl Control {
    /// The form of its kernel's reads and writes.
    pub fn form(&self, kernel: &Kernel) -> Form {
        // A while has no slices, and its initial stacks are not operands.
        let results = kernel.writes.len();
        match form(&self.op, kernel.reads.len(), results) {
            Form::Loop(l) if l.conditional => {
                let carries = self
                    .regions
                    .last()
                    .map_or(0, |step| step.inputs.len().saturating_sub(l.captures));
                Form::Loop(LoopForm { carries, stacks: results.saturating_sub(carries), ..l })
            }
            Form::Loop(l) if l.counted => {
                Form::Loop(LoopForm { slices: l.slices.saturating_sub(l.stacks), ..l })
            }
            form => form,
        }
    }

    /// Checks the regions, and that they fit the kernel's buffers, whose types are given.
    pub(super) fn verify(
        &self,
        kernel: &Kernel,
        reads: &[TensorType],
        writes: &[TensorType],
    ) -> Result<()> {
        if self.op.control().is_none() || self.regions.is_empty() {
            return Err(Diagnostic::new(format!(
                "`{}` is no construct of control flow",
                self.op.name()
            )));
        }
        let name = self.op.name();
        let count = |what: &str, found: usize, wanted: usize| match found == wanted {
            true => Ok(()),
            false => Err(Diagnostic::new(format!("`{name}` has {found} {what}, not {wanted}"))),
        };
        let same = |what: &str, a: &TensorType, b: &TensorType, parts: u64| {
            let whole = a.bytes().map(|bytes| bytes as u64);
            let all = b.bytes().and_then(|bytes| (bytes as u64).checked_mul(parts));
            match a.dtype == b.dtype && whole.is_some() && whole == all {
                true => Ok(()),
                false => Err(Diagnostic::new(format!(
                    "`{name}`: {what} of type {b} for a buffer of type {a}"
                ))),
            }
        };
        for (n, region) in self.regions.iter().enumerate() {
            region.verify().map_err(|d| d.context(format!("region {n} of `{name}`")))?;
            let input = |k: usize| &region.buffers[region.inputs[k].1].ty;
            match self.form(kernel) {
                Form::Branch => {
                    count("operands", region.inputs.len() + 1, reads.len())?;
                    count("results", region.outputs.len(), writes.len())?;
                    for (k, read) in reads[1..].iter().enumerate() {
                        same("an operand", read, input(k), 1)?;
                    }
                    for (write, (_, ty, _)) in writes.iter().zip(&region.outputs) {
                        same("a result", write, ty, 1)?;
                    }
                }
                Form::Loop(l) => {
                    count("reads", reads.len(), l.reads())?;
                    count(
                        "inputs of a region",
                        region.inputs.len(),
                        l.carries + l.slices + l.captures,
                    )?;
                    for k in 0..region.inputs.len() {
                        let is_slice = (l.carries..l.carries + l.slices).contains(&k);
                        same(
                            "an input",
                            &reads[l.first_carry() + k],
                            input(k),
                            if is_slice { l.limit } else { 1 },
                        )?;
                    }
                    if l.conditional && n == 0 {
                        count("conditions", region.outputs.len(), 1)?;
                        continue;
                    }
                    count("outputs of a region", region.outputs.len(), writes.len())?;
                    for (k, (write, (_, ty, _))) in writes.iter().zip(&region.outputs).enumerate() {
                        same("an output", write, ty, if k < l.carries { 1 } else { l.limit })?;
                    }
                    for (read, write) in reads[l.first_initial()..].iter().zip(&writes[l.carries..])
                    {
                        same("what a stack holds before", read, write, 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}
