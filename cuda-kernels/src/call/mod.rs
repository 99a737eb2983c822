//! Kernels of our own for calls: what is not a nest.
//!
//! A call becomes one stage or a few, whose arguments are the call's operands in order and its result last, and parts of a workspace. Extents
//! are constants of the code. There are no atomic operations on floats, and the parts of a sum depend on extents alone, so that two runs give the
//! same bits, on every GPU of an architecture and on every architecture of the same kernels.

mod convolution;
mod draft;
mod gemm;
mod index;
mod number;
mod product;

use crate::architecture::Architecture;
use crate::stage::Compiled;
use wengert_core::call::Call;
use wengert_core::{Diagnostic, Result, Target};

/// The kernels of a call. `in_place` is the operand, one of [`Call::in_place`], whose memory is the result's.
///
/// Errors: the call breaks a rule ([`Call::verify`]), an extent is beyond 2³¹, or there is no kernel for it.
pub fn compile(call: &Call, architecture: Architecture, in_place: Option<usize>) -> Result<Compiled> {
    let compile = || {
        call.verify()?;
        if let Some(operand) = in_place.filter(|n| !call.in_place().contains(n)) {
            return Err(Diagnostic::new(format!("the result cannot be in the place of operand {operand}")));
        }
        let workspace = Target::cuda(&architecture.name()).workspace(call);
        let compiled = match call {
            Call::Gemm(g) => product::compile(&gemm::product(g, in_place, workspace), architecture)?,
            Call::Convolution(c) => product::compile(&convolution::product(c, workspace)?, architecture)?,
            Call::ScatterAdd(_) => {
                return Err(Diagnostic::new("there is no kernel for it"));
            }
        };
        assert!(compiled.workspace <= workspace, "stages keep within the workspace of `{}`", call.name());
        Ok(compiled)
    };
    compile().map_err(|e: Diagnostic| e.context(format!("call `{}`", call.name())))
}
