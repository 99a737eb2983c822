//! The stage between fusion and plan: a function as kernels over buffers, in no order but that of their dependencies.
//!
//! A [`Buffer`] is a value that exists in memory. Values that fusion keeps in registers have none; a reshape of a buffer is the buffer
//! itself. Kernels read and write whole buffers.

use wengert_core::call::Call;
use wengert_core::graph::{Input, Output};
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::Nest;
use wengert_core::{Literal, LocationId, TensorType};

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
    /// Everything in memory.
    pub buffers: IdVec<BufferId, Buffer>,
    /// Inputs of the function with their buffers, in order.
    pub inputs: Vec<(Input, BufferId)>,
    /// Outputs of the function with their types and buffers, in order. One buffer may be several outputs, or an input too; a type
    /// may have another shape than the buffer, of as many elements.
    pub outputs: Vec<(Output, TensorType, BufferId)>,
    /// Constants in memory.
    pub constants: Vec<(BufferId, Literal)>,
    /// Kernels, such that each buffer is written (once) before it is read.
    pub kernels: Vec<Kernel>,
}

/// What is known of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// Name for people.
    pub name: String,
    /// Its type, without dimension variables.
    pub ty: TensorType,
}

/// A kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// What it computes.
    pub work: Work,
    /// Buffers read: for a nest its In parameters in order, for a call its operands.
    pub reads: Vec<BufferId>,
    /// Buffers written: for a nest its Out parameters in order, for a call its result.
    pub writes: Vec<BufferId>,
    /// Equations it was made from.
    pub locations: Vec<LocationId>,
}

/// What a kernel computes.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// A nest. Its In parameters come before its Out parameters.
    Nest(Box<Nest>),
    /// A call.
    Call(Call),
}
