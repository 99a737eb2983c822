//! What a device states about itself: the numbers that decide what a program computes and how it is laid out, and the calls
//! that its back end claims. A value, so that plans can be made for devices that are not there.

use crate::call::Call;
use crate::dtype::DType;
use crate::nest::Tree;

/// A kind of device.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Target {
    /// `cpu`, later `sm_90` and the like.
    pub name: String,
    /// Lanes of a reduction whose last axis is contiguous in memory, for each element; a power of two. The same for every instruction
    /// set of the device, so that its bits are.
    pub reduction_lanes: u32,
    /// Elements of a block of a reduction ([`Tree::block`]); a multiple of the lanes.
    pub reduction_block: u32,
    /// Bytes to which buffers are aligned; a power of two.
    pub alignment: u64,
    /// Bytes of row storage that a nest may use for one row.
    pub row_storage: u64,
    /// Bytes that a fused row may span before it is not worth keeping it together.
    pub row_bytes: u64,
    /// Calls that the back end executes; others are decomposed.
    pub calls: Vec<CallKind>,
    /// Whether a GEMM's epilogue is done by the call.
    pub gemm_epilogue: bool,
}

/// The kind of a call, without its extents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// [`Call::Gemm`]
    Gemm,
    /// [`Call::Convolution`]
    Convolution,
    /// [`Call::ScatterAdd`]
    ScatterAdd,
}

impl CallKind {
    /// Every kind.
    pub const ALL: [CallKind; 3] = [CallKind::Gemm, CallKind::Convolution, CallKind::ScatterAdd];

    /// The kind of a call.
    pub const fn of(call: &Call) -> Self {
        match call {
            Call::Gemm(_) => CallKind::Gemm,
            Call::Convolution(_) => CallKind::Convolution,
            Call::ScatterAdd(_) => CallKind::ScatterAdd,
        }
    }

    /// Name in text.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Gemm => "gemm",
            CallKind::Convolution => "convolution",
            CallKind::ScatterAdd => "scatter_add",
        }
    }
}

impl Target {
    /// CPU threads with SIMD. 16 lanes fill an AVX-512 register of f32 and two AVX2 registers alike.
    pub fn cpu() -> Self {
        Target {
            name: "cpu".into(),
            reduction_lanes: 16,
            reduction_block: 4096,
            alignment: 64,
            row_storage: 256 << 10,
            row_bytes: 1 << 20,
            calls: CallKind::ALL.to_vec(),
            gemm_epilogue: true,
        }
    }

    /// True if the back end executes this call.
    pub fn claims(&self, call: &Call) -> bool {
        self.calls.contains(&CallKind::of(call))
    }

    /// The tree of a reduction of an operand: depends on its extents and the reduced axes alone, never on how it is fused.
    ///
    /// If the operand's last axis (of extent above 1) is reduced, neighbours go to different lanes. If not, neighbours belong
    /// to different results, and each result adds up one element after the other in blocks.
    pub fn reduction_tree(&self, _dtype: DType, extents: &[usize], axes: &[usize]) -> Tree {
        let last = extents.iter().rposition(|e| *e > 1);
        let contiguous = last.is_some_and(|axis| axes.contains(&axis));
        let count = axes.iter().fold(1usize, |n, axis| n.saturating_mul(extents[*axis]));
        let block = if count > self.reduction_block as usize { self.reduction_block } else { 0 };
        Tree { lanes: if contiguous { self.reduction_lanes } else { 1 }, block }
    }
}
