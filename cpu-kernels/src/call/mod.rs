//! Calls on the CPU: what is not a nest.
//!
//! A call is compiled once, which fixes how its work is divided, and run on buffers. Everything that could break a rule of memory is checked
//! at the beginning of a run; what follows works on pointers, since several threads write parts of one buffer.
//!
//! The division into tasks depends on the extents of the call alone, and every element of the result is the work of one task, or the sum of
//! partial results of several in a fixed order. So the bits do not depend on the number of threads.

mod convolution;
mod element;
mod epilogue;
mod gemm;
mod panel;
mod patches;
mod product;
mod scatter;
mod sort;

use crate::memory::{ALIGNMENT, Buffer, Workspace};
use convolution::CompiledConvolution;
use gemm::CompiledGemm;
use scatter::CompiledScatter;
use sort::CompiledSort;
use wengert_core::call::Call;
use wengert_core::ty::TensorType;
use wengert_core::{DType, Diagnostic};

/// A call, ready to run.
#[derive(Debug)]
pub struct CompiledCall {
    name: &'static str,
    kind: Kind,
    /// Operands, then the result.
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
enum Kind {
    Gemm(CompiledGemm),
    Convolution(CompiledConvolution),
    Scatter(CompiledScatter),
    Sort(CompiledSort),
}

/// What a run wants of a buffer.
#[derive(Debug)]
struct Parameter {
    name: String,
    dtype: DType,
    bytes: usize,
    /// Whether the buffer may be larger.
    larger: bool,
    /// Whether the result may be in the same place.
    in_place: bool,
}

impl CompiledCall {
    /// Compiles a call.
    ///
    /// Error: the call breaks a rule ([`Call::verify`]); or the system has no memory for what it keeps from run to run.
    pub fn new(call: &Call) -> Result<Self, Diagnostic> {
        call.verify().map_err(|e| e.context(format!("call `{}`", call.name())))?;
        let in_place = call.in_place();
        let operands = call.operands();
        let parameters = operands.iter().enumerate().map(|(k, ty)| Parameter {
            larger: call.may_be_larger(k),
            in_place: in_place.contains(&k),
            ..Parameter::new(format!("operand {k}"), ty)
        });
        Ok(CompiledCall {
            name: call.name(),
            parameters: parameters.chain([Parameter::new("result".into(), &call.result())]).collect(),
            kind: match call {
                Call::Gemm(gemm) => Kind::Gemm(CompiledGemm::new(gemm)),
                Call::Convolution(convolution) => Kind::Convolution(CompiledConvolution::new(convolution)?),
                Call::Scatter(scatter) => Kind::Scatter(CompiledScatter::new(scatter)),
                Call::Sort(sort) => Kind::Sort(CompiledSort::sort(sort)),
                Call::TopK(top) => Kind::Sort(CompiledSort::top_k(top)),
            },
        })
    }

    /// Bytes of scratch memory that each thread needs: to be [reserved](Workspace::reserve) before a run.
    pub fn scratch_bytes(&self) -> usize {
        match &self.kind {
            Kind::Gemm(gemm) => gemm.scratch(),
            Kind::Convolution(convolution) => convolution.scratch(),
            Kind::Scatter(_) => 0,
            Kind::Sort(sort) => sort.scratch(),
        }
    }

    /// Bytes that the call keeps for itself from run to run.
    pub fn kept_bytes(&self) -> usize {
        match &self.kind {
            Kind::Convolution(convolution) => convolution.kept(),
            Kind::Gemm(_) | Kind::Scatter(_) | Kind::Sort(_) => 0,
        }
    }

    /// Runs the call on buffers of its operands and, last, its result, using the threads and the scratch memory of the workspace.
    ///
    /// The result may lie in the very place of an operand of which [`Call::in_place`] says so; apart from that, it overlaps none.
    ///
    /// Error: a buffer has too few bytes (or too many, but for a GEMM's lhs and rhs), is not aligned to its elements, is
    /// not writable, or overlaps the result; the workspace has too little scratch memory; or a task panicked.
    pub fn run(&self, workspace: &Workspace, buffers: &[Buffer<'_>]) -> Result<(), Diagnostic> {
        let run = || {
            self.check(workspace, buffers)?;
            let arguments = Arguments(buffers);
            match &self.kind {
                Kind::Gemm(gemm) => gemm.run(workspace, &arguments),
                Kind::Convolution(convolution) => convolution.run(workspace, &arguments),
                Kind::Scatter(scatter) => scatter.run(workspace, &arguments),
                Kind::Sort(sort) => sort.run(workspace, &arguments),
            }
        };
        run().map_err(|e| e.context(format!("call `{}`", self.name)))
    }

    fn check(&self, workspace: &Workspace, buffers: &[Buffer<'_>]) -> Result<(), Diagnostic> {
        if buffers.len() != self.parameters.len() {
            let (wanted, given) = (self.parameters.len(), buffers.len());
            return Err(Diagnostic::new(format!("takes {wanted} buffers, not {given}")));
        }
        if workspace.scratch(0).len() < self.scratch_bytes() {
            let bytes = self.scratch_bytes();
            return Err(Diagnostic::new(format!("the workspace has less scratch memory than {bytes} bytes"))
                .help("reserve `scratch_bytes()` first"));
        }
        let last = buffers.len() - 1;
        for (k, (buffer, parameter)) in buffers.iter().zip(&self.parameters).enumerate() {
            let bytes = if parameter.larger { parameter.bytes.max(buffer.bytes()) } else { parameter.bytes };
            buffer.check(&parameter.name, bytes, parameter.dtype.size(), k == last)?;
            let same = parameter.in_place && std::ptr::eq(buffer.pointer(), buffers[last].pointer());
            if k != last && bytes > 0 && buffer.overlaps(&buffers[last]) && !same {
                return Err(Diagnostic::new(format!(
                    "the buffers of {} and of the result overlap",
                    parameter.name
                )));
            }
        }
        Ok(())
    }
}

impl Parameter {
    fn new(name: String, ty: &TensorType) -> Self {
        let elements = ty.elements().expect("a verified call has extents that fit");
        Parameter { name, dtype: ty.dtype, bytes: elements * ty.dtype.size(), larger: false, in_place: false }
    }
}

/// Checked buffers, operands first, that several threads use at once.
struct Arguments<'a>(&'a [Buffer<'a>]);

// SAFETY: a buffer is a borrow of bytes. Operands are only read; of the result each task writes, and reads, a part of its
// own: that is what every unsafe block of this module that writes argues.
unsafe impl Sync for Arguments<'_> {}

impl Arguments<'_> {
    /// Where an operand begins.
    fn operand<T>(&self, position: usize) -> *const T {
        self.0[position].pointer().cast_const().cast()
    }

    /// Where the result begins.
    fn result<T>(&self) -> *mut T {
        self.0[self.0.len() - 1].pointer().cast()
    }
}

/// Bytes that [`take`] uses for so many.
fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Takes memory for elements from the beginning of what is free, which begins, and goes on, at a multiple of [`ALIGNMENT`].
fn take<'a, T: bytemuck::Pod>(free: &mut &'a mut [u8], count: usize) -> &'a mut [T] {
    let bytes = count * size_of::<T>();
    let (head, rest) = std::mem::take(free).split_at_mut(room(bytes));
    *free = rest;
    bytemuck::cast_slice_mut(&mut head[..bytes])
}
