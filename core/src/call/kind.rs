//! Kinds of calls, for the claims of targets.

use super::{Call, ScatterKind};

/// The kind of a call, without its extents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// [`Call::Gemm`]
    Gemm,
    /// [`Call::Convolution`]
    Convolution,
    /// [`Call::Scatter`] of that kind.
    Scatter(ScatterKind),
    /// [`Call::Sort`]
    Sort,
    /// [`Call::TopK`]
    TopK,
    /// [`Call::Attention`]
    Attention,
}

impl CallKind {
    /// Every kind.
    pub const ALL: [CallKind; 10] = [
        CallKind::Gemm,
        CallKind::Convolution,
        CallKind::Scatter(ScatterKind::Add),
        CallKind::Scatter(ScatterKind::Mul),
        CallKind::Scatter(ScatterKind::Min),
        CallKind::Scatter(ScatterKind::Max),
        CallKind::Scatter(ScatterKind::Replace),
        CallKind::Sort,
        CallKind::TopK,
        CallKind::Attention,
    ];

    /// The kind of a call.
    pub const fn of(call: &Call) -> Self {
        match call {
            Call::Gemm(_) => CallKind::Gemm,
            Call::Convolution(_) => CallKind::Convolution,
            Call::Scatter(s) => CallKind::Scatter(s.kind),
            Call::Sort(_) => CallKind::Sort,
            Call::TopK(_) => CallKind::TopK,
            Call::Attention(_) => CallKind::Attention,
        }
    }

    /// Name in text.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Gemm => "gemm",
            CallKind::Convolution => "convolution",
            CallKind::Scatter(kind) => kind.name(),
            CallKind::Sort => "sort",
            CallKind::TopK => "top_k",
            CallKind::Attention => "attention",
        }
    }
}
