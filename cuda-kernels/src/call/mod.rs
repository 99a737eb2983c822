//! Kernels for calls. A call is a kernel that is not generated from a nest. Each call's type
//! implements [`Kernels`] in its own file or folder, and `kernels!` lists the calls that have
//! kernels here.
//!
//! A call becomes one or more stages. Their arguments are the call's operands in order, its
//! result, and parts of a workspace. Extents are constants of the code. There are no atomic
//! operations on floats, and the parts of a sum depend on extents alone. So two runs give the
//! same bits, on every GPU of an architecture and on every architecture of the same kernels.

mod attention;
pub(crate) mod collective;
mod convolution;
mod draft;
mod gemm;
mod index;
mod number;
mod product;
mod scatter;
mod segment_sum;
mod sort;

use crate::architecture::Architecture;
use crate::nest::Follower;
use crate::stage::Compiled;
use wengert_core::call::{self, Call, Contract, Gemm};
use wengert_core::{Diagnostic, Result};

/// Options of a compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'f> {
    /// The operand, one of [`Contract::in_place`], that the result aliases.
    pub in_place: Option<usize>,
    /// Whether products of f32 may round their operands to tf32 (10 bits of mantissa), which
    /// tensor cores multiply. Otherwise f32 keeps its precision.
    pub tf32: bool,
    /// Alignment of every argument's address: a power of two, at least the size of its elements.
    pub alignment: u64,
    /// The nest that runs on the result's elements, if the call
    /// [has tiles](Contract::has_tiles). Its arguments come after those of the call.
    pub follower: Option<&'f Follower>,
    /// Whether the bits of a row do not depend on the number of rows
    /// ([`wengert_core::Target::batch_invariant`]).
    pub batch_invariant: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let alignment = product::ALIGNMENT as u64;
        Options { in_place: None, tf32: false, alignment, follower: None, batch_invariant: false }
    }
}

/// A call with kernels on GPUs.
trait Kernels {
    /// The kernels. The call is verified.
    ///
    /// Errors: an extent is beyond 2³¹, or there is no kernel for it.
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled>;

    /// Upper bound of the bytes of workspace that the kernels use, known before they are chosen.
    /// Saturates.
    fn workspace(&self) -> u64 {
        0
    }

    /// The product that a library may compute instead of these kernels.
    fn library_product(&self) -> Option<&Gemm> {
        None
    }
}

/// What kernels of a call are compiled for.
struct Terms<'f> {
    architecture: Architecture,
    /// The operand that the result aliases.
    in_place: Option<usize>,
    /// As in [`Options`].
    tf32: bool,
    /// Alignment of every argument's address in bytes, at most [`product::ALIGNMENT`].
    alignment: usize,
    /// Bytes of workspace that a plan reserves.
    workspace: u64,
    /// As in [`Options`].
    follower: Option<&'f Follower>,
    /// As in [`Options`].
    batch_invariant: bool,
}

macro_rules! kernels {
    ($($call:ident,)*) => {
        /// Names of the calls that have kernels on GPUs.
        pub fn claims() -> Vec<&'static str> {
            [$(call::$call::names()),*].concat()
        }

        fn kernels(call: &Call) -> Option<&dyn Kernels> {
            match call {
                $(Call::$call(call) => Some(call),)*
                #[allow(unreachable_patterns, reason = "the list may have every call")]
                _ => None,
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

/// Upper bound of the bytes of workspace of a call, known before its kernels are chosen.
/// Saturates.
pub fn workspace(call: &Call) -> u64 {
    kernels(call).map_or(0, |kernels| kernels.workspace())
}

/// The product that a library may compute instead of the kernels of a call.
pub(crate) fn library_product(call: &Call) -> Option<&Gemm> {
    kernels(call)?.library_product()
}

pub(crate) use gemm::reads_once;

/// The kernels of a call. `in_place` is the operand, one of [`Contract::in_place`], that the result
/// aliases.
///
/// Errors: the call breaks a rule ([`Contract::verify`]), an extent is beyond 2³¹, or there is no
/// kernel for it.
pub fn compile(
    call: &Call,
    architecture: Architecture,
    in_place: Option<usize>,
) -> Result<Compiled> {
    compile_with(call, architecture, Options { in_place, ..Options::default() })
}

/// [`compile`] with options.
pub fn compile_with(
    call: &Call,
    architecture: Architecture,
    options: Options<'_>,
) -> Result<Compiled> {
    let Options { in_place, tf32, alignment, follower, batch_invariant } = options;
    let alignment =
        usize::try_from(alignment).unwrap_or(product::ALIGNMENT).min(product::ALIGNMENT);
    let compile = || {
        call.verify()?;
        if let Some(operand) = in_place.filter(|n| !call.in_place().contains(n)) {
            return Err(Diagnostic::new(format!(
                "the result cannot be in the place of operand {operand}"
            )));
        }
        let kernels =
            kernels(call).ok_or_else(|| Diagnostic::new("GPUs have no kernels for it"))?;
        let workspace = kernels.workspace();
        assert!(follower.is_none() || call.has_tiles(), "a nest follows a call that has tiles");
        let terms =
            Terms { architecture, in_place, tf32, alignment, workspace, follower, batch_invariant };
        let compiled = kernels.compile(&terms)?;
        assert!(
            compiled.workspace <= workspace,
            "stages keep within the workspace of `{}`",
            call.name()
        );
        Ok(compiled)
    };
    compile().map_err(|e: Diagnostic| e.context(format!("call `{}`", call.name())))
}

#[cfg(test)]
mod tests;
