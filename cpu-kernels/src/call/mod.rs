//! Calls on the CPU: kernels that are not generated from a nest. Each call's type implements
//! [`Compile`] in its own file, and `kernels!` lists the calls that have kernels here.
//!
//! A call is compiled once, which fixes the division of its work, and then run on buffers. All
//! conditions of memory safety are checked at the beginning of a run. After that the code works
//! on pointers, since several threads write parts of one buffer.
//!
//! Every element of the result is computed by one task, or is the sum of the partial results of
//! several tasks in a fixed order. The division into tasks depends on the extents of the call
//! alone; products and attention are exceptions, because no division changes their bits. So the
//! bits do not depend on the number of threads.

/// A function that finds the kernels for a set of vector instructions. A module for each set has
/// them by the same name.
macro_rules! lookup {
    ($f:ident: $kernels:ty, $name:ident) => {
        /// The kernels for a set of vector instructions.
        pub(in crate::call) fn $f(simd: Simd) -> &'static $kernels {
            match simd {
                #[cfg(target_arch = "x86_64")]
                Simd::Avx2 => &avx2::$name,
                #[cfg(target_arch = "x86_64")]
                Simd::Avx512 | Simd::Avx512Bf16 => &avx512::$name,
                _ => &portable::$name,
            }
        }
    };
}

mod attention;
mod chained;
mod collective;
mod convolution;
mod element;
mod finish;
mod gemm;
mod numbers;
mod panel;
mod product;
mod scatter;
mod segment_sum;
mod sort;
mod together;

use crate::memory::{ALIGNMENT, Buffer, Span, Workspace, check_count, spans};
use crate::nest::Follower;
use wengert_core::call::{self, Call, Contract};
use wengert_core::pitch::memory_extents;
use wengert_core::ty::TensorType;
use wengert_core::{DType, Diagnostic};

use together::Member;

pub(crate) use collective::{CompiledCollective, has_two_exchanges};

/// A call with kernels on the CPU.
trait Compile {
    /// Chooses the kernels, and fixes the division of the work. The call is verified.
    ///
    /// Error: there are none for these dtypes.
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic>;
}

/// The kernels of a call, ready to run.
trait Kernels: std::fmt::Debug + Send + Sync {
    /// Bytes of scratch memory of each thread; saturates.
    fn scratch(&self) -> usize {
        0
    }

    /// Bytes of scratch memory that so many threads share; saturates.
    fn shared(&self, _threads: usize) -> usize {
        0
    }

    /// Runs the call on checked arguments. There is a following nest only if the call
    /// [may be followed](Contract::has_tiles).
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic>;

    /// The call as one of several that run [together], if that is faster than one after another.
    fn member(&self) -> Option<&dyn Member> {
        None
    }
}

macro_rules! kernels {
    ($($call:ident,)*) => {
        /// Names of the calls that have kernels on the CPU.
        pub fn claims() -> Vec<&'static str> {
            [$(call::$call::names()),*].concat()
        }

        fn compile(call: &Call) -> Result<Box<dyn Kernels>, Diagnostic> {
            match call {
                $(Call::$call(call) => call.compile(),)*
                #[allow(unreachable_patterns, reason = "the list may have every call")]
                _ => Err(Diagnostic::new("the CPU has no kernels for it")),
            }
        }
    };
}

kernels! {
    Gemm,
    Convolution,
    Scatter,
    SegmentSum,
    Sort,
    TopK,
    Attention,
    Collective,
}

/// A call, ready to run.
#[derive(Debug)]
pub struct CompiledCall {
    name: &'static str,
    /// The name with the extents.
    description: String,
    kernels: Box<dyn Kernels>,
    has_tiles: bool,
    /// Operands, then the results.
    parameters: Vec<Parameter>,
}

/// Requirements of a run on a buffer.
#[derive(Debug)]
struct Parameter {
    name: String,
    dtype: DType,
    bytes: usize,
    /// Whether the buffer may be larger.
    larger: bool,
    /// Whether it is a result.
    written: bool,
    /// Whether the result may alias this operand.
    in_place: bool,
}

impl CompiledCall {
    /// Compiles a call.
    ///
    /// Error: the call breaks a rule ([`Contract::verify`]), or there are no kernels for it.
    pub fn new(call: &Call) -> Result<Self, Diagnostic> {
        let compiled = call.verify().and_then(|()| compile(call));
        let kernels = compiled.map_err(|e| e.context(format!("call `{}`", call.name())))?;
        let in_place = call.in_place();
        let operands = call.operands();
        let parameters = operands.iter().enumerate().map(|(k, ty)| Parameter {
            larger: call.may_be_larger(k),
            in_place: in_place.contains(&k),
            ..Parameter::new(format!("operand {k}"), ty)
        });
        let results = call.results();
        let results = results.iter().enumerate().map(|(k, ty)| Parameter {
            written: true,
            ..Parameter::padded(format!("result {k}"), ty, call.pitch())
        });
        Ok(CompiledCall {
            name: call.name(),
            description: call.description(),
            kernels,
            has_tiles: call.has_tiles(),
            parameters: parameters.chain(results).collect(),
        })
    }

    /// The name with the extents, for messages.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Number of operands and results.
    pub(crate) fn arguments(&self) -> usize {
        self.parameters.len()
    }

    /// Bytes of scratch memory that each thread needs. Saturates; such an amount cannot be
    /// reserved.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.kernels.scratch()
    }

    /// Reserves the scratch memory that a run needs.
    ///
    /// Error: the system does not have this amount of memory.
    pub fn reserve(&self, workspace: &mut Workspace) -> Result<(), Diagnostic> {
        let shared = self.kernels.shared(workspace.pool().threads());
        workspace.reserve(self.scratch_bytes())?;
        workspace.reserve_shared(shared)
    }

    /// Runs the call on buffers of its operands and, last, its results, using the threads and the
    /// scratch memory of the workspace.
    ///
    /// Error: a buffer has too few bytes (or too many, but for a GEMM's lhs and rhs), is not
    /// aligned to its elements, or is not writable; the workspace has too little scratch memory;
    /// or a task panicked.
    pub fn run(&self, workspace: &Workspace, buffers: &mut [Buffer<'_>]) -> Result<(), Diagnostic> {
        let spans = spans(buffers);
        // SAFETY: the buffers are borrowed for longer than this call, and exclusively. So no
        // other code writes their bytes, nor reads those that may be written.
        unsafe { self.run_on(workspace, &spans, None) }
    }

    /// Runs a call of one result in place: the operand at position `operand`
    /// ([`Contract::in_place`]) shares the memory of the result. The buffers are those of the other
    /// operands and, last, the result, which initially holds the operand.
    ///
    /// Error: as for [`run`](Self::run); or the operand may not share the result's memory.
    pub fn run_in_place(
        &self,
        workspace: &Workspace,
        operand: usize,
        buffers: &mut [Buffer<'_>],
    ) -> Result<(), Diagnostic> {
        let mut spans = spans(buffers);
        if let Some(result) = spans.last().copied()
            && operand < spans.len()
        {
            spans.insert(operand, result);
        }
        // SAFETY: as in `run`; one span occurs twice, which the run checks.
        unsafe { self.run_on(workspace, &spans, None) }
    }

    /// [`scratch_bytes`](Self::scratch_bytes) with a following nest that needs `follower` bytes;
    /// saturates.
    pub(crate) fn scratch_followed(&self, follower: usize) -> usize {
        room(self.scratch_bytes()).saturating_add(follower)
    }

    /// [`run`](Self::run) on memory outside the borrow checker. The following nest, if there is
    /// one, runs on each part of the result as soon as that part is final.
    ///
    /// A result may alias an operand exactly where [`Contract::in_place`] permits it; apart from
    /// that, results overlap nothing. Error: as for `run`; results overlap otherwise; or there is
    /// a nest, and the call has no [tiles](Call::has_tiles).
    ///
    /// # Safety
    ///
    /// During the call, each span is initialised and valid to read, and to write if it says so.
    /// No other code writes it, nor reads it if the call writes it. The same holds of the nest's
    /// spans. The nest writes nothing that the call reads. Of the memory that the call writes,
    /// the nest reads only, for each row, its own element of the result.
    pub(crate) unsafe fn run_on(
        &self,
        workspace: &Workspace,
        buffers: &[Span],
        follower: Option<&Follower<'_>>,
    ) -> Result<(), Diagnostic> {
        let run = || {
            self.check(workspace, buffers, follower)?;
            if self.parameters.iter().all(|p| !p.written || p.bytes == 0) {
                return Ok(());
            }
            if follower.is_some() && !self.has_tiles {
                return Err(Diagnostic::new("no nest can follow it"));
            }
            self.kernels.run(workspace, &Arguments { buffers, follower })
        };
        run().map_err(|e| e.context(format!("call `{}`", self.name)))
    }

    fn check(
        &self,
        workspace: &Workspace,
        buffers: &[Span],
        follower: Option<&Follower<'_>>,
    ) -> Result<(), Diagnostic> {
        check_count(self.parameters.len(), buffers)?;
        let bytes = follower.map_or(self.scratch_bytes(), |f| self.scratch_followed(f.scratch()));
        workspace.check(bytes, self.kernels.shared(workspace.pool().threads()))?;
        for (buffer, parameter) in buffers.iter().zip(&self.parameters) {
            let bytes = if parameter.larger {
                parameter.bytes.max(buffer.bytes())
            } else {
                parameter.bytes
            };
            buffer.check(&parameter.name, bytes, parameter.dtype.size(), parameter.written)?;
        }
        for (k, result) in
            self.parameters.iter().enumerate().filter(|(_, p)| p.written && p.bytes > 0)
        {
            let out = &buffers[k];
            for (other, buffer) in self.parameters.iter().zip(buffers).take(k) {
                let same = other.in_place && std::ptr::eq(buffer.pointer(), out.pointer());
                if buffer.bytes() > 0 && buffer.overlaps(out) && !same {
                    let (other, result) = (&other.name, &result.name);
                    return Err(Diagnostic::new(format!(
                        "the buffers of {other} and of {result} overlap"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Parameter {
    fn new(name: String, ty: &TensorType) -> Self {
        Parameter::padded(name, ty, None)
    }

    /// A buffer whose rows have this pitch.
    fn padded(name: String, ty: &TensorType, pitch: Option<usize>) -> Self {
        let extents = ty.extents().expect("a verified call has extents that fit");
        let elements = memory_extents(&extents, pitch).product::<usize>();
        Parameter {
            name,
            dtype: ty.dtype,
            bytes: elements * ty.dtype.size(),
            larger: false,
            written: false,
            in_place: false,
        }
    }
}

/// Checked spans, operands first, shared by several threads. Operands are only read. Each task
/// writes, and reads, only its own part of the result; every unsafe block of this module that
/// writes relies on that.
struct Arguments<'a> {
    buffers: &'a [Span],
    /// The nest that runs on each part of the result as soon as the part is final.
    follower: Option<&'a Follower<'a>>,
}

impl Arguments<'_> {
    /// Address of an operand.
    fn operand<T>(&self, position: usize) -> *const T {
        self.buffers[position].pointer().cast_const().cast()
    }

    /// Address of an argument that is written, or that is read beside a written one.
    fn writable<T>(&self, position: usize) -> *mut T {
        self.buffers[position].pointer().cast()
    }

    /// Address of the only result.
    fn result<T>(&self) -> *mut T {
        self.buffers[self.buffers.len() - 1].pointer().cast()
    }
}

/// Bytes that [`take`] uses for `bytes` bytes; saturates.
fn room(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX)
}

/// Bytes that [`take`] uses for an array; `extents` includes the bytes of an element. Saturates;
/// such a size cannot be reserved, so nothing runs in it.
fn array(extents: &[usize]) -> usize {
    room(extents.iter().fold(1, |n, e| n.saturating_mul(*e)))
}

/// Takes memory for `count` elements from the beginning of the free memory. The free memory
/// begins at a multiple of [`ALIGNMENT`], before and after.
fn take<'a, T: bytemuck::Pod>(free: &mut &'a mut [u8], count: usize) -> &'a mut [T] {
    let bytes = count * size_of::<T>();
    let (head, rest) = std::mem::take(free).split_at_mut(room(bytes));
    *free = rest;
    bytemuck::cast_slice_mut(&mut head[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_claims_the_calls_that_have_kernels() {
        let mut claims = claims();
        let mut calls = wengert_core::Target::cpu().calls;
        claims.sort();
        calls.sort();
        assert_eq!(claims, calls);
    }
}
