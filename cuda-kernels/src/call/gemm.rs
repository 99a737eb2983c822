//! Matrix products as calls: a [`Product`] whose operands have the call's layout.

use super::number::Number;
use super::product::{self, ALIGNMENT, Gather, Out, Product};
use super::{Kernels, Terms};
use crate::stage::Compiled;
use wengert_core::call::{Contract, Gemm};
use wengert_core::{Diagnostic, Result};

impl Kernels for Gemm {
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled> {
        if self.operand.is_float8() && !terms.architecture.multiplies_float8() {
            let architecture = terms.architecture.name();
            return Err(Diagnostic::new(format!(
                "{architecture} does not multiply {}",
                self.operand
            ))
            .help("compile for sm_89 or later, or convert the operands to bf16"));
        }
        product::compile(&product(self, terms.in_place, terms.workspace), terms)
    }

    fn workspace(&self) -> u64 {
        product::workspace(self)
    }

    fn library_product(&self) -> Option<&Gemm> {
        Some(self)
    }
}

/// Whether a kernel of this crate that reads the larger operand once, for a few rows of the other,
/// is faster than the library.
pub(crate) fn reads_once(gemm: &Gemm) -> bool {
    product::reads_once(&product(gemm, None, 0))
}

/// [`product::in_warpgroups`] of a GEMM.
#[cfg(test)]
pub(super) fn in_warpgroups(
    gemm: &Gemm,
    terms: &Terms<'_>,
    wide: bool,
) -> Result<Option<Compiled>> {
    product::in_warpgroups(&product(gemm, terms.in_place, terms.workspace), terms, wide)
}

/// The product that computes a GEMM.
fn product(gemm: &Gemm, in_place: Option<usize>, workspace: u64) -> Product {
    let (lhs, rhs) = (&gemm.lhs, &gemm.rhs);
    let [of_lhs, of_rhs] = gemm.factors().map(Number);
    let mut product = Product {
        name: "gemm".into(),
        batch: gemm.batch,
        m: gemm.m,
        n: gemm.n,
        k: gemm.k,
        lhs: Gather::matrix(of_lhs, lhs, [gemm.m, lhs.row], [gemm.k, lhs.column]),
        rhs: Gather::matrix(of_rhs, rhs, [gemm.n, rhs.column], [gemm.k, rhs.row]),
        arguments: [0, 1],
        operand: gemm.operand,
        scales: gemm.scales,
        result: gemm.result,
        out: Out { batch: (gemm.m * gemm.out_row()) as i64, row: gemm.out_row() as i64 },
        addends: gemm.addends,
        follower: None,
        result_argument: gemm.operands().len(),
        in_place,
        workspace,
        tf32: false,
        alignment: ALIGNMENT,
    };
    // Products with one rhs are one product of more rows, if the rows of lhs are contiguous over
    // the batch.
    let row = if gemm.m == 1 { lhs.batch } else { lhs.row };
    if gemm.batch > 1 && rhs.batch == 0 && lhs.batch == gemm.m * row {
        product.m = gemm.batch * gemm.m;
        product.batch = 1;
        product.lhs = Gather::matrix(of_lhs, lhs, [product.m, row], [gemm.k, lhs.column]);
    }
    product
}
