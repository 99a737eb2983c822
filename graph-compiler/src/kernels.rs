//! The stage between fusion and plan: a function as kernels over buffers, ordered by dependencies
//! only.
//!
//! A [`Buffer`] is a value in memory. Values that fusion keeps in registers have no buffer; a
//! reshape of a buffer is the buffer itself. Kernels read and write whole buffers.

pub mod control;
pub mod cost;
pub mod followed;
pub mod interpret;
pub mod print;

pub use followed::Followed;
use rustc_hash::FxHashSet;
use wengert_core::call::Call;
use wengert_core::graph::{Input, Output};
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::{BufferRole, Nest};
use wengert_core::pitch::PaddedRows;
use wengert_core::{Diagnostic, Literal, LocationId, Mesh, Result, TensorType, Verified};

/// A value in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BufferId(pub u32);

impl Id for BufferId {
    fn new(index: usize) -> Self {
        BufferId(u32::try_from(index).expect("a function has fewer than 2^32 values"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function as kernels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernels {
    /// Name of the function.
    pub function: String,
    /// The ranks that run it together.
    pub mesh: Mesh,
    /// All values in memory.
    pub buffers: IdVec<BufferId, Buffer>,
    /// Inputs of the function with their buffers, in order.
    pub inputs: Vec<(Input, BufferId)>,
    /// Outputs of the function with their types and buffers, in order. A buffer may be several
    /// outputs, or an input as well. The output's type may have another shape than the buffer,
    /// with as many elements.
    pub outputs: Vec<(Output, TensorType, BufferId)>,
    /// Constants in memory.
    pub constants: Vec<(BufferId, Literal)>,
    /// Kernels, ordered such that each buffer is written (once) before it is read.
    pub kernels: Vec<Kernel>,
}

/// Name, type and layout of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// Name for messages.
    pub name: String,
    /// Its type, without dimension variables.
    pub ty: TensorType,
    /// Distance of rows in elements, if they have [padding](wengert_core::pitch) between them.
    pub pitch: Option<usize>,
}

impl Buffer {
    /// A dense buffer.
    pub fn dense(name: impl Into<String>, ty: TensorType) -> Buffer {
        Buffer { name: name.into(), ty, pitch: None }
    }

    /// Bytes of its memory, padding included; `None` if they do not fit in memory.
    pub fn bytes(&self) -> Option<usize> {
        let mut extents = self.ty.extents()?;
        if let (Some(pitch), Some(row)) = (self.pitch, extents.last_mut()) {
            *row = pitch;
        }
        TensorType::new(self.ty.dtype, extents).bytes()
    }

    /// Its rows, if they have padding between them.
    pub fn padded_rows(&self) -> Option<PaddedRows> {
        PaddedRows::of(&self.ty.extents()?, self.pitch)
    }
}

/// A kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Its computation.
    pub work: Work,
    /// Buffers read: for a nest its In parameters in order, for a call its operands, for a product
    /// with a follower see [`followed`], for control flow [`control`].
    pub reads: Vec<BufferId>,
    /// Buffers written: for a nest its Out parameters in order, for a call and for control flow
    /// its results, for a product with a follower
    /// both.
    pub writes: Vec<BufferId>,
    /// Source equations.
    pub locations: Vec<LocationId>,
}

/// The computation of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// A nest. Its In parameters come before its Out parameters.
    Nest(Box<Verified<Nest>>),
    /// A call.
    Call(Call),
    /// A product and the nest that runs on its tiles.
    Followed(Box<Followed>),
    /// A construct of control flow: kernels that run a variable number of times.
    Control(Box<control::Control>),
}

impl Kernel {
    /// Its nest, alone or after a product.
    pub fn nest(&self) -> Option<&Nest> {
        match &self.work {
            Work::Nest(nest) => Some(nest),
            Work::Followed(followed) => Some(&followed.follower),
            Work::Call(_) | Work::Control(_) => None,
        }
    }

    /// Its call, alone or with a follower.
    pub fn call(&self) -> Option<&Call> {
        match &self.work {
            Work::Call(call) => Some(call),
            Work::Followed(followed) => Some(&followed.call),
            Work::Nest(_) | Work::Control(_) => None,
        }
    }

    /// The buffers read, each once.
    pub fn distinct_reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        // A loop may have thousands of reads.
        let few = self.reads.len() <= 32;
        let mut seen = FxHashSet::default();
        let mut first = move |n: usize| match few {
            true => !self.reads[..n].contains(&self.reads[n]),
            false => seen.insert(self.reads[n]),
        };
        (0..self.reads.len()).filter(move |n| first(*n)).map(|n| self.reads[n])
    }
}

impl Kernels {
    /// Checks that the kernels fit together:
    ///
    /// - **K1** Buffers exist, and their types are free of variables and fit in memory.
    /// - **K2** Each buffer is defined once: it is one input, one constant, or written by one
    ///   kernel.
    /// - **K3** It is defined before a kernel reads it; outputs and the buffers that they name
    ///   are defined.
    /// - **K4** Calls are valid (nests are verified where they are made), and a kernel has a buffer
    ///   of the same dtype and bytes for each parameter of its nest (In before Out, no InOut), or
    ///   for each operand and result of its call (lhs and rhs of a GEMM may be larger), or for each
    ///   input and output of the regions of its control flow, which are kernels that fit together.
    ///   The nest of a followed product [follows](wengert_core::nest::follows) its call's result.
    /// - **K5** An output has as many bytes as its buffer; constants have the type of theirs.
    /// - **K6** A buffer with a pitch is written by a nest or a call and is no output. Parameters
    ///   and the call's result have its pitch and its rows, and a call stays in them. A follower
    ///   has dense parameters.
    pub fn verify(&self) -> Result<()> {
        let wrong = |n: u32, what: String| {
            Err(Diagnostic::new(format!("kernels of @{}: {what} (K{n})", self.function)))
        };
        for (id, buffer) in self.buffers.iter() {
            if buffer.bytes().is_none_or(|b| isize::try_from(b).is_err()) {
                return wrong(1, format!("buffer {} has type {}", id.0, buffer.ty));
            }
        }
        let mut defined: IdVec<BufferId, bool> = self.buffers.ids().map(|_| false).collect();
        let mut define = |id: BufferId| match self.buffers.get(id) {
            None => wrong(1, format!("there is no buffer {}", id.0)),
            Some(_) if std::mem::replace(&mut defined[id], true) => {
                wrong(2, format!("buffer {} is defined twice", id.0))
            }
            Some(_) => Ok(()),
        };
        self.inputs
            .iter()
            .map(|(_, b)| *b)
            .chain(self.constants.iter().map(|(b, _)| *b))
            .try_for_each(|id| match self.buffers.get(id).is_some_and(|b| b.pitch.is_some()) {
                true => wrong(6, format!("buffer {} is no result, and has a pitch", id.0)),
                false => define(id),
            })?;
        for (id, literal) in &self.constants {
            if literal.ty() != self.buffers[*id].ty {
                return wrong(
                    5,
                    format!("constant {} is {}, not {}", id.0, literal.ty(), self.buffers[*id].ty),
                );
            }
        }
        for (n, kernel) in self.kernels.iter().enumerate() {
            // Checked before the writes are defined, since a kernel does not read its own
            // results.
            for read in &kernel.reads {
                if defined.get(*read) != Some(&true) {
                    return wrong(
                        3,
                        format!("kernel {n} reads buffer {} before it is written", read.0),
                    );
                }
            }
            for write in &kernel.writes {
                match defined.get(*write) {
                    None => return wrong(1, format!("there is no buffer {}", write.0)),
                    Some(true) => return wrong(2, format!("buffer {} is defined twice", write.0)),
                    Some(false) => defined[*write] = true,
                }
            }
            self.verify_kernel(kernel)
                .map_err(|d| d.context(format!("kernel {n} of @{} (K4)", self.function)))?;
            if !self.fits_rows(kernel) {
                let what = format!("a buffer of kernel {n} has other rows than its parameter");
                return wrong(6, what);
            }
        }
        for (output, ty, buffer) in &self.outputs {
            if defined.get(*buffer) != Some(&true) {
                return wrong(3, format!("output `{}` is not written", output.name));
            }
            if self.buffers[*buffer].pitch.is_some() {
                return wrong(6, format!("output `{}` has a pitch", output.name));
            }
            if ty.bytes() != self.buffers[*buffer].ty.bytes()
                || ty.dtype != self.buffers[*buffer].ty.dtype
            {
                return wrong(
                    5,
                    format!(
                        "output `{}` is {ty}, its buffer {}",
                        output.name, self.buffers[*buffer].ty
                    ),
                );
            }
        }
        Ok(())
    }

    fn verify_kernel(&self, kernel: &Kernel) -> Result<()> {
        match &kernel.work {
            Work::Nest(nest) => self.verify_nest(nest, &kernel.reads, &kernel.writes)?,
            Work::Call(call) => self.verify_call(call, &kernel.reads, &kernel.writes)?,
            Work::Followed(followed) => {
                followed.verify(kernel)?;
                let parts = followed.split(kernel);
                self.verify_call(&followed.call, parts.operands, parts.result)?;
                self.verify_nest(&followed.follower, &parts.reads, parts.writes)?;
            }
            Work::Control(control) => {
                let types = |ids: &[BufferId]| {
                    ids.iter().map(|id| self.buffers[*id].ty.clone()).collect::<Vec<_>>()
                };
                control.verify(kernel, &types(&kernel.reads), &types(&kernel.writes))?;
            }
        }
        Ok(())
    }

    /// K6, of a kernel.
    fn fits_rows(&self, kernel: &Kernel) -> bool {
        let rows = |id: BufferId| self.buffers[id].padded_rows();
        let dense = |ids: &[BufferId]| ids.iter().all(|id| rows(*id).is_none());
        let stay = |call: &Call, operands: &[BufferId]| {
            let mut operands = operands.iter().enumerate();
            operands.all(|(n, id)| rows(*id).is_none_or(|rows| call.stays_in_rows(n, rows)))
        };
        match &kernel.work {
            Work::Nest(nest) => {
                let mut all = kernel.reads.iter().chain(&kernel.writes).zip(nest.parameters());
                all.all(|(id, (_, parameter))| rows(*id) == parameter.padded_rows())
            }
            Work::Call(call) => {
                let mut results = kernel.writes.iter().zip(call.results());
                stay(call, &kernel.reads)
                    && results.all(|(id, ty)| {
                        let extents = ty.extents().unwrap_or_default();
                        rows(*id) == PaddedRows::of(&extents, call.pitch())
                    })
            }
            Work::Followed(followed) => {
                let Followed { call, follower, .. } = &**followed;
                let (operands, others) = kernel.reads.split_at(call.operands().len());
                stay(call, operands)
                    && dense(others)
                    && dense(&kernel.writes)
                    && follower.parameters().all(|(_, parameter)| parameter.pitch.is_none())
                    && call.pitch().is_none()
            }
            Work::Control(_) => dense(&kernel.reads) && dense(&kernel.writes),
        }
    }

    fn fits(&self, what: &str, id: BufferId, wanted: &TensorType, larger: bool) -> Result<()> {
        let buffer = &self.buffers[id];
        let ty = &buffer.ty;
        // The strides of an operand that may be larger are those of its memory.
        let enough = match larger {
            true => buffer.bytes() >= wanted.bytes(),
            false => ty.bytes() == wanted.bytes(),
        };
        if ty.dtype.stored() == wanted.dtype && enough {
            Ok(())
        } else {
            Err(Diagnostic::new(format!(
                "buffer {} of type {ty} for {what} of type {wanted}",
                id.0
            )))
        }
    }

    fn verify_nest(&self, nest: &Nest, reads: &[BufferId], writes: &[BufferId]) -> Result<()> {
        let roles: Vec<BufferRole> = nest.parameters().map(|(_, b)| b.role).collect();
        let wanted = [BufferRole::In].repeat(reads.len());
        let wanted: Vec<_> =
            wanted.into_iter().chain([BufferRole::Out].repeat(writes.len())).collect();
        if roles != wanted {
            return Err(Diagnostic::new(format!(
                "nest @{} has other parameters than its kernel",
                nest.name
            )));
        }
        for ((_, parameter), id) in nest.parameters().zip(reads.iter().chain(writes)) {
            let ty = TensorType::new(parameter.dtype, parameter.shape.iter().copied());
            self.fits(&format!("parameter `%{}`", parameter.name), *id, &ty, false)?;
        }
        Ok(())
    }

    fn verify_call(&self, call: &Call, reads: &[BufferId], writes: &[BufferId]) -> Result<()> {
        call.verify()?;
        let operands = call.operands();
        let results = call.results();
        if operands.len() != reads.len() || results.len() != writes.len() {
            return Err(Diagnostic::new("a call has other operands than its kernel"));
        }
        for (n, (id, ty)) in reads.iter().zip(&operands).enumerate() {
            self.fits("an operand", *id, ty, call.may_be_larger(n))?;
        }
        for (id, ty) in writes.iter().zip(&results) {
            self.fits("a result", *id, ty, false)?;
        }
        Ok(())
    }
}
