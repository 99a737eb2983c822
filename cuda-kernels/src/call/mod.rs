//! Kernels for calls. A call is a kernel that is not generated from a nest.
//!
//! A call becomes one or more stages. Their arguments are the call's operands in order, its
//! result, and parts of a workspace. Extents are constants of the code. There are no atomic
//! operations on floats, and the parts of a sum depend on extents alone. So two runs give the
//! same bits, on every GPU of an architecture and on every architecture of the same kernels.

mod attention;
mod convolution;
mod draft;
mod gemm;
mod index;
mod number;
mod product;
mod scatter;
mod sort;

use crate::architecture::Architecture;
use crate::nest::Follower;
use crate::stage::Compiled;
use product::Product;
use wengert_core::call::Call;
use wengert_core::{Diagnostic, Result, Target};

/// Options of a compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'f> {
    /// The operand, one of [`Call::in_place`], that the result aliases.
    pub in_place: Option<usize>,
    /// Whether products of f32 may round their operands to tf32 (10 bits of mantissa), which
    /// tensor cores multiply. Otherwise f32 keeps its precision.
    pub tf32: bool,
    /// Alignment of every argument's address: a power of two, at least the size of its elements.
    pub alignment: u64,
    /// The nest that runs on the result's elements, if the call [has tiles](Call::has_tiles). Its
    /// arguments come after those of the call.
    pub follower: Option<&'f Follower>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let alignment = product::ALIGNMENT as u64;
        Options { in_place: None, tf32: false, alignment, follower: None }
    }
}

/// The kernels of a call. `in_place` is the operand, one of [`Call::in_place`], that the result
/// aliases.
///
/// Errors: the call breaks a rule ([`Call::verify`]), an extent is beyond 2³¹, or there is no
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
    let Options { in_place, tf32, alignment, follower } = options;
    let alignment =
        usize::try_from(alignment).unwrap_or(product::ALIGNMENT).min(product::ALIGNMENT);
    let compile = || {
        call.verify()?;
        if let Some(operand) = in_place.filter(|n| !call.in_place().contains(n)) {
            return Err(Diagnostic::new(format!(
                "the result cannot be in the place of operand {operand}"
            )));
        }
        assert!(follower.is_none() || call.has_tiles(), "a nest follows a call that has tiles");
        let workspace = Target::cuda(&architecture.name()).workspace(call);
        let compiled = match call {
            Call::Gemm(g) => {
                let product = gemm::product(g, in_place, workspace);
                let product = Product { tf32, follower: follower.cloned(), ..product };
                product::compile(&product.aligned(alignment), architecture)?
            }
            Call::Convolution(c) => {
                let product = convolution::product(c, workspace)?;
                product::compile(&Product { tf32, ..product }.aligned(alignment), architecture)?
            }
            Call::Scatter(s) => scatter::compile(s, in_place, alignment)?,
            Call::Sort(s) => sort::sort(s)?,
            Call::TopK(t) => sort::top_k(t)?,
            Call::Attention(a) => {
                let target = Target::cuda(&architecture.name());
                if !target.claims(call) {
                    return Err(Diagnostic::new(format!(
                        "heads of width {} are too wide for it",
                        a.width
                    ))
                    .help(format!("compile for `{}`, which decomposes it", target.name)));
                }
                attention::compile(a, alignment)?
            }
        };
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
